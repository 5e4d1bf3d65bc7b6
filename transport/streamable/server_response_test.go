package streamable

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A bench serves requests without a network, in virtual time.
type bench struct {
	t       *testing.T
	handler *Handler
	*acceptor
	server *http.Server // of requests with a body; nil: they have none
}

func inBubble(t *testing.T, o HandlerOptions, stingy bool, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcceptor(respond)
		a.stingy = stingy
		b := &bench{t: t, handler: NewHandler(a, o), acceptor: a}
		defer a.finish(t)
		defer b.handler.Close(0)
		test(t, b)
	})
}

// serve has a request answered; the recorder may be read once done is closed.
func (b *bench) serve(ctx context.Context, method, body string, lines ...string) (*httptest.ResponseRecorder, chan struct{}) {
	return b.serveRequest(newRequest(method, body, lines...).WithContext(ctx))
}

func (b *bench) serveRequest(r *http.Request) (*httptest.ResponseRecorder, chan struct{}) {
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		serveHTTP(b.handler, w, r)
	}()
	synctest.Wait()
	return w, done
}

// serveHTTP serves a request as net/http does, which recovers the panic of a
// handler that aborts its response.
func serveHTTP(h http.Handler, w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			panic(v)
		} else {
			aborted = v != nil
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

func (b *bench) initialize() (session string) {
	w, done := b.serve(b.t.Context(), "POST", initializeBody("2025-11-25"))
	<-done
	return "Mcp-Session-Id: " + w.Header().Get("Mcp-Session-Id")
}

// A stream of events that is quiet gets comments, and a response that has not begun
// becomes one.
func TestQuietStreamIsKeptAlive(t *testing.T) {
	inBubble(t, HandlerOptions{KeepAlive: time.Minute}, false, func(t *testing.T, b *bench) {
		held, heldDone := b.serve(t.Context(), "POST", modernBody("hold", ""), modernHeader("hold")...)
		begun, begunDone := b.serve(t.Context(), "POST", modernBody("hold", ""), modernHeader("hold")...)
		p := b.peer(t, 0)
		p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(1)})
		pass(150 * time.Second)
		p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(2)})
		pass(59 * time.Second)
		for stream := range transport.Stream(2) {
			p.mustSend(t, transport.Outbound{Stream: stream + 1, Last: true, Frame: notice(3)})
		}
		<-heldDone
		<-begunDone
		event := func(n int) string { return "data: " + noticeLine(n) + "\n\n" }
		if got, want := begun.Body.String(), event(1)+":\n\n:\n\n"+event(2)+event(3); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := held.Body.String(), ":\n\n:\n\n:\n\n"+event(3); got != want {
			t.Errorf("a quiet response is %q, want %q", got, want)
		}
	})
}

// Close flushes what is queued for 70 % of its grace and is then forceful; a
// shorter grace shortens it.
func TestCloseOfAStreamThatTakesNothing(t *testing.T) {
	for name, shorter := range map[string]bool{"alone": false, "shortened": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
				_, served := b.serveStuck("POST", modernBody("hold", ""), modernHeader("hold")...)
				p := b.peer(t, 0)
				p.mustSend(t, transport.Outbound{Stream: 1, Tag: 1, Frame: notice(1)})
				synctest.Wait() // it is being written
				p.mustSend(t, transport.Outbound{Stream: 1, Tag: 2, Frame: notice(2)})
				begun := time.Now()
				want := 7 * time.Second
				if shorter {
					want = 700 * time.Millisecond
					go p.link.Close(time.Second)
				}
				if err := p.link.Close(10 * time.Second); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took != want {
					t.Errorf("Close took %v", took)
				}
				loss := p.awaitLoss(t)
				if loss.Reason != transport.ErrClosed || len(loss.Unsent) != 1 || loss.Unsent[0] != 2 {
					t.Errorf("lost with %+v", loss)
				}
				<-served
			})
		})
	}
}

// A request that nobody writes for is not interrupted: its refusal goes out.
//
// Guarantees: G-0022.15
func TestCloseAtOnceStillAnswers(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		stuck, served := b.serveStuck("POST", modernBody("hold", ""), modernHeader("hold")...)
		close(stuck.released)
		p := b.peer(t, 0)
		p.link.(*serverLink).force() // before its goroutine looks
		p.link.Close(0)
		<-served
		if stuck.status != 503 || stuck.isInterrupted {
			t.Errorf("status %d, interrupted: %t", stuck.status, stuck.isInterrupted)
		}
	})
}

