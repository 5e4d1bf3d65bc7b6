package streamable

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
)

// A refusal says of which type and length it is, and no browser guesses otherwise, whether it is text or JSON.
func TestHowARefusalIsWritten(t *testing.T) {
	for name, test := range map[string]struct {
		refusal          refusal
		body, mediaType  string
		again, allow, by string
	}{
		"text":  {refusal{status: 400, text: "no"}, "no\n", "text/plain; charset=utf-8", "", "", ""},
		"JSON":  {refusal{status: 400, text: "no", code: -32600}, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}`, "application/json", "", "", ""},
		"again": {refusal{status: 503, text: "busy", again: true}, "busy\n", "text/plain; charset=utf-8", soon, "", ""},
		"allow": {refusal{status: 405, text: "no", allow: "POST"}, "no\n", "text/plain; charset=utf-8", "", "POST", ""},
		"more":  {refusal{status: 401, text: "no", header: http.Header{"Www-Authenticate": {"Bearer"}}}, "no\n", "text/plain; charset=utf-8", "", "", "Bearer"},
	} {
		w := httptest.NewRecorder()
		test.refusal.write(w)
		if w.Code != test.refusal.status || w.Body.String() != test.body {
			t.Errorf("%s: got %d %q, want %d %q", name, w.Code, w.Body, test.refusal.status, test.body)
		}
		for header, want := range map[string]string{
			"Content-Type": test.mediaType, "Content-Length": strconv.Itoa(len(test.body)), "X-Content-Type-Options": "nosniff",
			"Retry-After": test.again, "Allow": test.allow, "Www-Authenticate": test.by,
		} {
			if got := w.Result().Header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
	}
}
