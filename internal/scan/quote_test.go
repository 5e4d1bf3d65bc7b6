package scan_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/go-json-experiment/json/jsontext"
)

// checkQuote compares the quoted form of a text, and the text decoded from it and from any
// quoted text, with jsontext.
func checkQuote(t *testing.T, text string) {
	t.Helper()
	want, _ := jsontext.AppendQuote(nil, text)
	if got := scan.AppendQuote([]byte("["), text); string(got) != "["+string(want) {
		t.Fatalf("%q is written as %s, want %s", text, got[1:], want)
	}
	for _, raw := range []string{string(want), `"` + text + `"`} {
		read := scan.Of([]byte(raw))
		got := read.String()
		for _, word := range []string{text, "a", ""} { // whichever word is expected
			if n, _ := scan.Plain([]byte(word)); n < len(word) {
				continue
			}
			again := scan.Of([]byte(raw))
			if same := again.Word(word); same != got || again.End() != read.End() {
				t.Fatalf("%q is read as %q if %q is expected, and as %q otherwise", raw, same, word, got)
			}
		}
		if !read.End() {
			continue
		}
		want, err := jsontext.AppendUnquote(nil, raw)
		if !utf8.Valid([]byte(raw)) || got != string(want) {
			t.Fatalf("%q is read as %q, want %q, %v", raw, got, want, err)
		}
	}
	read := scan.Of(want)
	if got := read.String(); !read.End() || got != strings.ToValidUTF8(got, "") {
		t.Fatalf("%s: refused, or decoded as %q", want, got)
	}
}

var quotes = []string{
	"", "a", "01234567\n", "\"\\/\b\f\n\r\t", "\x00\x1f\x7f", "é\u2028\U0001f600", "\xff", "a\xffb\"", "<>&", strings.Repeat("long \"text\"\n", 20),
	`\u00e9\/`, `\ud83d`, `\uD83D\uDE00`, `a\u0026\u003Cb`, `\u0041\u12`, `\u00fg`, `\u2028 \uFFFD\u0000`, `\n\"`, `\`, `\x`, `\u12`, strings.Repeat("x", 100) + `\t` + strings.Repeat("y", 100),
}

// Guarantees: G-0056.3
func TestStringsAreWrittenAndRead(t *testing.T) {
	for _, text := range quotes {
		checkQuote(t, text)
	}
}

// Guarantees: G-0056.3
func FuzzQuote(f *testing.F) {
	for _, text := range quotes {
		f.Add(text)
	}
	f.Fuzz(checkQuote)
}

// A value that is not a string is not decoded as one.
func TestOtherValuesAreNoStrings(t *testing.T) {
	for _, raw := range []string{`null`, `1`, `["a"]`, ``, `"a`} {
		text := scan.Of([]byte(raw))
		if got := text.String(); got != "" || text.End() {
			t.Errorf("%s is read as %q", raw, got)
		}
	}
}
