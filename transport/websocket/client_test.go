package websocket

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	ws "github.com/coder/websocket"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

// Guarantees: G-0108.2
func TestAnAddressThatIsNone(t *testing.T) {
	for url, want := range map[string]string{
		"http://host/":         `transport: endpoint "http://host/": the scheme is "http", not ws or wss`,
		"ws:///mcp":            `transport: endpoint "ws:///mcp": the host is missing`,
		"ws://u:secret@host:x": `transport: endpoint "": invalid port ":x" after host`,
	} {
		c := &Client{URL: url}
		var refused *transport.URLError
		if err := c.Check(); !errors.As(err, &refused) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", url, err, want)
		}
		if _, err := c.Open(t.Context()); !errors.As(err, &refused) || c.Traits() != (transport.Traits{}) {
			t.Errorf("%s: Open has got %v", url, err)
		}
	}
	c := &Client{URL: "wss://u:secret@host:1/mcp?token=x"}
	if got, want := c.Traits(), (transport.Traits{Name: "host:1", Endpoint: "wss://host:1"}); c.Check() != nil || got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A tokens gives the second attempt a token.
type tokens struct{ token string }

func (a *tokens) Authorize(_ context.Context, r *http.Request) error {
	r.Header.Set("Authorization", a.token)
	return nil
}

func (a *tokens) Challenged(_ context.Context, _ *http.Request, refused *transport.StatusError) (bool, error) {
	again := a.token == ""
	a.token = "Bearer " + refused.Challenge
	return again, nil
}

// What goes wrong in a handshake has an error with a type, and without the address, which may hold secrets. A link has none of it.
//
// Guarantees: G-0108.2
func TestAHandshakeThatFails(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/denied", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not you", http.StatusForbidden) })
	mux.HandleFunc("/challenged", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer x" || r.Header.Get("Other") != "y" {
			w.Header().Set("WWW-Authenticate", "x")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Error(w, "it has the token", http.StatusTeapot)
	})
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other.example/mcp", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/denied", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/none-chosen", func(w http.ResponseWriter, r *http.Request) {
		conn, err := ws.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		_, _, _ = conn.Read(r.Context()) // until the client has gone
		conn.CloseNow()
	})
	mux.HandleFunc("/other", func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Sec-WebSocket-Protocol", "other") // as if the client had asked for it
		conn, err := ws.Accept(w, r, &ws.AcceptOptions{Subprotocols: []string{"other"}})
		if err != nil {
			t.Error(err)
			return
		}
		_, _, _ = conn.Read(r.Context())
		conn.CloseNow()
	})
	mux.HandleFunc("/odd", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: mcp\r\nSec-WebSocket-Accept: x\r\n\r\n")
		_ = conn.Close()
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	status := func(n int, body string) func(error) bool {
		return func(err error) bool {
			var refused *transport.StatusError
			return errors.As(err, &refused) && refused.Status == n && strings.Contains(refused.Body, body)
		}
	}
	for path, want := range map[string]func(error) bool{
		"/denied":      status(http.StatusForbidden, "not you"),
		"/here":        status(http.StatusForbidden, "not you"),
		"/challenged":  status(http.StatusTeapot, "it has the token"),
		"/elsewhere":   status(http.StatusTemporaryRedirect, "other.example"),
		"/none":        status(http.StatusNotFound, ""),
		"/other":       func(err error) bool { return errors.Is(err, ErrSubprotocol) },
		"/none-chosen": func(err error) bool { return errors.Is(err, ErrSubprotocol) },
		"/odd":         func(err error) bool { return err != nil && !errors.Is(err, ErrSubprotocol) },
	} {
		c := &Client{URL: "ws" + strings.TrimPrefix(s.URL, "http") + path + "?secret", Header: http.Header{"Other": {"y"}}, Authorizer: &tokens{}}
		if _, err := c.Open(t.Context()); !want(err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v (%T)", path, err, err)
		}
	}
	s.Close()
	var unreachable *transport.UnreachableError
	if _, err := (&Client{URL: "ws" + strings.TrimPrefix(s.URL, "http")}).Open(t.Context()); !errors.As(err, &unreachable) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want an UnreachableError", err)
	}
}

// The context limits Open, and not the life of the link.
//
// Guarantees: G-0014.1
func TestTheContextOfOpen(t *testing.T) {
	entered, over := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-over
	}))
	defer s.Close()
	defer close(over)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("no longer wanted")
	go func() {
		<-entered
		cancel(reason)
	}()
	if _, err := (&Client{URL: "ws" + strings.TrimPrefix(s.URL, "http")}).Open(ctx); !errors.Is(err, reason) {
		t.Errorf("got %v, want %v", err, reason)
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	links := make(chan transport.Link, 1)
	link, err := listen(t, func(link transport.Link) { links <- link }).Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close(0)
	cancel(io.EOF)
	ours, theirs := record(link, 1), <-links
	record(theirs, 1)
	if err := theirs.Send(transport.Outbound{Frame: []byte("1")}); err != nil || ours.next(t) != "1" {
		t.Errorf("after the end of the context of Open: %v", err)
	}
}

