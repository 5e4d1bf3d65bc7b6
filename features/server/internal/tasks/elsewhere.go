package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// This file contains what the server of one node does with a task of another (ADR-0075). A
// modern request for a task is forwarded before it comes to the server. A legacy one comes
// to the node of its session, whose server then asks the node of the task.

// hasTasks is what a client declares that knows tasks. The client of a legacy session has not
// declared it in this form, but the node that is asked speaks only 2026-07-28 here.
var hasTasks = protocol.ClientCapabilities{Extensions: map[string]json.RawMessage{protocol.ExtensionTasks: json.RawMessage("{}")}}

// A node is believed to be gone only if the program says so, or if this process has its name. That
// it cannot be reached proves nothing: it may go on, and save an outcome that contradicts what a
// client was told.
//
// hasEnded reports whether the node of a task has ended, if the task does not run in this process.
// The node of the same name as this one was an earlier process.
func (ts *Tasks) hasEnded(node string) bool {
	switch node {
	case "":
		return false // nobody knows where the task runs
	case ts.Node:
		return true
	default:
		return ts.Gone != nil && ts.Gone(node)
	}
}

// endLost returns the state of a task after its node has ended. It fails the task, and saves that,
// unless the node saved an outcome before it ended. One task is looked at at a time, so that two
// requests do not save different outcomes. Whoever waits for its turn finds the first one's outcome
// in the store.
func (ts *Tasks) endLost(ctx context.Context, guard Guard, id string) (*Record, error) {
	select {
	case ts.ending <- struct{}{}:
		defer func() { <-ts.ending }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r, err := ts.load(ctx, guard, id) // nothing is saved there any more
	if err != nil || r.Task.Status.Ended() {
		return r, err
	}
	lost := failedTask(refusal.New(jsonrpc.CodeInternalError, "the node of the task has ended; its outcome is unknown"))
	failed := *r
	failed.Task.Status, failed.Task.StatusMessage, failed.Task.LastUpdatedAt = lost.Status, lost.StatusMessage, now()
	failed.Task.InputRequests, failed.Task.Error = nil, lost.Error
	_ = ts.save(guard, &failed) // if this fails, whoever asks next does it again
	ts.Tell(id)
	return &failed, nil
}

// errElsewhere refuses what only the node of a task can do. Why may be nil. It is an internal
// error, not one of the params: the client did nothing wrong, and may try again.
func errElsewhere(why error) error {
	if why == nil {
		return refusal.New(jsonrpc.CodeInternalError, "the task runs on another node, which cannot be reached")
	}
	return refusal.New(jsonrpc.CodeInternalError, "the task runs on another node, which cannot be asked: %v", why)
}

// A distant is a task of another node, for the legacy call of a client whose session is
// on this one.
type distant struct {
	call     *Request
	node, id string
	by       transport.Forwarder
	reached  bool // the last get had an answer
}

// nodePatience is how long the other node may take for an answer. It shows what it knows, and waits
// for nothing; a longer silence means that it is not there, and the client must not wait for that.
const nodePatience = 5 * time.Second

// Only a legacy call asks another node: a modern one was forwarded before it came here.
//
// distant returns the task with an id if it is to be asked for at another node, or nil.
func (ts *Tasks) distant(c *Request, id string) *distant {
	node := nodename.Of(id)
	by, can := transport.As[transport.Forwarder](c.Exchange)
	if !can || c.Modern || node == "" || node == ts.Node || len(id) > longestID {
		return nil
	}
	return &distant{call: c, node: node, id: id, by: by}
}

// get returns the present state of the task. The other node has checked that the client may see it.
func (d *distant) get(ctx context.Context) (*Record, error) {
	var got protocol.GetTaskResult
	err := d.ask(ctx, protocol.MethodGetTask, &protocol.GetTaskParams{TaskID: d.id}, &got)
	if err == nil && got.TaskID != d.id {
		err = errors.New("its answer is about another task")
	}
	if d.reached = err == nil; !d.reached {
		return nil, err
	}
	return &Record{Task: got.DetailedTask}, nil
}

// cancel cancels the task. A nil distant is a task that runs in a process which nobody can reach.
func (d *distant) cancel(ctx context.Context) error {
	if d == nil {
		return errElsewhere(nil)
	}
	if err := d.ask(ctx, protocol.MethodCancelTask, &protocol.CancelTaskParams{TaskID: d.id}, new(protocol.EmptyResult)); err != nil {
		return errElsewhere(err)
	}
	return nil
}

// update passes answers on to the task. Answers that it has already are no error there, so they may
// be sent again.
func (d *distant) update(ctx context.Context, answers protocol.InputResponses) error {
	params := &protocol.UpdateTaskParams{TaskID: d.id, InputResponses: answers}
	if err := d.ask(ctx, protocol.MethodUpdateTask, params, new(protocol.EmptyResult)); err != nil {
		return errElsewhere(err)
	}
	return nil
}

// ask sends a request to the other node in the name of the client, which checks there
// whether the client may see the task.
func (d *distant) ask(ctx context.Context, method string, params interface{ AddMeta(protocol.Meta) }, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nodePatience, fmt.Errorf("it took longer than %v", nodePatience))
	defer cancel()
	said := protocol.RequestContext{
		ProtocolVersion: protocol.Latest, ClientInfo: d.call.Client, ClientCapabilities: hasTasks,
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
	id := jsonrpc.IntegerID(1) // nothing else is sent this way, so no other request can have it
	answer, err := d.by.Forward(ctx, d.node, transport.Outbound{
		Frame: jsonrpc.AppendRequest(nil, id, method, raw), Last: true,
		Route: transport.Route{Kind: jsonrpc.KindRequest, ID: id, Method: method, Name: d.id, Version: said.ProtocolVersion},
	})
	if err != nil {
		return err
	}
	return decodeAnswer(answer, id, into)
}

// decodeAnswer reads what another node has answered. It trusts the node, but not blindly: an answer
// to something else, or one that a newer version of the program writes in another way, must not be
// taken for the state of the task.
func decodeAnswer(frame []byte, id jsonrpc.ID, into any) error {
	m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
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
	*distant // nil if nothing more than its state can be learned
	interval time.Duration
	answered map[string]bool         // the keys of questions that the client has answered
	unsent   protocol.InputResponses // answers that the node of the task does not have yet
}

// attend asks the client the task's questions, if the node of the task can get the answers.
// Otherwise it waits until it is time to look again. A client that waits at several nodes may
// be asked at each of them.
func (w *distantWait) attend(ctx context.Context, r *Record) error {
	if len(w.unsent) > 0 {
		return w.send(ctx)
	}
	open := w.unanswered(r)
	if w.distant == nil || !w.reached || len(open) == 0 || !w.canAsk(open) {
		return waitFor(ctx, nil, w.interval)
	}
	answers, err := w.call.AskClient(ctx, open)
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

// unanswered returns the questions that this request has not asked its client yet. The node may
// show a question for a while after it was answered here, and a user must not see it twice.
func (w *distantWait) unanswered(r *Record) protocol.InputRequests {
	open := make(protocol.InputRequests)
	for key, q := range r.Task.InputRequests {
		if !w.answered[key] {
			open[key] = relatedQuestion(q, r.Task.TaskID)
		}
	}
	return open
}

// canAsk reports whether the client can be asked all of that. If not, the questions stay for a
// client that can.
func (w *distantWait) canAsk(open protocol.InputRequests) bool {
	_, err := w.call.Fitting(open)
	return err == nil
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
