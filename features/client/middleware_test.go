package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// A middleware can change params and results, answer itself, and fail.
//
// Guarantees: G-0030.8
func TestMiddlewareForOneMethod(t *testing.T) {
	s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
	mine := errors.New("not here")
	outermost := func(next client.Handler) client.Handler {
		return func(ctx context.Context, r *client.Request) (any, error) {
			before := r.Params
			result, err := next(ctx, r)
			if r.Params != before || (err == nil) != (result != nil) {
				t.Errorf("%s: the params are %+v, the result is %v, %v, want the params that were there, and a result or an error", r.Method, r.Params, result, err)
			}
			return result, err
		}
	}
	session := openFake(t, s, client.Options{Middleware: []client.Middleware{
		outermost,
		client.On(func(ctx context.Context, p *protocol.CallToolParams, next func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)) (*protocol.CallToolResult, error) {
			switch p.Name {
			case "shell":
				return nil, mine
			case "copied":
				return next(ctx, &protocol.CallToolParams{Name: "echo"})
			case "cached":
				return &protocol.CallToolResult{Content: protocol.Texts("from here")}, nil
			}
			p.Name += "!"
			result, err := next(ctx, p)
			if err == nil {
				result.Meta = protocol.Meta{"seen": json.RawMessage(`1`)}
			}
			return result, err
		}),
	}})
	params := &protocol.CallToolParams{Name: "echo"}
	result, err := session.CallTool(t.Context(), params)
	if err != nil || result.Meta["seen"] == nil || params.Name != "echo" {
		t.Errorf("got %+v, %v; the caller's params are %+v", result, err, params)
	}
	sent := s.received(protocol.MethodCallTool)
	if len(sent) != 1 || !strings.Contains(string(sent[0].Params), `"echo!"`) {
		t.Errorf("sent %+v", sent)
	}
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "shell"}); !errors.Is(err, mine) {
		t.Errorf("got %v, want %v", err, mine)
	}
	if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "cached"}); err != nil || result.Content.Text() != "from here" {
		t.Errorf("got %+v, %v, want %q", result, err, "from here")
	}
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Errorf("another method: %v", err)
	}
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "copied"}); err != nil {
		t.Errorf("other params: %v", err)
	}
	if sent := s.received(protocol.MethodCallTool); len(sent) != 2 || !strings.Contains(string(sent[1].Params), `"echo"`) {
		t.Errorf("sent %+v", sent)
	}
}
