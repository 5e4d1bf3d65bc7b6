package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/limits"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
)

// routes are the methods that the gateway serves itself.
func (g *Gateway) routes() map[string]server.RawHandler {
	return map[string]server.RawHandler{
		protocol.MethodListTools:             g.list(catalogue.Tools),
		protocol.MethodListPrompts:           g.list(catalogue.Prompts),
		protocol.MethodListResources:         g.list(catalogue.Resources),
		protocol.MethodListResourceTemplates: g.list(catalogue.Templates),
		protocol.MethodCallTool:              g.callTool,
		protocol.MethodGetPrompt:             g.getPrompt,
		protocol.MethodReadResource:          g.readResource,
		protocol.MethodComplete:              g.complete,
		protocol.MethodGetTask:               g.aboutTask(protocol.MethodGetTask),
		protocol.MethodGetTaskResult:         g.aboutTask(protocol.MethodGetTaskResult),
		protocol.MethodUpdateTask:            g.aboutTask(protocol.MethodUpdateTask),
		protocol.MethodCancelTask:            g.aboutTask(protocol.MethodCancelTask),
		protocol.MethodListTasks:             g.listTasks,
	}
}

// callTool serves tools/call.
func (g *Gateway) callTool(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	if g.logins.anywhere.Load() { // else there is no such tool, and the params need not be searched for a name
		if name, _ := stringOf(params, "name"); name == loginsTool && g.logins.offers(g.sight.now(ctx)) {
			return g.logins.show(ctx)
		}
	}
	if searches(ctx) {
		return g.search.Serve(ctx, params)
	}
	return g.callNamed(ctx, params)
}

// callNamed calls a tool by its name. A client of the endpoint for search does not know the schema of the tool when it makes the request, so there no
// header repeats an argument.
func (g *Gateway) callNamed(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	item, own, err := g.named(ctx, catalogue.Tools, "tool", params)
	if err == nil && !searches(ctx) {
		err = server.CheckHeaders(ctx, item.Raw, own)
	}
	if err != nil {
		if away := (*awayError)(nil); errors.As(err, &away) {
			return away.toolResult()
		}
		return nil, err
	}
	return g.relayCall(ctx, item, own)
}

// relayCall passes a call on, which may become a task. A server that is away is an answer that a model can read.
func (g *Gateway) relayCall(ctx context.Context, item catalogue.Item, own json.RawMessage) (json.RawMessage, error) {
	if u := g.upstream(item.Server); u != nil {
		ctx = noteMode(ctx, u, item)
	}
	if mustAwait(ctx, item) {
		return g.awaitTask(ctx, item, own)
	}
	place, own, err := g.takePlace(ctx, item, own)
	if err != nil {
		return nil, err
	}
	defer func() {
		if place.taken {
			g.tasks.Leave(place.of)
		}
	}()
	asked := place.taken && !isModern(ctx) // for a task
	if place.taken {
		ctx = context.WithValue(ctx, placeKey{}, &place)
	}
	result, away, err := g.relay(ctx, item, protocol.MethodCallTool, own)
	switch {
	case away == nil:
		return result, err
	case asked:
		return nil, away.fault()
	}
	return away.toolResult()
}

// getPrompt serves prompts/get.
func (g *Gateway) getPrompt(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	item, own, err := g.named(ctx, catalogue.Prompts, "prompt", params)
	if err != nil {
		if away := (*awayError)(nil); errors.As(err, &away) {
			return nil, away.fault()
		}
		return nil, err
	}
	return g.relayed(ctx, item, protocol.MethodGetPrompt, own)
}

