package stores_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
)

// Guarantees: G-0075.8
func TestTaskStoreContract(t *testing.T) {
	stores.TaskStoreContract(t, func(*testing.T) stores.Tasks {
		m := &server.MemoryTaskStore{MaxTasks: 8}
		return stores.Tasks{A: m, B: m, MaxTasks: 8}
	}, proptest.ContractOptions{})
}

// brokenTasks is a MemoryTaskStore that is broken in one way.
type brokenTasks struct {
	server.MemoryTaskStore
	flaws taskFlaws
	given map[string]*server.TaskRecord // with flaws.shares: what Save was given
}

// taskFlaws are ways to break a store of tasks.
type taskFlaws struct {
	record      func(*server.TaskRecord) // changes what is saved
	key         func(string) string      // what the store takes for the id
	owner       func(string) string      // what the store takes for the owner
	keepDeleted bool
	firstStays  bool // a task is not replaced
	shares      bool // Load returns what Save was given
	unordered   bool // lists are ordered by id alone
	noLimit     bool // List returns all tasks
	inclusive   bool // a page begins with the task that it should follow
	lenient     bool // List begins anew if there is no such task
	forgets     bool // what has expired is forgotten with everything else
	otherError  bool // the error for an unknown id is another one
	fullSilent  bool // a full store drops new tasks
	fullAlways  bool // a full store replaces no task
}

func (s *brokenTasks) id(id string) string {
	if s.flaws.key != nil {
		return s.flaws.key(id)
	}
	return id
}

func (s *brokenTasks) of(owner string) string {
	if s.flaws.owner != nil {
		return s.flaws.owner(owner)
	}
	return owner
}

func (s *brokenTasks) Save(ctx context.Context, r *server.TaskRecord) error {
	kept := *r
	kept.Task.TaskID, kept.Owner = s.id(r.Task.TaskID), s.of(r.Owner)
	if s.flaws.record != nil {
		s.flaws.record(&kept)
	}
	before, err := s.MemoryTaskStore.Load(ctx, kept.Task.TaskID)
	switch {
	case err == nil && s.flaws.firstStays:
		return nil
	case err == nil && s.flaws.fullAlways && before.Task.Status != kept.Task.Status && s.full(ctx):
		return server.ErrTaskStoreFull
	case s.flaws.forgets && !time.Now().Before(kept.Expires):
		all, _ := s.MemoryTaskStore.List(ctx, kept.Owner, "", 100)
		for _, one := range all {
			_ = s.MemoryTaskStore.Delete(ctx, one.Task.TaskID)
		}
	}
	if s.flaws.shares {
		s.given[r.Task.TaskID] = r
	}
	err = s.MemoryTaskStore.Save(ctx, &kept)
	if s.flaws.fullSilent {
		return nil
	}
	return err
}

// full reports whether the store has no room for another task.
func (s *brokenTasks) full(ctx context.Context) bool {
	err := s.MemoryTaskStore.Save(ctx, &server.TaskRecord{Owner: "probe", Expires: time.Now().Add(time.Hour)})
	_ = s.MemoryTaskStore.Delete(ctx, "")
	return err != nil
}

func (s *brokenTasks) Load(ctx context.Context, id string) (*server.TaskRecord, error) {
	r, err := s.MemoryTaskStore.Load(ctx, s.id(id))
	switch {
	case err != nil && s.flaws.otherError:
		return nil, context.DeadlineExceeded
	case err == nil && s.flaws.shares:
		return s.given[id], nil
	case err == nil && s.flaws.key != nil:
		r.Task.TaskID = id
	}
	return r, err
}

func (s *brokenTasks) Delete(ctx context.Context, id string) error {
	if s.flaws.keepDeleted {
		return nil
	}
	return s.MemoryTaskStore.Delete(ctx, s.id(id))
}

