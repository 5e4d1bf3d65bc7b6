package redact

import (
	"net/http"
	"net/url"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRedact(t *testing.T) {
	u, err := url.Parse("https://ada:hunter2@h.test/mcp?key=s3cr%20t&n=1&q=a%26b%26c")
	if err != nil {
		t.Fatal(err)
	}
	s := Of(http.Header{
		"Authorization": {"Bearer tok-en"}, "X-Short": {"abc"},
		"Content-Type": {"application/json"}, "Mcp-Method": {"tools/list"},
	}, u)
	for text, want := range map[string]string{
		"Bearer tok-en or tok-en":                        "[redacted] or [redacted]",
		"https://h.test/?key=s3cr%20t&n=1&q=a%26b%26c":   "https://h.test/?[redacted]",
		"s3cr t, s3cr+t, s3cr%20t, a&amp;b&amp;c, a&b&c": "[redacted], [redacted], [redacted], [redacted], [redacted]",
		"hunter2, Basic YWRhOmh1bnRlcjI=":                "[redacted], Basic [redacted]",
		"abc 1 ada":                                      "abc 1 ada",
		"application/json of tools/list":                 "application/json of tools/list",
	} {
		if got := s.Redact(text); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
	if got := Of(nil, nil).Redact("text"); got != "text" {
		t.Errorf("%q", got)
	}
}
