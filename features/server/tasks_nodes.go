package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// This file contains what the server of one node does with a task of another (ADR-0075). A
// modern request for a task is forwarded before it comes to the server. A legacy one comes
// to the node of its session, whose server then asks the node of the task.

// longestTaskID is the maximum length of a task's id: a node, a mark and rand.Text.
const longestTaskID = nodename.Longest + len(nodename.Mark) + 26

// newTaskID returns an id that names this node, if it has a name.
func (s *Server) newTaskID(random string) string { return nodename.Join(s.options.Node, random) }

// hasEnded reports whether the node of a task has ended, if the task does not run in this
// process. The node of the same name as this one was an earlier process.
func (ts *tasks) hasEnded(node string) bool {
	switch node {
	case "":
		return false // nobody knows where the task runs
	case ts.server.options.Node:
		return true
	default:
		return ts.options.Gone != nil && ts.options.Gone(node)
	}
}

// endLost returns the state of a task after its node has ended. It fails the task, and saves
// that, unless the node saved an outcome before it ended. One task is looked at at a time.
func (ts *tasks) endLost(ctx context.Context, p *peer, id string) (*TaskRecord, error) {
	select {
	case ts.ending <- struct{}{}:
		defer func() { <-ts.ending }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r, err := ts.load(ctx, p, id) // nothing is saved there any more
	if err != nil || r.Task.Status.Ended() {
		return r, err
	}
	lost := failedTask(refusal.New(jsonrpc.CodeInternalError, "the node of the task has ended; its outcome is unknown"))
	failed := *r
	failed.Task.Status, failed.Task.StatusMessage, failed.Task.LastUpdatedAt = lost.Status, lost.StatusMessage, now()
	failed.Task.InputRequests, failed.Task.Error = nil, lost.Error
	_ = ts.save(p, &failed) // if this fails, whoever asks next does it again
	ts.server.subscriptions.Tell(changes.Task(id))
	return &failed, nil
}

// errElsewhere refuses what only the node of a task can do. Why may be nil.
func errElsewhere(why error) error {
	if why == nil {
		return refusal.New(jsonrpc.CodeInternalError, "the task runs on another node, which cannot be reached")
	}
	return refusal.New(jsonrpc.CodeInternalError, "the task runs on another node, which cannot be asked: %v", why)
}

// A distantTask is a task of another node, for the legacy call of a client whose session is
// on this one.
type distantTask struct {
	call     *call
	node, id string
	by       transport.Forwarder
	reached  bool // the last get had an answer
}

// nodePatience is how long the other node may take for an answer.
const nodePatience = 5 * time.Second

// distant returns the task with an id if it is to be asked for at another node, or nil.
func (ts *tasks) distant(c *call, id string) *distantTask {
	node := nodename.Of(id)
	by, can := transport.As[transport.Forwarder](c.Origin.Exchange)
	if !can || c.modern || node == "" || node == ts.server.options.Node || len(id) > longestTaskID {
		return nil
	}
	return &distantTask{call: c, node: node, id: id, by: by}
}

// get returns the present state of the task.
func (d *distantTask) get(ctx context.Context) (*TaskRecord, error) {
	var got protocol.GetTaskResult
	err := d.ask(ctx, protocol.MethodGetTask, &protocol.GetTaskParams{TaskID: d.id}, &got)
	if err == nil && got.TaskID != d.id {
		err = errors.New("its answer is about another task")
	}
	if d.reached = err == nil; !d.reached {
		return nil, err
	}
	return &TaskRecord{Task: got.DetailedTask, Owner: d.call.Origin.Identity, Node: d.node}, nil
}

// cancel cancels the task.
func (d *distantTask) cancel(ctx context.Context) error {
	if d == nil {
		return errElsewhere(nil)
	}
	if err := d.ask(ctx, protocol.MethodCancelTask, &protocol.CancelTaskParams{TaskID: d.id}, new(protocol.EmptyResult)); err != nil {
		return errElsewhere(err)
	}
	return nil
}

// update passes answers on to the task.
func (d *distantTask) update(ctx context.Context, answers protocol.InputResponses) error {
	params := &protocol.UpdateTaskParams{TaskID: d.id, InputResponses: answers}
	if err := d.ask(ctx, protocol.MethodUpdateTask, params, new(protocol.EmptyResult)); err != nil {
		return errElsewhere(err)
	}
	return nil
}

// ask sends a request to the other node in the name of the client, which checks there
// whether the client may see the task.
func (d *distantTask) ask(ctx context.Context, method string, params interface{ AddMeta(protocol.Meta) }, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nodePatience, fmt.Errorf("it took longer than %v", nodePatience))
	defer cancel()
	said := protocol.RequestContext{
		ProtocolVersion: protocol.Latest, ClientInfo: &d.call.Client.Info, ClientCapabilities: declaring("extensions." + protocol.ExtensionTasks),
	}
	members, err := said.Members()
	if err != nil {
		return err
	}
	maps.Copy(members, tracing.Members(ctx, members))
	params.AddMeta(members)
	raw, err := protocol.Marshal(params)
	if err != nil {
		return err
	}
	id := jsonrpc.IntegerID(1)
	answer, err := d.by.Forward(ctx, d.node, transport.Outbound{
		Frame: jsonrpc.AppendRequest(nil, id, method, raw), Last: true,
		Route: transport.Route{Kind: jsonrpc.KindRequest, ID: id, Method: method, Name: d.id, Version: said.ProtocolVersion},
	})
	if err != nil {
		return err
	}
	m, err := jsonrpc.Decode(answer, jsonrpc.Limits{})
	switch {
	case err != nil:
		return err
	case m.Kind == jsonrpc.KindError:
		return fmt.Errorf("it refuses the request: %s (%d)", refusal.Shorten(m.Error.Message, refusal.LongestMessage), m.Error.Code)
	case m.Kind != jsonrpc.KindResult || m.ID != id:
		return errors.New("its answer is not one to the request")
	}
	return protocol.Unmarshal(m.Result, into)
}

