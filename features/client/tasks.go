package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Task is a tool call that the server continues on its own. It outlives the
// connection, the session and the program (the tasks extension of 2026-07-28, and the
// experimental tasks of 2025-11-25). A Task is safe for concurrent use.
type Task struct {
	session *Session
	id      string
	known   *protocol.CallToolResult // the answer to the call, if it did not become a task
	polled  time.Duration            // the interval that the server asked for; 0 if unknown
}

// StartTool calls a tool. If the server turns the call into a task, StartTool returns
// without waiting for the result. If the server answers the call directly, the Task
// has no ID, and its Wait returns that answer. A server may create a task only if
// Options.Tasks is set, or if it offers the tasks of 2025-11-25.
//
// If the connection is lost while the server starts the task, StartTool fails with
// ErrLost. The task may then be running, but the client does not know its ID.
func (s *Session) StartTool(ctx context.Context, params *protocol.CallToolParams) (*Task, error) {
	view := s.With(s.options)
	view.options.startsTask = true
	result, _, err := callTool.call(ctx, view, params)
	if err != nil {
		return nil, err
	}
	if result.Task == nil {
		return &Task{session: s, known: result}, nil
	}
	return s.taskOf(result.Task), nil
}

// Task returns the task with an ID, which may come from an earlier session or an
// earlier run of the program. It does not contact the server.
func (s *Session) Task(id string) *Task { return &Task{session: s, id: id} }

func (s *Session) taskOf(created *protocol.Task) *Task {
	return &Task{session: s, id: created.TaskID, polled: interval(created.PollIntervalMs)}
}

// Tasks ranges over the tasks that the server has for this client, as Session.Tools
// does over the tools. Only 2025-11-25 has such a list, and only servers that
// identify their clients offer it. Otherwise the error is ErrUnsupported.
func (s *Session) Tasks(ctx context.Context) iter.Seq2[*protocol.Task, error] {
	return taskList.all(ctx, s, nil)
}

// ID returns the id of the task, for Session.Task. Keep it secret, unless the server
// identifies its clients. It is empty if the call did not become a task.
func (t *Task) ID() string { return t.id }

// Status asks the server for the present status of the task.
func (t *Task) Status(ctx context.Context) (*protocol.DetailedTask, error) {
	if t.known != nil {
		raw, err := protocol.Marshal(t.known)
		return &protocol.DetailedTask{Task: protocol.Task{Status: protocol.TaskCompleted}, FinalResult: raw}, err
	}
	result, _, err := getTask.call(ctx, t.session, &protocol.GetTaskParams{TaskID: t.id})
	if err != nil {
		return nil, err
	}
	return &result.DetailedTask, nil
}

// Cancel asks the server to cancel the task, and returns when the server has
// confirmed the request. The task may still end in another way; see Wait.
func (t *Task) Cancel(ctx context.Context) error {
	if t.known != nil {
		return nil
	}
	_, _, err := cancelTask.call(ctx, t.session, &protocol.CancelTaskParams{TaskID: t.id})
	return err
}

// Answer answers questions of the task, by the keys in InputRequests of its Status.
// Wait does so with the handlers of Options, unless CallOptions.ManualInput is set.
// Tasks of 2025-11-25 ask only while Wait is waiting, and Answer does not apply to
// them.
func (t *Task) Answer(ctx context.Context, answers protocol.InputResponses) error {
	_, _, err := updateTask.call(ctx, t.session, &protocol.UpdateTaskParams{TaskID: t.id, InputResponses: answers})
	return err
}

// Wait waits until the task has ended and returns the result of the tool. It polls
// the server at the interval that the server wants, between 100 ms and a minute. It
// keeps waiting if the connection is lost, and answers the task's questions. If the
// server is overloaded or cannot tell the status, Wait gives up after ten such
// answers in a row. If ctx or the session ends, Wait returns, but the task continues.
// CallOptions.Timeout applies to each single request.
//
// If the task failed, Wait returns the error that the call would have returned. If
// the task was cancelled, the error matches ErrTaskCancelled. If the server does not
// have the task, or no longer has it, the error matches ErrNoTask.
func (t *Task) Wait(ctx context.Context) (*protocol.CallToolResult, error) {
	if t.known != nil {
		return t.known, nil
	}
	w := taskWait{Task: t, view: t.session.With(t.session.options), answered: make(map[string]bool)}
	w.view.options.WaitForReady = true
	w.view.options.OnProgress, w.view.options.ProgressRestarts = nil, false
	result, err := w.run(ctx)
	return result, begun(err)
}

