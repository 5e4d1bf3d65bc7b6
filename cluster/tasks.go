package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

const (
	taskBucket = "task"
	sealTask   = "task"

	recordPrefix = "t."
	indexPrefix  = "o."

	maxTaskBytes  = 1 << 30 // of all records
	maxTasks      = 4_000   // so many records have room, of MaxMessage each and with what the Engine needs for them
	sweepInterval = 10 * time.Minute
)

// Tasks returns a server.TaskStore that all nodes share. It keeps 4,000 tasks, of 256 KiB at most: so much
// the Engine needs 1 GiB for, and a task that is there always has room for its result. Clients share
// them: one may have one, and as many as the square of the free part is of all. One alone gets 38 %, and N
// greedy ones leave 1/(N+1). What nodes save at the same time they do not see of each other, so
// there may be as many more as saves of new tasks are under way. Beyond that, Save returns
// server.ErrTaskStoreFull, and says whether the store is full or the client has its share. While the
// Engine cannot be reached, its methods fail.
//
// Each node deletes tasks that have expired, of all nodes, every ten minutes from the first use
// of the store on.
func (n *Node) Tasks() server.TaskStore {
	return &tasks{node: n, bucket: n.lateBucket(BucketOptions{Name: taskBucket, MaxBytes: maxTaskBytes})}
}

// tasks keeps records under "t.<hash of the id>", and for each an empty value whose key says
// what List has to know: "o.<hash of the owner>.<hash of the client>.<created>.<expires>.<hash of
// the id>". Both times are in nanoseconds.
type tasks struct {
	node   *Node
	bucket *lateBucket
	swept  sweeping
}

// A taskRecord is a stored task.
type taskRecord struct {
	Version int                   `json:"v"`
	Task    protocol.DetailedTask `json:"task"`
	Tool    string                `json:"tool"`
	Owner   string                `json:"owner,omitempty"`
	Client  string                `json:"client,omitempty"`
	Node    string                `json:"node,omitempty"`
	Created time.Time             `json:"created"`
	Expires time.Time             `json:"expires"`
}

// Save implements server.TaskStore.
func (t *tasks) Save(ctx context.Context, r *server.TaskRecord) error {
	bucket, err := t.open(ctx)
	if err != nil {
		return err
	}
	id := t.node.hashed(r.Task.TaskID)
	plain, err := json.Marshal(taskRecord{recordVersion, r.Task, r.Tool, r.Owner, r.Client, r.Node, r.Created.UTC(), r.Expires.UTC()})
	if err != nil {
		return fmt.Errorf("cluster: task %.80q: %w", r.Task.TaskID, err)
	}
	sealed := t.node.seal(sealTask, taskBucket+"/"+id, plain)
	if len(sealed) > MaxMessage {
		return fmt.Errorf("%w: the task has %d bytes, more than %d", server.ErrTaskStoreFull, len(sealed), MaxMessage)
	}
	switch _, err := bucket.Get(ctx, recordPrefix+id); {
	case errors.Is(err, ErrNotFound): // it is new, or hardly older than this
		if err := t.addIndex(ctx, bucket, r, id); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	_, err = bucket.Put(ctx, recordPrefix+id, sealed)
	return full(err)
}

func full(err error) error {
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("%w: %w", server.ErrTaskStoreFull, err)
	}
	return err
}

// addIndex adds the key for List, if the client has room for one more task.
func (t *tasks) addIndex(ctx context.Context, bucket Bucket, r *server.TaskRecord, id string) error {
	of := indexPrefix + t.node.hashed(r.Owner) + "." + t.node.hashed(r.Client) + "."
	all, own, now := 0, 0, time.Now()
	for key, err := range bucket.Keys(ctx, indexPrefix) {
		if err != nil {
			return err
		}
		if e, ok := parseIndex(key); ok && e.expires > now.UnixNano() && e.id != id {
			if all++; strings.HasPrefix(key, of) {
				own++
			}
		}
	}
	free := maxTasks - all - 1
	switch {
	case free < 0:
		return fmt.Errorf("%w: it has %d tasks, and there is no room for more", server.ErrTaskStoreFull, all)
	case own > 0 && own+1 > free*free/maxTasks: // as in package share
		return fmt.Errorf("%w: it has %d tasks, and this client has its share of them", server.ErrTaskStoreFull, all)
	}
	_, err := bucket.Put(ctx, fmt.Sprintf("%s%019d.%019d.%s", of, r.Created.UnixNano(), r.Expires.UnixNano(), id), nil)
	return full(err)
}

// An indexEntry is a key for List.
type indexEntry struct {
	key              string
	created, expires int64
	id               string // the hash of the id
}

func parseIndex(key string) (indexEntry, bool) {
	parts := strings.Split(key, ".")
	if len(parts) != 6 || parts[0]+"." != indexPrefix {
		return indexEntry{}, false
	}
	created, err := strconv.ParseInt(parts[3], 10, 64)
	expires, err2 := strconv.ParseInt(parts[4], 10, 64)
	return indexEntry{key, created, expires, parts[5]}, err == nil && err2 == nil
}

