package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/tasks"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const (
	listedTasks = 50      // on a page of tasks/list
	longestTask = 4 << 10 // bytes of a task that are kept

	longestTelling = 5 * time.Second // for all clients of lost tasks: one that reads nothing must not delay the others for ever
)

// isModern reports whether a request is one of the revisions without sessions, which have another form of tasks.
func isModern(ctx context.Context) bool {
	return protocol.IsModern(server.RequestFrom(ctx).Client.ProtocolVersion)
}

func ownerOfTask(ctx context.Context) string { return server.RequestFrom(ctx).Origin.Identity }

// A taskPlace is the place of a call that may become a task. Its zero value is that of one that may not.
type taskPlace struct {
	of    share.Client
	taken bool
}

// placeKey is the key of the *taskPlace of a call that may become a task.
type placeKey struct{}

// takePlace takes a place for a call that may become a task: a legacy one that asks for that, or a modern one whose client can have
// tasks. It returns the params to send.
func (g *Gateway) takePlace(ctx context.Context, item catalogue.Item, params json.RawMessage) (place taskPlace, own json.RawMessage, err error) {
	r := server.RequestFrom(ctx)
	isAsked := r.Client.Capabilities.Has("extensions." + protocol.ExtensionTasks)
	if !isModern(ctx) {
		if params, isAsked, err = asksForTask(r.Client.ProtocolVersion, item, params); err != nil {
			return place, nil, err
		}
	}
	if !isAsked {
		return place, params, nil
	}
	place.of = share.Client{Identity: r.Origin.Identity, Network: clientOf(ctx)}
	refused := g.tasks.Enter(place.of, time.Now())
	place.taken = refused == ""
	switch {
	case place.taken:
		return place, params, nil
	case isModern(ctx): // the server may still answer the call itself
		return place, withoutTasks(params), nil
	default: // whoever asks for a task gets one, or an error: an ordinary answer would be none that its client expects
		return place, nil, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "overloaded: too many tasks are running: " + refused}
	}
}

// asksForTask reports whether a legacy client asks for a task, and returns the params to send.
// The tool has to say that it can be one. A server without tasks would ignore the wish, and its answer would be a result where the client
// expects a task.
func asksForTask(version string, item catalogue.Item, params json.RawMessage) (own json.RawMessage, asks bool, err error) {
	asked, _ := jsonrpc.Member(params, "task")
	switch {
	case asked == nil:
		return params, false, nil
	case !revision.Has(version, revision.Tasks): // it means something else, if anything
		return append(scan.AppendMembers([]byte{'{'}, params, "task"), '}'), false, nil
	case !item.CanBeTask:
		return nil, false, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("the tool %s cannot be called as a task", quoted(item.Name))}
	default:
		return params, true, nil
	}
}

// A server that does not know of the extension makes no task. If it needs one for the tool, it says so to the client.
//
// withoutTasks takes the extension out of what a modern client has declared.
func withoutTasks(params json.RawMessage) json.RawMessage {
	meta, _ := jsonrpc.Member(params, "_meta")
	declared, _ := jsonrpc.Member(meta, protocol.MetaClientCapabilities)
	extensions, _ := jsonrpc.Member(declared, "extensions")
	others := append(scan.AppendMembers([]byte{'{'}, extensions, protocol.ExtensionTasks), '}')
	declared = scan.Replace(declared, "extensions", others)
	return scan.Replace(params, "_meta", scan.Replace(meta, protocol.MetaClientCapabilities, declared))
}

// The tasks of servers, as clients of the gateway see them. Each hop has its own kind of tasks: one of 2025-11-25 is
// asked for by its client, and one of the extension is the server's decision. A call becomes a task only if client and
// server have the same kind. Nothing of a task is decoded but its id, its status and its time, so whatever a server says
// of it reaches the client.

