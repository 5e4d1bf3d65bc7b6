package catalog

import (
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/yosida95/uritemplate/v3"
	"pgregory.net/rapid"
)

// A pattern matches the URIs that package uritemplate matches, and finds the same variables,
// but for lists, which that package returns in parts.
//
// Guarantees: G-0029.1
func TestPatternFindsWhatTheTemplatePackageFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(x://)?([ab/%.]?\{[+#./;?&]?(v\*?|v:[1-4]|w|v,w|w\*,v|v:2,u,w)\}){1,2}[a/]?`).Draw(t, "template")
		template, err := uritemplate.New(text)
		if err != nil {
			t.Skip(err)
		}
		p, err := NewPattern(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		uri := rapid.StringMatching(`(x://)?([ab]{0,3}|%[4c][1e]|[,;&/.?=#%!]|v=|w=|v|\n|ä){0,9}`).Draw(t, "uri")
		if rapid.Bool().Draw(t, "expands") {
			value := rapid.StringMatching(`[ab,/ä?]{0,6}`)
			uri, err = template.Expand(uritemplate.Values{
				"v": uritemplate.String(value.Draw(t, "v")), "w": uritemplate.List(value.Draw(t, "w"), value.Draw(t, "w")),
			})
			if err != nil {
				t.Skip(err)
			}
		}
		if utf8.RuneCountInString(uri) == 1 {
			t.Skip("package uritemplate matches one character with everything")
		}
		found := template.Match(uri)
		if got, want := p.Matches(uri), found != nil; got != want {
			t.Fatalf("%s matches %q: got %v, want %v", text, uri, got, want)
		}
		got := p.Variables(uri)
		for key, value := range found {
			name, _, _ := strings.Cut(key, ":")
			isList := value.T != uritemplate.ValueTypeString || strings.Contains(text, name+"*") || strings.Count(text, name) > 1
			if !isList && got[name] != value.String() {
				t.Fatalf("%s: %s of %q: got %q, want %q", text, name, uri, got[name], value.String())
			}
		}
	})
}

// The variables of a URI are decoded. A list is one text.
func TestPatternReturnsTheTextsOfVariables(t *testing.T) {
	for _, test := range []struct {
		template, uri string
		want          map[string]string
	}{
		{"users://{id}", "users://7", map[string]string{"id": "7"}},
		{"users://{id}", "users://", map[string]string{"id": ""}},
		{"users://{id}", "users://a%2Fb%20c", map[string]string{"id": "a/b c"}},
		{"users://{id}", "users://a,b", map[string]string{"id": "a,b"}},
		{"users://{id}", "users://a/b", map[string]string{}},
		{"users://{id}", "users://a\n", map[string]string{}},
		{"logs://{service}/{day}", "logs://mail/monday", map[string]string{"service": "mail", "day": "monday"}},
		{"x://{a,b}", "x://1,2", map[string]string{"a": "1", "b": "2"}},
		{"x://a{/path*}", "x://a/b/c", map[string]string{"path": "b/c"}},
		{"x://{+path}", "x://a/b?c=d", map[string]string{"path": "a/b?c=d"}},
		{"x://a{?b,c}", "x://a?c=1", map[string]string{"c": "1"}},
		{"x://a{?b,c}", "x://a?b=1&c=", map[string]string{"b": "1", "c": ""}},
		{"x://{a:1}/{a}", "x://f/foo", map[string]string{"a": "foo"}},
		{"x://{a}/{a:1}", "x://foo/f", map[string]string{"a": "foo"}},
		{"x://{a:1}/{a:2}/{a:1}", "x://f/fo/f", map[string]string{"a": "fo"}},
		{"x://{a:1}/{a}", "x://f/", map[string]string{"a": "f"}},
		{"x://{a}", "x://%zz", map[string]string{}},
		{"x://{a:3}", "x://abc", map[string]string{"a": "abc"}},
		{"x://{a:3}", "x://abcd", map[string]string{}},
	} {
		p, err := NewPattern(test.template)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Variables(test.uri); !maps.Equal(got, test.want) {
			t.Errorf("%s: the variables of %q are %q, want %q", test.template, test.uri, got, test.want)
		}
	}
}
