package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/tasks"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
)

// ErrTaskStoreFull is returned by a TaskStore that has no room for a task: because it is full, or
// because the client of the task has its share of it; the text of the error says which. The server
// then refuses a call that would become a task. A task that has run, and whose result finds no
// room, fails, and its error says that the result was dropped.
var ErrTaskStoreFull = tasks.ErrStoreFull

// A TaskRecord is a task in a TaskStore. Treat what it points to as read-only.
type TaskRecord struct {
	Task    protocol.DetailedTask
	Tool    string    // the tool that was called
	Owner   string    // the Identity of the Origin that started it; "" if nobody was authenticated
	Client  string    // the client whose limits it counts for: Owner, or else its network address (of IPv6 the first 64 bits)
	Node    string    // Options.Node of the server that runs it
	Created time.Time // when it was created; lists are ordered by this
	Expires time.Time // the store may forget it then
}

// Size returns the approximate size of the record in bytes.
func (r *TaskRecord) Size() int {
	size := 512 + len(r.Task.TaskID) + len(r.Task.StatusMessage) + len(r.Tool) + len(r.Owner) + len(r.Client) + len(r.Node) + len(r.Task.FinalResult)
	if r.Task.Error != nil {
		size += len(r.Task.Error.Message) + len(r.Task.Error.Data)
	}
	if len(r.Task.InputRequests) > 0 {
		raw, _ := protocol.Marshal(r.Task.InputRequests) // questions that cannot be encoded count nothing
		size += len(raw)
	}
	return size
}

// A TaskStore stores tasks, so that a client can ask for them after its connection
// was lost, or after the process that ran the task has ended. Several servers may
// share a store. The task itself runs in one process. The other servers can report what
// was saved of it. To cancel it, or answer its questions, they need Options.Node. The
// server checks who may see a task. Package proptest/stores checks a TaskStore.
//
// The server calls all methods concurrently. If Save fails before a task has started,
// the call is refused. If a later Save fails, the server keeps the outcome in memory
// and tries again when a client asks for the task.
type TaskStore interface {
	// Save adds a task, or replaces the one with its id, whose Owner, Client, Node, Created
	// and Expires are the same. It returns only when the store has stored the task. It
	// returns ErrTaskStoreFull if there is no room.
	Save(ctx context.Context, r *TaskRecord) error

	// Load returns a task, or ErrNotFound.
	Load(ctx context.Context, id string) (*TaskRecord, error)

	// List returns up to limit tasks of an owner, ordered by creation and then by id.
	// It starts after the task with the id after, or with the first if after is
	// empty. It returns ErrNotFound if there is no task with that id.
	List(ctx context.Context, owner, after string, limit int) ([]*TaskRecord, error)

	// Delete removes a task. It is not an error if there is none.
	Delete(ctx context.Context, id string) error
}

// A MemoryTaskStore keeps tasks in the memory of the process. The zero value is
// ready to use, with the default bounds.
// A task holds one place and its bytes, both as a part of what its client may have, from its first Save until it is
// removed. A task that has not ended also holds room for its failure, so that it can always fail. Expired tasks are
// removed when the store is used: it has no timer and no goroutine.
//
// Records are copied on their way in and out, but what they point to is shared.
type MemoryTaskStore struct {
	MaxTasks int // how many tasks are kept; default 10,000, which clients share: one alone has 38 %, and fewer than 64 go to whom comes first
	MaxBytes int // the size of all tasks together, in bytes; default 16 MiB, which clients share; a task that is there may grow to half while an eighth is free

	mu     sync.Mutex
	tasks  map[string]storedTask // nil until the first is saved
	places *share.Pool           // of tasks
	bytes  *share.Pool
	oldest time.Time // no task expires before this time
}

type storedTask struct {
	*TaskRecord
	size int
}

// of returns whose share of the store a task uses.
func (r storedTask) of() share.Client {
	if r.Owner != "" {
		return share.Client{Identity: r.Owner}
	}
	return share.Client{Network: r.Client}
}

var _ TaskStore = (*MemoryTaskStore)(nil)

// Save implements TaskStore. A task that has a place keeps it: only a new one can be refused for
// want of places.
func (m *MemoryTaskStore) Save(_ context.Context, r *TaskRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	m.begin()
	kept := *r
	next := storedTask{&kept, r.Size()}
	if !r.Task.Status.Ended() {
		next.size += tasks.FailureRoom
	}
	if err := m.reserve(next); err != nil {
		return err
	}
	// It may be earlier than the truth, never later: then expire looks at all tasks once, and finds none.
	if len(m.tasks) == 0 || r.Expires.Before(m.oldest) {
		m.oldest = r.Expires
	}
	m.tasks[r.Task.TaskID] = next
	return nil
}

