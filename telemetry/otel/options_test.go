package otel_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// With ResourceInName, the spans of both sides have the URI of a resource in their name, cut as all
// that peers choose. Without it, only in an attribute.
func TestResourceInName(t *testing.T) {
	long := "mem://" + strings.Repeat("é", 300)
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, in := range []bool{true, false} {
			s := newSite(t, "memory", version, otel.Options{ResourceInName: in})
			s.spans.Reset()
			if _, err := s.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "mem://one"}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: long}); err == nil {
				t.Error("there is a resource that nobody added")
			}
			s.ended()
			want := []string{"resources/read", "resources/read"}
			if in {
				want = []string{"resources/read mem://one", "resources/read " + string([]rune(long)[:128])}
			}
			for _, kind := range []trace.SpanKind{trace.SpanKindClient, trace.SpanKindServer} {
				var names, uris []string
				for _, span := range s.spans.GetSpans() {
					if span.SpanKind == kind && strings.HasPrefix(span.Name, "resources/read") {
						names, uris = append(names, span.Name), append(uris, attributeOf(span, "mcp.resource.uri"))
					}
				}
				if !slices.Equal(names, want) {
					t.Errorf("%s: the %s spans are named %q, want %q", version, kind, names, want)
				}
				if want := []string{"mem://one", string([]rune(long)[:128])}; !slices.Equal(uris, want) {
					t.Errorf("%s: the %s spans have the URIs %q, want %q", version, kind, uris, want)
				}
			}
		}
	}
}

// What Options.Arguments returns is in the spans of both sides. It is cut after 4 KiB, and not within
// a character. Exporters refuse text that is not UTF-8, with all spans beside it.
//
// Guarantees: G-0047.6
func TestRecordedArgumentsAreCut(t *testing.T) {
	const most = 4096
	for name, test := range map[string]struct {
		returns string
		want    string
	}{
		"short":              {`{"a":1}`, `{"a":1}`},
		"as long as allowed": {strings.Repeat("a", most), strings.Repeat("a", most)},
		"a byte too long":    {strings.Repeat("a", most+1), strings.Repeat("a", most)},
		"within a character": {"a" + strings.Repeat("é", most), "a" + strings.Repeat("é", (most-1)/2)},
		"no UTF-8":           {"a\xff\xfeb", "ab"},
		"a megabyte":         {strings.Repeat("a", 1<<20), strings.Repeat("a", most)},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			s := newSite(t, "memory", protocol.Latest, otel.Options{Arguments: func(tool string, raw json.RawMessage) []byte {
				asked = append(asked, tool+string(raw))
				return []byte(test.returns)
			}})
			s.spans.Reset()
			if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "add", Arguments: json.RawMessage(`{"x":1}`)}); err != nil {
				t.Fatal(err)
			}
			s.ended()
			if want := []string{`add{"x":1}`, `add{"x":1}`}; !slices.Equal(asked, want) {
				t.Errorf("Options.Arguments was asked for %q, want %q", asked, want)
			}
			for _, kind := range []trace.SpanKind{trace.SpanKindClient, trace.SpanKindServer} {
				got := attributeOf(s.named(kind, "tools/call add")[0], "gen_ai.tool.call.arguments")
				if got != test.want || !utf8.ValidString(got) {
					t.Errorf("the %s span has %d bytes of arguments, want %d: %.20q", kind, len(got), len(test.want), got)
				}
			}
		})
	}
}