// keepTask returns what a server has answered to a call, and the task in it, if there is one, as one of this gateway.
func (g *Gateway) keepTask(ctx context.Context, u *upstream, c *connection, session *client.Session, result json.RawMessage) json.RawMessage {
	if t, awaits := ctx.Value(awaitedKey{}).(*tasks.Task); awaits {
		noteAwaited(t, session, result)
		return result
	}
	place, may := ctx.Value(placeKey{}).(*taskPlace)
	if !may {
		return result
	}
	modern := isModern(ctx)
	created := taskIn(result, modern)
	own, ok := stringOf(created, "taskId")
	if !ok {
		return result
	}
	place.taken = false
	g.lifecycle.hold(u, c) // or it would end when nobody asks for long
	id := g.tasks.Add(tasks.Task{
		Own: own, Server: u.Name, Of: u.traffic, Share: u.share, Over: session.Conn(), Run: session.Status().Epoch, Owner: ownerOfTask(ctx), Payer: place.of, Modern: modern,
		Session: server.RequestFrom(ctx).Session, Created: kept(created), Ends: time.Now().Add(keptFor(created)),
		Release: func() { g.lifecycle.leave(u, c) },
	})
	g.endIfLeft(ctx)
	if created = withString(created, "taskId", id); !modern {
		created = scan.Replace(result, "task", created)
	}
	return relatedTo(created, id)
}

// endIfLeft ends the tasks of a session that has left before its task was noted.
func (g *Gateway) endIfLeft(ctx context.Context) {
	if of, _ := ctx.Value(memberKey{}).(*member); of != nil && of.ctx.Err() != nil {
		g.endTasksOf(of.session)
	}
}

// taskIn returns the task that a server has made of a call, or nil.
func taskIn(result json.RawMessage, modern bool) (created json.RawMessage) {
	if kind, _ := stringOf(result, "resultType"); modern && kind == protocol.ResultTask {
		return result
	} else if modern {
		return nil
	}
	created, _ = jsonrpc.Member(result, "task")
	return created
}

// awaitedKey is the key of the *tasks.Task of a call for which the gateway waits, since its client knows no tasks of 2025-11-25.
type awaitedKey struct{}

func noteAwaited(t *tasks.Task, session *client.Session, result json.RawMessage) {
	t.Own, _ = stringOf(taskIn(result, false), "taskId")
	t.Over, t.Run = session.Conn(), session.Status().Epoch
}

// mustAwait reports whether a tool can only be called as a task, by a client that cannot ask for one.
func mustAwait(ctx context.Context, item catalogue.Item) bool {
	asks := !isModern(ctx) && revision.Has(server.RequestFrom(ctx).Client.ProtocolVersion, revision.Tasks)
	return !asks && item.MustBeTask
}

// awaitTask calls a tool as a task, and answers the call when the task has ended. If its client does not wait any more, the task is cancelled.
func (g *Gateway) awaitTask(ctx context.Context, item catalogue.Item, own json.RawMessage) (json.RawMessage, error) {
	t := &tasks.Task{Server: item.Server}
	asked := append(scan.AppendMembers([]byte(`{"task":{}`), own, "task"), '}')
	result, away, err := g.relay(context.WithValue(ctx, awaitedKey{}, t), item, protocol.MethodCallTool, asked)
	if away == nil && err == nil && t.Own != "" { // else it has answered without a task
		result, away, err = g.awaitResult(ctx, t)
	}
	if g.options.Audit != nil { // in place of what the requests about the task have noted
		g.note(ctx, item, protocol.MethodCallTool, own, result, away)
	}
	if away != nil {
		return away.toolResult()
	}
	return result, err
}

// awaitResult waits for the end of a task. If its server is lost, nobody knows how far it came, although the server was not asked about it.
func (g *Gateway) awaitResult(ctx context.Context, t *tasks.Task) (result json.RawMessage, away *awayError, err error) {
	about := replaced(json.RawMessage("{}"), "taskId", t.Own)
	result, away, err = g.relay(ctx, catalogue.Item{Server: t.Server}, protocol.MethodGetTaskResult, about)
	if ctx.Err() != nil {
		g.cancelAwaited(ctx, t.Server, about)
	}
	if u := g.upstream(t.Server); away == nil && err != nil && (u == nil || u.isLost(t)) { // the next process does not know it
		away = stopped(t.Server, "it has ended since the task began")
	}
	if away != nil {
		away.Delivery = conn.Unknown
	}
	return result, away, err
}

// cancelTime is how long a server may take to cancel a task for which nobody waits any more.
const cancelTime = 5 * time.Second

