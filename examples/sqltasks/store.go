// Package sqltasks keeps tasks in an SQL database, so that every node of a server knows them
// and they outlive its processes. It is an example of a server.TaskStore of your own. Copy it
// and change it.
package sqltasks

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
)

// Schema creates the table of a Store. It is one statement for each element.
//
// Id and owner are hexadecimal, because a column of text would compare them by the rules of
// a language. Created and expires are nanoseconds since 1970. Record is JSON. In MySQL, make
// it MEDIUMTEXT.
var Schema = [...]string{
	`CREATE TABLE tasks (
		id      VARCHAR(200) PRIMARY KEY,
		owner   CHAR(64)     NOT NULL,
		created BIGINT       NOT NULL,
		expires BIGINT       NOT NULL,
		record  TEXT         NOT NULL
	)`,
	`CREATE INDEX tasks_of_owner ON tasks (owner, created, id)`,
}

// A Store keeps tasks in the table of Schema.
type Store struct {
	DB *sql.DB

	// Dollar says that the parameters of a statement are $1, $2 and so on, as in PostgreSQL.
	// Otherwise they are question marks, as in SQLite and MySQL.
	Dollar bool

	// Max is how many tasks there may be; 0 means 10,000. Saves at the same time may exceed it
	// by their number.
	Max int
}

var _ server.TaskStore = (*Store)(nil)

// Save implements server.TaskStore.
func (s *Store) Save(ctx context.Context, r *server.TaskRecord) error {
	record, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("sqltasks: the task %q: %w", r.Task.TaskID, err)
	}
	id := idColumn(r.Task.TaskID)
	if replaced, err := s.replace(ctx, id, record); replaced || err != nil {
		return err
	}
	limit := s.Max
	if limit == 0 {
		limit = 10_000
	}
	var count int
	if err := s.row(ctx, `SELECT COUNT(*) FROM tasks WHERE expires > ?`, now()).Scan(&count); err != nil {
		return fmt.Errorf("sqltasks: counting: %w", err)
	}
	if count >= limit {
		return fmt.Errorf("%w: it has %d tasks", server.ErrTaskStoreFull, count)
	}
	_, failed := s.exec(ctx, `INSERT INTO tasks (id, owner, created, expires, record) VALUES (?, ?, ?, ?, ?)`,
		id, ownerColumn(r.Owner), r.Created.UnixNano(), r.Expires.UnixNano(), string(record))
	if failed == nil {
		return nil
	}
	// Another one may have inserted it meanwhile. There is no portable error for that.
	if replaced, err := s.replace(ctx, id, record); replaced || err != nil {
		return err
	}
	return fmt.Errorf("sqltasks: inserting: %w", failed)
}

// replace replaces a record, and reports whether there is one.
func (s *Store) replace(ctx context.Context, id string, record []byte) (bool, error) {
	var one int
	switch err := s.row(ctx, `SELECT 1 FROM tasks WHERE id = ?`, id).Scan(&one); {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("sqltasks: looking up: %w", err)
	}
	if _, err := s.exec(ctx, `UPDATE tasks SET record = ? WHERE id = ?`, string(record), id); err != nil {
		return false, fmt.Errorf("sqltasks: replacing: %w", err)
	}
	return true, nil
}

// Load implements server.TaskStore.
func (s *Store) Load(ctx context.Context, id string) (*server.TaskRecord, error) {
	var record []byte
	err := s.row(ctx, `SELECT record FROM tasks WHERE id = ? AND expires > ?`, idColumn(id), now()).Scan(&record)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, server.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("sqltasks: loading: %w", err)
	}
	return decode(record)
}

// List implements server.TaskStore.
func (s *Store) List(ctx context.Context, owner, after string, limit int) ([]*server.TaskRecord, error) {
	of, created, id := ownerColumn(owner), int64(-1<<63), ""
	if after != "" {
		id = idColumn(after)
		err := s.row(ctx, `SELECT created FROM tasks WHERE id = ? AND owner = ? AND expires > ?`, id, of, now()).Scan(&created)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, server.ErrNotFound
		}
		if err != nil {
			return nil, fmt.Errorf("sqltasks: finding the page: %w", err)
		}
	}
	rows, err := s.DB.QueryContext(ctx, s.text(`SELECT record FROM tasks
		WHERE owner = ? AND expires > ? AND (created > ? OR created = ? AND id > ?)
		ORDER BY created, id LIMIT ?`), of, now(), created, created, id, limit)
	if err != nil {
		return nil, fmt.Errorf("sqltasks: listing: %w", err)
	}
	defer rows.Close()
	var all []*server.TaskRecord
	for rows.Next() {
		var record []byte
		if err := rows.Scan(&record); err != nil {
			return nil, fmt.Errorf("sqltasks: listing: %w", err)
		}
		r, err := decode(record)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqltasks: listing: %w", err)
	}
	return all, nil
}

// Delete implements server.TaskStore.
func (s *Store) Delete(ctx context.Context, id string) error {
	if _, err := s.exec(ctx, `DELETE FROM tasks WHERE id = ?`, idColumn(id)); err != nil {
		return fmt.Errorf("sqltasks: deleting: %w", err)
	}
	return nil
}

// Sweep deletes tasks that have expired. Call it from time to time, on any node.
func (s *Store) Sweep(ctx context.Context) error {
	if _, err := s.exec(ctx, `DELETE FROM tasks WHERE expires <= ?`, now()); err != nil {
		return fmt.Errorf("sqltasks: sweeping: %w", err)
	}
	return nil
}

func (s *Store) row(ctx context.Context, query string, values ...any) *sql.Row {
	return s.DB.QueryRowContext(ctx, s.text(query), values...)
}

func (s *Store) exec(ctx context.Context, statement string, values ...any) (sql.Result, error) {
	return s.DB.ExecContext(ctx, s.text(statement), values...)
}

// text returns a statement with the parameters that the database understands.
func (s *Store) text(statement string) string {
	if !s.Dollar {
		return statement
	}
	var text strings.Builder
	for n, part := range strings.Split(statement, "?") {
		if n > 0 {
			fmt.Fprintf(&text, "$%d", n)
		}
		text.WriteString(part)
	}
	return text.String()
}

func now() int64 { return time.Now().UnixNano() }

// idColumn keeps the order of ids.
func idColumn(id string) string { return hex.EncodeToString([]byte(id)) }

// ownerColumn has a fixed length, however long a name is.
func ownerColumn(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:])
}

func decode(record []byte) (*server.TaskRecord, error) {
	r := new(server.TaskRecord)
	if err := json.Unmarshal(record, r); err != nil {
		return nil, fmt.Errorf("sqltasks: a record of another version: %w", err)
	}
	return r, nil
}
