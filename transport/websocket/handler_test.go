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
	"testing/synctest"
	"time"

	ws "github.com/coder/websocket"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
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

// shakes returns the request of a handshake, with some headers changed.
func shakes(changes ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://localhost/mcp", nil)
	for _, line := range append([]string{"Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: other, mcp"}, changes...) {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	return r
}

// A handshake that is not allowed, or is none of a client of MCP, is refused before a server learns of it. The Auditor learns of it.
//
// Guarantees: G-0108.2
func TestHandshakesThatAreRefused(t *testing.T) {
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

// The Auditor learns who is refused once that is known, and since when. What is refused takes no place.
//
// Guarantees: G-0108.2, G-0108.5
func TestTheAuditorIsToldWhoIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(auditor)
		h := NewHandler(a, HandlerOptions{MaxSessions: 1, Identify: func(r *http.Request) string {
			<-time.NewTimer(time.Second).C // a slow login
			return r.Header.Get("X-User")
		}})
		refuse := func(user, why string) {
			t.Helper()
			began := time.Now()
			h.ServeHTTP(hijackable{httptest.NewRecorder()}, shakes("X-User: "+user))
			told := a.refused[len(a.refused)-1]
			if told.Origin.Identity != user || told.Status != http.StatusServiceUnavailable || told.Err.Error() != why || !told.Since.Equal(began) {
				t.Errorf("the Auditor was told %+v of %q, want %q of %q since %v", told, told.Origin.Identity, why, user, began)
			}
		}
		a.acceptFunc = func(transport.Link) { refuse("bob", "no more connections are possible for this client now") } // it takes no link
		for range 2 {
			refuse("ada", "shutting down")
		}
		if err := h.Close(0); err != nil {
			t.Error(err)
		}
		refuse("eve", "shutting down")
	})
}

// A keeper is a ResponseWriter that keeps the status until something is written, as that of gin does.
type keeper struct {
	http.ResponseWriter
	status int
}

func (k *keeper) WriteHeader(status int) { k.status = status }

func (k *keeper) WriteHeaderNow() { k.ResponseWriter.WriteHeader(k.status) }

func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// A client learns at once that it is connected, also if the ResponseWriter keeps the status.
//
// Guarantees: G-0108.1
func TestAResponseWriterThatKeepsTheStatus(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		p, links := make(pipes), make(chan transport.Link, 1)
		h := NewHandler(acceptFunc(func(link transport.Link) { links <- newLater(link) }), HandlerOptions{})
		p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(&keeper{ResponseWriter: w}, r) }))
		client, _ := p.connect(t)
		got := record(<-links, 1)
		if client.send(ws.MessageText, "1"); got.next(t) != "1" {
			t.Error("want the message of the client")
		}
		if err := h.Close(0); err != nil {
			t.Error(err)
		}
		client.CloseNow()
	})
}

// If the Acceptor panics, the link that it has taken is lost.
func TestAnAcceptorThatPanics(t *testing.T) {
	var got *recorder
	h := NewHandler(acceptFunc(func(link transport.Link) {
		got = record(link, 0)
		panic("no server")
	}), HandlerOptions{})
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(hijackable{httptest.NewRecorder()}, shakes())
	}()
	if err := got.lost(t); err != transport.ErrClosed {
		t.Errorf("lost for %v, want %v", err, transport.ErrClosed)
	}
	if n := len(h.links); n > 0 {
		t.Errorf("the handler keeps %d links, want none", n)
	}
}

// A link whose handshake cannot be answered is lost, and one that nobody takes is refused.
//
// Guarantees: G-0108.2
func TestLinksWithoutAConnection(t *testing.T) {
	var got *recorder
	h := NewHandler(acceptFunc(func(link transport.Link) { got = record(link, 0) }), HandlerOptions{})
	h.ServeHTTP(hijackable{httptest.NewRecorder()}, shakes())
	if err := got.lost(t); !errors.Is(err, errors.ErrUnsupported) || !strings.HasPrefix(err.Error(), "websocket: accept: ") {
		t.Errorf("a connection that cannot be taken over: lost for %v, want %v", err, errors.ErrUnsupported)
	}
	response := httptest.NewRecorder()
	NewHandler(acceptFunc(func(transport.Link) {}), HandlerOptions{}).ServeHTTP(hijackable{response}, shakes())
	if response.Code != http.StatusServiceUnavailable {
		t.Errorf("a link that nobody takes: got %d, want 503", response.Code)
	}
}

