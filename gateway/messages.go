package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// stringOf returns a string member of params, which are valid, since they come from package server.
func stringOf(params json.RawMessage, member string) (text string, ok bool) {
	raw, _ := jsonrpc.Member(params, member)
	value := scan.Of(raw)
	text = value.String()
	return text, value.End()
}

// withString returns params with another text in place of that of a member which is there.
func withString(params json.RawMessage, member, text string) json.RawMessage {
	return scan.Replace(params, member, scan.AppendQuote(nil, text))
}

// withoutAliases refuses params in which a server could read something else than this gateway: another name than the one that was looked up. Servers that read names of
// members in any case take the last one.
func withoutAliases(params json.RawMessage, members ...string) error {
	if name := scan.Alias(params, members...); name != "" {
		return invalid("a member differs from %s by upper and lower case only", name)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

func refuse(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// A reference says what a completion is for.
type reference struct {
	Type string `json:"type"`
	Name string `json:"name"`
	URI  string `json:"uri"`
}

func (r *reference) isPrompt() bool { return r.Type != protocol.ReferenceResource }

// in finds what a reference means: the name of a prompt, the text of a template, or the URI of a resource.
func (r *reference) in(now *catalogue.Snapshot) (catalogue.Item, bool) {
	if r.isPrompt() {
		return now.Find(catalogue.Prompts, r.Name)
	}
	if item, found := now.Find(catalogue.Templates, r.URI); found {
		return item, true
	}
	return now.Resource(r.URI)
}

// withProgress returns a view of a session whose progress goes to the client, if that has asked for it, and whose log level is that of the
// client. If calls have a timeout, the server is asked for progress in any case: that shows that it is alive.
func withProgress(ctx context.Context, session *client.Session, params json.RawMessage) *client.Session {
	o := session.Calls()
	level := server.LogLevel(ctx)
	meta, _ := jsonrpc.Member(params, "_meta")
	if token, _ := jsonrpc.Member(meta, protocol.MetaProgressToken); token == nil && o.Timeout < 0 && level == "" {
		return session
	}
	o.ProgressRestarts, o.LogLevel = true, level
	o.OnProgress = func(p *protocol.ProgressParams) { server.Progress(ctx, p.Progress, p.Total, p.Message) }
	return session.With(o)
}

// reporting returns what makes the context in which a client is asked: if the server wants progress, the client is asked for it, too. The token of the
// server means nothing to the client, and does not go on.
func reporting(question context.Context, q protocol.InputRequest) func(asking context.Context) context.Context {
	meta := protocol.MetaOf(q)
	_, wants := meta[protocol.MetaProgressToken]
	delete(meta, protocol.MetaProgressToken)
	return func(asking context.Context) context.Context {
		if !wants {
			return asking
		}
		return server.OnProgress(asking, func(p *protocol.ProgressParams) { client.Progress(question, p.Progress, p.Total, p.Message) })
	}
}

// A round is the state of a call that a modern server has answered with questions.
type round struct {
	State *string `json:"s"`
}

// questionsIn returns a result, or the questions in it as those of this gateway. The state of the server goes with them, sealed: behind a
// gateway a server cannot tell users apart. If here, only this gateway can take the answers.
func questionsIn(result json.RawMessage, here bool) (json.RawMessage, error) {
	if kind, _ := jsonrpc.Member(result, "resultType"); string(kind) != `"`+protocol.ResultInputRequired+`"` {
		return result, nil
	}
	var asks protocol.InputRequired
	if err := protocol.Unmarshal(result, &asks); err != nil {
		return nil, &client.ResultError{Err: err}
	}
	return nil, &server.InputRequired{Requests: asks.InputRequests, State: round{asks.RequestState}, Here: here}
}

// withAnswers adds what a client has answered to the questions of a modern server.
func withAnswers(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var last round
	r := server.RequestFrom(ctx)
	if again, err := r.State(&last); err != nil || !again && len(r.Answers) == 0 { // a client may send answers with its first request
		return params, err
	}
	given, err := protocol.Marshal(&struct{ protocol.InputParams }{protocol.InputParams{InputResponses: r.Answers, RequestState: last.State}})
	if err != nil {
		return nil, err
	}
	return append(scan.AppendMembers(given[:len(given)-len("}")], params), '}'), nil
}