// begin makes the store ready at its first use, as its zero value is. The caller holds the mutex.
func (m *MemoryTaskStore) begin() {
	if m.tasks != nil {
		return
	}
	// shared: tasks that are kept | MemoryTaskStore.MaxTasks places | one | the call is refused with -32050 | `Options.Audit`
	// shared: their records | MemoryTaskStore.MaxBytes bytes | 64 KiB | a new one is refused with -32050; a result is dropped, and its task fails | `Options.Audit`
	most := cmp.Or(m.MaxBytes, 16<<20)
	m.tasks, m.places, m.bytes = make(map[string]storedTask), share.NewPlaces(cmp.Or(m.MaxTasks, 10_000)), share.NewLasting(most, min(most/4, 64<<10))
}

// reserve takes what the next state of a task needs, or nothing. A task that shrinks always fits.
// The caller holds the mutex.
func (m *MemoryTaskStore) reserve(next storedTask) error {
	before, known := m.tasks[next.Task.TaskID]
	if !known && !m.places.Take(next.of(), 1) {
		return fmt.Errorf("%w: it has %d tasks, and %s", ErrTaskStoreFull, len(m.tasks), m.places.Refused(1))
	}
	// A task that is there may grow beyond the share of its client, because the result of work that was done would be
	// lost. Something new may not.
	take := m.bytes.Take
	if known {
		take = m.bytes.Grow
	}
	if grows := next.size - before.size; grows < 0 {
		m.bytes.Give(next.of(), -grows)
	} else if !take(next.of(), grows) {
		// Both or nothing: a task that is refused leaves no trace.
		if !known {
			m.places.Give(next.of(), 1)
		}
		return fmt.Errorf("%w: its tasks have %d bytes, and %s", ErrTaskStoreFull, m.bytes.Held(), m.bytes.Refused(grows))
	}
	return nil
}

// Load implements TaskStore.
func (m *MemoryTaskStore) Load(_ context.Context, id string) (*TaskRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	if r, known := m.tasks[id]; known {
		loaded := *r.TaskRecord
		return &loaded, nil
	}
	return nil, ErrNotFound
}

// List implements TaskStore.
func (m *MemoryTaskStore) List(_ context.Context, owner, after string, limit int) ([]*TaskRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	all := m.ownedBy(owner)
	if after != "" {
		i := slices.IndexFunc(all, func(r *TaskRecord) bool { return r.Task.TaskID == after })
		if i < 0 {
			return nil, ErrNotFound
		}
		all = all[i+1:]
	}
	return all[:min(limit, len(all))], nil
}

// ownedBy returns copies of the tasks of an owner, the oldest first, so that new tasks do not move
// the pages of a list. The caller holds the mutex.
func (m *MemoryTaskStore) ownedBy(owner string) (all []*TaskRecord) {
	for _, r := range m.tasks {
		if r.Owner == owner {
			loaded := *r.TaskRecord
			all = append(all, &loaded)
		}
	}
	slices.SortFunc(all, func(a, b *TaskRecord) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Task.TaskID, b.Task.TaskID))
	})
	return all
}

// Delete implements TaskStore.
func (m *MemoryTaskStore) Delete(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(id)
	return nil
}

// remove removes a task. The caller holds the mutex.
func (m *MemoryTaskStore) remove(id string) {
	r, known := m.tasks[id]
	if !known {
		return
	}
	delete(m.tasks, id)
	m.places.Give(r.of(), 1)
	m.bytes.Give(r.of(), r.size)
}

// expire removes expired tasks. The caller holds the mutex.
func (m *MemoryTaskStore) expire() {
	now := time.Now()
	// As nearly always: nothing has expired, so the tasks need not be gone through.
	if len(m.tasks) == 0 || now.Before(m.oldest) {
		return
	}
	for _, id := range slices.Collect(maps.Keys(m.tasks)) {
		if !now.Before(m.tasks[id].Expires) {
			m.remove(id)
		}
	}
	m.oldest = time.Time{}
	for _, r := range m.tasks {
		if m.oldest.IsZero() || r.Expires.Before(m.oldest) {
			m.oldest = r.Expires
		}
	}
}

// A recordStore is a TaskStore for package tasks, whose records are the same.
type recordStore struct{ TaskStore }

func (s recordStore) Save(ctx context.Context, r *tasks.Record) error {
	return s.TaskStore.Save(ctx, (*TaskRecord)(r))
}

func (s recordStore) Load(ctx context.Context, id string) (*tasks.Record, error) {
	r, err := s.TaskStore.Load(ctx, id)
	return (*tasks.Record)(r), err
}

func (s recordStore) List(ctx context.Context, owner, after string, limit int) ([]*tasks.Record, error) {
	found, err := s.TaskStore.List(ctx, owner, after, limit)
	all := make([]*tasks.Record, len(found))
	for i, r := range found {
		all[i] = (*tasks.Record)(r)
	}
	return all, err
}
