package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
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
	}
}

// namedParams are params of which the gateway changes the name.
type namedParams struct {
	Name   string                     `json:"name"`
	Others map[string]json.RawMessage `json:",unknown"`
}

// callTool serves tools/call. A server that is away is an answer that a model can read.
func (g *Gateway) callTool(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	item, own, err := g.named(ctx, catalogue.Tools, "tool", params)
	if err != nil {
		return nil, err
	}
	result, away, err := g.relay(ctx, item.Server, protocol.MethodCallTool, own)
	if away != nil {
		return away.toolResult()
	}
	return result, err
}

// getPrompt serves prompts/get.
func (g *Gateway) getPrompt(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	item, own, err := g.named(ctx, catalogue.Prompts, "prompt", params)
	if err != nil {
		return nil, err
	}
	return g.relayed(ctx, item.Server, protocol.MethodGetPrompt, own)
}

// named finds a tool or prompt, and returns the params with the name that its server uses.
func (g *Gateway) named(ctx context.Context, kind catalogue.Kind, what string, params json.RawMessage) (catalogue.Item, json.RawMessage, error) {
	var asked namedParams
	if err := protocol.Unmarshal(params, &asked); err != nil {
		return catalogue.Item{}, nil, invalid("%s: %v", what, err)
	}
	item, found := g.find(ctx, func(now *catalogue.Snapshot) (catalogue.Item, bool) { return now.Find(kind, asked.Name) }, kind)
	if !found {
		return item, nil, invalid("unknown %s %s", what, quoted(asked.Name))
	}
	asked.Name = item.Own
	own, err := protocol.Marshal(&asked)
	return item, own, err
}

// find looks for what a client means. If nobody has it, and a server has not said yet what it has, it waits for that.
func (g *Gateway) find(ctx context.Context, in func(*catalogue.Snapshot) (catalogue.Item, bool), kinds ...catalogue.Kind) (item catalogue.Item, found bool) {
	item, found = in(g.known.Snapshot())
	for i := 0; !found && i < len(kinds); i++ {
		item, found = in(g.warm(ctx, kinds[i]))
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
	item, found := g.resource(ctx, uri)
	if !found {
		return nil, notFound(ctx, uri)
	}
	result, err := g.relayed(ctx, item.Server, protocol.MethodReadResource, params)
	return result, inEra(ctx, err, uri)
}

// completeParams are params of which the gateway changes the reference.
type completeParams struct {
	Ref struct {
		Type   string                     `json:"type"`
		Name   string                     `json:"name,omitzero"`
		URI    string                     `json:"uri,omitzero"`
		Others map[string]json.RawMessage `json:",unknown"`
	} `json:"ref"`
	Others map[string]json.RawMessage `json:",unknown"`
}

// complete serves completion/complete.
func (g *Gateway) complete(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var asked completeParams
	if err := protocol.Unmarshal(params, &asked); err != nil {
		return nil, invalid("completion/complete: %v", err)
	}
	item, found := g.find(ctx, asked.in, catalogue.Prompts, catalogue.Templates, catalogue.Resources)
	if !found {
		return nil, invalid("unknown reference %s", quoted(cmp.Or(asked.Ref.URI, asked.Ref.Name)))
	}
	if asked.isPrompt() {
		asked.Ref.Name = item.Own
	}
	own, err := protocol.Marshal(&asked)
	if err != nil {
		return nil, err
	}
	return g.relayed(ctx, item.Server, protocol.MethodComplete, own)
}

func (p *completeParams) isPrompt() bool { return p.Ref.Type != protocol.ReferenceResource }

// in finds what a reference means: the name of a prompt, the text of a template, or the URI of a resource.
func (p *completeParams) in(now *catalogue.Snapshot) (catalogue.Item, bool) {
	if p.isPrompt() {
		return now.Find(catalogue.Prompts, p.Ref.Name)
	}
	if item, found := now.Find(catalogue.Templates, p.Ref.URI); found {
		return item, true
	}
	return now.Resource(p.Ref.URI)
}

// relayed does what relay does, for a method whose results cannot say that a server is away.
func (g *Gateway) relayed(ctx context.Context, name, method string, params json.RawMessage) (json.RawMessage, error) {
	result, away, err := g.relay(ctx, name, method, params)
	if away != nil {
		return nil, away.fault()
	}
	return result, err
}

// relay passes a request of a client on. If the server has not answered, away says what became of the call.
func (g *Gateway) relay(ctx context.Context, name, method string, params json.RawMessage) (result json.RawMessage, away *awayError, err error) {
	if params, err = answered(ctx, params); err != nil {
		return nil, nil, err
	}
	u := g.upstream(name)
	if u != nil {
		done := u.count(ctx, method, params)
		defer func() { done(away == nil && result != nil) }()
	}
	for again := true; ; again = false {
		session, away := g.reach(ctx, name)
		if away != nil {
			return nil, away, nil
		}
		result, err = withProgress(ctx, session).Relay(ctx, method, params)
		switch fault := faultOf(err); {
		case err == nil:
			u.answered()
			return asking(result)
		case fault != nil:
			u.answered()
			return nil, nil, fault
		case again && errors.Is(err, client.ErrUnavailable): // it was lost just now, and the request was not sent
		default:
			return nil, g.failed(name, err), nil
		}
	}
}

// withProgress returns a view of a session whose progress goes to the client, if that has asked for it. The server is always asked: its
// progress shows that it is alive.
func withProgress(ctx context.Context, session *client.Session) *client.Session {
	o := session.Calls()
	o.ProgressRestarts = true
	o.OnProgress = func(p *protocol.ProgressParams) { server.Progress(ctx, p.Progress, p.Total, p.Message) }
	return session.With(o)
}

// A round is the state of a call that a modern server has answered with questions.
type round struct {
	State *string `json:"s"`
}

// asking returns a result, or the questions in it as those of this gateway. The state of the server goes with them, sealed: behind a
// gateway a server cannot tell users apart.
func asking(result json.RawMessage) (json.RawMessage, *awayError, error) {
	if kind, _ := jsonrpc.Member(result, "resultType"); string(kind) != `"`+protocol.ResultInputRequired+`"` {
		return result, nil, nil
	}
	var asks protocol.InputRequired
	if err := protocol.Unmarshal(result, &asks); err != nil {
		return nil, nil, &client.ResultError{Err: err}
	}
	return nil, nil, &server.InputRequired{Requests: asks.InputRequests, State: round{asks.RequestState}}
}

// answered adds what a client has answered to the questions of a modern server.
func answered(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var last round
	r := server.RequestFrom(ctx)
	if again, err := r.State(&last); err != nil || !again && len(r.Answers) == 0 { // a client may send answers with its first request
		return params, err
	}
	var whole struct {
		protocol.InputParams
		Others map[string]json.RawMessage `json:",unknown"`
	}
	if err := protocol.Unmarshal(params, &whole); err != nil {
		return nil, err
	}
	whole.InputResponses, whole.RequestState = r.Answers, last.State
	return protocol.Marshal(&whole)
}