// awaitTask waits for the task that a call has become. If ctx ends, or a question is not
// answered, awaitTask cancels the task, which takes at most a second.
func awaitTask(ctx context.Context, s *Session, result *protocol.CallToolResult) (*protocol.CallToolResult, error) {
	if result.Task == nil || s.options.startsTask {
		return result, nil
	}
	t := s.taskOf(result.Task)
	final, err := t.Wait(ctx)
	if err != nil && (ctx.Err() != nil || errors.As(err, new(*InputError)) || errors.Is(err, ErrTooMany)) {
		t.abandon(ctx)
	}
	return final, err
}

// cancelGrace is how long a call whose context has ended waits until the server has
// confirmed the cancellation, because the program may close the session right
// afterwards.
const cancelGrace = time.Second

// abandon cancels the task. If the server is away, it does so when the server is back.
func (t *Task) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
	defer cancel()
	view := t.session.With(t.session.options)
	view.options.WaitForReady = false
	if err := view.Task(t.id).Cancel(ctx); err == nil || errors.As(err, new(*jsonrpc.Error)) && !mayPassSoon(err) {
		return // a server that has refused it does so again
	}
	view.options.WaitForReady = true
	t.session.conn.Control().Go(protocol.MethodCancelTask, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_ = view.Task(t.id).Cancel(ctx) // nobody waits for the result; if the request fails, the TTL ends the task
	})
}

const (
	pollMin     = 100 * time.Millisecond
	pollMax     = time.Minute
	pollDefault = time.Second

	// mostFailedPolls is how often in a row a server may fail to report the status of a
	// task.
	mostFailedPolls = 10
)

func interval(ms *int64) time.Duration {
	if ms == nil {
		return pollDefault
	}
	return time.Duration(min(max(*ms, pollMin.Milliseconds()), pollMax.Milliseconds())) * time.Millisecond
}

// A taskWait is one Wait.
type taskWait struct {
	*Task
	view     *Session
	answered map[string]bool // the keys of the questions that were answered
	rounds   int
	failures int // how many requests in a row have failed
}

func (w *taskWait) run(ctx context.Context) (*protocol.CallToolResult, error) {
	delay := w.polled // the task has just begun, so it has not ended yet
	for {
		if delay > 0 {
			if err := w.session.sleep(ctx, delay, protocol.MethodGetTask, 0); err != nil {
				return nil, err
			}
		}
		state, last, err := getTask.call(ctx, w.view, &protocol.GetTaskParams{TaskID: w.id})
		delay = pollDefault
		switch {
		case err != nil:
			if !w.goesOn(ctx, err) {
				return nil, err
			}
			continue
		case state.Status == protocol.TaskCancelled:
			return nil, cancelled(state, last)
		case last.peer != nil && !last.peer.Modern() && state.Status != protocol.TaskWorking:
			result, _, err := taskResult.call(ctx, w.patient(), &protocol.GetTaskResultParams{TaskID: w.id})
			if err == nil {
				return result, nil
			}
			if hasCode(err, jsonrpc.CodeInternalError) || !w.goesOn(ctx, err) { // the error may be that of the call itself
				return nil, w.reason(ctx, err)
			}
			continue
		case state.Status.Ended():
			return w.outcome(state, last)
		}
		w.failures = 0
		delay = interval(cmp.Or(state.PollIntervalMs, state.PollInterval))
		if state.Status == protocol.TaskInputRequired && !w.view.options.ManualInput {
			if err := w.answer(ctx, state.InputRequests, last); err != nil && !w.goesOn(ctx, err) {
				return nil, w.reason(ctx, err)
			}
		}
	}
}

