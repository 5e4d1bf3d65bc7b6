package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// elicit brings a question of a server to the user of a client.
func (g *Gateway) elicit(ctx context.Context, from *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	return answerOf[*protocol.ElicitResult](g, ctx, from, p)
}

// sample lets a server use the model of a client.
func (g *Gateway) sample(ctx context.Context, from *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
	return answerOf[*protocol.CreateMessageResult](g, ctx, from, p)
}

// roots returns the roots of the client whose call a server serves, and outside of calls those of the file.
func (g *Gateway) roots(ctx context.Context, session *client.Session) ([]protocol.Root, error) {
	if len(ofClients(client.Asking(ctx))) == 0 {
		g.mu.Lock()
		defer g.mu.Unlock()
		if u := g.servers[session.Name()]; u != nil && u.roots != nil {
			return u.roots, nil
		}
		return g.allRoots, nil
	}
	result, err := answerOf[*protocol.ListRootsResult](g, ctx, session, &protocol.ListRootsParams{})
	if err != nil {
		return nil, err
	}
	return result.Roots, nil
}

// mayAsk reports whether a call may become one that asks its client. A client without capabilities cannot be asked, and a modern server returns
// its questions: such a call needs no place among those that wait. In doubt it may.
func (g *Gateway) mayAsk(ctx context.Context, method string, params json.RawMessage) bool {
	if can := server.RequestFrom(ctx).Client.Capabilities; can.Elicitation == nil && can.Sampling == nil && can.Roots == nil {
		return false
	}
	about, _ := protocol.MethodInfo(method)
	now, name := g.known.Snapshot(), about.NameOf(params)
	item, found := now.Find(catalogue.Tools, name)
	switch method {
	case protocol.MethodGetPrompt:
		item, found = now.Find(catalogue.Prompts, name)
	case protocol.MethodReadResource:
		item, found = now.Resource(name)
	}
	session, running := g.set.Session(item.Server)
	return !found || !running || session.Status().State != conn.Ready || !protocol.IsModern(session.Server().ProtocolVersion)
}

// answerOf asks the client to whose call a question belongs.
func answerOf[A protocol.InputResponse](g *Gateway, ctx context.Context, from *client.Session, q protocol.InputRequest) (answer A, err error) {
	call, err := callOf(ofClients(client.Asking(ctx)))
	if err != nil {
		g.refused.Add(1)
		return answer, err
	}
	asking, cancel := context.WithCancelCause(call)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	defer g.asks(call, from.Name(), q.Method())()
	key := rand.Text()
	answers, err := server.Ask(asking, protocol.InputRequests{key: q})
	var unsupported *server.UnsupportedError
	switch {
	case errors.Is(err, server.ErrNotAsking): // see mayAsk
		g.refused.Add(1)
		return answer, refuse("the client of this call cannot be asked")
	case errors.As(err, &unsupported):
		g.refused.Add(1)
		return answer, refuse("the client of this call cannot be asked: %v", err)
	case err != nil:
		return answer, err
	}
	answer, ok := answers[key].(A)
	if !ok {
		return answer, fmt.Errorf("gateway: the answer to %s is a %T", q.Method(), answers[key])
	}
	return answer, nil
}

// asks notes that a client is being asked, until done is called.
func (g *Gateway) asks(call context.Context, from, method string) (done func()) {
	request := server.RequestFrom(call)
	question := admin.Question{Server: from, Method: method, Program: programOf(request.Client)}
	if u := g.upstream(from); u != nil {
		question.Target = u.about(request)
	}
	end := g.waiting.ask(question)
	g.eye.wake()
	return func() {
		end()
		g.eye.wake()
	}
}

// ofClients leaves out the gateway's own requests for lists, because of which no server asks.
func ofClients(calls []context.Context) []context.Context {
	return slices.DeleteFunc(calls, func(call context.Context) bool { return server.RequestFrom(call) == nil })
}

// callOf returns the call in whose name a client is asked. The calls to which a question may belong must all be of one client: another
// user must not see it, still less answer it.
func callOf(calls []context.Context) (context.Context, error) {
	var of any
	for _, call := range calls {
		owner := ownerOf(call)
		if of != nil && of != owner {
			return nil, refuse("several clients have calls in flight, and the connection does not say for which one this is")
		}
		of = owner
	}
	if len(calls) == 0 {
		return nil, refuse("no client has a call in flight whose user could be asked")
	}
	return calls[0], nil
}

// ownerOf returns whose call it is, as a value to compare. A client without session and login is known
// by nothing: each of its calls counts as that of another.
func ownerOf(call context.Context) any {
	type user string
	type single string
	r := server.RequestFrom(call)
	switch {
	case r.Session != nil:
		return r.Session
	case r.Origin.Identity != "":
		return user(r.Origin.Identity)
	default:
		return single(r.CallID())
	}
}

func refuse(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}
