package tasks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/features/server/internal/places"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

var (
	// ErrStoreFull is what a Store returns that has no room for a task.
	ErrStoreFull = errors.New("server: no room in the task store")

	// ErrCancelled is why the context of a handler ends whose task the client has cancelled.
	ErrCancelled = errors.New("server: the client has cancelled the task")

	// ErrExpired is why the context of a handler ends when the TTL of its task has passed.
	ErrExpired = errors.New("server: the time of the task is over")
)

// FailureRoom is what a running task holds in a store beyond its size, in bytes, so that its
// failure always finds room.
const FailureRoom = 1 << 10

// longestID is the maximum length of a task's id: a node, a mark and rand.Text. A longer one is not
// looked up: no store need expect it.
const longestID = nodename.Longest + len(nodename.Mark) + 26

// A Record is server.TaskRecord: what a store keeps of a task. It is complete, so that any process
// can answer for a task that has ended.
type Record struct {
	Task    protocol.DetailedTask
	Tool    string
	Owner   string
	Client  string
	Node    string
	Created time.Time
	Expires time.Time
}

// A Store is server.TaskStore, whose documentation says what each method has to do. Nobody holds a
// mutex of Tasks while it works.
type Store interface {
	Save(ctx context.Context, r *Record) error
	Load(ctx context.Context, id string) (*Record, error)
	List(ctx context.Context, owner, after string, limit int) ([]*Record, error)
	Delete(ctx context.Context, id string) error
}

// A Guard runs code of the program, and turns its panic into an error. Stores, carriers and
// callbacks run in one: a mistake there fails one request, and not the server. Where says what ran,
// for the log.
type Guard = func(where string, f func() error) error

// Config is what tasks need of their server.
type Config struct {
	TTL, PollInterval time.Duration
	Store             Store
	Gone              func(node string) bool // nil: no other node is known to have ended
	Node              string                 // "": this node has no name
	Places            places.Places
	PageSize          int
	MaxRounds         int             // how often a task may ask
	Tell, TellHere    func(id string) // tell of a change of a task: all nodes, or only those who listen here
}

// Tasks are the tasks of a server. They may be used by any goroutine. Each handler runs on a
// goroutine of its own, which Wait waits for.
type Tasks struct {
	Config
	ctx     context.Context // ends when the server has closed
	end     context.CancelCauseFunc
	running sync.WaitGroup // counts the goroutines of handlers

	// Handlers and live differ: a handler may go on after its task has ended, and a task may wait
	// for a store after its handler.
	mu       sync.Mutex
	handlers map[*Task]struct{} // the tasks whose handler runs
	live     map[string]*Task   // tasks that have not ended, or are not saved

	ending chan struct{} // holds one token while a task whose node has ended is looked at
}

// Of returns tasks of which none is there yet, or only those that the store has. It starts nothing.
func Of(c Config) *Tasks {
	ts := &Tasks{Config: c, handlers: make(map[*Task]struct{}), live: make(map[string]*Task), ending: make(chan struct{}, 1)}
	ts.ctx, ts.end = context.WithCancelCause(context.Background())
	return ts
}

// Serve runs the handler of a task that has a place. It returns the task that the call has become:
// at once if after is 0, and otherwise when so much time has passed, or when the handler asks in a
// way that takes a task. It returns nil if the handler returns before that; what it has returned is
// then Task.Err.
func (ts *Tasks) Serve(ctx context.Context, t *Task, after time.Duration) (*protocol.Task, error) {
	if after != 0 {
		go t.run()
		return t.await(ctx, after), nil
	}
	if err := t.make(); err != nil {
		t.over = true
		ts.leave(t)
		return nil, err
	}
	go t.run()
	return t.created(), nil
}

// await waits until the call has become a task, or will never be one: then it returns nil. A client
// that leaves before takes the call with it, but not a task.
func (t *Task) await(ctx context.Context, after time.Duration) *protocol.Task {
	timer := time.NewTimer(after)
	defer timer.Stop()
	for late := timer.C; ; {
		select {
		case <-late:
			late = nil
			_ = t.make() // if there is no room for a task, it stays a call
		case <-t.begun:
			return t.created()
		case <-t.done:
			return nil
		case <-ctx.Done():
			if t.giveUp(context.Cause(ctx)) {
				<-t.done // its outcome is the answer, if anybody still wants it
				return nil
			}
		}
	}
}

