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

// A bench serves requests without a network, on the clock of a bubble.
type bench struct {
	t       *testing.T
	handler *Handler
	*acceptor
	server *http.Server // for requests with a body; nil if there are none
}

func inBubble(t *testing.T, o HandlerOptions, stingy bool, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcceptor(respond)
		a.stingy = stingy
		b := &bench{t: t, handler: NewHandler(a, o), acceptor: a}
		defer a.finish(t)
		defer func() {
			b.handler.Close(0)
			synctest.Wait() // room is given back by the goroutines that served
			b.handler.served.wantHeld(t, 0)
			if small, large := b.handler.unread.Small.Held(), b.handler.unread.Large.Held(); small != 0 || large != 0 {
				t.Errorf("%d and %d bytes are charged at the end, want none", small, large)
			}
		}()
		test(t, b)
	})
}

// serve serves a request. The recorder can be read once done is closed.
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

// serveHTTP serves a request as net/http does, which recovers the panic of a handler
// that aborts its response.
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

// A silent stream of events gets comments, and a response that has not begun becomes
// such a stream.
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
			t.Errorf("a silent response: got %q, want %q", got, want)
		}
	})
}

// Close flushes what is queued for 70 % of its grace, and then interrupts writes. A
// shorter grace shortens this.
func TestCloseOfAStreamThatTakesNothing(t *testing.T) {
	for name, shorter := range map[string]bool{"alone": false, "shortened": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
				_, served := b.serveStuck("POST", modernBody("hold", ""), modernHeader("hold")...)
				p := b.peer(t, 0)
				p.mustSend(t, transport.Outbound{Stream: 1, Tag: 1, Frame: notice(1)})
				synctest.Wait() // a write is in progress
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
					t.Errorf("Close took %v, want %v", took, want)
				}
				loss := p.awaitLoss(t)
				if loss.Reason != transport.ErrClosed || len(loss.Unsent) != 1 || loss.Unsent[0] != 2 {
					t.Errorf("got the loss %+v, want loss.Reason == %v, len(loss.Unsent) == 1 and loss.Unsent[0] == 2", loss, transport.ErrClosed)
				}
				<-served
			})
		})
	}
}

// A request that is not being written is not interrupted: its refusal is sent.
//
// Guarantees: G-0022.15
func TestCloseWithoutGraceStillRefuses(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		stuck, served := b.serveStuck("POST", modernBody("hold", ""), modernHeader("hold")...)
		close(stuck.released)
		p := b.peer(t, 0)
		p.link.(*serverLink).force() // before its goroutine checks
		p.link.Close(0)
		<-served
		if stuck.status != 503 || stuck.isInterrupted {
			t.Errorf("got status %d, interrupted: %t", stuck.status, stuck.isInterrupted)
		}
	})
}

// A write that cannot be interrupted is left behind, and Close names it. What was
// queued after it is never written.
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
			t.Errorf("got the loss %+v, want len(loss.Unsent) == 1 and loss.Unsent[0] == 2", loss)
		}
		close(stuck.released)
		<-served
		if stuck.writes != 1 {
			t.Errorf("got %d writes, want 1", stuck.writes)
		}
	})
}

// If Main was busy and a write to its listener fails, Writable is called once.
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
			t.Errorf("Writable was called %d times, want 1", n)
		}
		if err := p.send(t, transport.Outbound{Frame: frame}); err != nil {
			t.Errorf("Send returned %v", err) // the client may reconnect for the message
		}
		stuck.interrupted = make(chan struct{})
	})
}

// serveStuck serves a request of a client that reads nothing.
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

// A stuckWriter is a client that reads nothing until it is released.
type stuckWriter struct {
	header        http.Header
	interrupted   chan struct{}
	released      chan struct{}
	isDeaf        bool // ignores interruption
	isInterrupted bool
	status        int
	writes        int
	aborted       bool   // whether the response was aborted
	read          []byte // what it has read since it was released
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
		w.read = append(w.read, b...)
		return len(b), nil
	}
}

func (w *stuckWriter) SetWriteDeadline(deadline time.Time) error {
	if !deadline.IsZero() && deadline.Before(time.Now()) && !w.isDeaf && !w.isInterrupted {
		w.isInterrupted = true
		close(w.interrupted)
	}
	return nil
}

// pass lets time pass in a bubble of testing/synctest.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// The last frame of a response and its end are sent in one write.
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
	server.Listener = signallingListener{server.Listener, wrote}
	server.Start()
	defer server.Close()
	s := &site{t: t, server: server, ctx: t.Context()}
	for method, kind := range map[string]string{"once": web.TypeJSON, "twice": web.TypeEvents} {
		got := s.modern(method, "")
		if got.status != 200 || web.MediaType(got.header) != kind {
			t.Fatalf("%s: got %+v, want got.status == 200 and web.MediaType(got.header) == %v", method, got, kind)
		}
		<-wrote
		if len(wrote) != 0 {
			t.Errorf("%s: got %d more writes, want none", method, len(wrote))
		}
	}
}