func (g *Gateway) cancelAwaited(ctx context.Context, name string, about json.RawMessage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	_, _, _ = g.relay(ctx, catalogue.Item{Server: name}, protocol.MethodCancelTask, about) // it may have ended meanwhile
}

// kept returns what is kept of a task, for the case that its server is lost.
// The text of its status is left out: it is the part that may be long, and an old one would mislead.
func kept(task json.RawMessage) json.RawMessage {
	task = append(scan.AppendMembers([]byte{'{'}, task, "_meta", "statusMessage"), '}')
	if len(task) > longestTask {
		return json.RawMessage("{}")
	}
	return task
}

// keptFor returns how long a task is kept: as long as its server does, if that says so.
func keptFor(task json.RawMessage) time.Duration {
	for _, member := range []string{"ttl", "ttlMs"} {
		raw, _ := jsonrpc.Member(task, member)
		if ms, err := strconv.ParseInt(string(raw), 10, 64); err == nil && ms >= 0 && ms < tasks.Longest.Milliseconds() {
			return time.Duration(ms) * time.Millisecond
		}
	}
	return tasks.Longest
}

// Messages of a task in 2025-11-25 name it in their _meta, too. The id there must be the one that the client knows.
//
// relatedTo returns a message with another id in the _meta that names its task, if it has that.
func relatedTo(message json.RawMessage, id string) json.RawMessage {
	meta, _ := jsonrpc.Member(message, "_meta")
	related, _ := jsonrpc.Member(meta, protocol.MetaRelatedTask)
	if _, ok := stringOf(related, "taskId"); !ok {
		return message
	}
	return scan.Replace(message, "_meta", scan.Replace(meta, protocol.MetaRelatedTask, withString(related, "taskId", id)))
}

type taskKey struct{}

// aboutTask serves a method about one task: the server of the task answers it.
func (g *Gateway) aboutTask(method string) server.RawHandler {
	return func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
		id, ok := stringOf(params, "taskId")
		if !ok {
			return nil, invalid("%s: taskId is missing, or no string", method)
		}
		if err := withoutAliases(params, "taskId"); err != nil {
			return nil, err
		}
		t := g.tasks.Find(id, ownerOfTask(ctx), isModern(ctx), time.Now())
		if t == nil || !g.reaches(ctx, t) {
			return nil, g.unknownTask(ctx, id)
		}
		return g.askAbout(ctx, t, method, params)
	}
}

// unknownTask is the error of a request about a task that its client does not have here. If the id names another node, that one may have it: a request of 2026-07-28 was
// not forwarded there, since it cannot be reached, and one of a session goes where the session is.
func (g *Gateway) unknownTask(ctx context.Context, id string) error {
	own, node := g.options.Server.Node, nodename.Of(id)
	switch {
	case own == "" || node == "" || node == own:
		return invalid("unknown task %s", quoted(id))
	case isModern(ctx):
		return invalid("unknown task %s: its id names the node %q, which has ended or cannot be reached", quoted(id), node)
	default:
		return invalid("unknown task %s: its id names the node %q, and this session is at %q: ask in a session that begins at the node of the task", quoted(id), node, own)
	}
}

// askAbout asks the server of a task about it. If the task was lost with its server, that is the answer.
// It looks before and after: a new process of the server must not be asked about an id that it may have given to another task, and
// the server may be lost while it is asked.
func (g *Gateway) askAbout(ctx context.Context, t *tasks.Task, method string, params json.RawMessage) (json.RawMessage, error) {
	u := g.upstream(t.Server)
	switch {
	case !u.isOf(t):
		g.tasks.End(t)
		return g.lost(t, method, "it is not in the file any more, or another one")
	case g.tasks.IsReplaced(t):
		g.tasks.End(t)
		return g.lost(t, method, "it has forgotten the task")
	case g.isLost(u, t):
		return g.lost(t, method, "it has ended since")
	}
	result, err := g.relayed(context.WithValue(ctx, taskKey{}, t), catalogue.Item{Server: t.Server}, method, withString(params, "taskId", t.Own))
	switch {
	case err != nil && g.isLost(u, t):
		return g.lost(t, method, "it has ended since")
	case err != nil:
		return nil, err
	}
	return g.ofTask(t, method, result), nil
}

