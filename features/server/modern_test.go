package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// context20260728 is what a modern request says of its client, in _meta.
const context20260728 = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{},` +
	`"io.modelcontextprotocol/clientInfo":{"name":"modern","version":"0"}`

// modern is the frame of a modern request. Params are the members beside _meta.
func modern(id, method, params string) string {
	if params != "" {
		params += ","
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `"_meta":{` + context20260728 + `}}}`
}

// A response is one to any request.
type response struct {
	Result map[string]json.RawMessage `json:"result"`
	Error  *fault                     `json:"error"`
}

type fault struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// ask makes a request and reads the response, which is the next frame.
func (w *wire) ask(frame string) response {
	w.t.Helper()
	w.send(frame)
	var r response
	w.read(&r)
	return r
}

// wantFault checks that a request is refused with a code.
func (w *wire) wantFault(code int64, frame string) *fault {
	w.t.Helper()
	got := w.ask(frame).Error
	if got == nil || got.Code != code {
		w.t.Fatalf("%s\ngot %v, want the code %d", frame, got, code)
	}
	return got
}

// Guarantees: G-0020.5
func TestModernResultsSayAllThatTheyMust(t *testing.T) {
	for _, handshake := range []bool{false, true} { // nothing depends on what came before
		w := dial(t, echoServer())
		if handshake {
			w.initialize(protocol.Version20250326)
		}
		for frame, cached := range map[string]bool{
			modern(`1`, "server/discover", ``):                                      true,
			modern(`1`, "tools/list", ``):                                           true,
			modern(`1`, "tools/call", `"name":"echo","arguments":{"message":"hi"}`): false,
			modern(`1`, "tools/call", `"name":"echo","arguments":{"message":7}`):    false, // it fails
		} {
			got := w.ask(frame).Result
			if string(got["resultType"]) != `"complete"` ||
				!strings.Contains(string(got["_meta"]), `"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}`) {
				t.Errorf("%s\ngot %s", frame, got)
			}
			lifetime, scope := string(got["ttlMs"]), string(got["cacheScope"])
			if cached && (lifetime != `0` || scope != `"private"`) || !cached && lifetime+scope != "" {
				t.Errorf("%s\ngot lifetime %q and scope %q", frame, lifetime, scope)
			}
		}
	}
}

// Guarantees: G-0020.5
func TestLegacyResultsSayNothingModern(t *testing.T) {
	w := dial(t, echoServer())
	w.ask(modern(`1`, "tools/list", ``))
	w.initialize(protocol.Version20251125)
	for _, request := range []string{
		`"method":"tools/list"`,
		`"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}`,
		`"method":"tools/call","params":{"name":"echo","arguments":{"message":"hi"}}`,
	} {
		got := w.ask(`{"jsonrpc":"2.0","id":1,` + request + `}`)
		if got.Error != nil {
			t.Errorf("%s: got %v", request, got.Error)
		}
		for _, member := range []string{"resultType", "_meta", "ttlMs", "cacheScope"} {
			if got.Result[member] != nil {
				t.Errorf("%s: got %s", request, got.Result)
			}
		}
	}
}

func TestDiscoverSaysWhatTheServerIs(t *testing.T) {
	s := newServer(server.Options{Instructions: "ask nicely", ProtocolVersions: []string{protocol.Version20251125, protocol.Version20260728}})
	w := dial(t, s)
	got := w.ask(modern(`1`, "server/discover", ``)).Result
	if string(got["supportedVersions"]) != `["2025-11-25","2026-07-28"]` || string(got["instructions"]) != `"ask nicely"` ||
		string(got["capabilities"]) != `{"logging":{}}` {
		t.Errorf("got %s", got)
	}
	w.wantFault(jsonrpc.CodeMethodNotFound, modern(`1`, "tools/list", ``))
	w.wantFault(jsonrpc.CodeMethodNotFound, modern(`1`, "tools/call", `"name":"a"`))
	addNamed(s, "a") // offered from here on: a modern client is not bound to what it was told first
	if got := w.ask(modern(`1`, "server/discover", ``)).Result; string(got["capabilities"]) != `{"tools":{"listChanged":true},"logging":{}}` {
		t.Errorf("got %s", got)
	}
	if got := w.ask(modern(`1`, "tools/list", ``)); !strings.Contains(string(got.Result["tools"]), `"name":"a"`) {
		t.Errorf("got %s", got.Result)
	}
}

