package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// ErrTaskStoreFull is returned by a TaskStore that has no room for a task. A call
// that was to become a task is then refused, and a task whose result is too large
// for the store fails.
var ErrTaskStoreFull = errors.New("server: the task store is full")

// A TaskRecord is a task as a TaskStore keeps it. Treat what it points to as
// read-only.
type TaskRecord struct {
	Task    protocol.DetailedTask
	Tool    string    // whose call it was
	Owner   string    // the Identity of the Origin that began it; "" if nobody was authenticated
	Client  string    // whom a bound counts it for: Owner, or else the network that it came from: of an IPv6 address the first 64 bits
	Created time.Time // the order of a list
	Expires time.Time // the store may forget it then
}

// Size is about how many bytes the record holds.
func (r *TaskRecord) Size() int {
	size := 512 + len(r.Task.TaskID) + len(r.Task.StatusMessage) + len(r.Tool) + len(r.Owner) + len(r.Client) + len(r.Task.FinalResult)
	if r.Task.Error != nil {
		size += len(r.Task.Error.Message) + len(r.Task.Error.Data)
	}
	if len(r.Task.InputRequests) > 0 {
		raw, _ := protocol.Marshal(r.Task.InputRequests) // what no client can be shown counts for nothing
		size += len(raw)
	}
	return size
}

// A TaskStore keeps tasks: what a client asks for after its connection was lost, or
// after the process that ran the task has ended. It may be shared by several
// servers. A task itself runs in one process: the others can tell how it stands, and
// neither answer its questions nor cancel it. The server checks who may see a task.
//
// All methods are called concurrently. An error of Save before a task has begun
// refuses the call. One of a later Save is tried again when somebody asks for the
// task; until then the server that ran it keeps its outcome.
type TaskStore interface {
	// Save adds a task, or replaces the one of its id. It returns only once the task
	// is kept as safely as it will be. ErrTaskStoreFull says that there is no room.
	Save(ctx context.Context, r *TaskRecord) error

	// Load returns a task, or ErrNotFound.
	Load(ctx context.Context, id string) (*TaskRecord, error)

	// List returns up to limit tasks of an owner, in the order of creation and then
	// of ids, beginning behind the task of the id after, or with the first if after
	// is empty. It returns ErrNotFound if there is no task of that id.
	List(ctx context.Context, owner, after string, limit int) ([]*TaskRecord, error)

	// Delete forgets a task. It is no error if there is none.
	Delete(ctx context.Context, id string) error
}

// A MemoryTaskStore keeps tasks in the memory of the process. The zero value is
// ready to use, with the default bounds.
type MemoryTaskStore struct {
	MaxTasks          int // 10,000
	MaxTasksPerClient int // 1,000
	MaxBytes          int // of all tasks: 64 MiB. The tasks of one client get a quarter of it

	mu        sync.Mutex
	tasks     map[string]storedTask
	perClient map[taskClient]taskShare
	bytes     int
	oldest    time.Time // nothing expires before
}

type storedTask struct {
	*TaskRecord
	size int
}

// A taskClient is whom a bound counts tasks for. An address is nobody's Owner.
type taskClient struct{ owner, client string }

// A taskShare is what one client has of what is bounded.
type taskShare struct{ tasks, bytes int }

var _ TaskStore = (*MemoryTaskStore)(nil)

// Save implements TaskStore.
func (m *MemoryTaskStore) Save(_ context.Context, r *TaskRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	size, client := r.Size(), taskClient{r.Owner, r.Client}
	before, known := m.tasks[r.Task.TaskID]
	grows := size - before.size
	tasks, mine := len(m.tasks), m.perClient[client]
	mine.bytes += grows
	if !known {
		tasks++
		mine.tasks++
	}
	most := cmp.Or(m.MaxBytes, 64<<20)
	switch {
	case grows > 0 && m.bytes+grows > most:
		return fmt.Errorf("%w: its tasks would be of %d bytes", ErrTaskStoreFull, m.bytes+grows)
	case grows > 0 && mine.bytes > most/4:
		return fmt.Errorf("%w: the tasks of this client would be of %d bytes", ErrTaskStoreFull, mine.bytes)
	case known:
	case tasks > cmp.Or(m.MaxTasks, 10_000):
		return fmt.Errorf("%w: it has %d tasks", ErrTaskStoreFull, len(m.tasks))
	case mine.tasks > cmp.Or(m.MaxTasksPerClient, 1_000):
		return fmt.Errorf("%w: it has %d tasks of this client", ErrTaskStoreFull, mine.tasks-1)
	}
	if m.tasks == nil {
		m.tasks, m.perClient = make(map[string]storedTask), make(map[taskClient]taskShare)
	}
	if len(m.tasks) == 0 || r.Expires.Before(m.oldest) {
		m.oldest = r.Expires
	}
	kept := *r
	m.tasks[r.Task.TaskID] = storedTask{&kept, size}
	m.perClient[client] = mine
	m.bytes += grows
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
	var all []*TaskRecord
	for _, r := range m.tasks {
		if r.Owner == owner {
			loaded := *r.TaskRecord
			all = append(all, &loaded)
		}
	}
	slices.SortFunc(all, func(a, b *TaskRecord) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Task.TaskID, b.Task.TaskID))
	})
	if after != "" {
		i := slices.IndexFunc(all, func(r *TaskRecord) bool { return r.Task.TaskID == after })
		if i < 0 {
			return nil, ErrNotFound
		}
		all = all[i+1:]
	}
	return all[:min(limit, len(all))], nil
}

// Delete implements TaskStore.
func (m *MemoryTaskStore) Delete(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(id)
	return nil
}

// remove is called with the mutex held.
func (m *MemoryTaskStore) remove(id string) {
	r, known := m.tasks[id]
	if !known {
		return
	}
	delete(m.tasks, id)
	m.bytes -= r.size
	client := taskClient{r.Owner, r.Client}
	mine := m.perClient[client]
	mine.tasks--
	mine.bytes -= r.size
	if m.perClient[client] = mine; mine.tasks == 0 {
		delete(m.perClient, client)
	}
}

// expire forgets what has expired. It is called with the mutex held.
func (m *MemoryTaskStore) expire() {
	now := time.Now()
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
