package streamable

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	httpheader "github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// FuzzServeHTTP sends arbitrary requests. Each gets one response, and none causes a
// panic.
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
				p.link.End(in.Stream) // whatever the request was
			}
		})
		h := NewHandler(a, HandlerOptions{MaxBody: 1 << 20})
		defer a.finish(t)
		defer h.Close(0)
		session := fuzzed(h, "POST", "Content-Type: application/json", initializeBody("2025-03-26")).Header().Get("Mcp-Session-Id")
		if session == "" {
			t.Fatal("got no session, want one")
		}
		if method == "GET" && strings.Contains(lines, "$") {
			return // this stream has no end
		}
		w := fuzzed(h, method, strings.ReplaceAll(lines, "$", session), body)
		if w.Code < 200 || w.Code > 503 || w.Code == 500 {
			t.Errorf("got status %d", w.Code)
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

// FuzzHeaders sends arbitrary headers to the endpoints of a session: to a stream that
// is opened or resumed, and with a message that its headers mirror. The stream of
// another session is never read, and an accepted header can be decoded again.
func FuzzHeaders(f *testing.F) {
	f.Add("0-0", "text/event-stream", "echo", "a")
	f.Add("2-1", "*/*;q=0, text/*;q=0.1", "tools/call", "=?base64?YQ==?=")
	f.Add("18446744073709551615-18446744073709551615", "", "\t", "=?base64?=?=")
	f.Add("-1", ",;,", "", "\x7f")
	f.Fuzz(func(t *testing.T, id, accept, method, name string) {
		a := newAcceptor(respond)
		h := NewHandler(a, HandlerOptions{})
		defer a.finish(t)
		defer h.Close(0)
		session := fuzzed(h, "POST", "Content-Type: application/json", initializeBody("2025-11-25")).Header().Get("Mcp-Session-Id")
		ctx, leave := context.WithCancel(t.Context())
		leave()
		r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/", nil)
		r.Header["Mcp-Session-Id"], r.Header["Last-Event-Id"], r.Header["Accept"] = []string{session}, []string{id}, []string{accept}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		parsed, ok := parseEventID(id)
		switch {
		case w.Code != 200 && w.Code != 400 && w.Code != 406 && w.Code != 410:
			t.Errorf("got status %d", w.Code)
		case ok && parsed.String() != id:
			t.Errorf("%q is decoded as %s", id, parsed)
		case w.Code == 200 && id != "" && (!ok || parsed.stream != transport.Main):
			t.Errorf("%q has opened an unknown stream", id)
		}
		if value, err := httpheader.Decode(name); err == nil {
			if again, err := httpheader.Decode(httpheader.Encode(value)); err != nil || again != value {
				t.Errorf("%q becomes %q: %v", value, again, err)
			}
		}
		r = httptest.NewRequest("POST", "http://localhost/", strings.NewReader(modernBody("tools/call", `"name":"a",`)))
		r.Header["Content-Type"], r.Header["Mcp-Protocol-Version"] = []string{web.TypeJSON}, []string{"2026-07-28"}
		r.Header["Mcp-Method"], r.Header["Mcp-Name"] = []string{method}, []string{name}
		w = httptest.NewRecorder()
		h.ServeHTTP(w, r)
		decoded, err := httpheader.Decode(name)
		if matches := method == "tools/call" && err == nil && decoded == "a"; (w.Code == 200) != matches || w.Code != 200 && w.Code != 400 {
			t.Errorf("method %q, name %q: status %d", method, name, w.Code)
		}
	})
}