// Load implements server.TaskStore.
func (t *tasks) Load(ctx context.Context, id string) (*server.TaskRecord, error) {
	bucket, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	return t.load(ctx, bucket, t.node.hashed(id))
}

func (t *tasks) load(ctx context.Context, bucket Bucket, id string) (*server.TaskRecord, error) {
	entry, err := bucket.Get(ctx, recordPrefix+id)
	if errors.Is(err, ErrNotFound) {
		return nil, server.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	plain, err := t.node.open(sealTask, taskBucket+"/"+id, entry.Value)
	if err != nil {
		return nil, server.ErrNotFound // it is counted
	}
	var r taskRecord
	if err := decodeRecord(plain, &r); err != nil {
		t.node.sealer.refused.Add(1)
		return nil, server.ErrNotFound
	}
	if !time.Now().Before(r.Expires) {
		return nil, server.ErrNotFound
	}
	return &server.TaskRecord{Task: r.Task, Tool: r.Tool, Owner: r.Owner, Client: r.Client, Node: r.Node, Created: r.Created, Expires: r.Expires}, nil
}

// List implements server.TaskStore.
func (t *tasks) List(ctx context.Context, owner, after string, limit int) ([]*server.TaskRecord, error) {
	bucket, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	var entries []indexEntry
	for key, err := range bucket.Keys(ctx, indexPrefix+t.node.hashed(owner)+".") {
		if err != nil {
			return nil, err
		}
		if e, ok := parseIndex(key); ok {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b indexEntry) int { return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.id, b.id)) })
	if after != "" {
		last := slices.IndexFunc(entries, func(e indexEntry) bool { return e.id == t.node.hashed(after) })
		if last < 0 {
			return nil, server.ErrNotFound
		}
		if _, err := t.load(ctx, bucket, entries[last].id); err != nil {
			return nil, err
		}
		first := slices.IndexFunc(entries, func(e indexEntry) bool { return e.created == entries[last].created })
		afterAt := entries[last].created
		return t.page(ctx, bucket, entries[first:], limit, func(r *server.TaskRecord) bool {
			return r.Created.UnixNano() > afterAt || r.Task.TaskID > after
		})
	}
	return t.page(ctx, bucket, entries, limit, func(*server.TaskRecord) bool { return true })
}

// page loads tasks until there are enough, and all that were created at the same time as the last
// of them: only the tasks themselves say in which order those come.
func (t *tasks) page(ctx context.Context, bucket Bucket, entries []indexEntry, limit int, wanted func(*server.TaskRecord) bool) (page []*server.TaskRecord, err error) {
	for i, e := range entries {
		if len(page) >= limit && e.created != entries[i-1].created {
			break
		}
		r, err := t.load(ctx, bucket, e.id)
		switch {
		case errors.Is(err, server.ErrNotFound):
		case err != nil:
			return nil, err
		case wanted(r):
			page = append(page, r)
		}
	}
	slices.SortFunc(page, func(a, b *server.TaskRecord) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Task.TaskID, b.Task.TaskID))
	})
	return page[:min(limit, len(page))], nil
}

// Delete implements server.TaskStore.
func (t *tasks) Delete(ctx context.Context, id string) error {
	bucket, err := t.open(ctx)
	if err != nil {
		return err
	}
	r, err := t.load(ctx, bucket, t.node.hashed(id))
	if errors.Is(err, server.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.remove(ctx, bucket, indexEntry{
		key:     fmt.Sprintf("%s%s.%s.%019d.%019d.%s", indexPrefix, t.node.hashed(r.Owner), t.node.hashed(r.Client), r.Created.UnixNano(), r.Expires.UnixNano(), t.node.hashed(id)),
		id:      t.node.hashed(id),
		created: r.Created.UnixNano(),
	})
}

// remove deletes a record and then its key for List, whatever their revisions.
func (t *tasks) remove(ctx context.Context, bucket Bucket, e indexEntry) error {
	for _, key := range []string{recordPrefix + e.id, e.key} {
		for {
			entry, err := bucket.Get(ctx, key)
			if errors.Is(err, ErrNotFound) {
				break
			}
			if err != nil {
				return err
			}
			err = bucket.Delete(ctx, key, entry.Revision)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrConflict) {
				return err
			}
			if !tryLater(ctx, nil) { // the view was old, or somebody has just saved it
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// open opens the bucket, and begins to sweep it.
func (t *tasks) open(ctx context.Context) (Bucket, error) {
	bucket, err := t.bucket.open(ctx)
	if err == nil {
		t.swept.once(t.node, func(ctx context.Context) { t.sweep(ctx, bucket) })
	}
	return bucket, err
}

// sweep deletes what has expired. What it cannot delete now, it tries again the next time.
func (t *tasks) sweep(ctx context.Context, bucket Bucket) {
	now := time.Now().UnixNano()
	for key, err := range bucket.Keys(ctx, indexPrefix) {
		if err != nil {
			return
		}
		if e, ok := parseIndex(key); ok && e.expires < now {
			if t.remove(ctx, bucket, e) != nil {
				return
			}
		}
	}
}
