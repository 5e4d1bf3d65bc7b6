package sse

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// FuzzServeHTTP sends arbitrary requests to an endpoint that has a session. Each gets
// one response, and a frame is delivered exactly if the status is 202, to the session
// that the query names.
//
// Guarantees: G-0034.1
func FuzzServeHTTP(f *testing.F) {
	const message = `{"jsonrpc":"2.0","method":"notifications/news"}`
	f.Add("POST", "sessionId=$", "Content-Type: application/json", message)
	f.Add("POST", "a=b;sessionId=$&sessionId=x", "Content-Type: application/json; charset=utf-8", message)
	f.Add("POST", "sessionId=%zz", "Content-Type: application/json", message)
	f.Add("POST", "sessionId=$", "Content-Type: application/json\nContent-Encoding: gzip", "\x1f\x8b")
	f.Add("POST", "sessionId=$", "Content-Type: application/json", strings.Repeat("[", 70_000))
	f.Add("GET", "sessionId=$", "Origin: http://[::1\nHost: [::", "")
	f.Add("GET", "", "Accept: text/event-stream", "")
	f.Add("DELETE", "sessionId=$", "", "")
	f.Add("\x00", "\xff", "\xff: \xff", "\xff")
	f.Fuzz(func(t *testing.T, method, query, lines, body string) {
		s := &site{t: t}
		h := NewHandler(s, HandlerOptions{MaxBody: 1 << 20})
		defer h.Close(0)
		ctx, leave := context.WithCancel(t.Context())
		listening := &flushed{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}, 1)}
		served := make(chan struct{})
		go func() {
			defer close(served)
			h.ServeHTTP(listening, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/sse", nil))
		}()
		defer func() {
			leave()
			<-served
		}()
		<-listening.begun
		link, received := s.session(0)
		link.Grant(transport.Main, 10)
		id := link.(*serverLink).id

		gone, cancel := context.WithCancel(t.Context())
		if cancel(); method != "GET" {
			gone = t.Context()
		}
		r := (&http.Request{Method: method, URL: &url.URL{Path: "/sse", RawQuery: strings.ReplaceAll(query, "$", id)}, Header: http.Header{}, Host: "localhost",
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), RequestURI: "/sse?" + query}).WithContext(gone)
		for line := range strings.SplitSeq(lines, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			if name == "Host" {
				r.Host = value
			}
			r.Header.Add(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code < 200 || w.Code > 503 || w.Code == 500 {
			t.Errorf("got status %d", w.Code)
		}
		received.mu.Lock()
		defer received.mu.Unlock()
		if delivered := len(received.frames) == 1; delivered != (w.Code == 202) || delivered && string(received.frames[0].Frame) != body {
			t.Errorf("got status %d and %d frames", w.Code, len(received.frames))
		}
		if w.Code == 202 && r.URL.Query().Get(sessionParameter) != id {
			t.Errorf("%q is accepted as the name of the session", query)
		}
	})
}

// A flushed recorder signals that the first event was sent.
type flushed struct {
	*httptest.ResponseRecorder
	begun chan struct{}
}

func (f *flushed) Flush() {
	f.ResponseRecorder.Flush()
	select {
	case f.begun <- struct{}{}:
	default: // already signalled
	}
}
