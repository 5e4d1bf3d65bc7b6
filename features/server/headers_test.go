package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// A tool call is refused if a mirrored argument and its header differ (2026-07-28
// basic/transports).
func TestMirroredArgumentsHaveToBeTheSame(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in struct {
		Region string `json:"region" header:"Region"`
		Count  int    `json:"count,omitzero" header:"Count"`
	}) (string, error) {
		return "in " + in.Region, nil
	})
	url := site(t, s, func(h http.Handler) http.Handler { return h })
	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	for _, test := range []struct {
		arguments, region, count string // "": there is no such header; "nothing": it is empty; "a,b": it is there twice
		fits                     bool
	}{
		{`{"region":"eu"}`, "eu", "", true},
		{`{"region":"eu"}`, " eu ", "", true},
		{`{"region":"eu","count":7}`, "eu", "7", true},
		{`{"region":"Hello"}`, "=?base64?SGVsbG8=?=", "", true},
		{`{"region":"SGVsbG8="}`, "SGVsbG8=", "", true},
		{`{"region":"=?base64?SGVsbG8="}`, "=?base64?SGVsbG8=", "", true},
		{`{"region":""}`, "nothing", "", true},
		{`{"region":""}`, "", "", false},
		{`{"region":"eu"}`, "", "", false},
		{`{"region":"eu"}`, "nothing", "", false},
		{`{"region":"eu"}`, "eu,us", "", false},
		{`{"region":"eu"}`, "eu", "nothing", false},
		{`{"region":"eu"}`, "EU", "", false},
		{`{"region":"eu"}`, "eu", "7", false},
		{`{"region":"eu","count":7}`, "eu", "8", false},
		{`{"region":"1"}`, "1.0", "", false},
		{`{"region":"Hello"}`, "=?base64?SGVsbG8?=", "", false},
		{`{"region":"Hello"}`, "=?base64?SGVs!!!bG8=?=", "", false},
	} {
		r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(modern(`1`, "tools/call", `"name":"t","arguments":`+test.arguments)))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json,text/event-stream",
			"Mcp-Protocol-Version": protocol.Latest, "Mcp-Method": "tools/call", "Mcp-Name": "t",
			"Mcp-Param-Region": test.region, "Mcp-Param-Count": test.count,
		} {
			for value := range strings.SplitSeq(value, ",") {
				if value != "" {
					r.Header.Add(name, strings.TrimPrefix(value, "nothing"))
				}
			}
		}
		response, err := (&http.Client{Transport: pool}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if fits := strings.Contains(string(body), `in `); fits != test.fits || !fits && (response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), `-32020`)) {
			t.Errorf("%+v: got %s %s", test, response.Status, body)
		}
	}
	w := dial(t, s) // without HTTP there are no headers
	if got := w.ask(modern(`1`, "tools/call", `"name":"t","arguments":{"region":"eu"}`)); !strings.Contains(string(got.Result["content"]), "in eu") {
		t.Errorf("got %+v, want %q in it", got, "in eu")
	}
}

// AddTool panics for a tool with invalid annotations, which clients would leave out.
func TestAddToolRefusesInvalidMirroring(t *testing.T) {
	for schema, message := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`:                 `x-mcp-header within "items"`,
		`{"type":"object","$defs":{"d":{"type":"string","x-mcp-header":"A"}}}`:                                               `x-mcp-header within "$defs"`,
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"` + strings.Repeat("x", 129) + `"}}}`:           "not a name of 1 to 128 bytes",
		`{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}`:                                          "not on a string",
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A b"}}}`:                                        "not the name of a header",
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`: "twice",
	} {
		wantPanic(t, schema, message, func() {
			server.AddTool(newServer(server.Options{}), protocol.Tool{Name: "t", InputSchema: json.RawMessage(schema)},
				func(context.Context, *protocol.CallToolParams) (string, error) { return "", nil })
		})
	}
}

// The server accepts the headers that the client mirrors, for any arguments.
func TestClientsMirrorWhatServersAccept(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object","properties":{
		"s":{"type":"string","x-mcp-header":"S"},"i":{"type":"integer","x-mcp-header":"I"},"b":{"type":"boolean","x-mcp-header":"B"},
		"o":{"type":"object","properties":{"s":{"type":"string","x-mcp-header":"Inner"}}}}}`)},
		func(_ context.Context, p *protocol.CallToolParams) (string, error) { return string(p.Arguments), nil })
	session := open(t, overHTTP(t, s), client.Options{})
	if _, err := session.ListTools(t.Context(), nil); err != nil { // tells the client what to mirror
		t.Fatal(err)
	}
	for _, arguments := range []string{
		`{}`, `{"s":"eu"}`, `{"s":""}`, `{"s":" ü\t"}`, `{"s":"=?base64?YQ==?="}`, `{"i":-1e3}`, `{"i":9007199254740991,"b":false}`, `{"o":{"s":"deep"}}`,
	} {
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "t", Arguments: json.RawMessage(arguments)})
		if err != nil || result.Content.Text() != arguments {
			t.Errorf("%s: got %v, %v", arguments, result, err)
		}
	}
}
