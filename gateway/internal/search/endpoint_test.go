package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A world is what an Endpoint stands on.
type world struct {
	Endpoint
	known  *catalogue.Catalogue
	from   catalogue.Server
	hidden string // the own name of a tool that nobody may see
	calls  []string
}

func newWorld(tools ...string) *world {
	w := &world{known: catalogue.New(), from: catalogue.Server{Name: "s"}}
	plan, _ := names.Make(0, []names.Server{{Name: "s"}})
	w.known.Apply(plan, []catalogue.Server{w.from})
	w.Snapshot = func(context.Context) *catalogue.Snapshot { return w.known.Snapshot() }
	w.Visible = func(context.Context) func(catalogue.Item) bool {
		return func(i catalogue.Item) bool { return i.Own != w.hidden }
	}
	w.Call = func(_ context.Context, params json.RawMessage) (json.RawMessage, error) {
		w.calls = append(w.calls, string(params))
		return json.RawMessage(`{"content":[]}`), nil
	}
	w.offer(tools...)
	return w
}

// offer replaces the tools of the server.
func (w *world) offer(tools ...string) {
	list := catalogue.List{At: time.Now()}
	for _, tool := range tools {
		list.Entries = append(list.Entries, json.RawMessage(tool))
	}
	w.known.Learn(w.from, catalogue.Tools, list)
}

func tool(name, description string, parameters ...string) string {
	properties := make([]string, len(parameters))
	for i, one := range parameters {
		properties[i] = fmt.Sprintf("%q:{}", one)
	}
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s}}}`, name, description, strings.Join(properties, ","))
}

// serve calls one of the four tools, and returns its text and whether it says that it failed.
func (w *world) serve(t *testing.T, params string) (text string, failed bool) {
	t.Helper()
	raw, err := w.Serve(t.Context(), json.RawMessage(params))
	if err != nil {
		t.Fatalf("%s: %v", params, err)
	}
	var result protocol.CallToolResult
	if err := protocol.Unmarshal(raw, &result); err != nil {
		t.Fatal(err)
	}
	return result.Content.Text(), result.IsError
}

func (w *world) find(t *testing.T, arguments string) (found []match) {
	t.Helper()
	text, failed := w.serve(t, `{"name":"find_tools","arguments":`+arguments+`}`)
	if strings.HasPrefix(text, "No tool") {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil || failed {
		t.Fatalf("%s: %q, %t: %v", arguments, text, failed, err)
	}
	return found
}

// What was found is listed with what a model needs to choose: a description that is cut between letters, and parameters in order.
//
// Guarantees: G-0101.2
func TestWhatIsFoundIsDescribed(t *testing.T) {
	long := strings.Repeat("ä", 200)
	read := `{"name":"read","description":"page","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}}`
	w := newWorld(tool("write", "a page", "text", "at"), tool("long", "page "+long), read, tool("hidden", "a page"))
	w.hidden = "hidden"
	found := w.find(t, `{"query":"page"}`)
	got := map[string]match{}
	for _, m := range found {
		got[m.Name] = m
	}
	if len(found) != 3 || !slices.Equal(got["s__write"].Parameters, []string{"at", "text"}) || got["s__write"].ReadOnly || !got["s__read"].ReadOnly {
		t.Errorf("got %+v", found)
	}
	if d := got["s__long"].Description; d != "page "+strings.Repeat("ä", (longestSummary-len("page "))/2)+"…" {
		t.Errorf("the description of %d bytes is cut to %q", len(long), d)
	}
	for _, size := range []int{longestSummary - 1, longestSummary, longestSummary + 1} {
		w.offer(tool("sized", strings.Repeat("x", size)))
		w.last = nil
		if got := w.find(t, `{"query":"sized"}`)[0].Description; strings.HasSuffix(got, "…") != (size > longestSummary) {
			t.Errorf("a description of %d bytes became %q", size, got)
		}
	}
	w.offer(tool("one", "a page", "deadline"), tool("other", "a page"))
	w.last = nil
	if found := w.find(t, `{"query":"deadline"}`); len(found) != 1 || found[0].Name != "s__one" {
		t.Errorf("by the name of a parameter: %+v", found)
	}
	w.Visible = nil
	w.offer(tool("hidden", "a page"))
	w.last = nil
	if len(w.find(t, `{"query":"page"}`)) != 1 {
		t.Error("nobody hides it, and it is hidden")
	}
}

