package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A task is a call that is a task, or may become one. Its handler runs once, on a
// separate goroutine that outlives the request. A task is also a questioner.
type task struct {
	tasks *tasks
	tool  *tool
	from  share.Client
	size  int    // the size of the request, in bytes
	owner string // the identity that may see the task
	first *call  // the request that began it
	ttl   time.Duration
	call  *call // the call that the handler sees

	ctx    context.Context // the context of the handler
	cancel context.CancelCauseFunc

	making sync.Mutex    // held while the call becomes a task
	made   bool          // the call is a task. Guarded by making
	over   bool          // the call will never become a task. Guarded by making
	begun  chan struct{} // closed when the call has become a task
	done   chan struct{} // closed when the handler has returned and there is no task

	result *protocol.CallToolResult
	err    error

	asking.Conversation                   // asks after the call has become a task
	inRound             asking.Questioner // asks before that; nil for a handler that Waits
	used                map[string]bool   // keys that questions have used. Guarded by turn

	saving  sync.Mutex // held during a save, so that the store gets the states in order
	settled bool       // a client may have seen the outcome, so it must not change. Guarded by saving

	mu      sync.Mutex
	state   TaskRecord
	asked   *taskQuestions // what the client must answer
	unsaved bool           // the store does not have the outcome yet
	changed chan struct{}  // closed at the next change of the task
	timer   *time.Timer    // ends the task when its TTL has passed
}

// A taskContext is the context of a handler that may be a task. It has the values of the
// first request, and ends with the task.
type taskContext struct {
	context.Context
	first context.Context
	task  *task
}

func (c taskContext) Value(key any) any {
	if key == (requestKey{}) {
		return &c.task.call.Request
	}
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.first.Value(key)
}

func (ts *tasks) newTask(ctx context.Context, c *call, tl *tool, params *protocol.CallToolParams) *task {
	c.addMeta()
	t := &task{
		tasks: ts, tool: tl, from: c.client(), size: c.size, owner: c.Origin.Identity, first: c,
		begun: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		ttl:  ts.options.TTL,
		used: make(map[string]bool),
	}
	t.Begin(t)
	t.SetEarly(params.InputResponses, true)
	if asked := params.Task; !c.modern && asked != nil && asked.TTL != nil && *asked.TTL > 0 {
		t.ttl = time.Duration(min(*asked.TTL, t.ttl.Milliseconds())) * time.Millisecond
	}
	own, cancel := context.WithCancelCause(context.Background())
	t.cancel = cancel
	t.ctx = taskContext{own, context.WithoutCancel(ctx), t}
	return t
}

// present makes the call that the handler sees, from the request and what its client has answered.
func (t *task) present() {
	c := t.first
	t.call = &call{
		Context: t.ctx, Request: c.Request, in: c.in, method: c.method, offered: c.offered, modern: c.modern, level: c.level, task: t,
		asked: &asked{id: c.CallID()},
	}
	t.call.Request.call = t.call
	if c.asked != nil {
		t.inRound, t.call.asked.state = c.asked.questioner, c.asked.state
	}
	if t.tool.asking != nil {
		t.call.asked.questioner = t
	}
}

// now returns the time in the format of tasks.
func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// make turns the call into a task, after it has saved the task. It does nothing if the
// call is a task already. It fails if the call can no longer become one.
func (t *task) make() error {
	t.making.Lock()
	defer t.making.Unlock()
	if t.made || t.over {
		if t.over {
			return ErrUnanswered
		}
		return nil
	}
	o, ttl := &t.tasks.options, t.ttl
	id, created, stamp := t.tasks.server.newTaskID(rand.Text()), time.Now(), now()
	kept, interval := ttl.Milliseconds(), o.PollInterval.Milliseconds()
	r := TaskRecord{
		Tool: t.tool.definition.Name, Owner: t.owner, Client: cmp.Or(t.owner, network.Of(t.first.Origin.Address())), Node: t.tasks.server.options.Node,
		Created: created, Expires: created.Add(ttl),
		Task: protocol.DetailedTask{Task: protocol.Task{
			TaskID: id, Status: protocol.TaskWorking, CreatedAt: stamp, LastUpdatedAt: stamp, TTLMs: &kept, PollIntervalMs: &interval,
		}},
	}
	if err := t.saveFirst(&r); errors.Is(err, ErrTaskStoreFull) {
		return refusal.New(jsonrpc.CodeOverloaded, "overloaded: the call cannot become a task: %v", err)
	} else if err != nil {
		return refusal.New(jsonrpc.CodeInternalError, "the call cannot become a task: %v", err)
	}
	if again, ok := t.inRound.(*asking.Rerun); ok { // answers from rounds remain valid, once they are found to fit
		t.Follow(&again.Exchange)
	}
	if !t.call.modern {
		t.first.peer.watch(id)
	}
	t.made = true
	close(t.begun)
	return nil
}