// ofTask returns the result of a server with the id that clients know, and notes the end of the task.
func (g *Gateway) ofTask(t *tasks.Task, method string, result json.RawMessage) json.RawMessage {
	if method == protocol.MethodGetTaskResult {
		ended := protocol.TaskCompleted
		if isToolError(result) {
			ended = protocol.TaskFailed
		}
		g.tasks.Finish(t, ended)
		return relatedTo(result, t.ID)
	}
	if status, _ := stringOf(result, "status"); protocol.TaskStatus(status).Ended() {
		g.tasks.Finish(t, protocol.TaskStatus(status))
	}
	if _, ok := stringOf(result, "taskId"); ok {
		result = withString(result, "taskId", t.ID)
	}
	return relatedTo(result, t.ID)
}

// reaches reports whether a client uses the connection on which a task was started: if each client has its own, another session of the
// same user does not.
func (g *Gateway) reaches(ctx context.Context, t *tasks.Task) bool {
	u := g.upstream(t.Server)
	return u == nil || u.share != shareClient || t.Session == server.RequestFrom(ctx).Session
}

// isLost reports whether a task has ended with its server, and notes that.
func (g *Gateway) isLost(u *upstream, t *tasks.Task) bool {
	if !u.isLost(t) {
		return false
	}
	g.tasks.End(t)
	return true
}

// isOf reports whether a task is one of this server, over a connection that its owner still has.
func (u *upstream) isOf(t *tasks.Task) bool {
	return u != nil && u.traffic == t.Of && u.share == t.Share
}

// ofRun returns the view of a session for a request about a task of a child, which only the process of the task gets: the request may have
// waited until there is another one. Ok is false if it goes over another connection.
func (u *upstream) ofRun(ctx context.Context, session *client.Session) (view *client.Session, ok bool) {
	t, about := ctx.Value(taskKey{}).(*tasks.Task)
	if !about || !u.child {
		return session, true
	}
	o := session.Calls()
	o.Epoch = t.Run
	return session.With(o), t.Over == any(session.Conn())
}

// isLost reports whether a task has ended with its server: a child takes its tasks with it, and what is reached by HTTP may have kept them.
func (u *upstream) isLost(t *tasks.Task) bool {
	status := t.Over.(*conn.Conn).Status()
	return u.child && (status.State != conn.Ready || status.Epoch != t.Run)
}

// lost is the answer about a task whose server was lost, perhaps after the end of the task: then it stays in the state that its client knows, or, if
// that would have to come with the result, it is forgotten.
func (g *Gateway) lost(t *tasks.Task, method, why string) (json.RawMessage, error) {
	switch last := g.tasks.Last(t); {
	case last == "" || method != protocol.MethodGetTask:
		return lostTask(t, method, why)
	case t.Modern:
		return nil, invalid("unknown task %s: it had ended, and was lost with the server %q: %s", quoted(t.ID), t.Server, why)
	default:
		return replaced(replaced(t.Created, "taskId", t.ID), "status", string(last)), nil
	}
}

// lostTask is the answer about a task whose server was lost. It has failed, and nobody knows how far it came.
// Each method says it in its own form: tasks/get as a state, tasks/result as the error of the call, and to cancel what has ended
// is an error in 2025-11-25 only.
func lostTask(t *tasks.Task, method, why string) (json.RawMessage, error) {
	away := stopped(t.Server, why)
	away.Delivery = conn.Unknown
	text := fmt.Sprintf("the task was lost with the server %q: %s. It may have been executed", t.Server, why)
	failed := replaced(replaced(t.Created, "taskId", t.ID), "status", string(protocol.TaskFailed))
	failed = replaced(failed, "statusMessage", text)
	switch {
	case method == protocol.MethodGetTaskResult:
		return nil, away.fault()
	case method == protocol.MethodGetTask && !t.Modern:
		return failed, nil
	case method == protocol.MethodGetTask:
		return withFault(failed, away.fault())
	case !t.Modern:
		return nil, invalid("the task has ended: it has failed")
	default:
		return json.RawMessage("{}"), nil // cancelled or answered too late
	}
}