// A header with a list of tokens may have several lines.
//
// Guarantees: G-0108.2
func TestTokensOfSeveralLines(t *testing.T) {
	accepted := false
	r := shakes("Connection: keep-alive", "Sec-WebSocket-Protocol: other")
	r.Header.Add("Connection", "Upgrade")
	r.Header.Add("Sec-WebSocket-Protocol", "mcp")
	response := httptest.NewRecorder()
	NewHandler(acceptFunc(func(transport.Link) { accepted = true }), HandlerOptions{}).ServeHTTP(hijackable{response}, r)
	if !accepted {
		t.Errorf("got %d %s, want a link", response.Code, response.Body)
	}
}

// Limits below zero are the defaults.
//
// Guarantees: G-0108.5
func TestLimitsBelowZero(t *testing.T) {
	virtually(t, HandlerOptions{MaxFrame: -1, MaxSessions: -1}, func(t *testing.T, p pipes, links chan transport.Link) {
		client, _ := p.connect(t)
		defer client.CloseNow()
		got := record(<-links, 1)
		client.send(ws.MessageText, "1")
		if frame := got.next(t); frame != "1" {
			t.Errorf("got %q, want %q", frame, "1")
		}
	})
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

// What a client has served beyond its share costs it its connection. One message counts an eighth of all at most.
//
// Guarantees: G-0108.5
func TestWhatOneClientHasServed(t *testing.T) {
	for size, want := range map[int]int{4 << 20: 6, 12 << 20: 3} {
		virtually(t, HandlerOptions{MaxFrame: size}, func(t *testing.T, p pipes, links chan transport.Link) {
			client, _ := p.connect(t)
			got := record(<-links, 100)
			told := make(chan ws.StatusCode, 1)
			go func() { told <- client.closed() }()
			message := make([]byte, size)
			for range cap(got.frames) {
				if client.Write(t.Context(), ws.MessageText, message) != nil {
					break
				}
			}
			if status := <-told; status != ws.StatusTryAgainLater {
				t.Errorf("the client was told %d, want %d", status, ws.StatusTryAgainLater)
			}
			if err := got.lost(t); err.Error() != "websocket: too much of the client is being served" {
				t.Errorf("lost for %v", err)
			}
			if n := len(got.frames); n != want {
				t.Errorf("%d messages of %d MiB are served, want those of 38 %% of 64 MiB", n, size>>20)
			}
			client.CloseNow()
		})
	}
}

// What a client leaves unread beyond its share, on all its connections, is refused to the sender. There is room again for what it has read, and when
// the connections have ended.
//
// Guarantees: G-0108.5
func TestWhatOneClientLeavesUnread(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		reader, _ := p.connect(t)
		link := <-links
		got := record(link, 0)
		for n := range 40 {
			if err := link.Send(transport.Outbound{Frame: make([]byte, 1<<20)}); err != nil {
				t.Fatalf("after %d MiB that the client has read: %v", n, err)
			}
			if _, _, err := reader.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		reader.CloseNow()
		<-got.losses
		for range 3 {
			taken, lost := 0, make([]*recorder, 2)
			var err error
			for i := range lost {
				client, _ := p.connect(t)
				defer client.CloseNow()
				link := <-links
				lost[i] = record(link, 0)
				for err = nil; err == nil; taken++ {
					err = link.Send(transport.Outbound{Frame: make([]byte, 1<<20)})
				}
				if taken--; i == 0 && (!errors.Is(err, transport.ErrBusy) || taken != 16) {
					t.Errorf("a link has taken %d MiB: %v", taken, err)
				}
				if i == 1 {
					if err := link.Send(transport.Outbound{Frame: make([]byte, 1<<10)}); err != nil {
						t.Errorf("a small message beside large ones: %v", err)
					}
				}
			}
			if !errors.Is(err, transport.ErrNoRoom) || taken != 24 {
				t.Errorf("two links of one client have taken %d MiB, want 38 %% of 64 MiB: %v", taken, err)
			}
			for _, r := range lost {
				<-r.losses
			}
		}
	})
}

