package sqltasks_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/examples/sqltasks"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/protocol"

	_ "github.com/ncruces/go-sqlite3/driver" // SQLite, in pure Go
)

// open opens a database twice, as two processes do.
func open(t *testing.T) (a, b *sql.DB) {
	t.Helper()
	name := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "tasks.db")) + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)&_txlock=immediate"
	both := [2]*sql.DB{}
	for i := range both {
		db, err := sql.Open("sqlite3", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		both[i] = db
	}
	for _, statement := range sqltasks.Schema {
		if _, err := both[0].ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return both[0], both[1]
}

// The two stores write parameters in both ways, which SQLite understands.
//
// Guarantees: G-0075.8
func TestTaskStoreContract(t *testing.T) {
	stores.TaskStoreContract(t, func(t *testing.T) stores.Tasks {
		a, b := open(t)
		return stores.Tasks{A: &sqltasks.Store{DB: a, Max: 8}, B: &sqltasks.Store{DB: b, Max: 8, Dollar: true}, MaxTasks: 8}
	}, proptest.ContractOptions{})
}

// What has expired is neither found nor counted, and is gone after a Sweep. The rest stays.
func TestSweep(t *testing.T) {
	db, _ := open(t)
	s := &sqltasks.Store{DB: db, Max: 1}
	for _, task := range []struct { // the old one first: then there is room for the new one
		id      string
		expires time.Time
	}{{"old", time.Now().Add(-time.Second)}, {"new", time.Now().Add(time.Hour)}} {
		r := &server.TaskRecord{Task: protocol.DetailedTask{Task: protocol.Task{TaskID: task.id}}, Created: time.Now(), Expires: task.expires}
		if err := s.Save(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM tasks`).Scan(&left); err != nil || left != 1 {
		t.Errorf("%d tasks are left, %v, want 1", left, err)
	}
	if r, err := s.Load(t.Context(), "new"); err != nil || r.Task.TaskID != "new" {
		t.Errorf("got %+v, %v, want the task that has not expired", r, err)
	}
}

// A database that fails is no missing task.
func TestAFailureIsNoMissingTask(t *testing.T) {
	db, _ := open(t)
	if _, err := db.ExecContext(t.Context(), `DROP TABLE tasks`); err != nil {
		t.Fatal(err)
	}
	s := &sqltasks.Store{DB: db}
	_, loaded := s.Load(t.Context(), "a.1")
	_, listed := s.List(t.Context(), "", "", 1)
	_, paged := s.List(t.Context(), "", "a.1", 1)
	for what, err := range map[string]error{
		"Load": loaded, "List": listed, "a page": paged, "Delete": s.Delete(t.Context(), "a.1"), "Sweep": s.Sweep(t.Context()),
		"Save": s.Save(t.Context(), new(server.TaskRecord)),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "sqltasks: ") || !strings.Contains(err.Error(), "no such table") {
			t.Errorf("%s: got %v, want the error of the database", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Delete(ctx, "a.1"); err == nil {
		t.Error("a context that has ended: got no error")
	}
}
