package server_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// Every handler of a tool sees the _meta of its request, also if the server knows that _meta from
// an earlier request and does not decode it again.
//
// Guarantees: G-0049.1
func TestHandlersSeeKnownMeta(t *testing.T) {
	names := func(params any) string {
		return strings.Join(slices.Sorted(maps.Keys(protocol.MetaOf(params))), " ")
	}
	typed := func(ctx context.Context, _ struct{}) (string, error) {
		return names(server.RequestFrom(ctx).Params), nil
	}
	const capabilities = `{"elicitation":{},"extensions":{"` + protocol.ExtensionTasks + `":{}}}`
	const known = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + capabilities + `,`
	const modernNames = protocol.MetaClientCapabilities + " " + protocol.MetaProtocolVersion + " " + protocol.MetaTraceparent
	for kind, add := range map[string]func(*server.Server, protocol.Tool){
		"typed": func(s *server.Server, tool protocol.Tool) { server.AddTool(s, tool, typed) },
		"reruns": func(s *server.Server, tool protocol.Tool) {
			server.AddTool(s, tool, typed, server.Asks(server.Reruns, forms))
		},
		"waits": func(s *server.Server, tool protocol.Tool) {
			server.AddTool(s, tool, typed, server.Asks(server.Waits, forms))
		},
		"raw": func(s *server.Server, tool protocol.Tool) {
			tool.InputSchema = json.RawMessage(`{"type":"object"}`)
			server.AddTool(s, tool, func(_ context.Context, params *protocol.CallToolParams) (string, error) { return names(params), nil })
		},
		"task": func(s *server.Server, tool protocol.Tool) {
			tool.Execution = &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}
			server.AddTool(s, tool, typed)
		},
	} {
		o := server.Options{}
		if kind == "task" {
			o.Tasks = &server.TaskOptions{After: time.Minute}
		}
		s := newServer(o)
		add(s, protocol.Tool{Name: "t"})
		modern, legacy := dial(t, s), dial(t, s)
		legacy.initialize(protocol.Version20251125)
		call := func(w *rawPeer, members string) string {
			w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{` + members + `"traceparent":"a"},"name":"t","arguments":{}}}`)
			var a answer
			if w.read(&a); len(a.Result.Content) != 1 {
				t.Fatalf("%s: %+v", kind, a)
			}
			return a.Result.Content[0].(*protocol.TextContent).Text
		}
		for range 2 {
			if got := call(modern, known); got != modernNames {
				t.Errorf("%s: a handler of a modern request sees %q, want %q", kind, got, modernNames)
			}
		}
		if kind == "reruns" || kind == "waits" {
			continue // this legacy client cannot be asked
		}
		if got := call(legacy, ""); got != protocol.MetaTraceparent {
			t.Errorf("%s: a handler of a legacy request sees %q", kind, got)
		}
	}
}