// fill has one client, over many connections, begin as many large messages as it has places for, and a byte more. It does not end them before the test is over.
func (p pipes) fill(t *testing.T, links chan transport.Link) {
	t.Helper()
	var clients []plain
	for range maxLarge / 2 {
		client, _ := p.connect(t)
		record(<-links, 1)
		message, err := client.Writer(t.Context(), ws.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := message.Write(make([]byte, large)); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	t.Cleanup(func() {
		for _, client := range clients {
			client.CloseNow()
		}
	})
}

// large is the length of a message that needs a place.
const large = web.SmallBody + web.SmallBody/8

// A large message waits for a place. Its client is told when there is none in time.
//
// Guarantees: G-0108.5
func TestAMessageWaitsForAPlace(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		p.fill(t, links)
		client, _ := p.connect(t)
		got, begun := record(<-links, 1), time.Now()
		written := make(chan error, 1)
		go func() { written <- client.Write(t.Context(), ws.MessageText, make([]byte, large)) }()
		if status := client.closed(); status != ws.StatusTryAgainLater {
			t.Errorf("the client was told %d, want %d", status, ws.StatusTryAgainLater)
		}
		if err := got.lost(t); err.Error() != "websocket: too many large messages wait to be read" || time.Since(begun) < 30*time.Second || time.Since(begun) > 31*time.Second {
			t.Errorf("lost for %v after %v", err, time.Since(begun))
		}
		client.CloseNow()
		<-written
		<-time.NewTimer(5 * time.Second).C // the others have lost their places
		begun = time.Now()
		if p.fill(t, links); time.Since(begun) > time.Second {
			t.Errorf("messages waited %v for places that nobody needs any more", time.Since(begun))
		}
	})
	// Messages that were read leave their places to others.
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		client, _ := p.connect(t)
		defer client.CloseNow()
		got, begun := record(<-links, maxLarge), time.Now()
		for n := range maxLarge {
			if err := client.Write(t.Context(), ws.MessageText, make([]byte, large)); err != nil {
				t.Fatalf("message %d: %v", n, err)
			}
			got.next(t)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("one message after the other waited %v for a place", took)
		}
	})
	// What it has waited for a place does not count as time that the client has taken.
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		p.fill(t, links)
		<-time.NewTimer(15 * time.Second).C
		client, _ := p.connect(t)
		defer client.CloseNow()
		got := record(<-links, 1)
		message, err := client.Writer(t.Context(), ws.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the first of which waits until the others have lost their places
			if _, err := message.Write(make([]byte, large)); err != nil {
				t.Fatal(err)
			}
			<-time.NewTimer(14 * time.Second).C
		}
		if err := message.Close(); err != nil || len(got.next(t)) != 2*large {
			t.Errorf("the message is not delivered: %v", err)
		}
	})
}

// Shutdown lets calls finish that run, then ends every connection.
//
// Guarantees: G-0108.6
func TestShutdown(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		finish := make(chan struct{})
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "wait"}, func(context.Context, struct{}) (string, error) {
			<-finish
			return "done", nil
		})
		p, h := make(pipes), NewHandler(s, HandlerOptions{})
		srv := p.serve(t, h)
		c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{})
		session, err := c.Connect(t.Context(), &Client{URL: "ws://localhost/mcp", HTTP: p.client()})
		if err != nil {
			t.Fatal(err)
		}
		called, down := make(chan error, 1), make(chan error, 1)
		go func() {
			text, err := client.Call[string](t.Context(), session, "wait", nil)
			if err == nil && text != "done" {
				err = errors.New(text)
			}
			called <- err
		}()
		synctest.Wait()
		go func() { down <- h.Shutdown(t.Context(), srv) }()
		synctest.Wait()
		if len(called) > 0 || len(down) > 0 {
			t.Error("Shutdown has not waited for a call that runs")
		}
		close(finish)
		if err := <-called; err != nil {
			t.Errorf("the call that ran: %v", err)
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A closing acceptor tells when it is closed.
type closing struct {
	acceptFunc
	closed func()
}

func (c closing) Close(context.Context) error { c.closed(); return nil }

// Shutdown takes no new connection from its beginning, while calls still finish.
//
// Guarantees: G-0108.6
func TestShutdownRefusesNewConnections(t *testing.T) {
	response := httptest.NewRecorder()
	var h *Handler
	h = NewHandler(closing{
		acceptFunc(func(transport.Link) { t.Error("a server that shuts down was given a link") }),
		func() { h.ServeHTTP(hijackable{response}, shakes()) },
	}, HandlerOptions{})
	if err := h.Shutdown(t.Context(), nil); err != nil || response.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d during Shutdown, want 503, and %v", response.Code, err)
	}
}
