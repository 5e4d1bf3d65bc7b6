package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
)

// context20260728 contains the members of _meta with which a modern request describes
// its client.
const context20260728 = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{},` +
	`"io.modelcontextprotocol/clientInfo":{"name":"modern","version":"0"}`

// modern returns the frame of a modern request. params are the members next to _meta.
func modern(id, method, params string) string {
	if params != "" {
		params += ","
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `"_meta":{` + context20260728 + `}}}`
}

// A response is the response to any request.
type response struct {
	Result map[string]json.RawMessage `json:"result"`
	Error  *fault                     `json:"error"`
}

// text returns a member of the result as it stands, "" without one.
func (r response) text(member string) string { return string(r.Result[member]) }

type fault struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// ask sends a request and reads the response, which must be the next frame.
func (w *rawPeer) ask(frame string) response {
	w.t.Helper()
	w.send(frame)
	var r response
	w.read(&r)
	return r
}

// wantFault checks that a request is refused with the given code.
func (w *rawPeer) wantFault(code int64, frame string) *fault {
	w.t.Helper()
	got := w.ask(frame).Error
	if got == nil || got.Code != code {
		w.t.Fatalf("%s\ngot %v, want the code %d", frame, got, code)
	}
	return got
}

// Each modern result has its result type and the server's name, and cacheable results
// have a lifetime and a scope.
//
// Guarantees: G-0020.5
func TestModernResultsHaveAllRequiredMembers(t *testing.T) {
	for _, handshake := range []bool{false, true} { // an earlier initialize makes no difference
		w := dial(t, echoServer())
		if handshake {
			w.initialize(protocol.Version20250326)
		}
		for frame, cached := range map[string]bool{
			modern(`1`, "server/discover", ``):                                      true,
			modern(`1`, "tools/list", ``):                                           true,
			modern(`1`, "tools/call", `"name":"echo","arguments":{"message":"hi"}`): false,
			modern(`1`, "tools/call", `"name":"echo","arguments":{"message":7}`):    false, // fails
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

// Results for legacy clients have no members of the modern revisions.
//
// Guarantees: G-0020.5
func TestLegacyResultsHaveNoModernMembers(t *testing.T) {
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
			t.Errorf("%s: got %v, want no error", request, got.Error)
		}
		for _, member := range []string{"resultType", "_meta", "ttlMs", "cacheScope"} {
			if got.Result[member] != nil {
				t.Errorf("%s: got %s, want got.Result[member] == nil", request, got.Result)
			}
		}
	}
}

func TestDiscoverDescribesTheServer(t *testing.T) {
	s := newServer(server.Options{Instructions: "ask nicely", ProtocolVersions: []string{protocol.Version20251125, protocol.Version20260728}})
	w := dial(t, s)
	got := w.ask(modern(`1`, "server/discover", ``)).Result
	if string(got["supportedVersions"]) != `["2025-11-25","2026-07-28"]` || string(got["instructions"]) != `"ask nicely"` ||
		string(got["capabilities"]) != `{"logging":{}}` {
		t.Errorf("got %s", got)
	}
	w.wantFault(jsonrpc.CodeMethodNotFound, modern(`1`, "tools/list", ``))
	w.wantFault(jsonrpc.CodeMethodNotFound, modern(`1`, "tools/call", `"name":"a"`))
	addNamed(s, "a") // from here on the server offers tools, and modern clients may use them immediately
	if got := w.ask(modern(`1`, "server/discover", ``)).Result; string(got["capabilities"]) != `{"tools":{"listChanged":true},"logging":{}}` {
		t.Errorf("got %s, want %q", got, `{"tools":{"listChanged":true},"logging":{}}`)
	}
	if got := w.ask(modern(`1`, "tools/list", ``)); !strings.Contains(string(got.Result["tools"]), `"name":"a"`) {
		t.Errorf("got %s, want %q in it", got.Result, `"name":"a"`)
	}
}

// A server whose tools come later can declare the capability itself.
func TestToolsMayBeDeclaredAhead(t *testing.T) {
	w := dial(t, newServer(server.Options{Capabilities: protocol.ServerCapabilities{Tools: &protocol.ListCapability{ListChanged: true}}}))
	if got := w.ask(modern(`1`, "server/discover", ``)).Result; string(got["capabilities"]) != `{"tools":{"listChanged":true},"logging":{}}` {
		t.Errorf("got %s, want %q", got, `{"tools":{"listChanged":true},"logging":{}}`)
	}
	if got := w.ask(modern(`1`, "tools/list", ``)).Result; string(got["tools"]) != `[]` {
		t.Errorf("got %s, want %q", got, `[]`)
	}
}

// Methods that 2026-07-28 has removed are unknown in modern requests, even after a
// legacy initialize.
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
		w.send(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1)) // a second one is refused
		w.next()
	}
}

// Each request is served in the era that it names, whatever the earlier requests on its
// link have named.
//
// Guarantees: G-0020.1
func TestEachRequestIsServedInItsOwnEra(t *testing.T) {
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
			t.Errorf("%s\ngot %v, want %v in it", request, got, want)
		}
	}
	bare := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}}`
	legacy := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`

	asks(modern(`1`, "tools/call", `"name":"t"`), `2026-07-28 \"modern\" false`)
	w.wantFault(jsonrpc.CodeInvalidRequest, legacy) // without initialize there is no session
	asks(bare, `2026-07-28 \"\" true`)
	w.initialize(protocol.Version20250618)
	asks(bare, `2026-07-28 \"\" true`)
	asks(legacy, `2025-06-18 \"raw\" false`)
	asks(modern(`1`, "tools/call", `"name":"t"`), `2026-07-28 \"modern\" false`)
	w.wantFault(jsonrpc.CodeMethodNotFound, `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`)
	w.wantFault(jsonrpc.CodeMethodNotFound, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`)
}

// A modern request without a complete and supported context is refused, with the list
// of supported revisions where the revision is the reason.
//
// Guarantees: G-0020.4
func TestContextsThatCannotBeServedAreRefused(t *testing.T) {
	w := dial(t, newServer(server.Options{ProtocolVersions: []string{protocol.Version20241105, protocol.Version20260728}}))
	for _, version := range []string{"2031-01-01", "2025-11-25", "2024-11-05", ""} { // legacy revisions need initialize
		fault := w.wantFault(protocol.CodeUnsupportedVersion, strings.Replace(modern(`1`, "server/discover", ``), "2026-07-28", version, 1))
		var data protocol.UnsupportedVersionData
		if err := protocol.Unmarshal(fault.Data, &data); err != nil {
			t.Fatal(err)
		}
		if data.Requested != version || !slices.Equal(data.Supported, []string{"2024-11-05", "2026-07-28"}) {
			t.Errorf("%s: got %s, want data.Requested == %v and %v", version, fault.Data, version, []string{"2024-11-05", "2026-07-28"})
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

// A server of modern revisions refuses a request without a protocol version and names
// the missing member. It refuses initialize and lists its revisions.
//
// Guarantees: G-0020.4
func TestModernServerRefusesLegacyRequests(t *testing.T) {
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
			t.Errorf("%s: got %v, want %v in it", request, fault, protocol.MetaProtocolVersion)
		}
	}
	fault := w.wantFault(jsonrpc.CodeInvalidRequest, strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1))
	if !strings.Contains(fault.Message, "2026-07-28") {
		t.Errorf("initialize: got %v, want %q in it", fault, "2026-07-28")
	}
	if got := w.ask(modern(`1`, "tools/list", ``)); got.Error != nil {
		t.Errorf("got %v, want no error", got.Error)
	}
}

// A server of legacy revisions refuses a modern request with the list of its revisions,
// and does not begin a session for it, because other clients may use the same link.
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
				t.Errorf("%s: got %s, want %v in it", method, fault.Data, protocol.Version20251125)
			}
		}
		w.wantFault(jsonrpc.CodeInvalidRequest, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) // without initialize there is no session
	}
	w.initialize(protocol.Version20251125)
}

// The server does not change a result that a tool returns from several calls.
//
// Guarantees: G-0020.5
func TestSharedResultsAreNotChanged(t *testing.T) {
	shared := &protocol.CallToolResult{Result: protocol.Result{Meta: protocol.Meta{"mine": json.RawMessage(`1`)}}}
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, constantTool(shared, nil))
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
		t.Errorf("the tool's result was changed to %+v, want it unchanged", shared)
	}
}

// The server keeps the result type and the server info that a tool sets in its result.
func TestResultTypeAndMetaOfAToolAreKept(t *testing.T) {
	own := &protocol.CallToolResult{Result: protocol.Result{
		ResultType: "com.example/partial",
		Meta:       protocol.Meta{protocol.MetaServerInfo: json.RawMessage(`{"name":"other","version":"2"}`)},
	}}
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, constantTool(own, nil))
	w := dial(t, s)
	w.send(modern(`1`, "tools/call", `"name":"t"`))
	w.want(`"resultType":"com.example/partial"`, `"name":"other"`)
}

func TestProgressGoesToModernClientsToo(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, reportProgress)
	w := dial(t, s)
	w.send(strings.Replace(modern(`1`, "tools/call", `"name":"t"`), `"_meta":{`, `"_meta":{"progressToken":"p",`, 1))
	w.want(`"progressToken":"p","progress":1,"total":2,"message":"halfway"`)
	w.want(`"id":1`, `done`)
	w.send(modern(`2`, "tools/call", `"name":"t"`))
	w.want(`"id":2`, `done`) // no progress, because the request has no token
}

// What the server keeps of a client is used only for requests with an equal context:
// not for another name, other capabilities, another log level or a progress token.
//
// Guarantees: G-0050.3
func TestModernRequestsShareAClientOnlyIfEqual(t *testing.T) {
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
				t.Errorf("%s: got %s %v, want %q in it", meta, got.Result["content"], got.Error, `"`+test.want+`"`)
			}
		}
	}
	w.wantFault(jsonrpc.CodeInvalidParams, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"who","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
}

// The end of a connection names the revision that was spoken: that of the session, or of the last modern request, also if an
// earlier link has brought the same _meta.
func TestEndsNameTheRevision(t *testing.T) {
	ends := make(chan string, 10)
	o := server.Options{}
	o.Conn.Hooks.Transition = func(e telemetry.Transition) {
		if e.From == string(conn.Ready) {
			ends <- e.Version
		}
	}
	s := newServer(o)
	ask := func(frame string) func(*rawPeer) { return func(w *rawPeer) { w.ask(frame) } }
	for _, c := range []struct {
		want string
		say  func(*rawPeer)
	}{
		{protocol.Latest, ask(modern(`1`, "tools/list", ``))},
		{protocol.Latest, ask(modern(`1`, "server/discover", ``))},
		{protocol.Version20250618, func(w *rawPeer) { w.initialize(protocol.Version20250618); w.ask(modern(`1`, "server/discover", ``)) }},
		{"", ask(strings.Replace(modern(`1`, "server/discover", ``), protocol.Latest, "2031-01-01", 1))},
	} {
		w := dial(t, s)
		c.say(w)
		w.link.Close(0)
		if got := testenv.Receive(t, ends, "the end of a connection"); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
