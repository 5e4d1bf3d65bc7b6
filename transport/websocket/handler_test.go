package websocket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ws "github.com/coder/websocket"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// An auditor accepts every link, and keeps what was refused.
type auditor struct {
	acceptFunc
	refused []transport.Refusal
}

func (*auditor) Audits() bool                  { return true }
func (a *auditor) Refused(r transport.Refusal) { a.refused = append(a.refused, r) }

// A hijackable is a ResponseWriter that could be hijacked.
type hijackable struct{ *httptest.ResponseRecorder }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errors.ErrUnsupported
}

// A handshake that is not allowed, or is none of a client of MCP, is refused before a server learns of it. The Auditor learns of it.
//
// Guarantees: G-0108.2
func TestHandshakesThatAreRefused(t *testing.T) {
	shakes := func(changes ...string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/mcp", nil)
		for _, line := range append([]string{"Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: other, mcp"}, changes...) {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Set(name, value)
		}
		return r
	}
	twice := func(r *http.Request, name string) *http.Request {
		r.Header.Add(name, r.Header.Get(name))
		return r
	}
	over := func(r *http.Request, major, minor int) *http.Request {
		r.ProtoMajor, r.ProtoMinor, r.Proto = major, minor, fmt.Sprintf("HTTP/%d.%d", major, minor)
		return r
	}
	for name, c := range map[string]struct {
		request *http.Request
		status  int
	}{
		"another origin":         {shakes("Origin: https://evil.example"), http.StatusForbidden},
		"an origin of no name":   {shakes("Origin: null"), http.StatusForbidden},
		"a page of another site": {shakes("Sec-Fetch-Site: cross-site"), http.StatusForbidden},
		"no upgrade":             {shakes("Upgrade: h2c"), http.StatusUpgradeRequired},
		"no connection":          {shakes("Connection: keep-alive"), http.StatusUpgradeRequired},
		"another version":        {shakes("Sec-WebSocket-Version: 8"), http.StatusBadRequest},
		"no key":                 {shakes("Sec-WebSocket-Key: "), http.StatusBadRequest},
		"a key of 15 bytes":      {shakes("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAA"), http.StatusBadRequest},
		"a key that is no text":  {shakes("Sec-WebSocket-Key: !"), http.StatusBadRequest},
		"two keys":               {twice(shakes(), "Sec-WebSocket-Key"), http.StatusBadRequest},
		"HTTP/1.0":               {over(shakes(), 1, 0), http.StatusUpgradeRequired},
		"HTTP/2":                 {over(shakes(), 2, 0), http.StatusUpgradeRequired},
		"another subprotocol":    {shakes("Sec-WebSocket-Protocol: mcp2, chat"), http.StatusBadRequest},
		"no hijacker":            {shakes(), http.StatusInternalServerError},
		"not GET":                {httptest.NewRequest(http.MethodPost, "http://localhost/mcp", nil), http.StatusMethodNotAllowed},
	} {
		a := &auditor{acceptFunc: func(transport.Link) { t.Errorf("%s: a server has learned of it", name) }}
		response := httptest.NewRecorder()
		var w http.ResponseWriter = hijackable{response}
		if name == "no hijacker" {
			w = response
		}
		NewHandler(a, HandlerOptions{AllowedOrigins: []string{"https://app.example"}}).ServeHTTP(w, c.request)
		if response.Code != c.status || len(a.refused) != 1 || a.refused[0].Status != c.status || a.refused[0].Denied != (c.status == http.StatusForbidden) {
			t.Errorf("%s: got %d %s, and told %+v", name, response.Code, response.Body, a.refused)
		}
	}
}

// A page of an allowed origin, and one of the server's own, may connect. A rebound name may not.
//
// Guarantees: G-0108.2
func TestOriginsOfPages(t *testing.T) {
	url := serve(t, NewHandler(acceptFunc(func(link transport.Link) { record(link, 1) }), HandlerOptions{AllowedOrigins: []string{"https://app.example"}}))
	own := "http" + strings.TrimPrefix(url, "ws")
	for origin, allowed := range map[string]bool{own: true, "https://app.example": true, "https://app.example.evil": false, strings.Replace(own, "http", "https", 1): false} {
		conn, _, err := ws.Dial(t.Context(), url, &ws.DialOptions{Subprotocols: []string{subprotocol}, HTTPHeader: http.Header{"Origin": {origin}}})
		if (err == nil) != allowed {
			t.Errorf("%s: got %v", origin, err)
		}
		if err == nil {
			conn.CloseNow()
		}
	}
	if _, _, err := ws.Dial(t.Context(), url, &ws.DialOptions{Subprotocols: []string{subprotocol}, Host: "rebound.example"}); err == nil {
		t.Error("a rebound name was accepted")
	}
}

