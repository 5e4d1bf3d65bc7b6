package tasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Job is what a task does: the call of a tool.
type Job interface {
	asking.Caller // the request that began it

	// Begun says that the call has become the task with this id. It is called once, when the task
	// was saved and before Serve returns it, and must not block: the handler and its questions wait
	// meanwhile.
	Begun(id string)

	// Run runs the handler once, and keeps its result. If the handler requires input, Run returns an *asking.Required.
	Run(ctx context.Context) error

	// Answered gives the handler what it required, for its next run. It is called between two runs,
	// on their goroutine.
	Answered(answers protocol.InputResponses)

	// Outcome returns the encoded answer to the call, of what Run has kept. Failed is what the last run has returned, or why there was no more.
	Outcome(ctx context.Context, failed error) (json.RawMessage, error)
}

// About is who has called which tool.
type About struct {
	Tool   string
	Owner  string // the identity that may see the task
	Client string // whose limits it counts for
	From   share.Client
	Size   int           // the size of the request, in bytes
	TTL    time.Duration // what the client asks for; 0: nothing
}

// A Task is a call that is a task, or may become one. Its handler runs once, on a separate
// goroutine that outlives the request. A Task is also an asking.Questioner, and the courier of its
// questions.
//
// Until it has begun, it is a call like any other: nothing is in the store, and the round asks its
// questions. It begins once, or never: making decides that, so a handler that returns while its
// call becomes a task ends one of both, and not half of each.
type Task struct {
	tasks *Tasks
	job   Job
	about About

	ctx    context.Context // the context of the handler
	cancel context.CancelCauseFunc

	making sync.Mutex    // held while the call becomes a task
	made   bool          // the call is a task. Guarded by making
	over   bool          // the call will never become a task. Guarded by making
	begun  chan struct{} // closed when the call has become a task
	done   chan struct{} // closed when the handler has returned and there is no task
	err    error         // what the last run has returned

	asking.Conversation                   // asks after the call has become a task
	inRound             asking.Questioner // asks before that; nil for a handler that Waits
	used                map[string]bool   // keys that questions have used. Guarded by turn

	// The order of the mutexes is making, saving, mu. The store runs under the first two, so a
	// reader of the state takes only mu.
	saving  sync.Mutex // held during a save, so that the store gets the states in order
	settled bool       // a client may have seen the outcome, so it must not change. Guarded by saving

	mu      sync.Mutex
	state   Record
	asked   *questions  // what the client must answer
	unsaved bool        // the store does not have the outcome yet
	timer   *time.Timer // ends the task when its TTL has passed

	// Those who wait for a change, such as requests for the result, look themselves what has changed: several changes may wake them
	// once. It is announced after the state has changed and before mu is given up, so that nobody sees the new state and
	// waits for the change that has led to it.
	changed wait.Changes
}

// New returns the task that a call may become. Early is what its client has said before it was
// asked. A client may ask for a shorter TTL than the server's, but not for a longer one. Nothing
// runs before Serve.
func (ts *Tasks) New(job Job, about About, early protocol.InputResponses) *Task {
	if about.TTL <= 0 || about.TTL > ts.TTL {
		about.TTL = ts.TTL
	}
	t := &Task{
		tasks: ts, job: job, about: about, used: make(map[string]bool),
		begun: make(chan struct{}), done: make(chan struct{}),
	}
	t.Begin(t)
	t.SetEarly(early, true)
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	return t
}

// AskFirst makes a questioner ask until the call has become a task. Call it before Serve, and not
// at all for a handler that Waits: the first question of such a one makes the call a task.
func (t *Task) AskFirst(inRound asking.Questioner) { t.inRound = inRound }

// Life returns the context of the handler, which ends with the task. It does not end with the
// request, and has none of its values.
func (t *Task) Life() context.Context { return t.ctx }

// Drop ends a task that was not served, and gives its place back. After Serve it must not be
// called: the place is then given back when the handler returns.
func (t *Task) Drop() {
	t.cancel(nil)
	t.tasks.leave(t)
}

// A task is in one of these states. Each arrow is taken once; whoever comes second finds that out, and does nothing:
//
//	call ──make──▶ working ◀──▶ input_required ──end──▶ completed, failed or cancelled ──save──▶ only in the store
//	  │
//	  └──settleAsCall, giveUp──▶ answered as a call: never a task
//
// The status of an ended task stays, even if the handler returns later, for a client may have seen it.

