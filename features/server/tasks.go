package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/places"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// TaskOptions permit tool calls to become tasks. A task is a call that its client
// need not wait for, and that outlives its connection (the tasks extension of
// 2026-07-28, ADR-0032). The zero value of each field means its default.
//
// A tool takes part if its Execution.TaskSupport is protocol.TaskOptional or
// protocol.TaskRequired. Its handler is an ordinary one, which runs once, in this
// process. Its context ends when the client cancels the task, when the TTL has
// passed, or when the server closes, but not when the client disconnects. Progress
// becomes the status message of the task, and clients see questions in the status of
// the task. A client that did not declare the extension waits for its call as usual.
// If the tool has TaskRequired, such a client of 2026-07-28 gets an error that names
// the missing extension.
//
// Only the user who started a task, by the Identity of its Origin, may see it. If
// users are not authenticated, whoever knows the id of a task may see it.
type TaskOptions struct {
	// After is how long a call runs before it becomes a task. A call that ends sooner
	// is answered as usual. 0: a call becomes a task before its handler starts. A
	// tool with Reruns stays a call for at least one second, so that it can ask its
	// questions first. A tool with Waits becomes a task when it asks its first
	// question.
	After time.Duration

	TTL             time.Duration // how long a task lives after its creation; a handler that still runs then is cancelled; default 24 hours
	PollInterval    time.Duration // how often clients should ask for the status; default 1 second
	MaxRunning      int           // how many handlers run at the same time; default 1,024, which clients share: one alone has 38 %, and fewer than 64 go to whom comes first
	MaxRunningBytes int           // the size of the requests of all running handlers, in bytes; default 24 MiB, a sixteenth of Options.MaxMemory, which clients share; a larger request is refused

	// Store keeps the tasks. Default: a new MemoryTaskStore with 1/24 of Options.MaxMemory.
	Store TaskStore

	// Gone reports whether a node has ended, and the tasks with it that ran there (TaskRecord.Node).
	// Such a task fails when a client asks for it, since nobody knows how far it got.
	// Default: no other node is known to have ended.
	Gone func(node string) bool

	// Legacy also supports the experimental tasks of 2025-11-25. There the client
	// decides which call becomes a task, and a call of a tool with TaskRequired that
	// does not ask for a task is refused.
	Legacy bool
}

var (
	// ErrTaskCancelled is the context cause of a handler whose task the client has
	// cancelled.
	ErrTaskCancelled = errors.New("server: the client has cancelled the task")

	// ErrTaskExpired is the context cause of a handler when the TTL of its task has
	// passed.
	ErrTaskExpired = errors.New("server: the time of the task is over")
)

// asksFirst is how long a call of a tool that Reruns stays a call.
const asksFirst = time.Second

// tasks manages the tasks of a server.
type tasks struct {
	options TaskOptions
	on      bool
	server  *Server
	ctx     context.Context // ends when the server has closed
	end     context.CancelCauseFunc
	running sync.WaitGroup // counts the goroutines of handlers
	places  places.Places

	mu       sync.Mutex
	handlers map[*task]struct{} // the tasks whose handler runs
	live     map[string]*task   // tasks that have not ended, or are not saved

	ending chan struct{} // holds one token while a task whose node has ended is looked at
}

func (ts *tasks) init(s *Server, o *TaskOptions) {
	ts.server = s
	ts.ctx, ts.end = context.WithCancelCause(context.Background())
	if o == nil {
		return
	}
	ts.on, ts.options = true, *o
	ts.options.After = max(o.After, 0)
	ts.options.TTL = cmp.Or(max(o.TTL, 0), 24*time.Hour)
	ts.options.PollInterval = cmp.Or(max(o.PollInterval, 0), time.Second)
	ts.options.MaxRunning = cmp.Or(max(o.MaxRunning, 0), 1024)
	ts.options.MaxRunningBytes = cmp.Or(max(o.MaxRunningBytes, 0), s.options.MaxMemory/16)
	if o.Store == nil {
		ts.options.Store = &MemoryTaskStore{MaxBytes: s.options.MaxMemory / 24}
	}
	ts.ending = make(chan struct{}, 1)
	// shared: handlers of tasks | TaskOptions.MaxRunning places | one | the call is refused with -32050 | `Options.Audit`
	// shared: their requests | TaskOptions.MaxRunningBytes bytes | 64 KiB | the call is refused with -32050 | `Options.Audit`
	ts.places = places.Places{
		Handlers: share.NewPlaces(ts.options.MaxRunning), Bytes: share.NewLasting(ts.options.MaxRunningBytes, places.Piece(ts.options.MaxRunningBytes, s.options.MaxMemory/16)),
	}
	ts.handlers, ts.live = make(map[*task]struct{}), make(map[string]*task)
}