// named finds a tool or prompt, and returns the params with the name that its server uses.
func (g *Gateway) named(ctx context.Context, kind catalogue.Kind, what string, params json.RawMessage) (catalogue.Item, json.RawMessage, error) {
	name, ok := stringOf(params, "name")
	if !ok {
		return catalogue.Item{}, nil, invalid("%s: its name is missing, or no string", what)
	}
	if err := withoutAliases(params, "name", "arguments"); err != nil {
		return catalogue.Item{}, nil, err
	}
	until := time.Now().Add(longestWait)
	in := func(now *catalogue.Snapshot) (catalogue.Item, bool) { return now.Find(kind, name) }
	item, found := g.find(ctx, in, kind)
	if !found && (kind != catalogue.Tools || !g.sight.holds(ctx, name)) {
		var away *awayError
		item, found, away = g.findLater(ctx, until, kind, name)
		if away != nil && g.options.Audit != nil && !g.sight.noteDenied(ctx, in, kind) {
			g.note(ctx, item, methodOf[kind], params, nil, away)
		}
		if away != nil {
			return item, nil, away
		}
	}
	if !found {
		return item, nil, g.unknown(ctx, kind, what, name)
	}
	return item, withString(params, "name", item.Own), nil
}

// unknown is the error of a request for a tool or prompt that its client does not see.
func (g *Gateway) unknown(ctx context.Context, kind catalogue.Kind, what, name string) error {
	if kind == catalogue.Tools {
		g.notOffered.Add(1)
		if g.sight.holds(ctx, name) {
			return invalid(heldText, quoted(name))
		}
	}
	return invalid("unknown %s %s", what, quoted(name))
}

// methodOf is how a tool or prompt is used.
var methodOf = map[catalogue.Kind]string{catalogue.Tools: protocol.MethodCallTool, catalogue.Prompts: protocol.MethodGetPrompt}

// heldText is for whoever would see a tool, were it as it was approved.
const heldText = "the tool %s has changed since it was approved, and cannot be called until somebody approves it at the gateway: bowline pins"

// missing notes, for its record, that a request at the endpoint for search names a tool that its client does not see. It returns what to say of one that is kept
// from clients because of its pin.
func (g *Gateway) missing(ctx context.Context, name string) (why string) {
	g.notOffered.Add(1)
	if g.options.Audit != nil {
		g.sight.noteDenied(ctx, func(now *catalogue.Snapshot) (catalogue.Item, bool) { return now.Find(catalogue.Tools, name) }, catalogue.Tools)
	}
	if !g.sight.holds(ctx, name) {
		_, found, away := g.findLater(ctx, time.Now().Add(longestWait), catalogue.Tools, name)
		switch {
		case found:
			return quoted(name) + " is known only now: try again"
		case away != nil:
			return away.Error()
		}
		return ""
	}
	return fmt.Sprintf(heldText, quoted(name))
}

// find looks for what a client means. While nobody has it, and a server has not said yet what it has, it waits for that.
func (g *Gateway) find(ctx context.Context, in func(*catalogue.Snapshot) (catalogue.Item, bool), kinds ...catalogue.Kind) (item catalogue.Item, found bool) {
	item, found = in(g.sight.now(ctx))
	for i := 0; !found && i < len(kinds); i++ {
		g.warmFor(ctx, kinds[i], func(now *catalogue.Snapshot) bool {
			item, found = in(now)
			return found
		})
	}
	if !found && g.options.Audit != nil {
		g.sight.noteDenied(ctx, in, kinds[0])
	}
	return item, found
}

// resource finds who has a resource.
func (g *Gateway) resource(ctx context.Context, uri string) (catalogue.Item, bool) {
	return g.find(ctx, func(now *catalogue.Snapshot) (catalogue.Item, bool) { return now.Resource(uri) }, catalogue.Resources, catalogue.Templates)
}

// readResource serves resources/read.
func (g *Gateway) readResource(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	info, _ := protocol.MethodInfo(protocol.MethodReadResource)
	uri := info.NameOf(params)
	if uri == "" {
		return nil, invalid("resources/read: uri is missing")
	}
	if err := withoutAliases(params, "uri"); err != nil {
		return nil, err
	}
	item, found := g.resource(ctx, uri)
	if !found {
		return nil, notFound(ctx, uri)
	}
	result, err := g.relayed(ctx, item, protocol.MethodReadResource, params)
	return result, inEra(ctx, err, uri)
}