// The connections of a tellingListener report each write.
type signallingListener struct {
	net.Listener
	wrote chan<- struct{}
}

func (l signallingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return signallingConn{c, l.wrote}, err
}

type signallingConn struct {
	net.Conn
	wrote chan<- struct{}
}

func (c signallingConn) Write(p []byte) (int, error) {
	c.wrote <- struct{}{} // before the client can read it
	return c.Conn.Write(p)
}

// failingWriter is a connection that breaks when something is written.
type failingWriter struct{ *httptest.ResponseRecorder }

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// An answer in JSON that is perhaps not written is reported, also in a session whose events a client could come back for: of this response there is none.
func TestAnAnswerThatIsNotWrittenIsReported(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		r := newRequest("POST", legacyHold(""), b.initialize())
		served := make(chan struct{})
		go func() {
			defer close(served)
			serveHTTP(b.handler, failingWriter{httptest.NewRecorder()}, r)
		}()
		synctest.Wait()
		p := b.peer(t, 0)
		o := answering(p.newest(), heldAnswer)
		o.Tag = 9
		p.mustSend(t, o)
		<-served
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.failed) != 1 || p.failed[0].Tag != 9 || p.failed[0].Unsent || p.failed[0].Err != transport.ErrPeerClosed {
			t.Errorf("got the failed messages %+v, want the answer, which may have been sent", p.failed)
		}
	})
}

// A link whose queue was full is told of room as soon as what was refused fits, once for each refusal.
func TestRoomInAQueueIsToldOnce(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		b.initialize()
		q := b.peer(t, 0).link.(storedOrNot).newQueue()
		frame := transport.Outbound{Frame: make([]byte, web.WriteSize/2)}
		if _, due := q.take(); due {
			t.Error("room is told although nothing was refused")
		}
		for q.push(frame) {
		}
		full, told := q.Len(), 0
		if full < 3 {
			t.Fatalf("the queue is full with %d frames", full)
		}
		for q.Len() > 0 {
			frames, due := q.take()
			if due {
				told++
			}
			if due != (told == 1 && q.Len() == full-len(frames)) {
				t.Errorf("room is told with %d of %d frames left: %v", q.Len(), full, due)
			}
			q.written(frames)
		}
		if told != 1 {
			t.Errorf("room was told %d times", told)
		}
	})
}

// A frame that was refused because its client has too much unread elsewhere may come again when its own queue is empty: otherwise
// nothing of it would ever be written, and nobody would be told.
func TestRoomInAnEmptyQueueIsTold(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		b.initialize()
		link := b.peer(t, 0).link.(storedOrNot)
		frame := transport.Outbound{Frame: make([]byte, web.WriteSize)}
		q := link.newQueue()
		if !q.push(frame) {
			t.Fatal("the first frame has no room")
		}
		for fills := true; fills; {
			fills = false
			other := link.newQueue()
			defer other.drop()
			for other.push(frame) {
				fills = true
			}
		}
		if q.push(frame) {
			t.Fatal("there is room for another frame, want none")
		}
		frames, due := q.take()
		if !due || len(frames) != 1 {
			t.Errorf("took %d frames, and room is told: %t, want one and true", len(frames), due)
		}
		q.written(frames)
	})
}

type storedOrNot interface{ newQueue() *sendQueue }

// One write takes as many frames as fit into its size, and always one.
func TestWhatOneWriteTakes(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		b.initialize()
		q := b.peer(t, 0).link.(storedOrNot).newQueue()
		for _, test := range []struct{ sizes, want []int }{
			{nil, []int{0}},
			{[]int{1}, []int{1, 0}},
			{[]int{web.WriteSize}, []int{1, 0}},
			{[]int{web.WriteSize - 1, 1}, []int{2, 0}},
			{[]int{web.WriteSize - 1, 2}, []int{1, 1, 0}},
			{[]int{web.WriteSize, 1, 2}, []int{1, 2, 0}},
			{[]int{web.WriteSize + 1, web.WriteSize + 1}, []int{1, 1, 0}},
			{[]int{1, web.WriteSize + 1, 1}, []int{1, 1, 1, 0}},
			{make([]int, mostTaken+1), []int{mostTaken + 1, 0}},
		} {
			for n, size := range test.sizes {
				if !q.push(transport.Outbound{Tag: transport.Tag(n), Frame: make([]byte, size)}) {
					t.Fatalf("a frame of %d bytes has no room", size)
				}
			}
			next := transport.Tag(0)
			for _, want := range test.want {
				frames, _ := q.take()
				for _, frame := range frames {
					if frame.Tag != next {
						t.Errorf("%d: got frame %d, want %d", test.sizes, frame.Tag, next)
					}
					next++
				}
				if len(frames) != want || cap(q.taken) > mostTaken {
					t.Errorf("%d: took %d frames, and keeps room for %d, want %d and at most %d", test.sizes, len(frames), cap(q.taken), want, mostTaken)
				}
				q.written(frames)
			}
		}
	})
}
