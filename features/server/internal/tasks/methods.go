package tasks

import (
	"context"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Request is a request of a client about its tasks. It belongs to the goroutine that serves it,
// and ends with that.
type Request struct {
	asking.Caller
	Method    string
	Modern    bool
	Identity  string             // of the client; "": nobody was authenticated
	Exchange  transport.Exchange // where it came in; nil is allowed
	Client    *protocol.Implementation
	AskClient func(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) // by requests of the legacy revisions
}

// present does what Find does. If d is not nil, the node of the task is asked. If that fails,
// the result is what was saved last.
func (ts *Tasks) present(ctx context.Context, c *Request, id string, d *distant) (*Record, *Task, error) {
	if d != nil {
		if r, err := d.get(ctx); err == nil {
			return r, nil, nil
		}
	}
	return ts.Find(ctx, c, id)
}

// Get serves tasks/get, for every task that is found, wherever it runs. Only a change of a task
// takes its node: what was saved last is still an answer to a client that polls.
func (ts *Tasks) Get(ctx context.Context, c *Request, params *protocol.GetTaskParams) (any, error) {
	r, _, err := ts.present(ctx, c, params.TaskID, ts.distant(c, params.TaskID))
	switch {
	case err != nil:
		return nil, err
	case c.Modern:
		return &protocol.GetTaskResult{DetailedTask: r.Task}, nil
	default:
		return &protocol.LegacyTaskResult{LegacyTask: Legacy(r)}, nil
	}
}

// Late answers, and answers to what nobody asks, are no error: a client cannot know what another
// request has answered.
//
// Update serves tasks/update.
func (ts *Tasks) Update(ctx context.Context, c *Request, params *protocol.UpdateTaskParams) (any, error) {
	r, t, err := ts.Find(ctx, c, params.TaskID)
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

// Cancel serves tasks/cancel. It does not wait for the handler, which may go on for a while: the
// task has ended when Cancel returns, and what the handler returns is dropped. To cancel a task
// twice is an error only in 2025-11-25, which says so.
func (ts *Tasks) Cancel(ctx context.Context, c *Request, params *protocol.CancelTaskParams) (any, error) {
	d := ts.distant(c, params.TaskID)
	r, t, err := ts.present(ctx, c, params.TaskID, d)
	switch {
	case err != nil:
		return nil, err
	case !c.Modern && r.Task.Status.Ended():
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "the task has ended: it is %s", r.Task.Status)
	case t != nil:
		t.end(&protocol.DetailedTask{Task: protocol.Task{Status: protocol.TaskCancelled, StatusMessage: "cancelled by the client"}}, ErrCancelled)
		r = t.record()
	case !r.Task.Status.Ended():
		if err = d.cancel(ctx); err == nil {
			r, _, err = ts.present(ctx, c, params.TaskID, d)
		}
	}
	if err != nil {
		return nil, err
	}
	if !c.Modern {
		return &protocol.LegacyTaskResult{LegacyTask: Legacy(r)}, nil
	}
	return &protocol.EmptyResult{}, nil
}

// Legacy converts a task to 2025-11-25, in which a task fails if its tool failed. It changes
// nothing in the record, which may be shared.
func Legacy(r *Record) protocol.LegacyTask {
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
