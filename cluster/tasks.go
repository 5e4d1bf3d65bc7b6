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
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
)

const (
	taskBucket = "task"
	sealTask   = "task"

	recordPrefix = "t."
	indexPrefix  = "o."

	sweepInterval = 10 * time.Minute
)

// Tasks returns a server.TaskStore that all nodes share. It has Options.MaxTasks places. A task takes one, and one
// more for each further 32 KiB; it has at most 256 KiB. Clients share the places: one may have one, and as many as
// the square of the free part is of all. One alone gets 38 %, and N greedy ones leave 1/(N+1). A /48 of IPv6 counts
// as one client; one of its clients may have a quarter of that, and four places are for them in any case. Beyond
// that, Save returns server.ErrTaskStoreFull, and says whether the store is full or the client has its share. A task
// that is there may grow as long as an eighth is free.
//
// Each node that uses the store watches the keys of all tasks, so it may count too few: by what other nodes
// have saved since the watch has shown their last change. While the Engine cannot be reached, the methods of the
// store fail.
//
// Each node deletes tasks that have expired, of all nodes, every ten minutes from the first use
// of the store on.
func (n *Node) Tasks() server.TaskStore {
	most := n.options.MaxTasks
	bytes := int64(most) * defaultTaskBytes / defaultTasks
	return &tasks{node: n, bucket: n.lateBucket(BucketOptions{Name: taskBucket, MaxBytes: bytes}), places: newTaskPlaces(most)}
}

// tasks keeps records under "t.<hash of the id>", and for each a key that says what List has to know: "o.<hash of
// the owner>.<hash of the client>.<created>.<expires>.<hash of the id>". Both times are in nanoseconds. If the client
// is an address with a /48 of IPv6, "-<hash of that>" follows its hash. The value says how many places the task takes.
type tasks struct {
	node   *Node
	bucket *lateBucket
	swept  sweeping
	places *taskPlaces
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
	_, err = bucket.Get(ctx, recordPrefix+id)
	isNew := errors.Is(err, ErrNotFound) // or hardly older than this
	if err != nil && !isNew {
		return err
	}
	e, _ := parseIndex(t.indexKey(r, id))
	added := false
	if n := placesOf(len(sealed)); isNew || n > 1 {
		if added, err = t.addIndex(ctx, bucket, e, n, !isNew); err != nil {
			return err
		}
	}
	_, err = bucket.Put(ctx, recordPrefix+id, sealed)
	if isNew && added && errors.Is(err, ErrFull) {
		_ = t.remove(ctx, bucket, e) // otherwise the sweep removes it
	}
	return full(err)
}

func full(err error) error {
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("%w: %w", server.ErrTaskStoreFull, err)
	}
	return err
}

// addIndex claims places for a task, and adds its key for List, or says there that it takes more than before. It reports
// whether this node did not know of the task.
func (t *tasks) addIndex(ctx context.Context, bucket Bucket, e indexEntry, n int, grows bool) (added bool, err error) {
	if err := t.places.follow(ctx, t.node, bucket); err != nil {
		return false, err
	}
	before, claimed, err := t.places.claim(e, n, grows, time.Now())
	if err != nil || grows && !claimed {
		return false, err
	}
	_, err = bucket.Put(ctx, e.key, []byte(strconv.Itoa(n)))
	if errors.Is(err, ErrFull) { // after another error it may be there, or is forgotten soon
		t.places.set(e, before)
	}
	return before.places == 0, full(err)
}

// indexKey returns the key for List of a task.
func (t *tasks) indexKey(r *server.TaskRecord, id string) string {
	client := t.node.hashed(r.Client)
	if wide := (share.Client{Identity: r.Owner, Network: r.Client}).Wide(); wide.IsValid() {
		client += "-" + t.node.hashed(wide.String())
	}
	return fmt.Sprintf("%s%s.%s.%019d.%019d.%s", indexPrefix, t.node.hashed(r.Owner), client, r.Created.UnixNano(), r.Expires.UnixNano(), id)
}

// An indexEntry is a key for List.
type indexEntry struct {
	key              string
	client, network  string // whose places the task takes: hashes of owner and client, and of the client's /48 or ""
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
	_, network, _ := strings.Cut(parts[2], "-")
	client := key[len(indexPrefix) : len(indexPrefix)+len(parts[1])+1+len(parts[2])]
	return indexEntry{key, client, network, created, expires, parts[5]}, err == nil && err2 == nil
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
	e, _ := parseIndex(t.indexKey(r, t.node.hashed(id)))
	return t.remove(ctx, bucket, e)
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
	t.places.set(e, taskPlace{})
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
