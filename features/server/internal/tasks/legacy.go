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

// Result serves tasks/result: it waits until a task has ended, and returns the answer that the call
// would have had. It looks, and waits for a change if there is nothing to return: here until the
// task says so, and for a task of another process until it is time to look again.
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

// waitFor waits for a change, or until the time d has passed if d is not 0. Without d, changed must
// be closed some day: a task that ends is a change, too.
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
	asked, open, changed := t.takeQuestions()
	switch {
	case changed == nil:
		return nil
	case asked == nil:
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
	case ctx.Err() != nil || errors.As(err, new(*conn.CallError)): // the client has disconnected
		t.leaveQuestions(asked)
		return err
	default: // the outcome is the answer
		asked.Refuse(err)
		return waitFor(ctx, changed, 0)
	}
}

// takeQuestions returns the open questions, for this request to ask alone, or none if another
// request asks them. Changed is closed at the next change of the task. It is taken in the same
// step, so that no change is missed. A task that has ended changes no more: then it is nil.
func (t *Task) takeQuestions() (asked *questions, open protocol.InputRequests, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state.Task.Status.Ended():
		return nil, nil, nil
	case t.asked == nil || t.asked.attended:
		return nil, nil, t.changed.Next()
	}
	t.asked.attended = true
	return t.asked, t.asked.Open(), t.changed.Next()
}

// leaveQuestions lets another request ask, and wakes those that wait, so that one of them does it.
func (t *Task) leaveQuestions(asked *questions) {
	t.mu.Lock()
	defer t.mu.Unlock()
	asked.attended = false
	t.changed.Announce()
}

// askClient asks the client the questions of a task. The requests name the task, since several of
// its tasks may ask a client at once.
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

// finalResult returns the answer that the call would have had. It is read and written again,
// because it may have members that only 2026-07-28 knows.
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

// List serves tasks/list: it lists the tasks of the client. The store lists them, because it alone
// knows those of other processes.
func (ts *Tasks) List(ctx context.Context, c *Request, params *protocol.ListTasksParams) (any, error) {
	after, err := catalog.DecodeCursor(params.Cursor)
	if err != nil {
		return nil, err
	}
	if len(after) > longestID {
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "the cursor is none of this server")
	}
	records, err := ts.Store.List(ctx, c.Identity, after, ts.PageSize+1) // one more than fits, to know whether there is another page
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "the task of the cursor is over")
	case err != nil:
		return nil, refusal.New(jsonrpc.CodeInternalError, "the tasks cannot be listed: %v", err)
	}
	result := &protocol.ListTasksResult{}
	if len(records) > ts.PageSize {
		records = records[:ts.PageSize]
		next := catalog.EncodeCursor(records[ts.PageSize-1].Task.TaskID)
		result.NextCursor = &next
	}
	result.Tasks = ts.listed(ctx, c, records)
	return result, nil
}

// listed returns the tasks of a page in their present state, which the store may not have yet. A
// task that the store has not forgotten, but whose time has passed, is left out, so a page may have
// fewer tasks than fit.
func (ts *Tasks) listed(ctx context.Context, c *Request, records []*Record) []*protocol.LegacyTask {
	listed := []*protocol.LegacyTask{}
	for _, r := range records {
		if !time.Now().Before(r.Expires) {
			continue
		}
		if now, _, err := ts.Find(ctx, c, r.Task.TaskID); err == nil {
			r = now
		}
		one := Legacy(r)
		listed = append(listed, &one)
	}
	return listed
}