// now returns the time in the format of tasks: in UTC, to the millisecond.
func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// make turns the call into a task, after it has saved the task. It does nothing if the
// call is a task already. It fails if the call can no longer become one.
func (t *Task) make() error {
	t.making.Lock()
	defer t.making.Unlock()
	switch {
	case t.over:
		return asking.ErrUnanswered
	case t.made:
		return nil
	}
	r := t.firstRecord()
	if err := t.saveFirst(r); errors.Is(err, ErrStoreFull) {
		return refusal.New(jsonrpc.CodeOverloaded, "overloaded: the call cannot become a task: %v", err)
	} else if err != nil {
		return refusal.New(jsonrpc.CodeInternalError, "the call cannot become a task: %v", err)
	}
	if again, ok := t.inRound.(*asking.Rerun); ok { // answers from rounds remain valid, once they are found to fit
		t.Follow(&again.Exchange)
	}
	t.job.Begun(r.Task.TaskID)
	t.made = true
	close(t.begun)
	return nil
}

// firstRecord returns the task as it begins. Its id is random, for whoever knows the id of a task
// of an unauthenticated client can see it; and it names the node, so that another one finds out
// whom to ask.
func (t *Task) firstRecord() *Record {
	created, stamp := time.Now(), now()
	kept, interval := t.about.TTL.Milliseconds(), t.tasks.PollInterval.Milliseconds()
	return &Record{
		Tool: t.about.Tool, Owner: t.about.Owner, Client: t.about.Client, Node: t.tasks.Node,
		Created: created, Expires: created.Add(t.about.TTL),
		Task: protocol.DetailedTask{Task: protocol.Task{
			TaskID: nodename.Join(t.tasks.Node, rand.Text()), Status: protocol.TaskWorking,
			CreatedAt: stamp, LastUpdatedAt: stamp, TTLMs: &kept, PollIntervalMs: &interval,
		}},
	}
}

// saveFirst saves the task at its beginning. It makes the task known here before the task is in the
// store: another request may find it there at once, and must not take it for one of an earlier process.
func (t *Task) saveFirst(r *Record) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	t.state = *r
	t.timer = time.AfterFunc(t.about.TTL, t.expire)
	t.mu.Unlock()
	t.tasks.mu.Lock()
	t.tasks.live[r.Task.TaskID] = t
	t.tasks.mu.Unlock()
	err := t.tasks.save(t.job.Guarded, r)
	if err != nil {
		t.timer.Stop()
		t.forget()
	}
	return err
}

// giveUp ends the handler of a call whose client has disconnected: nobody would get its result. It
// reports false if the call has become a task meanwhile, which must outlive its client.
func (t *Task) giveUp(why error) bool {
	t.making.Lock()
	defer t.making.Unlock()
	if t.made {
		return false
	}
	t.over = true
	t.cancel(why)
	return true
}

// created returns the answer to a call that has become a task. The handler runs already, and the
// task may even have ended: the answer shows the beginning all the same, so that every client sees
// the states in their order.
func (t *Task) created() *protocol.Task {
	r := t.record()
	created := r.Task.Task
	created.Status, created.StatusMessage = protocol.TaskWorking, "" // the state of the task at its creation
	created.LastUpdatedAt = created.CreatedAt
	return &created
}

// run is the goroutine of the handler. It runs the handler, and repeats it while it requires input. Whatever
// the handler does, panics and runtime.Goexit included, its place is given back, its context ends, and its call
// is answered or its task ends.
func (t *Task) run() {
	defer t.tasks.leave(t)
	defer t.cancel(nil)
	defer t.settle()
	for {
		t.err = asking.ErrGoexit
		t.err = t.guarded(func() error { return t.job.Run(t.ctx) })
		var required *asking.Required
		if !errors.As(t.err, &required) || t.settleAsCall() {
			return
		}
		if err := t.guarded(func() error { return t.requireInTask(required) }); err != nil {
			t.err = err
			return
		}
	}
}

// guarded runs code of the program and reports its panic as one of the task.
func (t *Task) guarded(f func() error) error { return t.job.Guarded("task of "+t.about.Tool, f) }

// settle passes on what the handler has returned: to Serve, which waits for it, or into the task.
// It is deferred, so it also runs for a handler that has ended its goroutine.
func (t *Task) settle() {
	if t.settleAsCall() {
		close(t.done)
		return
	}
	t.end(t.finished(), nil)
}

// settleAsCall reports whether the call has not become a task. After that it never will: the
// handler has returned, and what it returned must reach the client in one of the two ways.
func (t *Task) settleAsCall() bool {
	t.making.Lock()
	defer t.making.Unlock()
	t.over = !t.made
	return t.over
}

// requireInTask asks the questions that a handler requires, and gives the answers to its next run.
// A handler that requires nothing would run again at once, and for ever.
func (t *Task) requireInTask(required *asking.Required) error {
	if len(required.Requests) == 0 {
		return errors.New("server: a handler of a task that requires input has to ask for some")
	}
	t.Forget() // in the next round, the same key may have another question
	answers, err := t.Conversation.Ask(t.ctx, required.Requests)
	if err == nil {
		t.job.Answered(answers)
	}
	return err
}

