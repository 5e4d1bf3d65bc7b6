package server_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A method of an extension is served in the revisions of the extension, after the program has added both. What it lists
// has the pages, the hidden entries and the lifetime of the server's own lists.
//
// Guarantees: G-0029.9, G-0029.3
func TestMethodsOfAnExtension(t *testing.T) {
	own := server.Options{
		PageSize: 2, ListTTL: 7_000_000_000,
		Visible: func(_ context.Context, f server.Feature) bool { return !strings.HasPrefix(f.Name, "hidden") },
	}
	s := newServer(own)
	list := func(names ...string) {
		server.AddMethod(s, protocol.MethodListSkills, func(ctx context.Context, in protocol.ListSkillsParams) (r protocol.ListSkillsResult, err error) {
			all := make(map[string]*protocol.Skill)
			for _, name := range names {
				all[name] = &protocol.Skill{URI: name, Frontmatter: json.RawMessage("{}")}
			}
			page, err := server.ListPage(ctx, s, in.Cursor, all, func(one *protocol.Skill) server.Feature { return server.Feature{Name: one.URI} })
			return protocol.ListSkillsResult{CacheableResult: page.CacheableResult, Skills: page.Entries, NextCursor: page.Next}, err
		})
	}
	list("replaced")
	list("c", "hidden", "a", "b")
	w, legacy := dial(t, s), dial(t, s)
	legacy.initialize(protocol.Version20251125)
	w.wantFault(jsonrpc.CodeMethodNotFound, modern(`1`, "skills/list", ``))
	s.AddExtension(protocol.ExtensionSkills, json.RawMessage(`{"replaced":true}`))
	s.AddExtension("example.com/other", json.RawMessage(`{}`))
	settings := json.RawMessage(`{"a":7}`)
	s.AddExtension(protocol.ExtensionSkills, settings)
	settings[5] = '8' // the program uses its memory again
	if got := w.ask(modern(`1`, "server/discover", ``)).text("capabilities"); !strings.Contains(got, `"io.modelcontextprotocol/skills":{"a":7}`) || !strings.Contains(got, `"example.com/other":{}`) {
		t.Errorf("got the capabilities %s, want both extensions, the first with its second settings", got)
	}
	first := result[protocol.ListSkillsResult](w, "skills/list", ``)
	second := result[protocol.ListSkillsResult](w, "skills/list", `"cursor":"`+*first.NextCursor+`"`)
	var got []string
	for _, one := range append(first.Skills, second.Skills...) {
		got = append(got, one.URI)
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) || len(first.Skills) != 2 || second.NextCursor != nil {
		t.Errorf("got %q on two pages, of which the first has %d, want a and b, and then c", got, len(first.Skills))
	}
	if first.TTLMs == nil || *first.TTLMs != 7000 || first.CacheScope != protocol.CachePrivate {
		t.Errorf("got %+v, want the lifetime of ListTTL, and not shared with others", first.CacheableResult)
	}
	legacy.wantFault(jsonrpc.CodeMethodNotFound, `{"jsonrpc":"2.0","id":1,"method":"skills/list"}`)
	if outside := s.Cacheable(context.Background()); outside.TTLMs != nil || outside.CacheScope != "" {
		t.Errorf("outside of a request got %+v, want nothing", outside)
	}
}

// A method that is not part of MCP is in every revision, and how long its list may be cached only in those that have that.
//
// Guarantees: G-0029.3
func TestListsOfAnOwnMethodInBothEras(t *testing.T) {
	s := newServer(server.Options{ListTTL: 7_000_000_000})
	type list struct {
		protocol.CacheableResult
		Names []string `json:"names"`
	}
	server.AddMethod(s, "example.com/list", func(ctx context.Context, _ json.RawMessage) (list, error) {
		page, err := server.ListPage(ctx, s, nil, map[string]string{"a": "a"}, func(name string) server.Feature { return server.Feature{Name: name} })
		return list{page.CacheableResult, page.Entries}, err
	})
	w, legacy := dial(t, s), dial(t, s)
	legacy.initialize(protocol.Version20251125)
	if got := w.ask(modern(`1`, "example.com/list", ``)); got.text("names") != `["a"]` || got.text("ttlMs") != "7000" || got.text("cacheScope") != `"public"` {
		t.Errorf("a modern client got %s, want the list and its lifetime", got.Result)
	}
	if got := legacy.ask(`{"jsonrpc":"2.0","id":2,"method":"example.com/list"}`); got.text("names") != `["a"]` || len(got.Result) != 1 {
		t.Errorf("a legacy client got %s, want the list alone", got.Result)
	}
}
