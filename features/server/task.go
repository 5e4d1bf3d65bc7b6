package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/tasks"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/protocol"
)

// A taskJob is the call of a tool that is a task, or may become one.
// It has two calls. The request that began it is answered while the handler may still run, and is over then. What the
// handler sees is another one, with the same id, whose questions and progress go to the task.
type taskJob struct {
	of      *tasks.Task
	*call         // the request that began it
	seen    *call // what the handler sees
	tool    *tool
	methods *taskMethods
	params  *protocol.CallToolParams
	values  context.Context // has the values of the first request

	result *protocol.CallToolResult
	next   json.RawMessage // the state for the handler's next run
}

// A taskContext is the context of a handler that may be a task. It has the values of the
// first request, and ends with the task.
type taskContext struct {
	context.Context
	job *taskJob
}

func (c taskContext) Value(key any) any {
	switch key {
	case requestKey{}:
		return &c.job.seen.Request
	case callKey{}: // the call that made the task ends when it is answered
		return c.job.seen
	}
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.job.values.Value(key)
}

// newJob reads what is needed of the request, which may be answered before the handler has returned. Nothing runs
// yet, and nothing was reserved.
func (ts *taskMethods) newJob(ctx context.Context, c *call, tl *tool, params *protocol.CallToolParams) *taskJob {
	c.addMeta()
	about := tasks.About{
		Tool: tl.definition.Name, Owner: c.Origin.Identity, Client: cmp.Or(c.Origin.Identity, network.Of(c.Origin.Address())), From: c.client(), Size: c.size,
	}
	// Only the client of 2025-11-25 may ask for a time. More than the server gives is cut here already, so that it
	// cannot overflow.
	if asked := params.Task; !c.modern && asked != nil && asked.TTL != nil {
		about.TTL = time.Duration(min(*asked.TTL, ts.options.TTL.Milliseconds())) * time.Millisecond
	}
	j := &taskJob{methods: ts, call: c, tool: tl, params: params, values: context.WithoutCancel(ctx)}
	j.of = ts.New(j, about, params.InputResponses)
	return j
}

// show makes the call that the handler sees, from the request and what its client has answered.
func (j *taskJob) show() {
	c := j.call
	j.seen = &call{
		Context: taskContext{j.of.Life(), j}, Request: c.Request, in: c.in, method: c.method, offered: c.offered, modern: c.modern, level: c.level,
		task: &inTask{j.of, c}, asked: &asked{id: c.CallID()},
	}
	// Else what the handler finds by its request would be the call that was answered.
	j.seen.Request.call = j.seen
	// The round may already have a questioner and a state: the call is in converse, and asks there until it is a
	// task.
	if c.asked != nil {
		j.of.AskFirst(c.asked.questioner)
		j.seen.asked.state = c.asked.state
	}
	if j.tool.asking != nil {
		j.seen.asked.questioner = j.of
	}
}

// Begun implements tasks.Job.
func (j *taskJob) Begun(id string) {
	if !j.modern {
		j.methods.watch(j.peer, id)
	}
}

// Run implements tasks.Job.
func (j *taskJob) Run(ctx context.Context) (err error) {
	// What an earlier run has returned is no result of this one.
	j.result = nil
	j.result, err = j.tool.run(taskContext{ctx, j}, j.params)
	var required *InputRequired
	if !errors.As(err, &required) {
		return err
	}
	if j.next, err = required.state(); err != nil {
		return err
	}
	return &asking.Required{Requests: required.Requests, Err: required}
}

// Answered implements tasks.Job.
func (j *taskJob) Answered(answers protocol.InputResponses) {
	j.seen.asked.state, j.seen.Answers = j.next, answers
}

// Outcome implements tasks.Job. It drops the result, since the store may not accept the outcome for long.
func (j *taskJob) Outcome(ctx context.Context, failed error) (json.RawMessage, error) {
	result, err := j.tool.answer(taskContext{ctx, j}, j.seen, j.result, failed)
	j.result = nil
	if err != nil {
		return nil, j.seen.fault(err)
	}
	copied := *result // encode changes it
	raw, err := encode(j.seen, nil, &copied)
	if err != nil {
		return nil, j.seen.fault(err)
	}
	return raw, nil
}

// call serves a call that may become a task. It reserves a place for the handler before a
// requestState is used up, so that a client whose round was refused can repeat it.
func (ts *taskMethods) call(ctx context.Context, c *call, tl *tool, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	waits := tl.asking != nil && tl.asking.how == Waits
	if c.modern && waits && params.RequestState != nil { // it began as a call that waits, and stays one
		return tl.call(ctx, c, params)
	}
	if tl.asking != nil {
		if err := tl.asking.checkClient(c.Client); err != nil {
			return nil, err
		}
	}
	j := ts.newJob(ctx, c, tl, params)
	if err := ts.Enter(j.of); err != nil {
		c.noPlace = true
		return nil, err
	}
	if !c.modern || waits {
		return ts.serve(ctx, j)
	}
	// converse may refuse the round without running the handler. Then the place is given back here; otherwise Serve
	// sees to that.
	started := false
	defer func() {
		if !started {
			j.of.Drop()
		}
	}()
	return tl.converse(ctx, c, params, func(ctx context.Context) (*protocol.CallToolResult, error) {
		started = true
		return ts.serve(ctx, j)
	})
}

// serve runs the handler of a task that has a place. It returns the handler's result, or the
// task that the call has become.
func (ts *taskMethods) serve(ctx context.Context, j *taskJob) (*protocol.CallToolResult, error) {
	j.show()
	after := ts.options.After
	switch {
	case !j.modern:
		after = 0
	case j.tool.asking != nil && j.tool.asking.how == Reruns:
		after = max(after, asksFirst)
	}
	// If this returns no task, the handler has returned, and nobody else writes the result.
	created, err := ts.Serve(ctx, j.of, after)
	switch {
	case err != nil:
		return nil, err
	case created != nil:
		return &protocol.CallToolResult{Task: created}, nil
	default:
		return j.result, j.of.Err()
	}
}

// look returns the present state of a task for whoever may see it.
func (ts *taskMethods) look(ctx context.Context, p *peer, id string) (*tasks.Record, error) {
	if ts.Tasks == nil {
		return nil, ErrNotFound
	}
	r, _, err := ts.Look(ctx, p.guarded, id)
	return r, err
}

// find does what look does, if the client of the call may see the task.
func (ts *taskMethods) find(ctx context.Context, c *call, id string) error {
	if ts.Tasks == nil {
		return ErrNotFound
	}
	_, _, err := ts.Find(ctx, ts.request(c), id)
	return err
}

// request returns what package tasks knows of a request.
func (ts *taskMethods) request(c *call) *tasks.Request {
	return &tasks.Request{
		Caller: c, Method: c.Method, Modern: c.modern, Identity: c.Origin.Identity, Exchange: c.Origin.Exchange, Client: &c.Client.Info,
		AskClient: c.askClient,
	}
}

// aboutTask is the entry of a method of tasks. It refuses modern clients that did not declare the extension.
func aboutTask[P any](ts *taskMethods, serve func(*tasks.Tasks, context.Context, *tasks.Request, *P) (any, error)) func(context.Context, *call, *P) (any, error) {
	return func(ctx context.Context, c *call, params *P) (any, error) {
		if err := ts.allowed(c); err != nil {
			return nil, err
		}
		return serve(ts.Tasks, ctx, ts.request(c), params)
	}
}