func (s *brokenTasks) List(ctx context.Context, owner, after string, limit int) ([]*server.TaskRecord, error) {
	begin := after
	if s.flaws.inclusive {
		begin = ""
	}
	all, err := s.MemoryTaskStore.List(ctx, s.of(owner), begin, 1000)
	switch {
	case err != nil && s.flaws.lenient:
		all, err = s.MemoryTaskStore.List(ctx, s.of(owner), "", 1000)
	case s.flaws.inclusive && after != "":
		at := slices.IndexFunc(all, func(r *server.TaskRecord) bool { return r.Task.TaskID == after })
		if at < 0 {
			return nil, server.ErrNotFound
		}
		all = all[at:]
	}
	if s.flaws.unordered {
		slices.SortFunc(all, func(a, b *server.TaskRecord) int { return strings.Compare(a.Task.TaskID, b.Task.TaskID) })
	}
	if !s.flaws.noLimit {
		all = all[:min(limit, len(all))]
	}
	return all, err
}

// The suite fails on a store that breaks the contract.
//
// Guarantees: G-0075.8
func TestTaskStoreContractSeesBreaches(t *testing.T) {
	with := func(flaws taskFlaws) func(*testing.T) {
		return func(t *testing.T) {
			stores.TaskStoreContract(t, func(*testing.T) stores.Tasks {
				s := &brokenTasks{MemoryTaskStore: server.MemoryTaskStore{MaxTasks: 8}, flaws: flaws, given: map[string]*server.TaskRecord{}}
				return stores.Tasks{A: s, B: s, MaxTasks: 8}
			}, proptest.ContractOptions{Guard: 5 * time.Second})
		}
	}
	wantCaught(t, []violation{
		{"the node is not saved", with(taskFlaws{record: func(r *server.TaskRecord) { r.Node = "" }}), "and what was saved is"},
		{"the client is not saved", with(taskFlaws{record: func(r *server.TaskRecord) { r.Client = r.Owner }}), "and what was saved is"},
		{"times are rounded", with(taskFlaws{record: func(r *server.TaskRecord) { r.Created = r.Created.Truncate(time.Microsecond) }}), "and what was saved is"},
		{"questions are not saved", with(taskFlaws{record: func(r *server.TaskRecord) { r.Task.InputRequests = nil }}), "and what was saved is"},
		{"numbers are rounded", with(taskFlaws{record: func(r *server.TaskRecord) {
			r.Task.FinalResult = bytes.ReplaceAll(r.Task.FinalResult, []byte("12345678901234567890"), []byte("12345678901234567000"))
		}}), "and what was saved is"},
		{"case is ignored in ids", with(taskFlaws{key: strings.ToLower}), "which does not exist"},
		{"ids end at a NUL", with(taskFlaws{key: func(id string) string { before, _, _ := strings.Cut(id, "\x00"); return before }}), "which does not exist"},
		{"owners are trimmed", with(taskFlaws{owner: strings.TrimSpace}), "tasks are of"},
		{"a deleted task is kept", with(taskFlaws{keepDeleted: true}), "which does not exist"},
		{"a task is not replaced", with(taskFlaws{firstStays: true}), "and what was saved is"},
		{"the caller's record is kept", with(taskFlaws{shares: true}), "and what was saved is"},
		{"lists have another order", with(taskFlaws{unordered: true}), "want"},
		{"the limit is ignored", with(taskFlaws{noLimit: true}), "at most 1, returned"},
		{"a page overlaps the one before", with(taskFlaws{inclusive: true}), "after"},
		{"an unknown cursor begins anew", with(taskFlaws{lenient: true}), "which is no task of the owner"},
		{"tasks are forgotten too early", with(taskFlaws{forgets: true}), "Load returned none, not found"},
		{"an unknown task is another error", with(taskFlaws{otherError: true}), "which does not exist"},
		{"a full store drops tasks", with(taskFlaws{fullSilent: true}), "Save to a full store got"},
		{"a full store replaces nothing", with(taskFlaws{fullAlways: true}), `saving the task "a.0" got`},
		{"two servers do not share", func(t *testing.T) {
			stores.TaskStoreContract(t, func(*testing.T) stores.Tasks {
				return stores.Tasks{A: new(server.MemoryTaskStore), B: new(server.MemoryTaskStore)}
			}, proptest.ContractOptions{Guard: 5 * time.Second})
		}, "and what was saved is"},
	})
}