// Err returns what the handler has returned last. Call it after Serve has returned no task: until
// then the handler writes it.
func (t *Task) Err() error { return t.err }

// storing returns a context for saving, which does not end with a request: a client that leaves
// must not undo what others have seen. A store that takes longer has failed.
func storing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// save saves a task that a call of the peer began. Saves of one task must not overlap: Task.saving
// sees to that here, and Tasks.ending for one whose node has ended.
func (ts *Tasks) save(guard Guard, r *Record) error {
	ctx, cancel := storing()
	defer cancel()
	return guard("TaskStore.Save", func() error { return ts.Store.Save(ctx, r) })
}

// Enter reserves a place for a handler. Serve or Drop must follow. It refuses when the server
// closes, in the same step in which Stop collects the handlers, so none is missed there.
func (ts *Tasks) Enter(t *Task) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.ctx.Err() != nil {
		return refusal.New(jsonrpc.CodeOverloaded, "overloaded: shutting down")
	}
	if err := ts.Places.Enter(t.about.From, t.about.Size); err != nil {
		return err
	}
	ts.handlers[t] = struct{}{}
	ts.running.Add(1)
	return nil
}

// leave releases the place of a handler. It is called once for each Enter, when nothing of the
// handler runs any more.
func (ts *Tasks) leave(t *Task) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.handlers, t)
	ts.Places.Leave(t.about.From, t.about.Size)
	ts.running.Done()
}

// Stop ends all handlers with a cause, and prevents new ones. Their tasks fail. It is for the end of the
// server, when nobody can ask for a result any more.
func (ts *Tasks) Stop(why error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.end(why)
	for t := range ts.handlers {
		t.cancel(why)
	}
}

// Wait waits for the handlers, as places.Await does. It ends none of them: Stop does.
func (ts *Tasks) Wait(ctx context.Context, grace time.Duration) []string {
	return places.Await(ctx, grace, &ts.running, func() (names []string) {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		for t := range ts.handlers {
			names = append(names, "task of "+t.about.Tool)
		}
		return names
	})
}

// Find returns the present state of a task, if the client of a call may see it. If the task runs in
// this process, Find also returns it. A task of somebody else is as unknown as one that never was,
// so that ids cannot be tried out.
func (ts *Tasks) Find(ctx context.Context, c *Request, id string) (*Record, *Task, error) {
	if err := refusal.Missing(c.Method, "taskId", id); err != nil {
		return nil, nil, err
	}
	r, t, err := ts.Look(ctx, c.Caller.Guarded, id)
	if errors.Is(err, catalog.ErrNotFound) || err == nil && r.Owner != c.Identity {
		return nil, nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown task %q", refusal.Shorten(id, refusal.LongestName))
	}
	if err != nil {
		return nil, nil, refusal.New(jsonrpc.CodeInternalError, "the task cannot be looked up: %v", err)
	}
	return r, t, nil
}

// A task runs here, or has ended, or runs elsewhere. Only the first is certain: what is in the
// store may be older than what a client was told there, and must never be taken as news of a task
// that runs here.
//
// Look does what Find does, but does not check who may see the task. It fails with
// catalog.ErrNotFound. A panic of the store is reported by guard.
func (ts *Tasks) Look(ctx context.Context, guard Guard, id string) (*Record, *Task, error) {
	if len(id) > longestID {
		return nil, nil, catalog.ErrNotFound
	}
	ts.mu.Lock()
	t := ts.live[id]
	ts.mu.Unlock()
	if t != nil {
		t.saveAgain()
		return t.record(), t, nil
	}
	r, err := ts.load(ctx, guard, id)
	if err != nil || r.Task.Status.Ended() {
		return r, nil, err
	}
	ended := false
	if err := guard("TaskOptions.Gone", func() error { ended = ts.hasEnded(r.Node); return nil }); err != nil {
		return nil, nil, err
	}
	if ended {
		r, err = ts.endLost(ctx, guard, id)
	}
	return r, nil, err
}

// load returns a task as it was saved last, which may be before its last change. It fails with
// catalog.ErrNotFound, also if the task has expired: a store may forget that at any time, and a
// client must not see it come and go.
func (ts *Tasks) load(ctx context.Context, guard Guard, id string) (r *Record, err error) {
	err = guard("TaskStore.Load", func() (err error) {
		r, err = ts.Store.Load(ctx, id)
		return err
	})
	if err == nil && !time.Now().Before(r.Expires) {
		err = catalog.ErrNotFound
	}
	return r, err
}
