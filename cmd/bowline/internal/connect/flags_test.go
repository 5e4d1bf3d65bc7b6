package connect

import (
	"net/http"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/transport/streamable"
)

func TestSplit(t *testing.T) {
	for command, want := range map[string][]string{
		`a b`:                {"a", "b"},
		`a "b c" 'd "e"'`:    {"a", "b c", `d "e"`},
		`a "" b\ c`:          {"a", "", "b c"},
		"a $HOME `b` $(c)":   {"a", "$HOME", "`b`", "$(c)"},
		`'C:\Program Files'`: {`C:\Program Files`},
		`a # b`:              {"a", "#", "b"},
		`a 'b;c'`:            {"a", "b;c"},
	} {
		if got, err := split(command); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", command, got, err, want)
		}
	}
}

// TestCredentialsAreRedacted checks that credentials are hidden in errors.
func TestCredentialsAreRedacted(t *testing.T) {
	var tg Target
	tg.secrets = credentialsOf(&streamable.Client{
		URL:    "https://ada:hunter2@h.test/mcp?key=s3cr%20t&n=1",
		Header: http.Header{"Authorization": {"Bearer tok-en"}, "X-Short": {"abc"}},
	})
	text := "got https://h.test/?key=s3cr%20t&n=1, key s3cr t, s3cr+t, hunter2, Bearer tok-en, tok-en, abc, 1"
	if got, want := tg.Redact(text), "got https://h.test/?[redacted], key [redacted], [redacted], [redacted], [redacted], [redacted], abc, 1"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
