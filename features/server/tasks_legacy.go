package server

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// This file contains the experimental tasks of 2025-11-25 (basic/utilities/tasks). There
// the client asks for a task, waits for its end with tasks/result, and gets questions on
// the stream of that request.

// encodeCalled encodes the result of tools/call. Each era encodes a task differently.
func encodeCalled(encodeResult func(*call, []byte, any) ([]byte, error)) func(*call, []byte, any) ([]byte, error) {
	return func(c *call, dst []byte, result any) ([]byte, error) {
		if typed, ok := result.(*protocol.CallToolResult); ok && typed != nil && typed.Task != nil && !c.modern {
			created := legacyTask(&TaskRecord{Task: protocol.DetailedTask{Task: *typed.Task}})
			return encode(c, dst, &protocol.LegacyCreateTaskResult{Meta: typed.Meta, Task: created})
		}
		return encodeResult(c, dst, result)
	}
}

// offerList lets a client list its tasks, if it is authenticated. It copies what it
// changes.
func (ts *tasks) offerList(c *call, result *protocol.InitializeResult) *protocol.InitializeResult {
	if result.Capabilities.Tasks == nil || !ts.on || c.Origin.Identity == "" {
		return result
	}
	copied, tasks := *result, *result.Capabilities.Tasks
	tasks.List = &protocol.Capability{}
	copied.Capabilities.Tasks = &tasks
	return &copied
}

// related returns the _meta for all messages of a task.
func related(id string) json.RawMessage {
	raw, err := protocol.Marshal(protocol.RelatedTask{TaskID: id})
	if err != nil { // text can be encoded
		panic(err)
	}
	return raw
}

// result waits until a task has ended, and returns the answer that the call would
// have had.
func (ts *tasks) result(ctx context.Context, c *call, params *protocol.GetTaskResultParams) (any, error) {
	wait := distantWait{distantTask: ts.distant(c, params.TaskID), interval: ts.options.PollInterval}
	for {
		r, t, err := ts.present(ctx, c, params.TaskID, wait.distantTask)
		switch {
		case err != nil:
			return nil, err
		case r.Task.Status.Ended():
			return finalResult(r)
		case t == nil: // the task runs in another process
			err = wait.attend(ctx, r)
		default:
			err = t.attend(ctx, c)
		}
		if err != nil {
			return nil, err
		}
	}
}

