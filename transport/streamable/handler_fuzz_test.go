package streamable

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// FuzzServeHTTP sends anything by any method. There is always one response,
// and never a panic.
func FuzzServeHTTP(f *testing.F) {
	f.Add("POST", "Content-Type: application/json", echoBody)
	f.Add("POST", "Content-Type: application/json", initializeBody("2025-03-26"))
	f.Add("POST", "Content-Type: application/json\nMcp-Session-Id: $", `[`+echoBody+`,7]`)
	f.Add("POST", "Content-Type: application/json\nMcp-Session-Id: $", echoBody)
	f.Add("POST", "Content-Type: application/json\nMcp-Protocol-Version: 2026-07-28\nMcp-Method: echo", modernBody("echo", ""))
	f.Add("POST", "Content-Type: application/json\nMcp-Protocol-Version: 2026-07-28\nMcp-Method: tools/call\nMcp-Name: =?base64?YQ==?=",
		modernBody("tools/call", `"name":"a",`))
	f.Add("POST", "Content-Type: application/json", strings.Repeat("[", 10_000))
	f.Add("DELETE", "Mcp-Session-Id: $", "")
	f.Add("GET", "Accept: text/event-stream;;q=,/\nOrigin: http://[::1\nHost: [::", "")
	f.Add("\x00", "\xff: \xff", "\xff")
	f.Fuzz(func(t *testing.T, method, lines, body string) {
		a := newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
			if respond(p, in, m); in.Stream != transport.Main {
				p.link.End(in.Stream) // whatever it was
			}
		})
		h := NewHandler(a, HandlerOptions{MaxBody: 1 << 20})
		defer a.finish(t)
		defer h.Close(0)
		session := fuzzed(h, "POST", "Content-Type: application/json", initializeBody("2025-03-26")).Header().Get("Mcp-Session-Id")
		if session == "" {
			t.Fatal("no session")
		}
		if method == "GET" && strings.Contains(lines, "$") {
			return // a stream without an end
		}
		w := fuzzed(h, method, strings.ReplaceAll(lines, "$", session), body)
		if w.Code < 200 || w.Code > 503 || w.Code == 500 {
			t.Errorf("status %d", w.Code)
		}
	})
}

func fuzzed(h *Handler, method, lines, body string) *recorded {
	r := &http.Request{Method: method, URL: &url.URL{Path: "/"}, Header: http.Header{}, Host: "localhost",
		Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body))}
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Add(name, value)
	}
	w := &recorded{httptest.NewRecorder()}
	h.ServeHTTP(w, r)
	return w
}

type recorded struct{ *httptest.ResponseRecorder }
