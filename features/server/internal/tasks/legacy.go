package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// This file contains what only the experimental tasks of 2025-11-25 have (basic/utilities/tasks). There
// the client asks for a task, waits for its end with tasks/result, and gets questions on
// the stream of that request.

// related returns the _meta for all messages of a task.
func related(id string) json.RawMessage {
	raw, err := protocol.Marshal(protocol.RelatedTask{TaskID: id})
	if err != nil { // text can be encoded
		panic(err)
	}
	return raw
}

// Result serves tasks/result: it waits until a task has ended, and returns the answer that the call would
// have had.
func (ts *Tasks) Result(ctx context.Context, c *Request, params *protocol.GetTaskResultParams) (any, error) {
	wait := distantWait{distant: ts.distant(c, params.TaskID), interval: ts.PollInterval}
	for {
		r, t, err := ts.present(ctx, c, params.TaskID, wait.distant)
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

// attend asks the client the task's questions, or waits for the next change of the task. There may
// be several requests of tasks/result for one task, and each calls attend, but only one of them
// asks: a user must not see a question twice. If that one loses its client, another one asks again.
func (t *Task) attend(ctx context.Context, c *Request) error {
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
func (t *Task) askClient(ctx context.Context, c *Request, open protocol.InputRequests) (protocol.InputResponses, error) {
	id := t.record().Task.TaskID
	related := make(protocol.InputRequests, len(open))
	for key, q := range open {
		related[key] = relatedQuestion(q, id)
	}
	return c.AskClient(ctx, related)
}

// A question may be shared: the task shows it in its status, too. So it is copied before it is changed.
//
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
func finalResult(r *Record) (any, error) {
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

// List serves tasks/list: it lists the tasks of the client.
func (ts *Tasks) List(ctx context.Context, c *Request, params *protocol.ListTasksParams) (any, error) {
	after, err := catalog.DecodeCursor(params.Cursor)
	if err != nil {
		return nil, err
	}
	if len(after) > LongestID {
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "the cursor is none of this server")
	}
	size := ts.PageSize
	records, err := ts.Store.List(ctx, c.Identity, after, size+1)
	switch {
	case errors.Is(err, catalog.ErrNotFound):
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
		if now, _, err := ts.Find(ctx, c, r.Task.TaskID); err == nil {
			r = now // the store may not have its latest state
		}
		one := Legacy(r)
		result.Tasks = append(result.Tasks, &one)
	}
	return result, nil
}