// waitFor waits for a change, or until the time d has passed if d is not 0.
func waitFor(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-changed:
	case <-over:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// attend asks the client the task's questions, or waits for the next change of the task.
func (t *task) attend(ctx context.Context, c *call) error {
	t.mu.Lock()
	changed, asked, ended := t.changed, t.asked, t.state.Task.Status.Ended()
	mine := asked != nil && !asked.attended
	var open protocol.InputRequests
	if mine {
		asked.attended = true // other requests for this task do not ask again
		open = asked.Open()
	}
	t.mu.Unlock()
	switch {
	case ended:
		return nil
	case !mine:
		return waitFor(ctx, changed, 0)
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(asked.ctx, stop)() // the client need not answer any more
	answers, err := t.askClient(asking, c, open)
	switch {
	case err == nil:
		return t.update(ctx, answers)
	case asked.ctx.Err() != nil && ctx.Err() == nil:
		return nil
	case ctx.Err() != nil || errors.As(err, new(*conn.CallError)): // the client has disconnected: another request asks again
		t.mu.Lock()
		asked.attended = false
		t.wake()
		t.mu.Unlock()
		return err
	default: // the outcome is the answer
		asked.Refuse(err)
		return waitFor(ctx, changed, 0)
	}
}

// askClient asks the client the questions of a task. The requests name the task.
func (t *task) askClient(ctx context.Context, c *call, open protocol.InputRequests) (protocol.InputResponses, error) {
	id := t.record().Task.TaskID
	related := make(protocol.InputRequests, len(open))
	for key, q := range open {
		related[key] = relatedQuestion(q, id)
	}
	return t.tasks.server.rounds.askClient(ctx, c, related)
}

// relatedQuestion returns a copy of a question that names its task.
func relatedQuestion(q protocol.InputRequest, id string) protocol.InputRequest {
	switch q := q.(type) {
	case *protocol.ElicitParams:
		copied := *q
		copied.SetMeta(protocol.MetaRelatedTask, related(id))
		return &copied
	case *protocol.CreateMessageParams:
		copied := *q
		copied.SetMeta(protocol.MetaRelatedTask, related(id))
		return &copied
	case *protocol.ListRootsParams:
		copied := *q
		copied.SetMeta(protocol.MetaRelatedTask, related(id))
		return &copied
	default:
		return q
	}
}

// finalResult returns the answer that the call would have had.
func finalResult(r *TaskRecord) (any, error) {
	switch {
	case r.Task.Error != nil:
		return nil, &jsonrpc.Error{Code: r.Task.Error.Code, Message: r.Task.Error.Message, Data: r.Task.Error.Data}
	case r.Task.Status != protocol.TaskCompleted:
		return nil, refusal.New(jsonrpc.CodeInternalError, "the task is %s", r.Task.Status)
	}
	result := new(protocol.CallToolResult)
	if err := protocol.Unmarshal(r.Task.FinalResult, result); err != nil {
		return nil, refusal.New(jsonrpc.CodeInternalError, "the result cannot be read: %s", refusal.Explain(err))
	}
	meta := maps.Clone(result.Meta)
	if meta == nil {
		meta = make(protocol.Meta)
	}
	delete(meta, protocol.MetaServerInfo) // a member of 2026-07-28
	meta[protocol.MetaRelatedTask] = related(r.Task.TaskID)
	result.Meta, result.ResultType = meta, ""
	return result, nil
}

// list lists the tasks of the client.
func (ts *tasks) list(ctx context.Context, c *call, params *protocol.ListTasksParams) (any, error) {
	after, err := catalog.DecodeCursor(params.Cursor)
	if err != nil {
		return nil, err
	}
	if len(after) > longestTaskID {
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "the cursor is none of this server")
	}
	size := ts.server.options.PageSize
	records, err := ts.options.Store.List(ctx, c.Origin.Identity, after, size+1)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "the task of the cursor is over")
	case err != nil:
		return nil, refusal.New(jsonrpc.CodeInternalError, "the tasks cannot be listed: %v", err)
	}
	result := &protocol.ListTasksResult{Tasks: protocol.LegacyTasks{}}
	for i, r := range records {
		if i == size {
			next := catalog.EncodeCursor(records[i-1].Task.TaskID)
			result.NextCursor = &next
			break
		}
		if !time.Now().Before(r.Expires) {
			continue // the store has not forgotten it yet
		}
		if now, _, err := ts.find(ctx, c, r.Task.TaskID); err == nil {
			r = now // the store may not have its latest state
		}
		one := legacyTask(r)
		result.Tasks = append(result.Tasks, &one)
	}
	return result, nil
}

// watch notifies a legacy client of changes of a task that it started.
func (p *peer) watch(id string) {
	if p.changes.Want(changes.Task(id)) {
		p.server.subscriptions.Watch(&p.changes, id)
	}
}

// statusOf returns the params of a status notification for a legacy client. It fails
// with ErrNotFound if the task no longer exists. After a task has ended, it sends one
// more notification.
func (p *peer) statusOf(ctx context.Context, id string) (any, error) {
	r, _, err := p.server.tasks.look(ctx, p, id)
	if errors.Is(err, ErrNotFound) || err == nil && r.Task.Status.Ended() {
		p.changes.Unwant(changes.Task(id))
		p.server.subscriptions.Unwatch(&p.changes, id)
	}
	if err != nil {
		return nil, err
	}
	return &protocol.TaskStatusParams{LegacyTask: legacyTask(r)}, nil
}