// A server that gets its tools later declares them itself.
func TestToolsMayBeDeclaredAhead(t *testing.T) {
	w := dial(t, newServer(server.Options{Capabilities: protocol.ServerCapabilities{Tools: &protocol.ListCapability{ListChanged: true}}}))
	if got := w.ask(modern(`1`, "server/discover", ``)).Result; string(got["capabilities"]) != `{"tools":{"listChanged":true},"logging":{}}` {
		t.Errorf("got %s", got)
	}
	if got := w.ask(modern(`1`, "tools/list", ``)).Result; string(got["tools"]) != `[]` {
		t.Errorf("got %s", got)
	}
}

// The era comes before the method: there are none of these in the modern
// revisions, whatever was agreed on before.
//
// Guarantees: G-0020.1
func TestRemovedMethodsAreNotFound(t *testing.T) {
	w := dial(t, echoServer())
	for range 2 {
		for method, params := range map[string]string{
			"initialize":            `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"0"}`,
			"ping":                  ``,
			"logging/setLevel":      `"level":"info"`,
			"resources/subscribe":   `"uri":"file:///a"`,
			"resources/unsubscribe": `"uri":"file:///a"`,
		} {
			w.wantFault(jsonrpc.CodeMethodNotFound, modern(`1`, method, params))
		}
		w.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		w.want(`"id":2`, `"result":{}`)
		w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1)) // the second is refused
		w.next()
	}
}

// Guarantees: G-0020.1
func TestEveryRequestSaysItsOwnEra(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, func(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
		c := server.RequestFrom(ctx).Client
		return &protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{
			Text: fmt.Sprintf("%s %q %t", c.ProtocolVersion, c.Info.Name, c.Capabilities.Roots != nil),
		}}}, nil
	})
	w := dial(t, s)
	asks := func(request, want string) {
		t.Helper()
		if got := w.ask(request); !strings.Contains(string(got.Result["content"]), want) {
			t.Errorf("%s\ngot %v", request, got)
		}
	}
	bare := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}}`
	legacy := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`

	asks(modern(`1`, "tools/call", `"name":"t"`), `2026-07-28 \"modern\" false`)
	w.wantFault(jsonrpc.CodeInvalidRequest, legacy) // there is no session yet
	asks(bare, `2026-07-28 \"\" true`)
	w.initialize(protocol.Version20250618)
	asks(bare, `2026-07-28 \"\" true`)
	asks(legacy, `2025-06-18 \"raw\" false`)
	asks(modern(`1`, "tools/call", `"name":"t"`), `2026-07-28 \"modern\" false`)
	w.wantFault(jsonrpc.CodeMethodNotFound, `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`)
	w.wantFault(jsonrpc.CodeMethodNotFound, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`)
}

// Guarantees: G-0020.4
func TestContextsThatCannotBeServedAreRefused(t *testing.T) {
	w := dial(t, newServer(server.Options{ProtocolVersions: []string{protocol.Version20241105, protocol.Version20260728}}))
	for _, version := range []string{"2031-01-01", "2025-11-25", "2024-11-05", ""} { // a legacy one is for initialize
		fault := w.wantFault(protocol.CodeUnsupportedVersion, strings.Replace(modern(`1`, "server/discover", ``), "2026-07-28", version, 1))
		var data protocol.UnsupportedVersionData
		if err := protocol.Unmarshal(fault.Data, &data); err != nil {
			t.Fatal(err)
		}
		if data.Requested != version || !slices.Equal(data.Supported, []string{"2024-11-05", "2026-07-28"}) {
			t.Errorf("%s: got %s", version, fault.Data)
		}
	}
	const version, capabilities = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/clientCapabilities":{}`
	for _, meta := range []string{
		version,
		version + `,"io.modelcontextprotocol/clientCapabilities":[]`,
		capabilities + `,"io.modelcontextprotocol/protocolVersion":3`,
		capabilities + `,` + version + `,"io.modelcontextprotocol/clientInfo":7`,
	} {
		w.wantFault(jsonrpc.CodeInvalidParams, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{`+meta+`}}}`)
	}
}

// Guarantees: G-0020.4
func TestModernServerNamesMissingCapabilities(t *testing.T) {
	s := newServer(server.Options{ProtocolVersions: protocol.ModernVersions()})
	addNamed(s, "a")
	w := dial(t, s)
	for _, request := range []string{
		`"method":"tools/list"`,
		`"method":"tools/list","params":{}`,
		`"method":"server/discover","params":{"_meta":{}}`,
		`"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}`,
	} {
		fault := w.wantFault(jsonrpc.CodeInvalidParams, `{"jsonrpc":"2.0","id":1,`+request+`}`)
		if !strings.Contains(fault.Message, protocol.MetaProtocolVersion) {
			t.Errorf("%s: got %v", request, fault)
		}
	}
	fault := w.wantFault(jsonrpc.CodeInvalidRequest, strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
	if !strings.Contains(fault.Message, "2026-07-28") {
		t.Errorf("initialize: got %v", fault)
	}
	if got := w.ask(modern(`1`, "tools/list", ``)); got.Error != nil {
		t.Errorf("got %v", got.Error)
	}
}

