package server_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/streamable"
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

// A request that lacks a text it must have is refused with -32602, and the error names the member.
//
// Guarantees: G-0029.14
func TestMissingTextIsNamed(t *testing.T) {
	s := withSkills(t, server.Options{Tasks: &server.TaskOptions{}, OnSubscribe: func(context.Context, string) error { return nil }})
	server.AddTool(s, protocol.Tool{Name: "t", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}}, func(context.Context, struct{}) (string, error) { return "", nil })
	server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct {
		A string `json:"a" enum:"x"`
	}) (string, error) {
		return "", nil
	})
	legacy := dial(t, s)
	legacy.initialize(protocol.Version20251125)
	later := dial(t, s)
	for _, test := range []struct{ method, params, missing string }{
		{"resources/read", ``, "uri"},
		{"resources/read", `"uri":""`, "uri"},
		{"resources/subscribe", ``, "uri"},
		{"resources/unsubscribe", ``, "uri"},
		{"tools/call", `"arguments":{}`, "name"},
		{"prompts/get", ``, "name"},
		{"completion/complete", `"ref":{"type":"ref/prompt","name":"p"}`, "argument.name"},
		{"completion/complete", `"argument":{"name":"a","value":""}`, "ref.type"},
		{"completion/complete", `"ref":{"type":"ref/prompt"},"argument":{"name":"a","value":""}`, "ref.name"},
		{"completion/complete", `"ref":{"type":"ref/resource"},"argument":{"name":"a","value":""}`, "ref.uri"},
		{"logging/setLevel", ``, "level"},
		{"tasks/get", ``, "taskId"},
		{"tasks/cancel", ``, "taskId"},
		{"tasks/update", ``, "taskId"},
		{"skills/get", ``, "uri"},
		{"resources/directory/read", ``, "uri"},
	} {
		known := 0
		for version, ask := range map[string]func() response{
			protocol.Version20251125: func() response {
				return legacy.ask(`{"jsonrpc":"2.0","id":1,"method":"` + test.method + `","params":{` + test.params + `}}`)
			},
			protocol.Version20260728: func() response { return later.ask(withTasks(`1`, test.method, test.params)) },
		} {
			if info, _ := protocol.MethodInfo(test.method); !info.In(version) {
				continue
			}
			got := ask()
			if got.Error.is(jsonrpc.CodeMethodNotFound, "") {
				continue // not offered in this era
			}
			known++
			if want := test.method + ": " + test.missing + " is missing"; got.Error == nil || got.Error.Code != jsonrpc.CodeInvalidParams || got.Error.Message != want {
				t.Errorf("%s in %s with %s: got %+v, want the error %d with %q", test.method, version, test.params, got.Error, jsonrpc.CodeInvalidParams, want)
			}
		}
		if known == 0 {
			t.Errorf("%s: no revision has it", test.method)
		}
	}
}

// A request of 2026-07-28 whose _meta is malformed is answered with status 400 and a JSON-RPC error, and
// no other request is, whatever the text of its error.
//
// Guarantees: G-0022.8
func TestMalformedMetaIsABadRequest(t *testing.T) {
	s := echoServer()
	server.AddMethod(s, "x/refuses", func(context.Context, struct{}) (struct{}, error) {
		return struct{}{}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "_meta: of a function of the program"}
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	site := httptest.NewServer(endpoint)
	defer site.Close()
	defer endpoint.Close(0)
	const version, capabilities = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/clientCapabilities":{}`
	ask := func(method, meta string) (int, *fault) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"_meta":`+meta+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {protocol.Version20260728}, "Mcp-Method": {method},
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var got struct{ Error *fault }
		if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, got.Error
	}
	for _, test := range []struct {
		meta   string
		status int
	}{
		{`{` + version + `,` + capabilities + `}`, 200},
		{`{` + version + `,` + capabilities + `,"io.modelcontextprotocol/logLevel":null}`, 200},
		{`"x"`, 400},
		{`null`, 400},
		{`{}`, 400},
		{`{` + version + `}`, 400},
		{`{` + version + `,"io.modelcontextprotocol/clientCapabilities":"x"}`, 400},
		{`{` + version + `,"io.modelcontextprotocol/clientCapabilities":null}`, 400},
		{`{` + capabilities + `,"io.modelcontextprotocol/protocolVersion":7}`, 400},
		{`{` + version + `,` + capabilities + `,"io.modelcontextprotocol/clientInfo":"x"}`, 400},
		{`{` + version + `,` + capabilities + `,"io.modelcontextprotocol/clientInfo":{"name":7}}`, 400},
		{`{` + version + `,` + capabilities + `,"io.modelcontextprotocol/logLevel":"loud"}`, 400},
		{`{` + version + `,` + capabilities + `,"io.modelcontextprotocol/logLevel":7}`, 400},
	} {
		for range 2 { // the second one may be known
			if status, fault := ask("tools/list", test.meta); status != test.status || (fault != nil) != (test.status == 400) {
				t.Errorf("_meta %s: got status %d with %+v; want %d", test.meta, status, fault, test.status)
			}
		}
	}
	if status, fault := ask("x/refuses", `{`+version+`,`+capabilities+`}`); status != 200 || !fault.is(jsonrpc.CodeInvalidParams, "_meta: of a function") {
		t.Errorf("a function whose error has the same text: got status %d with %+v; want 200 with its error", status, fault)
	}
	http.DefaultClient.CloseIdleConnections()
}