// A model says how many it wants, in whatever form of a number, and gets one at least and fifty at most.
//
// Guarantees: G-0101.3
func TestHowManyAreFound(t *testing.T) {
	var tools []string
	for i := range 60 {
		tools = append(tools, tool(fmt.Sprintf("t%02d", i), "page"))
	}
	w := newWorld(tools...)
	for limit, want := range map[string]int{"": 10, `,"limit":1`: 1, `,"limit":12.0`: 12, `,"limit":50`: 50, `,"limit":51`: 50, `,"limit":1e300`: 50, `,"limit":0`: 1, `,"limit":-7`: 1, `,"limit":2.9`: 2} {
		if found := w.find(t, `{"query":"page"`+limit+`}`); len(found) != want {
			t.Errorf("%s: got %d, want %d", limit, len(found), want)
		}
	}
}

// Of a thousand tools with long texts the answer has a bounded number of bytes, each is looked at once at most for a query, and the index is made once for all queries.
//
// Guarantees: G-0101.3
func TestWhatASearchOfManyToolsCosts(t *testing.T) {
	const many = 1000
	var parameters, tools []string
	for i := range mostParameters {
		parameters = append(parameters, fmt.Sprintf("p%02d%s", i, strings.Repeat("x", 1000)))
	}
	for i := range many {
		tools = append(tools, tool(fmt.Sprintf("t%03d", i), "page "+strings.Repeat("z", 2000), parameters...))
	}
	w, looked := newWorld(tools...), 0
	w.Visible = func(context.Context) func(catalogue.Item) bool {
		return func(catalogue.Item) bool { looked++; return true }
	}
	var index *indexed
	for _, query := range []string{"page", "page page", strings.Repeat("page t001 p00 ", 1000), "p", "t"} {
		looked = 0
		answer, failed := w.serve(t, `{"name":"find_tools","arguments":{"limit":50,"query":"`+query+`"}}`)
		if most := mostFound * (longestSummary + longestNames + 200); failed || len(answer) > most || len(answer) < mostFound {
			t.Errorf("%.20q: an answer of %d bytes, want %d at most", query, len(answer), most)
		}
		if looked > many {
			t.Errorf("%.20q: %d tools were looked at, and there are %d", query, looked, many)
		}
		if index != nil && w.last != index {
			t.Errorf("%.20q: the index was made again", query)
		}
		index = w.last
	}
	if names := w.find(t, `{"query":"page"}`)[0].Parameters; len(names) != 2 || names[0] != parameters[0] || names[1] != "…" {
		t.Errorf("the parameters are %.40q", names)
	}
}

// What is wrong with a call is said where a model reads it, and what no model has said is an error of the protocol.
//
// Guarantees: G-0101.2
func TestWrongCallsOfTheEndpoint(t *testing.T) {
	w := newWorld(tool("write", "a page"), tool("hidden", "a page"))
	w.hidden = "hidden"
	for params, want := range map[string]string{
		`{"name":"find_tools"}`:                                                        "needs a query",
		`{"name":"find_tools","arguments":{"query":""}}`:                               "needs a query",
		`{"name":"find_tools","arguments":{"query":7}}`:                                "the arguments of find_tools",
		`{"name":"find_tools","arguments":[]}`:                                         "the arguments of find_tools",
		`{"name":"describe_tool","arguments":{"name":"none"}}`:                         `unknown tool "none": find_tools lists`,
		`{"name":"describe_tool","arguments":{"name":"s__hidden"}}`:                    `unknown tool "s__hidden": find_tools lists`,
		`{"name":"call_tool","arguments":{"name":"s__hidden"}}`:                        `unknown tool "s__hidden": find_tools lists`,
		`{"name":"call_tool"}`:                                                         `unknown tool "": find_tools lists`,
		`{"name":"call_read_only_tool","arguments":{"name":"s__write"}}`:               "call it with call_tool",
		`{"name":"call_tool","arguments":{"name":"` + strings.Repeat("x", 500) + `"}}`: `unknown tool "` + strings.Repeat("x", 128) + `":`,
	} {
		if text, failed := w.serve(t, params); !failed || !strings.Contains(text, want) {
			t.Errorf("%.200s: got %q, failed %t, want %q in it", params, text, failed, want)
		}
	}
	for params, want := range map[string]string{
		`{"name":"write"}`: `unknown tool "write": here are only find_tools, describe_tool, call_read_only_tool and call_tool`, `{"name":7}`: "name", `{`: "",
		`{"name":"` + strings.Repeat("x", 500) + `"}`: `unknown tool "` + strings.Repeat("x", 128) + `":`,
	} {
		_, err := w.Serve(t.Context(), json.RawMessage(params))
		var fault *jsonrpc.Error
		if !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams || !strings.Contains(fault.Message, want) {
			t.Errorf("%.200s: got %v, want a *jsonrpc.Error with %q", params, err, want)
		}
	}
	if len(w.calls) > 0 {
		t.Errorf("calls were passed on: %q", w.calls)
	}
	if text, failed := w.serve(t, `{"name":"find_tools","arguments":{"query":"zebra"}}`); failed || !strings.HasPrefix(text, "No tool has any of these words") {
		t.Errorf("without a match: %q, failed %t", text, failed)
	}
}