// A server that takes no more connections refuses the handshake, as does a handler whose client has its share, or that is closed.
//
// Guarantees: G-0108.5
func TestConnectionsBeyondTheBounds(t *testing.T) {
	var links []transport.Link
	h := NewHandler(acceptFunc(func(link transport.Link) {
		if links = append(links, link); len(links) == 3 { // one that was full
			link.Close(0)
			return
		}
		record(link, 1)
	}), HandlerOptions{MaxSessions: 2})
	c := &Client{URL: serve(t, h)}
	open := func() (transport.Link, int) {
		link, err := c.Open(t.Context())
		var refused *transport.StatusError
		if errors.As(err, &refused) {
			return nil, refused.Status
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { link.Close(0) })
		return link, 0
	}
	first, _ := open()
	if _, status := open(); status != 0 {
		t.Fatalf("the second connection was refused with %d", status)
	}
	if _, status := open(); status != http.StatusServiceUnavailable {
		t.Errorf("got status %d for a connection too many, want 503", status)
	}
	first.Close(time.Minute)
	for status := http.StatusServiceUnavailable; len(links) < 3; _, status = open() { // its place becomes free when the handler has seen the end
		if status != http.StatusServiceUnavailable {
			t.Fatalf("got status %d", status)
		}
	}
	if err := h.Close(time.Minute); err != nil {
		t.Error(err)
	}
	if _, status := open(); status != http.StatusServiceUnavailable {
		t.Errorf("got status %d from a closed handler, want 503", status)
	}
}

// What a client has served beyond its share costs it its connection; what it has not read beyond that is refused to the sender.
//
// Guarantees: G-0108.5
func TestMemoryOfOneClient(t *testing.T) {
	client, link, got := clientOf(t, HandlerOptions{})
	large := strings.Repeat("1", 4<<20)
	link.Grant(transport.Main, 100)
	status := make(chan ws.StatusCode, 1)
	go func() { status <- client.closed() }()
	for range 100 {
		if client.Write(t.Context(), ws.MessageText, []byte(large)) != nil {
			break
		}
	}
	if err := got.lost(t); err == nil || !strings.Contains(err.Error(), "too much of the client is being served") {
		t.Errorf("lost for %v", err)
	}
	if n := len(got.frames); n < 1 || n > 16 {
		t.Errorf("%d messages of 4 MiB are served, want those of a share of 64 MiB", n)
	}
	client, link, _ = clientOf(t, HandlerOptions{})
	var err error
	taken := 0
	for ; taken < 64 && err == nil; taken++ {
		err = link.Send(transport.Outbound{Frame: []byte(large[:1<<20])})
	}
	if err == nil {
		t.Errorf("%d MiB that nobody reads were accepted", taken)
	}
	client.CloseNow()
}

// Shutdown lets calls finish that run, then ends every connection.
//
// Guarantees: G-0108.6
func TestShutdown(t *testing.T) {
	running, finish := make(chan struct{}), make(chan struct{})
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		close(running)
		<-finish
		return "done", nil
	})
	h := NewHandler(s, HandlerOptions{})
	srv := httptest.NewServer(h)
	defer srv.Close()
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{})
	session, err := c.Connect(t.Context(), &Client{URL: "ws" + strings.TrimPrefix(srv.URL, "http")})
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan error, 1)
	go func() {
		text, err := client.Call[string](t.Context(), session, "wait", nil)
		if err == nil && text != "done" {
			err = errors.New(text)
		}
		called <- err
	}()
	testenv.Receive(t, running, "the call")
	down := make(chan error, 1)
	go func() { down <- h.Shutdown(t.Context(), srv.Config) }()
	close(finish)
	if err := testenv.Receive(t, called, "the answer"); err != nil {
		t.Errorf("the call that ran: %v", err)
	}
	if err := testenv.Receive(t, down, "the end of Shutdown"); err != nil {
		t.Error(err)
	}
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