// saveFirst saves the task at its beginning. Who finds it in the store finds it running here,
// and does not take it for a task of an earlier process.
func (t *task) saveFirst(r *TaskRecord) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	t.state = *r
	t.timer = time.AfterFunc(t.ttl, t.expire)
	t.mu.Unlock()
	t.tasks.mu.Lock()
	t.tasks.live[r.Task.TaskID] = t
	t.tasks.mu.Unlock()
	err := t.tasks.save(t.first.peer, r)
	if err != nil {
		t.timer.Stop()
		t.forget()
	}
	return err
}

// giveUp ends the handler of a call whose client has disconnected. It reports false if
// the call has become a task meanwhile.
func (t *task) giveUp(why error) bool {
	t.making.Lock()
	defer t.making.Unlock()
	if t.made {
		return false
	}
	t.over = true
	t.cancel(why)
	return true
}

// created returns the answer to a call that has become a task.
func (t *task) created() *protocol.CallToolResult {
	r := t.record()
	created := r.Task.Task
	created.Status, created.StatusMessage = protocol.TaskWorking, "" // the state of the task at its creation
	created.LastUpdatedAt = created.CreatedAt
	return &protocol.CallToolResult{Task: &created}
}

// outcome returns what the handler of a call has returned, if there is no task.
func (t *task) outcome() (*protocol.CallToolResult, error) { return t.result, t.err }

// run runs the handler, and repeats it while it returns InputRequired.
func (t *task) run(params *protocol.CallToolParams) {
	defer t.tasks.leave(t)
	defer t.cancel(nil)
	defer t.settle()
	for {
		t.result, t.err = nil, asking.ErrGoexit
		t.err = t.guarded(func() (err error) {
			t.result, err = t.tool.run(t.ctx, params)
			return err
		})
		var required *InputRequired
		if !errors.As(t.err, &required) || t.settleAsCall() {
			return
		}
		if err := t.guarded(func() error { return t.requireInTask(required) }); err != nil {
			t.result, t.err = nil, err
			return
		}
	}
}

// guarded runs code of the program and reports its panic as one of the task.
func (t *task) guarded(f func() error) error {
	return t.first.peer.guarded("task of "+t.tool.definition.Name, f)
}

// settle passes on what the handler has returned.
func (t *task) settle() {
	if t.settleAsCall() {
		close(t.done)
		return
	}
	outcome := t.finished()
	t.result, t.err = nil, nil // the store may not accept the outcome for long
	t.end(outcome, nil)
}

// settleAsCall reports whether the call has not become a task. After that it never will.
func (t *task) settleAsCall() bool {
	t.making.Lock()
	defer t.making.Unlock()
	t.over = !t.made
	return t.over
}

// requireInTask asks the questions of a handler's InputRequired, and stores the answers
// for its next run.
func (t *task) requireInTask(required *InputRequired) error {
	var err error
	if t.call.asked.state, err = required.state(); err != nil {
		return err
	}
	if len(required.Requests) == 0 {
		return errors.New("server: a handler of a task that requires input has to ask for some")
	}
	t.Forget() // in the next round, the same key may have another question
	t.call.Answers, err = t.Conversation.Ask(t.ctx, required.Requests)
	return err
}

// finished returns the status of a task whose handler has returned.
func (t *task) finished() *protocol.DetailedTask {
	var raw json.RawMessage
	err := t.guarded(func() error {
		result, err := t.tool.answer(t.ctx, t.call, t.result, t.err)
		if err == nil {
			raw, err = encode(t.call, nil, copyResult(result))
		}
		return err
	})
	if err != nil {
		var fault *jsonrpc.Error
		if err = t.call.fault(err); !errors.As(err, &fault) {
			fault = refusal.New(jsonrpc.CodeInternalError, "%v", err)
		}
		return failedTask(fault)
	}
	return &protocol.DetailedTask{Task: protocol.Task{Status: protocol.TaskCompleted}, FinalResult: raw}
}