// offer adds the capabilities of a server with tasks.
func (ts *tasks) offer(c *protocol.ServerCapabilities, modern bool) {
	switch {
	case !ts.on:
	case modern:
		c.Extensions = withExtension(c.Extensions, protocol.ExtensionTasks, json.RawMessage("{}"))
	case ts.options.Legacy:
		c.Tasks = &protocol.TasksCapability{
			Cancel:   &protocol.Capability{},
			Requests: map[string]map[string]protocol.Capability{"tools": {"call": {}}},
		}
	}
}

// withExtension adds an extension to a map, unless the map has it. It copies the map,
// which may be shared.
func withExtension(all map[string]json.RawMessage, name string, settings json.RawMessage) map[string]json.RawMessage {
	with := map[string]json.RawMessage{name: settings}
	for key, value := range all {
		with[key] = value
	}
	return with
}

// mayBe reports whether a call becomes a task, or may become one. It fails if the
// client must support tasks and does not.
func (ts *tasks) mayBe(c *call, t *tool, params *protocol.CallToolParams) (bool, error) {
	support := t.taskSupport
	switch {
	case !ts.on || !protocol.Has(c.Client.ProtocolVersion, protocol.Tasks):
		return false, nil
	case c.modern && support == protocol.TaskForbidden:
		return false, nil
	case c.modern:
		declared := c.Client.Capabilities.Has("extensions." + protocol.ExtensionTasks)
		if !declared && support == protocol.TaskRequired {
			return false, ts.missing(c)
		}
		return declared, nil
	case !ts.options.Legacy:
		return false, nil
	case params.Task != nil && support == protocol.TaskForbidden:
		return false, refusal.New(jsonrpc.CodeMethodNotFound, "tool %q cannot be called as a task", params.Name)
	case params.Task == nil && support == protocol.TaskRequired:
		return false, refusal.New(jsonrpc.CodeMethodNotFound, "tool %q has to be called as a task", params.Name)
	default:
		return params.Task != nil, nil
	}
}

// missing refuses a modern client that did not declare the extension.
func (ts *tasks) missing(c *call) error {
	name := "extensions." + protocol.ExtensionTasks
	return c.fault(&UnsupportedError{Capability: name, required: declaring(name)})
}

// call serves a call that may become a task. It reserves a place for the handler before a
// requestState is used up, so that a client whose round was refused can repeat it.
func (ts *tasks) call(ctx context.Context, c *call, tl *tool, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	waits := tl.asking != nil && tl.asking.how == Waits
	if c.modern && waits && params.RequestState != nil { // it began as a call that waits, and stays one
		return tl.call(ctx, c, params)
	}
	if tl.asking != nil {
		if err := tl.asking.checkClient(c.Client); err != nil {
			return nil, err
		}
	}
	t := ts.newTask(ctx, c, tl, params)
	if err := ts.enter(t); err != nil {
		c.noPlace = true
		return nil, err
	}
	if !c.modern || waits {
		return ts.serve(ctx, t, params)
	}
	started := false
	defer func() {
		if !started {
			t.cancel(nil)
			ts.leave(t)
		}
	}()
	return tl.converse(ctx, c, params, func(ctx context.Context) (*protocol.CallToolResult, error) {
		started = true
		return ts.serve(ctx, t, params)
	})
}

