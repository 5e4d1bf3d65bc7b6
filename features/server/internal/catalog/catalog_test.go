package catalog

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// pages lists a catalog in pages, as a client does.
func pages(t *testing.T, c *Catalog[string], size int, filter func(string) bool) (all [][]string) {
	t.Helper()
	var cursor *string
	for range 10 {
		page, next, err := c.Page(cursor, size, filter)
		if err != nil || page == nil {
			t.Fatalf("got %q, %v, want a list", page, err)
		}
		all = append(all, page)
		if cursor = next; next == nil {
			return all
		}
	}
	t.Fatal("the pages have no end")
	return nil
}

// A catalog has its features in order. Setting and removing counts as a change only if something changes.
func TestACatalogChanges(t *testing.T) {
	c := Of(map[string]string{"b": "B", "a": "A"})
	var none Catalog[string]
	if !c.Used() || none.Used() || Of(map[string]string{}).Used() {
		t.Error("a catalog is used from its first feature on")
	}
	for _, step := range []struct {
		change        func() bool
		changed       bool
		changes       int
		all, notThere string
	}{
		{func() bool { c.Set("c", "C"); return true }, true, 1, "A B C", "d"},
		{func() bool { c.Set("b", "B2"); return true }, true, 2, "A B2 C", "d"},
		{func() bool { return c.Remove([]string{"x", "a", "y"}) }, true, 3, "B2 C", "a"},
		{func() bool { return c.Remove([]string{"a", "x"}) }, false, 3, "B2 C", "a"},
		{func() bool { return c.Remove([]string{"b", "c"}) }, true, 5, "", "b"},
	} {
		changed := step.change()
		_, found := c.Get(step.notThere)
		if got := strings.Join(c.All(), " "); changed != step.changed || c.Changes() != step.changes || got != step.all || found || !c.Used() {
			t.Errorf("got %t, %d changes, %q; %s is there: %t, used: %t; want %+v", changed, c.Changes(), got, step.notThere, found, c.Used(), step)
		}
	}
	none.Use()
	if none.Set("a", "A"); !none.Used() || len(none.All()) != 1 {
		t.Error("the empty catalog has no feature")
	}
	var used Catalog[string]
	if used.Use(); !used.Used() {
		t.Error("a catalog that was said to be used is not")
	}
}

// A page has as many features as it may have that pass the filter. The cursor of the next one names a feature that passes, too. The filter may change
// the catalog: each feature that stays is listed once.
func TestPagesOfACatalog(t *testing.T) {
	all := make(map[string]string)
	for _, name := range strings.Split("abcdefg", "") {
		all[name] = name
	}
	c := Of(all)
	every := func(string) bool { return true }
	for _, test := range []struct {
		size   int
		filter func(string) bool
		want   string
	}{
		{3, every, "a b c|d e f|g"},
		{7, every, "a b c d e f g"},
		{100, every, "a b c d e f g"},
		{2, func(s string) bool { return s == "b" || s == "f" }, "b f"}, // no empty page behind it
		{1, func(s string) bool { return s != "b" }, "a|c|d|e|f|g"},
		{2, func(string) bool { return false }, ""},
	} {
		var got []string
		for _, page := range pages(t, c, test.size, test.filter) {
			got = append(got, strings.Join(page, " "))
		}
		if text := strings.Join(got, "|"); text != test.want {
			t.Errorf("by %d: got %s, want %s", test.size, text, test.want)
		}
	}
	removes := func(s string) bool {
		if s == "b" {
			c.Remove([]string{"a", "c"})
			c.Set("aa", "aa")
		}
		return true
	}
	if got := slices.Concat(pages(t, c, 2, removes)...); !slices.Contains(got, "a") || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || !slices.Contains(got, "g") {
		t.Errorf("got %q, want each feature that stays once, in order", got)
	}
}

// Only the cursors of such a catalog are taken.
func TestCursorsOfACatalog(t *testing.T) {
	for _, name := range []string{"", "a", "é/?>~"} {
		cursor := EncodeCursor(name)
		if got, err := DecodeCursor(&cursor); err != nil || got != name {
			t.Errorf("got %q, %v, want %q", got, err, name)
		}
	}
	ours := EncodeCursor("a")
	for _, bad := range []string{"", "x", "ZnJvbQ", ours + "=", ours + "!", "\n" + ours + "é"} {
		var fault *jsonrpc.Error
		if got, err := DecodeCursor(&bad); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams || got != "" || fault.Message != "the cursor is not one of this server's" {
			t.Errorf("%q: got %q, %v, want that it is refused", bad, got, err)
		}
	}
}

// A template matches what it stands for, letter by letter, with the separators of its operators. Values are decoded, and a plus stays one.
func TestWhatATemplateMatches(t *testing.T) {
	for _, test := range []struct {
		template, uri string
		want          map[string]string // nil: it does not match
	}{
		{"x://a.b/{c}", "x://aXb/1", nil},
		{"x://a.b/{c}", "x://a.b/1+%2b%2B", nil},
		{"x://a.b/{c}", "x://a.b/1%2b%2B", map[string]string{"c": "1++"}},
		{"x://a{+c}", "x://a/1+2", map[string]string{"c": "/1+2"}},
		{"x://a{#c}", "x://a#1", map[string]string{"c": "1"}},
		{"x://a{;c}", "x://a;c", map[string]string{}},
		{"x://a{;c}", "x://a;c=1", map[string]string{"c": "1"}},
		{"x://a/{c}", "x://a/1\n", nil},
	} {
		p, err := NewPattern(test.template)
		if err != nil {
			t.Fatal(err)
		}
		if matches := p.Matches(test.uri); matches != (test.want != nil) {
			t.Errorf("%s: %q matches: %t", test.template, test.uri, matches)
		} else if got := p.Variables(test.uri); matches && !maps.Equal(got, test.want) {
			t.Errorf("%s: %q: got %v, want %v", test.template, test.uri, got, test.want)
		}
	}
}