// complete serves completion/complete.
func (g *Gateway) complete(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var asked reference
	ref, _ := jsonrpc.Member(params, "ref")
	if err := protocol.Unmarshal(ref, &asked); err != nil {
		return nil, invalid("completion/complete: %v", err)
	}
	if err := cmp.Or(withoutAliases(params, "ref"), withoutAliases(ref, "type", "name", "uri")); err != nil {
		return nil, err
	}
	item, found := g.find(ctx, asked.in, catalogue.Prompts, catalogue.Templates, catalogue.Resources)
	if !found {
		return nil, invalid("unknown reference %s", quoted(cmp.Or(asked.URI, asked.Name)))
	}
	if asked.isPrompt() {
		params = scan.Replace(params, "ref", withString(ref, "name", item.Own))
	}
	return g.relayed(ctx, item, protocol.MethodComplete, params)
}

// relayed does what relay does, for a method whose results cannot say that a server is away.
func (g *Gateway) relayed(ctx context.Context, to catalogue.Item, method string, params json.RawMessage) (json.RawMessage, error) {
	result, away, err := g.relay(ctx, to, method, params)
	if away != nil {
		return nil, away.fault()
	}
	return result, err
}

// relay passes a request of a client on, to the server of what it is about. If the server has not answered, away says what became of the call.
func (g *Gateway) relay(ctx context.Context, to catalogue.Item, method string, params json.RawMessage) (result json.RawMessage, away *awayError, err error) {
	if params, err = withAnswers(ctx, params); err != nil {
		return nil, nil, err
	}
	u := g.upstream(to.Server)
	if u == nil {
		return nil, removed(to.Server), nil
	}
	if result, away, err = g.passOn(ctx, u, to, method, params); method == protocol.MethodCallTool {
		result = g.enricher.enriched(ctx, to, params, result)
	}
	if g.options.Audit != nil {
		g.note(ctx, to, method, params, result, away)
	}
	return result, away, err
}

// note notes what became of a request of a client, for its record.
func (g *Gateway) note(ctx context.Context, to catalogue.Item, method string, params, result json.RawMessage, away *awayError) {
	p := passageOf(to.Server, method, params, g.options.Digest)
	p.rule = g.sight.rule(ctx, to, method)
	p.shown, p.out = g.show.Load().of(to, method, params), len(result)
	if own := telemetry.TraceFrom(ctx); own != nil {
		p.trace = own.Parent
	}
	if p.failed = method == protocol.MethodCallTool && isToolError(result); away != nil {
		p.away, p.delivery, p.reason = true, away.Delivery.String(), away.Reason
	}
	server.Note(ctx, p)
}

// passOn passes a request on, if the limits of the file let it.
func (g *Gateway) passOn(ctx context.Context, u *upstream, to catalogue.Item, method string, params json.RawMessage) (result json.RawMessage, away *awayError, err error) {
	ended := func() {
		if method == protocol.MethodCallTool {
			u.endCall(endingOf(ctx, to.Own, result, away, err))
		}
	}
	leave, refused := g.enter(ctx, u, method, params)
	if refused != nil {
		away = g.beyond(u, refused)
		ended()
		return nil, away, nil
	}
	defer leave()
	done := u.count(ctx, method, params)
	result, away, err = g.attempts(ctx, u, method, params)
	ended()
	done(away == nil) // an error of the server is an answer
	return result, away, err
}

// endingOf returns how a call of a tool has ended: its outcome is that of its record in the audit trail, unless the gateway does something with the answer later.
func endingOf(ctx context.Context, tool string, result json.RawMessage, away *awayError, err error) ending {
	var asks *server.InputRequired
	outcome, delivery := server.OutcomeAnswered, conn.Sent
	if away != nil {
		delivery = away.Delivery
	}
	switch {
	case ctx.Err() != nil: // nobody gets the answer
		outcome = server.OutcomeCancelled
	case away != nil:
		outcome = outcomeAway
	case err != nil && !errors.As(err, &asks):
		outcome = server.OutcomeFailed
	case isToolError(result):
		outcome = server.OutcomeToolError
	}
	return ending{tool, string(outcome), delivery.String()}
}