// serve runs the handler of a task that has a place. It returns the handler's result, or the
// task that the call has become.
func (ts *tasks) serve(ctx context.Context, t *task, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	t.present()
	after := ts.options.After
	switch {
	case !t.first.modern:
		after = 0
	case t.tool.asking != nil && t.tool.asking.how == Reruns:
		after = max(after, asksFirst)
	}
	if after == 0 {
		if err := t.make(); err != nil {
			t.over = true
			ts.leave(t)
			return nil, err
		}
		go t.run(params)
		return t.created(), nil
	}
	go t.run(params)
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
			return t.outcome()
		case <-ctx.Done():
			if t.giveUp(context.Cause(ctx)) {
				<-t.done // its outcome is the answer, if anybody still wants it
				return t.outcome()
			}
		}
	}
}

// storing returns a context for saving, which does not end with a request.
func storing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// save saves a task that a call of the peer began.
func (ts *tasks) save(p *peer, r *TaskRecord) error {
	ctx, cancel := storing()
	defer cancel()
	return p.guarded("TaskStore.Save", func() error { return ts.options.Store.Save(ctx, r) })
}

// enter reserves a place for a handler.
func (ts *tasks) enter(t *task) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.ctx.Err() != nil {
		return refusal.New(jsonrpc.CodeOverloaded, "overloaded: shutting down")
	}
	if err := ts.places.Enter(t.from, t.size); err != nil {
		return err
	}
	ts.handlers[t] = struct{}{}
	ts.running.Add(1)
	return nil
}

// leave releases the place of a handler.
func (ts *tasks) leave(t *task) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.handlers, t)
	ts.places.Leave(t.from, t.size)
	ts.running.Done()
}

// stop ends all handlers with the cause ErrClosed, and prevents new ones. Their tasks fail.
func (ts *tasks) stop() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.end(ErrClosed)
	for t := range ts.handlers {
		t.cancel(ErrClosed)
	}
}

// wait waits for the handlers, as places.Await does.
func (ts *tasks) wait(ctx context.Context, grace time.Duration) []string {
	return places.Await(ctx, grace, &ts.running, func() (names []string) {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		for t := range ts.handlers {
			names = append(names, "task of "+t.tool.definition.Name)
		}
		return names
	})
}

// find returns the present state of a task, if the client of a call may see it. If the
// task runs in this process, find also returns it.
func (ts *tasks) find(ctx context.Context, c *call, id string) (*TaskRecord, *task, error) {
	if err := refusal.Missing(c.Method, "taskId", id); err != nil {
		return nil, nil, err
	}
	r, t, err := ts.look(ctx, c.peer, id)
	if errors.Is(err, ErrNotFound) || err == nil && r.Owner != c.Origin.Identity {
		return nil, nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown task %q", refusal.Shorten(id, refusal.LongestName))
	}
	if err != nil {
		return nil, nil, refusal.New(jsonrpc.CodeInternalError, "the task cannot be looked up: %v", err)
	}
	return r, t, nil
}

// look does what find does, but does not check who may see the task. It fails with
// ErrNotFound. A panic of the store is reported on the connection of the peer.
func (ts *tasks) look(ctx context.Context, p *peer, id string) (*TaskRecord, *task, error) {
	if !ts.on || len(id) > longestTaskID {
		return nil, nil, ErrNotFound
	}
	ts.mu.Lock()
	t := ts.live[id]
	ts.mu.Unlock()
	if t != nil {
		t.saveAgain()
		return t.record(), t, nil
	}
	r, err := ts.load(ctx, p, id)
	if err != nil || r.Task.Status.Ended() {
		return r, nil, err
	}
	ended := false
	if err := p.guarded("TaskOptions.Gone", func() error { ended = ts.hasEnded(r.Node); return nil }); err != nil {
		return nil, nil, err
	}
	if ended {
		r, err = ts.endLost(ctx, p, id)
	}
	return r, nil, err
}

// load returns a task as it was saved last. It fails with ErrNotFound, also if the task has expired.
func (ts *tasks) load(ctx context.Context, p *peer, id string) (r *TaskRecord, err error) {
	err = p.guarded("TaskStore.Load", func() (err error) {
		r, err = ts.options.Store.Load(ctx, id)
		return err
	})
	if err == nil && !time.Now().Before(r.Expires) {
		err = ErrNotFound
	}
	return r, err
}