// A call is passed on under the tool's own name and with its own arguments, and all else that the client has sent.
//
// Guarantees: G-0101.2
func TestCallsOfTheEndpointArePassedOn(t *testing.T) {
	read := `{"name":"read","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}}`
	w := newWorld(tool("write", "a page"), read)
	for _, c := range []struct{ params, want string }{
		{`{"name":"call_tool","arguments":{"name":"s__write","arguments":{"a":[1]}},"_meta":{"progressToken":7}}`, `{"name":"s__write","arguments":{"a":[1]},"_meta":{"progressToken":7}}`},
		{`{"name":"call_tool","arguments":{"name":"s__read"}}`, `{"name":"s__read","arguments":{}}`},
		{
			`{"inputResponses":{"a":{"action":"accept"}},"requestState":"s","name":"call_tool","arguments":{"name":"s__write","arguments":{"a":1}}}`,
			`{"inputResponses":{"a":{"action":"accept"}},"requestState":"s","name":"s__write","arguments":{"a":1}}`,
		},
		{`{"name":"call_read_only_tool","arguments":{"name":"s__read","arguments":{"b":1}}}`, `{"name":"s__read","arguments":{"b":1}}`},
	} {
		w.calls = nil
		if _, failed := w.serve(t, c.params); failed || len(w.calls) != 1 || w.calls[0] != c.want {
			t.Errorf("%s: passed on as %q, failed %t, want %s", c.params, w.calls, failed, c.want)
		}
	}
	text, failed := w.serve(t, `{"name":"describe_tool","arguments":{"name":"s__read"}}`)
	if failed || text != strings.Replace(read, `"read"`, `"s__read"`, 1) {
		t.Errorf("described as %s, failed %t", text, failed)
	}
}

// The four tools are listed in the order of their names, with schemas.
func TestToolsOfTheEndpoint(t *testing.T) {
	var all []string
	for _, item := range Tools() {
		var tool struct {
			Name        string
			InputSchema struct{ Type string }
		}
		if err := json.Unmarshal(item.Raw, &tool); err != nil || tool.InputSchema.Type != "object" {
			t.Errorf("%s: %v", item.Raw, err)
		}
		all = append(all, tool.Name)
	}
	if !slices.Equal(all, []string{callReadOnlyTool, callTool, describeTool, findTools}) {
		t.Errorf("got %q", all)
	}
}

// The index follows the tools. The same tools are not indexed again, and tools that change all the time not each time.
//
// Guarantees: G-0101.3
func TestTheIndexFollowsTheTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(tool("write", "a page"))
		first := w.indexed(w.known.Snapshot())
		if w.indexed(w.known.Snapshot()) != first {
			t.Error("the same snapshot is indexed again")
		}
		w.known.Learn(w.from, catalogue.Prompts, catalogue.List{At: time.Now()})
		if w.indexed(w.known.Snapshot()) != first || first.of != w.known.Snapshot() {
			t.Error("the same tools are indexed again, or compared again")
		}
		w.offer(tool("paint", "a picture"))
		first.until = time.Now().Add(time.Second) // as if the first had taken long
		if len(w.find(t, `{"query":"picture"}`)) != 0 || w.indexed(w.known.Snapshot()) != first {
			t.Error("an index that took long is made anew at once")
		}
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		<-timer.C
		if found := w.find(t, `{"query":"picture"}`); len(found) != 1 || w.last == first {
			t.Errorf("after its time it is not made anew: %+v", found)
		}
	})
}