// enter asks whether the limits of the file let a request pass. It waits for a place at the server. Who may pass calls leave in the end.
func (g *Gateway) enter(ctx context.Context, u *upstream, method string, params json.RawMessage) (leave func(), refused *limits.Refusal) {
	rule := g.sight.limit(ctx, u.limit)
	if rule.IsNone() {
		return func() {}, nil
	}
	r := limits.Request{Client: clientOf(ctx), Server: u.Name}
	if ctx.Value(taskKey{}) != nil { // who waits for a task does nothing at its server, and must not keep away who ends it
		rule.Concurrency = 0
	}
	if method == protocol.MethodCallTool {
		r.Tool = targetOf(method, params)
	}
	return g.asked.Enter(ctx, &u.asked, &rule, r)
}

// clientOf returns whose request it is: an identity, or else an address. All clients without either are one.
func clientOf(ctx context.Context) string {
	request := server.RequestFrom(ctx)
	if id := request.Origin.Identity; id != "" {
		return id
	}
	return network.Of(request.Origin.Address())
}

// attempts makes a request at a server, and once more if the connection was lost before the server had it, because the server has
// forgotten the session, or after its user has logged in there.
func (g *Gateway) attempts(ctx context.Context, u *upstream, method string, params json.RawMessage) (json.RawMessage, *awayError, error) {
	c, err := g.lifecycle.connect(ctx, u)
	if err != nil {
		return nil, crowded(u, err), nil
	}
	defer g.lifecycle.leave(u, c)
	if request := server.RequestFrom(ctx); request != nil {
		c.noteName(g.naming.of(request.Origin))
	}
	if u.perUser != nil {
		g.endIfLoggedOut(ctx, u, c)
		if c.subject.note(ctx) {
			g.wakeLoggedIn(ctx, u, c) // if the one before was not accepted, this one may be
		}
	}
	result, away, err := g.attempt(ctx, u, c, method, params)
	if away == nil || !away.noLogin || u.perUser == nil {
		return result, away, err
	}
	return g.attemptLoggedIn(ctx, u, c, away, method, params)
}

// attemptLoggedIn makes a request again, once its user is logged in at the server.
func (g *Gateway) attemptLoggedIn(ctx context.Context, u *upstream, c *connection, away *awayError, method string, params json.RawMessage) (json.RawMessage, *awayError, error) {
	if g.isLoggedIn(ctx, u, c) {
		result, again, err := g.attempt(ctx, u, c, method, params)
		if again == nil || !again.noLogin {
			return result, again, err
		}
		away = again
	}
	if away = g.logIn(ctx, u, c, away); away != nil {
		return nil, away, nil
	}
	return g.attempt(ctx, u, c, method, params)
}

// attempt makes a request over one connection, which may be lost meanwhile.
func (g *Gateway) attempt(ctx context.Context, u *upstream, c *connection, method string, params json.RawMessage) (json.RawMessage, *awayError, error) {
	for again := true; ; again = false {
		session, away := g.reach(ctx, u, c)
		if away != nil {
			return nil, away, nil
		}
		result, err := g.send(ctx, c, session, method, params)
		if err == nil {
			c.hasAnswered()
			result, err = questionsIn(g.keepTask(ctx, u, c, session, result), g.hasAlone(u))
			return result, nil, err
		}
		switch fault := faultOf(err); {
		case fault != nil:
			c.hasAnswered()
			return nil, nil, fault
		case again && (errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrLost) && client.NotExecuted(err)): // it was lost just now
		default:
			return nil, g.failed(u, c, err), nil
		}
	}
}

// send makes the request of a client at a server, which logs as the client wants from then on.
func (g *Gateway) send(ctx context.Context, c *connection, session *client.Session, method string, params json.RawMessage) (json.RawMessage, error) {
	own, err := withHop(session, params)
	if err != nil {
		return nil, err
	}
	g.level(ctx, c, session, server.LogLevel(ctx))
	result, err := withProgress(ctx, session, params).Relay(ctx, method, own)
	if err != nil {
		g.opened.requires(ctx, session.Name(), err)
	}
	return result, err
}

// hasAlone reports whether each gateway of a cluster has a process of its own of a server: another one knows nothing of what this one has asked, and cannot read
// its states.
func (g *Gateway) hasAlone(u *upstream) bool {
	return g.options.Server.Node != "" && u.child && (!u.single || g.options.Exclusive == nil)
}