// finished returns the status of a task whose handler has returned. A tool that says itself that it
// failed has completed: its result says so. Failed is a task without a result.
func (t *Task) finished() *protocol.DetailedTask {
	var raw json.RawMessage
	err := t.guarded(func() (err error) {
		raw, err = t.job.Outcome(t.ctx, t.err)
		return err
	})
	if err != nil {
		var fault *jsonrpc.Error
		if !errors.As(err, &fault) {
			fault = refusal.New(jsonrpc.CodeInternalError, "%v", err)
		}
		return failedTask(fault)
	}
	return &protocol.DetailedTask{Task: protocol.Task{Status: protocol.TaskCompleted}, FinalResult: raw}
}

// failedTask returns the outcome of a task that has no result. Its status message is short, because
// lists show it.
func failedTask(fault *jsonrpc.Error) *protocol.DetailedTask {
	return &protocol.DetailedTask{
		Task:  protocol.Task{Status: protocol.TaskFailed, StatusMessage: refusal.Shorten(fault.Message, refusal.LongestName)},
		Error: &protocol.TaskError{Code: fault.Code, Message: fault.Message, Data: fault.Data},
	}
}

// end ends the task. The handler's goroutine, a client that cancels and the timer call it; only the
// first call has an effect. Why is the cause with which the context of a running handler ends.
func (t *Task) end(outcome *protocol.DetailedTask, why error) {
	t.mu.Lock()
	if t.state.Task.Status.Ended() {
		t.mu.Unlock()
		return
	}
	t.setOutcome(outcome)
	t.mu.Unlock()
	t.cancel(why)
	t.publish()
}

// setOutcome sets the outcome. The caller holds the mutex, and saves the outcome afterwards.
// Open questions are gone: an answer to them finds nothing to change.
func (t *Task) setOutcome(outcome *protocol.DetailedTask) {
	kept := &t.state.Task
	kept.Status, kept.StatusMessage, kept.LastUpdatedAt = outcome.Status, outcome.StatusMessage, now()
	kept.InputRequests, kept.FinalResult, kept.Error = nil, outcome.FinalResult, outcome.Error
	t.asked, t.unsaved = nil, true
	t.changed.Announce()
}

// expire ends the task when its TTL has passed, and removes it. The timer calls it, once. The task may have
// ended long before, and wait for a store that accepts its outcome.
func (t *Task) expire() {
	t.end(failedTask(refusal.New(jsonrpc.CodeInternalError, "%v", ErrExpired)), ErrExpired)
	t.forget()
	ctx, cancel := storing()
	defer cancel()
	_ = t.job.Guarded("TaskStore.Delete", func() error {
		return t.tasks.Store.Delete(ctx, t.state.Task.TaskID)
	}) // if this fails, the task expires in the store as well
}

// forget removes the task from memory, and leaves it to the store. Who looks for it from now on
// reads what was saved.
func (t *Task) forget() {
	t.tasks.mu.Lock()
	delete(t.tasks.live, t.state.Task.TaskID)
	t.tasks.mu.Unlock()
}

// record returns the present state of the task, as a copy that nobody else changes.
func (t *Task) record() *Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.state
	r.Task.InputRequests = maps.Clone(r.Task.InputRequests)
	return &r
}

// save saves the present state of the task. When the store has its outcome, the task is removed
// from memory. If the store has no room for the outcome, the task fails with an error that is short
// and says so, for a client must not take a tool for failed that has done its work. After any other
// error, the outcome stays in memory until the store accepts it.
func (t *Task) save() {
	t.saving.Lock()
	defer t.saving.Unlock()
	r := t.record()
	err := t.tasks.save(t.job.Guarded, r)
	failure := r.Task.Error // one that is short is kept as it is
	if !t.settled && errors.Is(err, ErrStoreFull) && (r.Task.Status == protocol.TaskCompleted || failure != nil && len(failure.Message)+len(failure.Data) > FailureRoom/2) {
		t.mu.Lock()
		t.setOutcome(failedTask(refusal.New(jsonrpc.CodeAnswerDropped, "the tool was executed, and its result was dropped: %s", refusal.Shorten(err.Error(), refusal.LongestName))))
		t.mu.Unlock()
		r = t.record()
		err = t.tasks.save(t.job.Guarded, r)
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

// saveAgain saves an outcome that could not be saved before. There is no timer for that: whoever
// asks for the task calls it, and a task that nobody asks for may be lost with the process.
func (t *Task) saveAgain() {
	t.mu.Lock()
	unsaved := t.unsaved
	t.mu.Unlock()
	if unsaved {
		t.save()
	}
}

// HasBegun reports whether the call has become a task. Once it does, it always will.
func (t *Task) HasBegun() bool { return wait.IsClosed(t.begun) }