func copyResult(r *protocol.CallToolResult) *protocol.CallToolResult {
	copied := *r
	return &copied
}

func failedTask(fault *jsonrpc.Error) *protocol.DetailedTask {
	return &protocol.DetailedTask{
		Task:  protocol.Task{Status: protocol.TaskFailed, StatusMessage: refusal.Shorten(fault.Message, refusal.LongestName)},
		Error: &protocol.TaskError{Code: fault.Code, Message: fault.Message, Data: fault.Data},
	}
}

// end ends the task. Only the first call has an effect. Why is the cause with which the
// context of a running handler ends.
func (t *task) end(outcome *protocol.DetailedTask, why error) {
	t.mu.Lock()
	if t.state.Task.Status.Ended() {
		t.mu.Unlock()
		return
	}
	t.setOutcome(outcome)
	t.mu.Unlock()
	t.cancel(why)
	t.save()
	t.tell()
}

// setOutcome sets the outcome. The caller holds the mutex.
func (t *task) setOutcome(outcome *protocol.DetailedTask) {
	kept := &t.state.Task
	kept.Status, kept.StatusMessage, kept.LastUpdatedAt = outcome.Status, outcome.StatusMessage, now()
	kept.InputRequests, kept.FinalResult, kept.Error = nil, outcome.FinalResult, outcome.Error
	t.asked, t.unsaved = nil, true
	t.wake()
}

// expire ends the task when its TTL has passed, and removes it.
func (t *task) expire() {
	t.end(failedTask(refusal.New(jsonrpc.CodeInternalError, "%v", ErrTaskExpired)), ErrTaskExpired)
	t.forget()
	ctx, cancel := storing()
	defer cancel()
	_ = t.first.peer.guarded("TaskStore.Delete", func() error {
		return t.tasks.options.Store.Delete(ctx, t.state.Task.TaskID)
	}) // if this fails, the task expires in the store as well
}

// forget removes the task from memory, and leaves it to the store.
func (t *task) forget() {
	t.tasks.mu.Lock()
	delete(t.tasks.live, t.state.Task.TaskID)
	t.tasks.mu.Unlock()
}

// record returns the present state of the task.
func (t *task) record() *TaskRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.state
	r.Task.InputRequests = maps.Clone(r.Task.InputRequests)
	return &r
}

// save saves the present state of the task. When the store has its outcome, the task is
// removed from memory. If the store has no room for the outcome, the task fails with an error that is
// short and says so. After any other error, the outcome stays in memory until the store accepts it.
func (t *task) save() {
	t.saving.Lock()
	defer t.saving.Unlock()
	r := t.record()
	err := t.tasks.save(t.first.peer, r)
	failure := r.Task.Error // one that is short is kept as it is
	if !t.settled && errors.Is(err, ErrTaskStoreFull) && (r.Task.Status == protocol.TaskCompleted || failure != nil && len(failure.Message)+len(failure.Data) > failureRoom/2) {
		t.mu.Lock()
		t.setOutcome(failedTask(refusal.New(jsonrpc.CodeAnswerDropped, "the tool was executed, and its result was dropped: %s", refusal.Shorten(err.Error(), refusal.LongestName))))
		t.mu.Unlock()
		r = t.record()
		err = t.tasks.save(t.first.peer, r)
	}
	t.settled = r.Task.Status.Ended()
	if err == nil && t.settled {
		t.mu.Lock()
		t.unsaved = false
		t.timer.Stop()
		t.mu.Unlock()
		t.forget()
	}
}

// saveAgain saves an outcome that could not be saved before.
func (t *task) saveAgain() {
	t.mu.Lock()
	unsaved := t.unsaved
	t.mu.Unlock()
	if unsaved {
		t.save()
	}
}

// tell notifies the receivers of changes that the task has changed.
func (t *task) tell() { t.tasks.server.subscriptions.Tell(changes.Task(t.state.Task.TaskID)) }

// wake wakes everything that waits for a change. The caller holds the mutex.
func (t *task) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// hasBegun reports whether the call has become a task.
func (t *task) hasBegun() bool {
	select {
	case <-t.begun:
		return true
	default:
		return false
	}
}