// A distantWait is one request of tasks/result for a task that does not run in this process.
type distantWait struct {
	*distantTask // nil if nothing more than its state can be learned
	interval     time.Duration
	answered     map[string]bool         // the keys of questions that the client has answered
	unsent       protocol.InputResponses // answers that the node of the task does not have yet
}

// attend asks the client the task's questions, if the node of the task can get the answers.
// Otherwise it waits until it is time to look again. A client that waits at several nodes may
// be asked at each of them.
func (w *distantWait) attend(ctx context.Context, r *TaskRecord) error {
	if len(w.unsent) > 0 {
		return w.send(ctx)
	}
	open := make(protocol.InputRequests)
	for key, q := range r.Task.InputRequests {
		if !w.answered[key] {
			open[key] = relatedQuestion(q, r.Task.TaskID)
		}
	}
	if w.distantTask == nil || !w.reached || len(open) == 0 || canBeAsked(w.call.Client, open) != nil {
		return waitFor(ctx, nil, w.interval)
	}
	answers, err := w.call.peer.server.rounds.askClient(ctx, w.call, open)
	if err != nil {
		return err
	}
	if w.answered == nil {
		w.answered, w.unsent = make(map[string]bool), make(protocol.InputResponses)
	}
	for key, answer := range answers {
		w.answered[key], w.unsent[key] = true, answer
	}
	return w.send(ctx)
}

// send passes on the answers of the client. If the node cannot be reached, they are sent again
// when it is time to look again.
func (w *distantWait) send(ctx context.Context) error {
	if w.update(ctx, w.unsent) != nil {
		return waitFor(ctx, nil, w.interval)
	}
	clear(w.unsent)
	return nil
}