// withFault returns a modern task that has failed with an error, in the place of any outcome that it had.
// Only the extension has the error in the task itself. In 2025-11-25 it is the answer to tasks/result.
func withFault(failed json.RawMessage, err error) (json.RawMessage, error) {
	var fault *jsonrpc.Error
	if !errors.As(err, &fault) {
		return nil, err
	}
	raw, err := protocol.Marshal(&protocol.TaskError{Code: fault.Code, Message: fault.Message, Data: fault.Data})
	if err != nil {
		return nil, err
	}
	return append(scan.AppendMembers(append([]byte(`{"resultType":"complete","error":`), raw...), failed, "resultType", "error", "result"), '}'), nil
}

// replaced returns an object in which a member has this text.
func replaced(object json.RawMessage, member, text string) json.RawMessage {
	changed := append(scan.AppendQuote([]byte{'{'}, member), ':')
	return append(scan.AppendMembers(scan.AppendQuote(changed, text), object, member), '}')
}

// listTasks serves tasks/list: the tasks of a client that has a login, in the state that their servers tell now. Those of a server that is away
// are in the state of their beginning.
func (g *Gateway) listTasks(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	after, _ := stringOf(params, "cursor")
	all := g.tasks.List(ownerOfTask(ctx), after, listedTasks+1, time.Now(), func(t *tasks.Task) bool { return g.reaches(ctx, t) })
	var page struct {
		Tasks []json.RawMessage `json:"tasks"`
		Next  *string           `json:"nextCursor,omitzero"`
	}
	if len(all) > listedTasks {
		all = all[:listedTasks]
		page.Next = &all[listedTasks-1].ID
	}
	page.Tasks = make([]json.RawMessage, len(all))
	var asking sync.WaitGroup
	for i, t := range all {
		asking.Go(func() { page.Tasks[i] = g.present(ctx, t) })
	}
	asking.Wait()
	return protocol.Marshal(&page)
}

// present returns a task as it is now, if its server can be asked at once.
func (g *Gateway) present(ctx context.Context, t *tasks.Task) json.RawMessage {
	last := replaced(t.Created, "taskId", t.ID)
	if u := g.upstream(t.Server); u != nil && !u.child && t.Over.(*conn.Conn).Status().State != conn.Ready {
		return last
	}
	now, err := g.askAbout(ctx, t, protocol.MethodGetTask, last)
	if err != nil {
		return last
	}
	return append(scan.AppendMembers([]byte{'{'}, now, "_meta"), '}')
}

// onTaskStatus tells a client of a change of its task. It is the session that has started the task which is told, as servers do:
// another one of the same user polls.
func (g *Gateway) onTaskStatus(ctx context.Context, session *client.Session, params json.RawMessage) {
	var status protocol.TaskStatusParams
	if protocol.Unmarshal(params, &status) != nil {
		return
	}
	t := g.tasks.FindOwn(session.Conn(), status.TaskID, time.Now())
	if t == nil {
		return
	}
	if status.Status.Ended() {
		g.tasks.Finish(t, status.Status)
	}
	status.TaskID, status.Meta = t.ID, nil
	tellStatus(ctx, t, &status)
}

// endLostTasks ends the tasks that are lost, of all servers, and tells their clients.
// They are told also if ctx ends, as that of a connection which has just been lost does.
func (g *Gateway) endLostTasks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestTelling)
	defer cancel()
	servers := g.upstreams()
	for _, t := range g.tasks.EndLost(func(t *tasks.Task) bool { u := servers[t.Server]; return !u.isOf(t) || u.isLost(t) }) {
		var status protocol.TaskStatusParams
		if raw, err := lostTask(t, protocol.MethodGetTask, "it has ended since"); err == nil && !t.Modern && protocol.Unmarshal(raw, &status) == nil {
			tellStatus(ctx, t, &status)
		}
	}
}

// endTasksOf ends the tasks that nobody can ask for after the end of a session, since its connections end with it.
func (g *Gateway) endTasksOf(s *server.Session) {
	g.tasks.EndLost(func(t *tasks.Task) bool { return t.Share == shareClient && t.Session == s })
}

func tellStatus(ctx context.Context, t *tasks.Task, status *protocol.TaskStatusParams) {
	if t.Session != nil {
		_ = t.Session.TaskStatus(ctx, status) // it has left; who polls learns it all the same
	}
}
