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

// LongestID is the maximum length of a task's id: a node, a mark and rand.Text.
const LongestID = nodename.Longest + len(nodename.Mark) + 26

// A Record is server.TaskRecord.
type Record struct {
	Task    protocol.DetailedTask
	Tool    string
	Owner   string
	Client  string
	Node    string
	Created time.Time
	Expires time.Time
}

// A Store is server.TaskStore.
type Store interface {
	Save(ctx context.Context, r *Record) error
	Load(ctx context.Context, id string) (*Record, error)
	List(ctx context.Context, owner, after string, limit int) ([]*Record, error)
	Delete(ctx context.Context, id string) error
}

// A Guard runs code of the program, and turns its panic into an error.
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

	mu       sync.Mutex
	handlers map[*Task]struct{} // the tasks whose handler runs
	live     map[string]*Task   // tasks that have not ended, or are not saved

	ending chan struct{} // holds one token while a task whose node has ended is looked at
}

// Of returns tasks of which none is there yet, or only those that the store has.
func Of(c Config) *Tasks {
	ts := &Tasks{Config: c, handlers: make(map[*Task]struct{}), live: make(map[string]*Task), ending: make(chan struct{}, 1)}
	ts.ctx, ts.end = context.WithCancelCause(context.Background())
	return ts
}

// Serve runs the handler of a task that has a place. It returns the task that the call has become:
// at once if after is 0, and otherwise when so much time has passed. It returns nil if the handler
// returns before that; what it has returned is then Task.Err.
func (ts *Tasks) Serve(ctx context.Context, t *Task, after time.Duration) (*protocol.Task, error) {
	if after == 0 {
		if err := t.make(); err != nil {
			t.over = true
			ts.leave(t)
			return nil, err
		}
		go t.run()
		return t.created(), nil
	}
	go t.run()
	timer := time.NewTimer(after)
	defer timer.Stop()
	for late := timer.C; ; {
		select {
		case <-late:
			late = nil
			_ = t.make() // if there is no room for a task, it stays a call
		case <-t.begun:
			return t.created(), nil
		case <-t.done:
			return nil, nil
		case <-ctx.Done():
			if t.giveUp(context.Cause(ctx)) {
				<-t.done // its outcome is the answer, if anybody still wants it
				return nil, nil
			}
		}
	}
}

// Err returns what the handler has returned last. Call it after Serve has returned no task.
func (t *Task) Err() error { return t.err }

// storing returns a context for saving, which does not end with a request.
func storing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// save saves a task that a call of the peer began.
func (ts *Tasks) save(guard Guard, r *Record) error {
	ctx, cancel := storing()
	defer cancel()
	return guard("TaskStore.Save", func() error { return ts.Store.Save(ctx, r) })
}

// Enter reserves a place for a handler. Serve or Drop must follow.
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

// leave releases the place of a handler.
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

// Wait waits for the handlers, as places.Await does.
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

// Find returns the present state of a task, if the client of a call may see it. If the
// task runs in this process, Find also returns it.
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
	if len(id) > LongestID {
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

// load returns a task as it was saved last. It fails with catalog.ErrNotFound, also if the task has expired: a
// store may forget that at any time, and a client must not see it come and go.
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