// A write that cannot be interrupted is left behind, and what was queued
// behind it is never written.
//
// Guarantees: G-0022.15
func TestCloseNamesAStuckWrite(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		stuck, served := b.serveStuck("POST", modernBody("hold", ""), modernHeader("hold")...)
		stuck.isDeaf = true
		p := b.peer(t, 0)
		p.mustSend(t, transport.Outbound{Stream: 1, Tag: 1, Frame: notice(1)})
		synctest.Wait()
		p.mustSend(t, transport.Outbound{Stream: 1, Tag: 2, Frame: notice(2)})
		begun := time.Now()
		if err := p.link.Close(0); err == nil || time.Since(begun) != web.ForcedWait {
			t.Errorf("Close returned %v after %v", err, time.Since(begun))
		}
		if loss := p.awaitLoss(t); len(loss.Unsent) != 1 || loss.Unsent[0] != 2 {
			t.Errorf("lost with %+v", loss)
		}
		close(stuck.released)
		<-served
		if stuck.writes != 1 {
			t.Errorf("%d writes were made", stuck.writes)
		}
	})
}

// Who waits for room on Main, when a write to its listener fails, is told, once.
//
// Guarantees: G-0022.13
func TestBusyListenerWhoseWriteFails(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		stuck, served := b.serveStuck("GET", "", b.initialize())
		p := b.peer(t, 0)
		frame := []byte(strings.Repeat("1", web.WriteSize))
		var err error
		for err == nil {
			err = p.send(t, transport.Outbound{Tag: 1, Frame: frame})
			synctest.Wait()
		}
		if !errors.Is(err, transport.ErrBusy) {
			t.Fatal(err)
		}
		close(stuck.interrupted)
		<-served
		if n := p.count(func(p *peer) int { return p.writable }); n != 1 {
			t.Errorf("Writable came %d times", n)
		}
		if err := p.send(t, transport.Outbound{Frame: frame}); err != nil {
			t.Errorf("Send returned %v", err) // the client may come back for it
		}
		stuck.interrupted = make(chan struct{})
	})
}

// serveStuck has a request answered to a client that takes nothing.
func (b *bench) serveStuck(method, body string, lines ...string) (*stuckWriter, chan struct{}) {
	w := &stuckWriter{header: http.Header{}, interrupted: make(chan struct{}), released: make(chan struct{})}
	r := newRequest(method, body, lines...).WithContext(b.t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		w.aborted = serveHTTP(b.handler, w, r)
	}()
	synctest.Wait()
	return w, served
}

// A stuckWriter is a client that takes nothing until it is released.
type stuckWriter struct {
	header        http.Header
	interrupted   chan struct{}
	released      chan struct{}
	isDeaf        bool // to interruption
	isInterrupted bool
	status        int
	writes        int
	aborted       bool // the response, once it was served
}

func (w *stuckWriter) Header() http.Header    { return w.header }
func (w *stuckWriter) WriteHeader(status int) { w.status = status }
func (w *stuckWriter) FlushError() error      { return nil }

func (w *stuckWriter) Write(b []byte) (int, error) {
	w.writes++
	select {
	case <-w.interrupted:
		return 0, errors.New("interrupted")
	case <-w.released:
		return len(b), nil
	}
}

func (w *stuckWriter) SetWriteDeadline(deadline time.Time) error {
	if deadline.Before(time.Now()) && !w.isDeaf && !w.isInterrupted {
		w.isInterrupted = true
		close(w.interrupted)
	}
	return nil
}

// pass lets time pass in a bubble.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// The last frame of a response goes out with the end of it, in one write.
//
// Guarantees: G-0058.4
func TestTheLastFrameIsWrittenWithTheEnd(t *testing.T) {
	wrote := make(chan struct{}, 10)
	a := newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
		if m.Method == "twice" {
			p.link.Send(transport.Outbound{Stream: in.Stream, Frame: []byte(notification("n"))})
			<-wrote
		}
		p.link.Send(answering(in.Stream, result(m.ID)))
	})
	h := NewHandler(a, HandlerOptions{})
	defer a.finish(t)
	defer h.Close(0)
	server := httptest.NewUnstartedServer(h)
	server.Listener = tellingListener{server.Listener, wrote}
	server.Start()
	defer server.Close()
	s := &site{t: t, server: server, ctx: t.Context()}
	for method, kind := range map[string]string{"once": web.TypeJSON, "twice": web.TypeEvents} {
		got := s.modern(method, "")
		if got.status != 200 || web.MediaType(got.header) != kind {
			t.Fatalf("%s: %+v", method, got)
		}
		<-wrote
		if len(wrote) != 0 {
			t.Errorf("%s: %d more writes", method, len(wrote))
		}
	}
}

// The connections of a tellingListener tell of each write.
type tellingListener struct {
	net.Listener
	wrote chan<- struct{}
}

func (l tellingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return tellingConn{c, l.wrote}, err
}

type tellingConn struct {
	net.Conn
	wrote chan<- struct{}
}

func (c tellingConn) Write(p []byte) (int, error) {
	c.wrote <- struct{}{} // before the client can have it
	return c.Conn.Write(p)
}