// A client reaches a server over TLS, also one that would rather have HTTP/2.
//
// Guarantees: G-0108.2
func TestOverTLS(t *testing.T) {
	ends := make(chan *recorder, 1)
	h := NewHandler(acceptFunc(func(link transport.Link) { ends <- record(link, 1) }), HandlerOptions{})
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of the handshake that fails
	s.StartTLS()
	defer s.Close()
	defer h.Close(time.Minute)
	url := "wss" + strings.TrimPrefix(s.URL, "https")
	if _, err := (&Client{URL: url}).Open(t.Context()); !errors.Is(err, transport.ErrUntrusted) {
		t.Errorf("got %v for a certificate that nobody knows, want %v", err, transport.ErrUntrusted)
	}
	link, err := (&Client{URL: url, HTTP: s.Client()}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close(time.Minute)
	record(link, 0)
	if err := link.Send(transport.Outbound{Frame: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if frame := testenv.Receive(t, ends, "the link").next(t); frame != "1" {
		t.Errorf("got %q, want %q", frame, "1")
	}
}

// A server whose answer to the handshake is wrong, and that says nothing more, does not hold up Open beyond its context.
//
// Guarantees: G-0014.1
func TestOpenOfAServerThatIsWrong(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		p, over := make(pipes), make(chan struct{})
		p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: mcp\r\nSec-WebSocket-Accept: x\r\n\r\n")
			<-over
		}))
		defer close(over)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := (&Client{URL: "ws://localhost/mcp", HTTP: p.client()}).Open(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}

// A refusing is a program's RoundTripper whose responses are no handshakes.
type refusing struct {
	status       int
	open, closed int
}

func (r *refusing) RoundTrip(*http.Request) (*http.Response, error) {
	r.open++
	return &http.Response{StatusCode: r.status, Header: http.Header{}, Body: r}, nil
}
func (r *refusing) CloseIdleConnections()       { r.closed = -1 }
func (r *refusing) Read([]byte) (int, error)    { return 0, io.EOF }
func (r *refusing) Write(p []byte) (int, error) { return len(p), nil }
func (r *refusing) Close() error                { r.closed++; return nil }

// A handshake that is refused leaves no response open, and the idle connections of the program's own client alone.
//
// Guarantees: G-0014.1
func TestARefusedHandshakeIsClosed(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusSwitchingProtocols} {
		r := &refusing{status: status}
		if link, err := (&Client{URL: "ws://localhost/mcp", HTTP: &http.Client{Transport: r}}).Open(t.Context()); err == nil {
			link.Close(0)
			t.Errorf("%d: got a link", status)
		}
		if r.open != 1 || r.closed < 1 {
			t.Errorf("%d: %d responses were opened, and %d closed (-1: and the idle connections)", status, r.open, r.closed)
		}
	}
}

// A refused handshake leaves no connection of the Client's own.
//
// Guarantees: G-0014.1
func TestARefusedHandshakeKeepsNoConnection(t *testing.T) {
	closed := make(chan struct{}, 10)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	s.Start()
	defer s.Close()
	if _, err := (&Client{URL: "ws" + strings.TrimPrefix(s.URL, "http")}).Open(t.Context()); err == nil {
		t.Error("got a link")
	}
	testenv.Receive(t, closed, "the end of the connection")
}

// A watchedContext counts the functions that wait for its end.
type watchedContext struct {
	context.Context
	watchers atomic.Int32
}

func (*watchedContext) Value(any) any { return nil }

func (w *watchedContext) AfterFunc(func()) (stop func() bool) {
	w.watchers.Add(1)
	return func() bool { w.watchers.Add(-1); return true }
}

// Nothing of a link stays behind in the context of its Open.
//
// Guarantees: G-0014.1
func TestALinkLeavesTheContextOfItsOpen(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		ctx := &watchedContext{Context: t.Context()}
		link, err := (&Client{URL: "ws://localhost/mcp", HTTP: p.client()}).Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		record(link, 0)
		record(<-links, 0)
		link.Close(time.Minute)
		synctest.Wait()
		if n := ctx.watchers.Load(); n != 0 {
			t.Errorf("%d functions wait for the end of the context, want none", n)
		}
	})
}

// A roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A lateContext has ended before anybody who waits for that learns of it.
type lateContext struct {
	watchedContext
	ended atomic.Bool
}

func (c *lateContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// A connection that is made when the context of Open ends is closed.
//
// Guarantees: G-0014.1
func TestOpenWhoseContextEndsAtLast(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		ctx, within := &lateContext{watchedContext: watchedContext{Context: t.Context()}}, p.client().Transport
		c := &Client{URL: "ws://localhost/mcp", HTTP: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			defer ctx.ended.Store(true)
			return within.RoundTrip(r.WithContext(t.Context()))
		})}}
		if link, err := c.Open(ctx); !errors.Is(err, context.Canceled) || link != nil {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		if err := record(<-links, 1).lost(t); err == nil {
			t.Error("the server has lost the link without a reason")
		}
	})
}