// present does what find does. If d is not nil, the node of the task is asked. If that fails,
// the result is what was saved last.
func (ts *tasks) present(ctx context.Context, c *call, id string, d *distantTask) (*TaskRecord, *task, error) {
	if d != nil {
		if r, err := d.get(ctx); err == nil {
			return r, nil, nil
		}
	}
	return ts.find(ctx, c, id)
}

// offered reports whether the methods of tasks are offered.
func (ts *tasks) offered(c *call) bool {
	return ts.on && (c.modern || c.offered.Has("tasks"))
}

// allowed refuses modern clients that did not declare the extension, for all methods of
// tasks.
func (ts *tasks) allowed(c *call) error {
	if c.modern && !c.Client.Capabilities.Has("extensions."+protocol.ExtensionTasks) {
		return ts.missing(c)
	}
	return nil
}

// get serves tasks/get.
func (ts *tasks) get(ctx context.Context, c *call, params *protocol.GetTaskParams) (any, error) {
	if err := ts.allowed(c); err != nil {
		return nil, err
	}
	r, _, err := ts.present(ctx, c, params.TaskID, ts.distant(c, params.TaskID))
	switch {
	case err != nil:
		return nil, err
	case c.modern:
		return &protocol.GetTaskResult{DetailedTask: r.Task}, nil
	default:
		return &protocol.LegacyTaskResult{LegacyTask: legacyTask(r)}, nil
	}
}

// update serves tasks/update.
func (ts *tasks) update(ctx context.Context, c *call, params *protocol.UpdateTaskParams) (any, error) {
	if err := ts.allowed(c); err != nil {
		return nil, err
	}
	r, t, err := ts.find(ctx, c, params.TaskID)
	switch {
	case err != nil:
	case t != nil:
		err = t.update(ctx, params.InputResponses)
	case !r.Task.Status.Ended():
		err = errElsewhere(nil)
	}
	if err != nil {
		return nil, err
	}
	return &protocol.EmptyResult{}, nil
}

// cancel serves tasks/cancel.
func (ts *tasks) cancel(ctx context.Context, c *call, params *protocol.CancelTaskParams) (any, error) {
	if err := ts.allowed(c); err != nil {
		return nil, err
	}
	d := ts.distant(c, params.TaskID)
	r, t, err := ts.present(ctx, c, params.TaskID, d)
	switch {
	case err != nil:
		return nil, err
	case !c.modern && r.Task.Status.Ended():
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "the task has ended: it is %s", r.Task.Status)
	case t != nil:
		t.end(&protocol.DetailedTask{Task: protocol.Task{Status: protocol.TaskCancelled, StatusMessage: "cancelled by the client"}}, ErrTaskCancelled)
		r = t.record()
	case !r.Task.Status.Ended():
		if err = d.cancel(ctx); err == nil {
			r, _, err = ts.present(ctx, c, params.TaskID, d)
		}
	}
	if err != nil {
		return nil, err
	}
	if !c.modern {
		return &protocol.LegacyTaskResult{LegacyTask: legacyTask(r)}, nil
	}
	return &protocol.EmptyResult{}, nil
}

// legacyTask converts a task to 2025-11-25, in which a task fails if its tool failed.
func legacyTask(r *TaskRecord) protocol.LegacyTask {
	t := protocol.LegacyTask{
		TaskID: r.Task.TaskID, Status: r.Task.Status, StatusMessage: r.Task.StatusMessage,
		CreatedAt: r.Task.CreatedAt, LastUpdatedAt: r.Task.LastUpdatedAt, TTL: r.Task.TTLMs, PollInterval: r.Task.PollIntervalMs,
	}
	var result struct {
		IsError bool `json:"isError"`
	}
	if t.Status == protocol.TaskCompleted && protocol.Unmarshal(r.Task.FinalResult, &result) == nil && result.IsError {
		t.Status = protocol.TaskFailed
	}
	return t
}
