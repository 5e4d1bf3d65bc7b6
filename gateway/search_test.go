package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// searchable returns the URLs of the endpoint of a gateway, and of that for search.
func searchable(t *testing.T, f *fleet) (all, search string) {
	t.Helper()
	endpoint := streamable.NewHandler(f.Server(), streamable.HandlerOptions{})
	mux := http.NewServeMux()
	mux.Handle("/mcp", endpoint)
	mux.HandleFunc("/mcp/search", func(w http.ResponseWriter, r *http.Request) {
		endpoint.ServeHTTP(w, r.WithContext(gateway.WithSearch(r.Context())))
	})
	site := httptest.NewServer(mux)
	t.Cleanup(func() {
		endpoint.Shutdown(context.Background(), site.Config)
		site.Close()
	})
	return site.URL + "/mcp", site.URL + "/mcp/search"
}

func (f *fleet) at(url, version string, o client.Options) *client.Session {
	f.t.Helper()
	o.ProtocolVersion = version
	over := specification.WatchClient(f.t, &streamable.Client{URL: url})
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(timeout(f.t), over)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

// use calls a tool, and returns its text and whether it failed.
func use(t *testing.T, session *client.Session, tool string, arguments any) (text string, failed bool) {
	t.Helper()
	raw, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: tool, Arguments: raw})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return result.Content[0].(*protocol.TextContent).Text, result.IsError
}

type given = map[string]any

// A client of the endpoint for search sees four tools, finds the others by what they do, reads their schema, and calls them, with questions, in each
// era. What it does wrong is said so that a model can mend it.
//
// Guarantees: G-0101.4, G-0101.5
func TestSearch(t *testing.T) {
	eras(t, func(t *testing.T, front, back string) {
		if front == protocol.Version20241105 {
			return // it has no Streamable HTTP
		}
		servers := two()
		server.AddTool(servers["a"], protocol.Tool{Name: "add_row", Description: "Add a row to the table."}, func(ctx context.Context, in struct {
			Row string `json:"row"`
		}) (string, error) {
			answer, err := server.Elicit[struct {
				Text string `json:"text"`
			}](ctx, "Really?")
			return in.Row + " " + answer.Text, err
		}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
		server.AddTool(servers["b"], protocol.Tool{Name: "rows", Description: "Count the rows of the table.", Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true}},
			func(context.Context, struct{}) (string, error) { return "7", nil })
		f := newFleet(t, back, servers)
		all, search := searchable(t, f)
		asks := 0
		session := f.at(search, front, client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			asks++
			return client.Accept(map[string]string{"text": "yes"})
		}})
		var names []string
		for tool, err := range session.Tools(timeout(t)) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, tool.Name)
		}
		if want := []string{"call_read_only_tool", "call_tool", "describe_tool", "find_tools"}; !slices.Equal(names, want) {
			t.Errorf("the tools are %q", names)
		}
		if got, failed := use(t, session, "find_tools", given{"query": "count table rows"}); failed || got != `[{"name":"b__rows","description":"Count the rows of the table.","readOnly":true},{"name":"a__add_row","description":"Add a row to the table.","parameters":["row"]}]` {
			t.Error(got)
		}
		if got, failed := use(t, session, "describe_tool", given{"name": "a__add_row"}); failed || !strings.Contains(got, `"row":{"type":"string"}`) {
			t.Error(got)
		}
		if got, failed := use(t, session, "call_read_only_tool", given{"name": "b__rows"}); failed || got != "7" {
			t.Error(got)
		}
		if back == protocol.Version20241105 { // whose servers cannot ask
			return
		}
		if got, failed := use(t, session, "call_tool", given{"name": "a__add_row", "arguments": given{"row": "x"}}); failed || got != "x yes" || asks != 1 {
			t.Errorf("%s, after %d questions", got, asks)
		}
		if got, _ := use(t, f.at(all, front, client.Options{}), "b__rows", given{}); got != "7" {
			t.Errorf("at the endpoint of all tools: %s", got)
		}
	})
}

// What a model gets wrong is a result that says how to go on; and what the file limits or hides is as at the endpoint of all tools.
//
// Guarantees: G-0101.4, G-0101.5
func TestMistakesInSearch(t *testing.T) {
	f := newFleetFor(t, protocol.LatestLegacy, two(), gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":{"toolRates":{"who":1}}},"b":{"command":"/bin/b","bowline":{"tools":{"deny":["*"]}}}}}`))
	_, search := searchable(t, f)
	session := f.at(search, protocol.Latest, client.Options{})
	for _, c := range []struct {
		tool      string
		arguments any
		want      string
	}{
		{"find_tools", given{}, "find_tools needs a query"},
		{"find_tools", given{"query": "who", "limit": -1}, `[{"name":"a__who","parameters":["you"]}]`},
		{"find_tools", given{"query": "who", "limit": json.RawMessage("1.0")}, `[{"name":"a__who","parameters":["you"]}]`},
		{"find_tools", given{"query": "who", "limit": 1e300}, `[{"name":"a__who","parameters":["you"]}]`},
		{"find_tools", given{"query": "zebra"}, "No tool has any of these words"},
		{"find_tools", given{"query": 1}, "the arguments of find_tools: "},
		{"describe_tool", given{"name": "b__who"}, `unknown tool "b__who": find_tools lists those there are`},
		{"describe_tool", given{}, `unknown tool ""`},
		{"call_tool", given{"name": "none"}, `unknown tool "none": find_tools lists those there are`},
		{"call_tool", given{"name": "find_tools", "arguments": given{"query": "who"}}, `unknown tool "find_tools"`},
		{"call_read_only_tool", given{"name": "a__who"}, "a__who does not say that it only reads: call it with call_tool"},
		{"call_tool", given{"name": "a__who", "arguments": given{"you": "me"}}, "a and me"},
		{"call_tool", given{"name": "a__who"}, "a client may call this tool 1 times in a minute"},
	} {
		if got, _ := use(t, session, c.tool, c.arguments); !strings.Contains(got, c.want) {
			t.Errorf("%s %v: %s, want %s", c.tool, c.arguments, got, c.want)
		}
	}
	if n := f.Report().NotOffered; n != 4 {
		t.Errorf("the report counts %d requests for tools that are not offered, want 4", n)
	}
	for _, name := range []string{"a__who", "none", ""} {
		if _, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: name}); err == nil || !strings.Contains(err.Error(), "here are only find_tools") && name != "" {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A tool that comes later is found, and one that is gone is not.
//
// Guarantees: G-0101.4
func TestSearchFollowsTheServers(t *testing.T) {
	servers := two()
	f := newFleet(t, protocol.LatestLegacy, servers)
	_, search := searchable(t, f)
	session := f.at(search, protocol.LatestLegacy, client.Options{})
	finds := func(want bool) {
		t.Helper()
		ctx := timeout(t)
		for {
			changed := f.Changed()
			if got, _ := use(t, session, "find_tools", given{"query": "zebra"}); strings.Contains(got, "a__zebra") == want {
				return
			}
			// On a busy machine the index of before stays in use for a moment after the change, so that building it takes a bounded part of the time:
			// see indexed in internal/search.
			soon := time.NewTimer(50 * time.Millisecond)
			select {
			case <-changed:
			case <-soon.C:
			case <-ctx.Done():
				t.Fatalf("found: %t", !want)
			}
			soon.Stop()
		}
	}
	finds(false)
	server.AddTool(servers["a"], protocol.Tool{Name: "zebra"}, func(context.Context, struct{}) (string, error) { return "striped", nil })
	finds(true)
	servers["a"].RemoveTools("zebra")
	finds(false)
}