// patient returns a view for a request that the server answers only when the task has
// ended.
func (w *taskWait) patient() *Session {
	view := w.view.With(w.view.options)
	view.options.Timeout = -1
	return view
}

// goesOn reports whether Wait should continue after a failed request. The task continues
// without the connection, while the server is overloaded, and while it cannot look the
// task up.
func (w *taskWait) goesOn(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.As(err, new(*jsonrpc.Error)) && !mayPassSoon(err) || errors.As(err, new(*ResultError)) ||
		errors.As(err, new(*InputError)) || errors.Is(err, ErrTooMany) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrStale) {
		return false
	}
	if !errors.Is(err, ErrLost) && !errors.Is(err, ErrUnavailable) || errors.As(err, new(*transport.OversizedError)) {
		w.failures++ // also if the answer is too large, which it may be each time
	}
	return w.failures < mostFailedPolls
}

// reason returns why a request about the task has failed. Servers refuse it with the same codes if the
// task was cancelled or removed meanwhile, as if the call had failed or the answer did not fit. The status
// tells.
func (w *taskWait) reason(ctx context.Context, err error) error {
	if !hasCode(err, jsonrpc.CodeInternalError) && !hasCode(err, jsonrpc.CodeInvalidParams) {
		return err
	}
	view := w.view.With(w.view.options)
	view.options.Retries = -1
	state, last, failed := getTask.call(ctx, view, &protocol.GetTaskParams{TaskID: w.id})
	switch {
	case errors.Is(failed, ErrNoTask):
		return failed
	case failed == nil && state.Status == protocol.TaskCancelled:
		return cancelled(state, last)
	default:
		return err
	}
}

// cancelled returns the error of a task that was cancelled.
func cancelled(state *getTaskResult, last attempt) error {
	return answered(protocol.MethodGetTask, last.id, fmt.Errorf("%w: %.200q", ErrTaskCancelled, state.StatusMessage))
}

// mayPassSoon reports whether a server was overloaded, or could not look the task up.
func mayPassSoon(err error) bool {
	return hasCode(err, jsonrpc.CodeOverloaded) || hasCode(err, jsonrpc.CodeInternalError)
}

func hasCode(err error, code int64) bool {
	var fault *jsonrpc.Error
	return errors.As(err, &fault) && fault.Code == code
}

// answer answers the questions of the task that this Wait has not answered yet.
func (w *taskWait) answer(ctx context.Context, all protocol.InputRequests, last attempt) error {
	open := maps.Clone(all)
	maps.DeleteFunc(open, func(key string, _ protocol.InputRequest) bool { return w.answered[key] })
	if len(open) == 0 {
		return nil
	}
	if w.rounds++; w.rounds > w.session.client.options.MaxRounds {
		return answered(protocol.MethodGetTask, last.id, ErrTooMany)
	}
	if err := w.view.canAnswer(&protocol.InputRequired{InputRequests: open}); err != nil {
		return answered(protocol.MethodGetTask, last.id, &ResultError{err})
	}
	answers, err := w.view.answerFor(ctx, protocol.MethodGetTask, attempt{id: last.id}, open) // the task outlives its server
	if err != nil {
		return err
	}
	for {
		if _, _, err = updateTask.call(ctx, w.view, &protocol.UpdateTaskParams{TaskID: w.id, InputResponses: answers}); err == nil {
			break
		} else if !w.goesOn(ctx, err) { // the server ignores repeated answers
			return err
		}
		if err := w.session.sleep(ctx, pollDefault, protocol.MethodUpdateTask, last.id); err != nil {
			return err
		}
	}
	for key := range open {
		w.answered[key] = true
	}
	return nil
}