// A server of legacy revisions names them to a modern client, and makes no
// session of what it says: strangers may come in on the same link.
//
// Guarantees: G-0020.1, G-0020.4
func TestLegacyServerTakesNoModernRequestForASession(t *testing.T) {
	s := newServer(server.Options{ProtocolVersions: protocol.LegacyVersions()})
	addNamed(s, "a")
	w := dial(t, s)
	for range 2 {
		for _, method := range []string{"server/discover", "tools/list", "subscriptions/listen", "initialize"} {
			fault := w.wantFault(protocol.CodeUnsupportedVersion, modern(`1`, method, `"protocolVersion":"2025-11-25"`))
			if !strings.Contains(string(fault.Data), protocol.Version20251125) {
				t.Errorf("%s: got %s", method, fault.Data)
			}
		}
		w.wantFault(jsonrpc.CodeInvalidRequest, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) // no session was begun
	}
	w.initialize(protocol.Version20251125)
}

// A tool may answer all its calls with one result.
//
// Guarantees: G-0020.5
func TestSharedResultsAreNotChanged(t *testing.T) {
	shared := &protocol.CallToolResult{Result: protocol.Result{Meta: protocol.Meta{"mine": json.RawMessage(`1`)}}}
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, answering(shared, nil))
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	for range 2 {
		if got := w.ask(modern(`1`, "tools/call", `"name":"t"`)).Result; !strings.Contains(string(got["_meta"]), `"mine":1`) ||
			!strings.Contains(string(got["_meta"]), protocol.MetaServerInfo) || got["resultType"] == nil {
			t.Errorf("modern: got %s", got)
		}
		got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`).Result
		if string(got["_meta"]) != `{"mine":1}` || got["resultType"] != nil {
			t.Errorf("legacy: got %s", got)
		}
	}
	if shared.ResultType != "" || len(shared.Meta) != 1 {
		t.Errorf("the tool's own result became %+v", shared)
	}
}

func TestWhatAToolSaysOfItsResultIsKept(t *testing.T) {
	own := &protocol.CallToolResult{Result: protocol.Result{
		ResultType: "com.example/partial",
		Meta:       protocol.Meta{protocol.MetaServerInfo: json.RawMessage(`{"name":"other","version":"2"}`)},
	}}
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, answering(own, nil))
	w := dial(t, s)
	w.send(modern(`1`, "tools/call", `"name":"t"`))
	w.want(`"resultType":"com.example/partial"`, `"name":"other"`)
}

func TestProgressGoesToModernClientsToo(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, stepping)
	w := dial(t, s)
	w.send(strings.Replace(modern(`1`, "tools/call", `"name":"t"`), `"_meta":{`, `"_meta":{"progressToken":"p",`, 1))
	w.want(`"progressToken":"p","progress":1,"total":2,"message":"halfway"`)
	w.want(`"id":1`, `done`)
	w.send(modern(`2`, "tools/call", `"name":"t"`))
	w.want(`"id":2`, `done`) // and no progress, which was not asked for
}

// What is kept of a client holds for requests that say the very same, and for no
// others: another name, other capabilities, another log level or a progress token.
//
// Guarantees: G-0050.3
func TestModernRequestsSpeakForThemselves(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "who"}, func(ctx context.Context, _ struct{}) (string, error) {
		c := server.RequestFrom(ctx).Client
		return fmt.Sprintf("%s %v", c.Info.Name, c.Capabilities.Has("roots")), nil
	})
	w := dial(t, s)
	for range 2 {
		for _, test := range []struct{ name, capabilities, more, want string }{
			{"a", `{}`, ``, "a false"}, {"a", `{}`, ``, "a false"},
			{"b", `{}`, ``, "b false"}, {"b", `{"roots":{}}`, ``, "b true"}, {"b", `{"roots":{}}`, `,"progressToken":1`, "b true"},
			{"c", `{}`, `,"io.modelcontextprotocol/logLevel":"error"`, "c false"}, {"c", `{}`, `,"other":"` + strings.Repeat("x", 5000) + `"`, "c false"},
		} {
			meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + test.capabilities +
				`,"io.modelcontextprotocol/clientInfo":{"name":"` + test.name + `","version":"0"}` + test.more + `}`
			got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"who",` + meta + `}}`)
			if !strings.Contains(string(got.Result["content"]), `"`+test.want+`"`) {
				t.Errorf("%s: got %s %v", meta, got.Result["content"], got.Error)
			}
		}
	}
	w.wantFault(jsonrpc.CodeInvalidParams, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"who","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
}
