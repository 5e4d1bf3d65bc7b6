package server_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"path"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/features/skills"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// list reads all pages of tools, and returns their names and the pages' sizes.
func (w *rawPeer) list() (names []string, sizes []int) {
	w.t.Helper()
	params := `{}`
	for {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":` + params + `}`)
		var page struct {
			Result protocol.ListToolsResult `json:"result"`
		}
		w.read(&page)
		for _, tool := range page.Result.Tools {
			names = append(names, tool.Name)
		}
		sizes = append(sizes, len(page.Result.Tools))
		if page.Result.NextCursor == nil {
			return names, sizes
		}
		params = fmt.Sprintf(`{"cursor":%q}`, *page.Result.NextCursor)
	}
}

func addNamed(s *server.Server, names ...string) {
	for _, name := range names {
		server.AddTool(s, protocol.Tool{Name: name, InputSchema: anyObject}, constantTool(&protocol.CallToolResult{}, nil))
	}
}

func TestToolsAreListedOnceInOrder(t *testing.T) {
	for _, test := range []struct {
		size  int
		sizes []int
	}{
		{0, []int{5}}, {-1, []int{5}}, {math.MinInt, []int{5}}, {math.MaxInt, []int{5}},
		{1, []int{1, 1, 1, 1, 1}}, {2, []int{2, 2, 1}}, {5, []int{5}},
	} {
		s := newServer(server.Options{PageSize: test.size})
		addNamed(s, "c", "a", "e", "b", "d", "a", "c", "c")
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		names, sizes := w.list()
		if !slices.Equal(names, []string{"a", "b", "c", "d", "e"}) || !slices.Equal(sizes, test.sizes) {
			t.Errorf("pages of %d: got %v in %v, want %v and %v", test.size, names, sizes, []string{"a", "b", "c", "d", "e"}, test.sizes)
		}
	}
}

// A cursor from a server with another page size continues at the same tool.
func TestCursorsOfAnyPageAreReadInPagesOfAnySize(t *testing.T) {
	s := newServer(server.Options{PageSize: math.MaxInt})
	addNamed(s, "a", "b", "c")
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	cursor := base64.RawURLEncoding.EncodeToString([]byte("from:b"))
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"` + cursor + `"}}`)
	w.want(`"tools":[{"name":"b",`, `{"name":"c",`)
}

// A legacy client that connected before the server had tools cannot list or call them.
// A client that connected later can.
func TestToolsNeedTheCapabilityAtInitialize(t *testing.T) {
	s := newServer(server.Options{})
	early := dial(t, s)
	early.initialize(protocol.Version20251125)
	addNamed(s, "a")
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`,
	} {
		early.send(frame)
		early.want(`"id":1`, `-32601`)
	}
	late := dial(t, s)
	late.initialize(protocol.Version20251125)
	addNamed(s, "b")
	late.want(`"method":"notifications/tools/list_changed"`)
	if names, _ := late.list(); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("got %v, want %v", names, []string{"a", "b"})
	}
}

// If a tool is added twice, calls run the second one.
func TestToolAddedTwiceRunsTheSecond(t *testing.T) {
	s := newServer(server.Options{})
	for _, text := range []string{"first", "second"} {
		server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return text, nil })
	}
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	if got := w.call("t", `{}`).Result.Content.Text(); got != "second" {
		t.Errorf("got %q, want %q", got, "second")
	}
}

// A server that declares the tools capability at the start may add its first tool
// later.
func TestTheFirstToolMayComeLater(t *testing.T) {
	declared := protocol.ServerCapabilities{Tools: &protocol.ListCapability{ListChanged: true}}
	start := func() *server.Server { return newServer(server.Options{Capabilities: declared}) }
	notified := make(chan struct{}, 100)
	options := client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		if _, ok := e.(*client.ToolsChanged); ok {
			notified <- struct{}{}
		}
	}}
	everywhere(t, start, options, func(t *testing.T, s *server.Server, session *client.Session) {
		if result, err := session.ListTools(t.Context(), nil); err != nil || len(result.Tools) != 0 {
			t.Errorf("at first: got %v, %v, want none", result, err)
		}
		server.AddTool(s, protocol.Tool{Name: "late"}, func(context.Context, struct{}) (string, error) { return "here", nil })
		testenv.Within(t, "the client is told of the first tool", func() { <-notified })
		if got, err := client.Call[string](t.Context(), session, "late", nil); err != nil || got != "here" {
			t.Errorf("got %q, %v, want %q", got, err, "here")
		}
	})
}

// withSkills returns a server with two skills.
func withSkills(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	s, files := newServer(o), fstest.MapFS{}
	for _, name := range []string{"refunds", "acme/billing"} {
		files[name+"/SKILL.md"] = &fstest.MapFile{Data: []byte("---\nname: " + path.Base(name) + "\ndescription: d\n---\n")}
	}
	if err := skills.New(s).Add(files); err != nil {
		t.Fatal(err)
	}
	return s
}

// A cursor that is none of this server's is refused by every list, and what looks like one is none.
//
// Guarantees: G-0029.1
func TestForeignCursorsAreRefused(t *testing.T) {
	s := withSkills(t, server.Options{PageSize: 1})
	addNamed(s, "a", "b")
	w := dial(t, s)
	mine := *result[protocol.ListToolsResult](w, "tools/list", ``).NextCursor
	for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "skills/list", "resources/directory/read"} {
		for _, cursor := range []string{"", "!", "YWJj", mine + "!", mine + "=", "!" + mine, "from:b"} {
			if got := w.ask(modern(`1`, method, `"uri":"skill://refunds","cursor":"`+cursor+`"`)); !got.Error.is(jsonrpc.CodeInvalidParams, "the cursor is not one of this server's") {
				t.Errorf("%s with %q: got %s, %v, want the error %d", method, cursor, got.Result, got.Error, jsonrpc.CodeInvalidParams)
			}
		}
	}
	if got := result[protocol.ListToolsResult](w, "tools/list", `"cursor":"`+mine+`"`); len(got.Tools) != 1 || got.Tools[0].Name != "b" || got.NextCursor != nil {
		t.Errorf("got %v, want the second tool alone", got)
	}
}

// The templates are listed in pages, which modern clients may keep for ListTTL, as any list.
func TestTemplatesAreListedInPages(t *testing.T) {
	s := newServer(server.Options{PageSize: 1, ListTTL: time.Minute})
	for _, name := range []string{"a", "b"} {
		server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: name + "://{v}", Name: name}, func(context.Context, map[string]string) (string, error) { return "", nil })
	}
	w, params := dial(t, s), ""
	for n, name := range []string{"a", "b"} {
		page := result[protocol.ListResourceTemplatesResult](w, "resources/templates/list", params)
		if len(page.ResourceTemplates) != 1 || page.ResourceTemplates[0].Name != name || page.TTLMs == nil || *page.TTLMs != 60_000 || (page.NextCursor == nil) != (n == 1) {
			t.Fatalf("page %d: got %+v, want the template %s for a minute, and a cursor of the next page unless it is the last", n, page, name)
		}
		if n == 0 {
			params = `"cursor":"` + *page.NextCursor + `"`
		}
	}
}