// outcome returns the result or the error of a modern task that was completed or has failed.
func (w *taskWait) outcome(state *getTaskResult, last attempt) (*protocol.CallToolResult, error) {
	switch {
	case state.Status == protocol.TaskFailed && state.Error != nil:
		fault := &jsonrpc.Error{Code: state.Error.Code, Message: state.Error.Message, Data: state.Error.Data}
		return nil, explain(answered(protocol.MethodCallTool, last.id, fault))
	case state.Status != protocol.TaskCompleted || len(state.FinalResult) == 0:
		return nil, answered(protocol.MethodGetTask, last.id, &ResultError{fmt.Errorf("the task is %s, and has no outcome", state.Status)})
	}
	result, err := taskResult.decode(state.FinalResult, new(protocol.CallToolResult), true, false)
	if err != nil {
		return nil, answered(protocol.MethodGetTask, last.id, err)
	}
	if result.InputRequired != nil {
		return nil, answered(protocol.MethodGetTask, last.id, &ResultError{errors.New("the result of the task asks for input")})
	}
	return result, nil
}

// getTaskResult is the status of a task in both eras.
type getTaskResult struct {
	protocol.GetTaskResult
	PollInterval *int64 `json:"pollInterval"` // only in 2025-11-25
}

// These are the rows of the table for tasks.
var (
	getTask = row(protocol.MethodGetTask, traits[protocol.GetTaskParams, getTaskResult]{
		repeatable: true,
		name:       func(p *protocol.GetTaskParams) string { return p.TaskID },
		check:      func(r *getTaskResult) error { return checkTask(&r.Task) },
	})
	updateTask = row(protocol.MethodUpdateTask, traits[protocol.UpdateTaskParams, protocol.EmptyResult]{
		repeatable: true,
		name:       func(p *protocol.UpdateTaskParams) string { return p.TaskID },
	})
	cancelTask = row(protocol.MethodCancelTask, traits[protocol.CancelTaskParams, protocol.EmptyResult]{
		repeatable: true,
		name:       func(p *protocol.CancelTaskParams) string { return p.TaskID },
	})
	taskResult = row(protocol.MethodGetTaskResult, traits[protocol.GetTaskResultParams, protocol.CallToolResult]{
		repeatable: true,
		check:      hasContent,
	})
	listTasks = row(protocol.MethodListTasks, traits[protocol.ListTasksParams, protocol.ListTasksResult]{
		repeatable: true,
		check:      func(r *protocol.ListTasksResult) error { return present(r.Tasks != nil, "tasks") },
	})
	taskList = list[protocol.ListTasksParams, protocol.ListTasksResult, *protocol.Task, *protocol.ListTasksParams]{
		listTasks,
		func(p *protocol.ListTasksParams) **string { return &p.Cursor },
		func(r *protocol.ListTasksResult) (page []*protocol.Task, next *string) {
			for _, one := range r.Tasks {
				page = append(page, fromLegacy(one))
			}
			return page, r.NextCursor
		},
	}
)

func checkTask(t *protocol.Task) error {
	statuses := []protocol.TaskStatus{protocol.TaskWorking, protocol.TaskInputRequired, protocol.TaskCompleted, protocol.TaskFailed, protocol.TaskCancelled}
	switch {
	case t.TaskID == "":
		return present(false, "taskId")
	case !slices.Contains(statuses, t.Status):
		return fmt.Errorf("the task is of the unknown status %.100q", t.Status)
	default:
		return nil
	}
}

func fromLegacy(t *protocol.LegacyTask) *protocol.Task {
	return &protocol.Task{
		TaskID: t.TaskID, Status: t.Status, StatusMessage: t.StatusMessage,
		CreatedAt: t.CreatedAt, LastUpdatedAt: t.LastUpdatedAt, TTLMs: t.TTL, PollIntervalMs: t.PollInterval,
	}
}

// becameTask returns the task that a call has become, or nil.
func becameTask(raw json.RawMessage, modern bool, resultType string) (*protocol.Task, error) {
	var task *protocol.Task
	if modern {
		if resultType != protocol.ResultTask {
			return nil, nil
		}
		var created protocol.CreateTaskResult
		if err := protocol.Unmarshal(raw, &created); err != nil {
			return nil, err
		}
		task = &created.Task
	} else {
		var created struct {
			Task *protocol.LegacyTask `json:"task"`
		}
		if err := protocol.Unmarshal(raw, &created); err != nil || created.Task == nil {
			return nil, err
		}
		task = fromLegacy(created.Task)
	}
	return task, checkTask(task)
}
