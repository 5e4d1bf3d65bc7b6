package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A response of several frames is sent as events, in both eras.
//
// Guarantees: G-0022.9
func TestAnswerAsEvents(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	legacy := s.listen("POST", `{"jsonrpc":"2.0","id":7,"method":"notify","params":{"n":300}}`, append(posting(), session))
	modern := s.listen("POST", modernBody("notify", `"n":300,`), append(posting(), modernHeader("notify")...))
	for _, events := range []*eventReader{legacy, modern} {
		for n := range 300 {
			events.want(noticeLine(n))
		}
	}
}

// If the receiver ends a stream without a response, the HTTP response ends properly.
//
// Guarantees: G-0022.9
func TestEndWithoutAnAnswer(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for range 10 {
		events := s.listen("POST", modernBody("end", ""), append(posting(), modernHeader("end")...))
		if got := events.next(); got != "" {
			t.Errorf("got %q, want %q", got, "")
		}
	}
	if n := s.peer(t, 0).count(func(p *peer) int { return len(p.lost) }); n != 0 {
		t.Errorf("%d streams were lost, want none", n)
	}
}

// Frames that were sent before End are still written.
//
// Guarantees: G-0022.9
func TestEndFlushes(t *testing.T) {
	s := newScriptedSite(t, HandlerOptions{}, newAcceptor(flushAndEnd))
	events := s.listen("POST", modernBody("x", ""), append(posting(), modernHeader("x")...))
	for n := range 50 {
		events.want(noticeLine(n))
	}
	events.wantEnd()
}

// A request is delivered when its stream has credit.
//
// Guarantees: G-0022.3
func TestNothingWithoutCredit(t *testing.T) {
	a := newAcceptor(respond)
	a.stingy = true
	s := newScriptedSite(t, HandlerOptions{}, a)
	first := s.pending(s.ctx, modernBody("echo", ""), modernHeader("echo")...)
	p := s.peer(t, 0)
	p.await(t, "a stream", func(p *peer) bool { return len(p.opened) == 1 })
	second := s.pending(s.ctx, modernBody("echo", ""), modernHeader("echo")...)
	p.await(t, "a stream", func(p *peer) bool { return len(p.opened) == 2 })
	if n := p.count(func(p *peer) int { return len(p.received) }); n != 0 {
		t.Fatalf("got %d frames before credit", n)
	}
	p.post(func() { p.link.Grant(2, 1) })
	if r := s.receive(second); r.status != 200 {
		t.Errorf("got %+v, want 200", r)
	}
	p.post(func() { p.link.End(1) })
	if r := s.receive(first); r.status != 200 || r.body != "" {
		t.Errorf("got %+v, want r.status == 200 and r.body == %q", r, "")
	}
	if n := p.count(func(p *peer) int { return len(p.received) }); n != 1 {
		t.Errorf("got %d frames, want 1", n)
	}
}

// Messages of Main go to the GET stream in use. Without one, a request fails.
func TestMainUsesTheListener(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	p := s.peer(t, 0)
	to := func(n int) transport.Outbound { return transport.Outbound{Frame: notice(n)} }
	ask := transport.Outbound{Frame: notice(0), Route: transport.Route{Kind: jsonrpc.KindRequest, Method: "ping"}}
	if err := p.send(t, ask); !errors.Is(err, transport.ErrNoRoute) {
		t.Fatalf("a request without a GET stream: got %v, want %v", err, transport.ErrNoRoute)
	}
	first := s.get(session)
	p.mustSend(t, to(1))
	first.want(noticeLine(1))
	second := s.get(session)
	first.wantEnd()
	for n := range 100 {
		p.mustSend(t, to(n))
		second.want(noticeLine(n))
	}
	second.leave()
	third := s.get(session)
	p.mustSend(t, transport.Outbound{Frame: notice(7), Last: true}) // has no effect, because Main does not end
	third.want(noticeLine(7))
	p.mustSend(t, to(8))
	third.want(noticeLine(8))
}

// A listener that does not read fills the queue. Writable is called once it reads.
func TestBusyThenWritable(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	reader := s.get(s.initialize("2025-06-18"))
	p := s.peer(t, 0)
	big := func(n int) []byte { return fmt.Appendf(nil, `{"n":%d,"pad":%q}`, n, strings.Repeat("x", 64<<10)) }
	sent := 0
	for ; sent < 1024; sent++ {
		if err := p.send(t, transport.Outbound{Frame: big(sent)}); err != nil {
			if !errors.Is(err, transport.ErrBusy) {
				t.Fatal(err)
			}
			break
		}
	}
	if sent == 1024 {
		t.Fatal("got no ErrBusy, want one")
	}
	for n := range sent {
		reader.want(string(big(n)))
	}
	p.await(t, "Writable", func(p *peer) bool { return p.writable > 0 })
	p.mustSend(t, transport.Outbound{Frame: big(0)})
	reader.want(string(big(0)))
}

// If Main was busy and its listener disconnects, Writable is called. Later messages
// wait for the client.
func TestBusyListenerThatDisconnects(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	reader := s.get(session)
	p := s.peer(t, 0)
	frame := []byte(strings.Repeat("1", 1<<20))
	var err error
	for err == nil {
		err = p.send(t, transport.Outbound{Tag: 9, Frame: frame})
	}
	if !errors.Is(err, transport.ErrBusy) {
		t.Fatal(err)
	}
	reader.leave()
	p.await(t, "Writable", func(p *peer) bool { return p.writable > 0 })
	reader = s.listen("GET", "", header{"Accept: text/event-stream", session})
	p.mustSend(t, transport.Outbound{Frame: notice(1)})
	for got := reader.next(); got != "data: "+noticeLine(1)+"\n"; got = reader.next() {
		if got != "data: "+string(frame)+"\n" && !strings.HasPrefix(got, ":") { // a comment gives the number of messages that are no longer stored
			t.Fatalf("got %.100q", got)
		}
	}
	if n := p.count(func(p *peer) int { return len(p.failed) }); n != 0 {
		t.Errorf("%d messages failed, want none", n)
	}
}

// Send refuses a frame above the limit.
func TestFrameAboveTheLimitIsRefused(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxFrame: 1000})
	s.initialize("2025-06-18")
	var oversized *transport.OversizedError
	if err := s.peer(t, 0).send(t, transport.Outbound{Frame: make([]byte, 1001)}); !errors.As(err, &oversized) || oversized.Limit != 1000 || oversized.Size != 1001 {
		t.Errorf("Send returned %v, want a *transport.OversizedError, oversized.Limit == 1000 and oversized.Size == 1001", err)
	}
	if err := s.peer(t, 0).send(t, transport.Outbound{Frame: make([]byte, 1000)}); errors.As(err, &oversized) {
		t.Errorf("Send of a frame of just the limit returned %v", err)
	}
}

// Many concurrent requests each get their own response.
func TestManyExchangesAtOnce(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	var group sync.WaitGroup
	for caller := range 16 {
		group.Go(func() {
			for n := range 30 {
				want := fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"result":{"n":[%d,%d]}}`, caller, n)
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"echo","params":{"n":[%d,%d]}}`, caller, n)
				if r := s.post(body, session); r.status != 200 || r.body != want {
					t.Errorf("got %+v, want %s", r, want)
				}
				if r := s.modern("notify", `"n":3,`); r.status != 200 || strings.Count(r.body, "data: ") != 4 {
					t.Errorf("got %+v", r)
				}
				if r := s.post(`{"jsonrpc":"2.0","method":"n"}`, session); r.status != 202 {
					t.Errorf("got %+v, want 202", r)
				}
			}
		})
	}
	group.Wait()
}

const holdBody = `{"jsonrpc":"2.0","id":5,"method":"hold"}`

// A listener that was replaced, and is stuck in a write, may end after its successor
// has disconnected.
func TestListenersLeaveInAnyOrder(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		stuck, first := b.serveStuck("GET", "", session)
		ctx, leave := context.WithCancel(t.Context())
		_, second := b.serve(ctx, "GET", "", session)
		leave()
		<-second
		close(stuck.released)
		<-first
		ctx, leave = context.WithCancel(t.Context())
		third, done := b.serve(ctx, "GET", "", session)
		b.peer(t, 0).mustSend(t, transport.Outbound{Frame: notice(1)})
		synctest.Wait()
		leave()
		<-done
		if want := "id: 0-0\nretry: 1000\ndata: \n\nid: 0-1\ndata: " + noticeLine(1) + "\n\n"; third.Body.String() != want {
			t.Errorf("got %q, want %q", third.Body, want)
		}
	})
}

// A GET stream that names no event goes on after the last one that a stream before it got, also if that one was
// stored.
//
// Guarantees: G-0033.1
func TestAListenerGetsNothingTwice(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		begun, done := b.serve(t.Context(), "POST", initializeBody("2025-06-18"))
		<-done
		session := headerSession + ": " + begun.Header().Get(headerSession)
		listen := func() string {
			ctx, leave := context.WithCancel(t.Context())
			w, done := b.serve(ctx, "GET", "", session)
			leave()
			<-done
			return w.Body.String()
		}
		b.peer(t, 0).mustSend(t, transport.Outbound{Frame: notice(1)})
		leaving := quietWriter{httptest.NewRecorder()} // its connection breaks with the next write after the message
		serveHTTP(b.handler, leaving, newRequest("GET", "", session))
		if got := leaving.Body.String(); !strings.Contains(got, noticeLine(1)) {
			t.Errorf("got %q, want the message that was missed", got)
		}
		if got := listen(); strings.Contains(got, noticeLine(1)) {
			t.Errorf("got %q, want nothing of what came before", got)
		}
	})
}

// A quietWriter is a connection that breaks when a comment is written.
type quietWriter struct{ *httptest.ResponseRecorder }

func (w quietWriter) Write(b []byte) (int, error) {
	if string(b) == web.Comment {
		return 0, errors.New("broken pipe")
	}
	return w.ResponseRecorder.Write(b)
}

// A client is away since its last GET stream has ended, also while one before it is stuck: what is sent then comes on
// the next one, however long ago the session began.
//
// Guarantees: G-0033.1
func TestAStuckListenerDoesNotHideThatItsSuccessorHasLeft(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		pass(awayTime + time.Minute)
		stuck, first := b.serveStuck("GET", "", session)
		close(stuck.released) // it reads what comes first
		synctest.Wait()
		stuck.released = make(chan struct{})
		b.peer(t, 0).mustSend(t, transport.Outbound{Frame: notice(0)})
		synctest.Wait() // until it writes
		ctx, leave := context.WithCancel(t.Context())
		_, second := b.serve(ctx, "GET", "", session)
		leave()
		<-second
		b.peer(t, 0).mustSend(t, transport.Outbound{Frame: notice(1)})
		close(stuck.released)
		<-first
		ctx, leave = context.WithCancel(t.Context())
		third, done := b.serve(ctx, "GET", "", session)
		leave()
		<-done
		if got := third.Body.String(); !strings.Contains(got, noticeLine(1)) {
			t.Errorf("got %q, want what was sent when nobody read", got)
		}
	})
}

// A listener that was replaced ends while its successor does not read: what waits for the successor
// arrives all the same, each message once and in order.
func TestAReplacedListenerTakesNothingFromItsSuccessor(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		p := b.peer(t, 0)
		listens := func() (*stuckWriter, chan struct{}) { // it reads what comes first
			w, served := b.serveStuck("GET", "", session)
			close(w.released)
			synctest.Wait()
			w.released = make(chan struct{})
			return w, served
		}
		first, firstServed := listens()
		p.mustSend(t, transport.Outbound{Frame: notice(0)})
		synctest.Wait() // until it writes
		second, secondServed := listens()
		want := "id: 0-1\nretry: 1000\ndata: \n\n"
		for n := 1; n < 5; n++ {
			if n == 4 {
				close(first.released)
				<-firstServed
			}
			p.mustSend(t, transport.Outbound{Frame: notice(n)})
			synctest.Wait() // until it writes the first of them
			want += fmt.Sprintf("id: 0-%d\ndata: %s\n\n", n+1, noticeLine(n))
		}
		close(second.released)
		synctest.Wait()
		if got := string(second.read); got != want {
			t.Errorf("the successor got %q, want %q", got, want)
		}
		if err := p.link.Close(0); err != nil {
			t.Error(err)
		}
		<-secondServed
	})
}

// Close interrupts a listener that was replaced, even if later listeners have
// disconnected.
//
// Guarantees: G-0022.15
func TestCloseInterruptsAListenerThatWasCut(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		stuck, first := b.serveStuck("GET", "", session)
		ctx, leave := context.WithCancel(t.Context())
		_, second := b.serve(ctx, "GET", "", session)
		leave()
		<-second
		if err := b.peer(t, 0).link.Close(0); err != nil || !stuck.isInterrupted {
			t.Errorf("Close returned %v, interrupted: %t", err, stuck.isInterrupted)
		}
		<-first
	})
}

// An answer that Close interrupts while it is written is lost with the link: it is neither reported by itself
// nor called unsent, since a part of it may have arrived.
func TestAnAnswerThatCloseInterrupts(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		_, served := b.serveStuck("POST", modernBody("hold", ""), modernHeader("hold")...)
		p := b.peer(t, 0)
		p.mustSend(t, transport.Outbound{Stream: p.newest(), Tag: 7, Frame: notice(1)})
		synctest.Wait() // until it writes
		if err := p.link.Close(0); err != nil {
			t.Error(err)
		}
		<-served
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.failed) != 0 || len(p.losses) != 1 || len(p.losses[0].Unsent) != 0 {
			t.Errorf("got the failed messages %v and the losses %+v, want one loss with nothing unsent", p.failed, p.losses)
		}
	})
}

// An answer of which only a part was written when Close interrupts it may have arrived.
func TestAnAnswerThatCloseInterruptsBetweenItsPieces(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		w, served := b.serveStuck("POST", modernBody("hold", ""), modernHeader("hold")...)
		w.isDeaf = true
		p := b.peer(t, 0)
		o := answering(p.newest(), result(`"`+strings.Repeat("x", 2*web.WriteSize)+`"`))
		o.Tag = 7
		p.mustSend(t, o)
		synctest.Wait() // until it writes the first piece
		go p.link.Close(0)
		synctest.Wait()
		close(w.released) // the first piece is written, and the second one is not any more
		<-served
		if loss := p.awaitLoss(t); len(loss.Unsent) != 0 || !w.aborted {
			t.Errorf("got the loss %+v, and the response was aborted: %t; want nothing unsent, and an abort", loss, w.aborted)
		}
	})
}

// A client that does not read its response loses it. Other clients do not wait, and the
// link is not busy because of it.
//
// Guarantees: G-0022.13, G-0022.16
func TestClientThatDoesNotRead(t *testing.T) {
	for name, session := range map[string]bool{"with a session": true, "without a session": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
				body, lines := modernBody("hold", ""), modernHeader("hold")
				other, otherLines := modernBody("echo", ""), modernHeader("echo")
				if session {
					body, lines = holdBody, []string{b.initialize()}
					other, otherLines = echoBody, lines
				}
				stuck, served := b.serveStuck("POST", body, lines...)
				p := b.peer(t, 0)
				stream := p.newest()
				frame := []byte(strings.Repeat("1", 1<<20))
				err := p.send(t, transport.Outbound{Stream: stream, Tag: 1, Frame: frame})
				synctest.Wait() // until the response has begun
				for err == nil {
					err = p.send(t, transport.Outbound{Stream: stream, Tag: 1, Frame: frame})
				}
				if !errors.Is(err, transport.ErrNoRoute) {
					t.Errorf("Send returned %v, want %v", err, transport.ErrNoRoute)
				}
				begun := time.Now()
				<-served
				if took := time.Since(begun); took != 0 {
					t.Errorf("the response ended after %v", took)
				}
				if !stuck.aborted {
					t.Error("the response looks complete, want an abort")
				}
				w, done := b.serve(t.Context(), "POST", other, otherLines...)
				<-done
				p.mu.Lock()
				defer p.mu.Unlock()
				if len(p.lost) != 1 || p.lost[0] != (transport.StreamLoss{Stream: stream, Reason: ErrNotReading}) {
					t.Errorf("got the lost streams %+v, want len(p.lost) == 1 and p.lost[0] == %v", p.lost, transport.StreamLoss{Stream: stream, Reason: ErrNotReading})
				}
				if len(p.failed) != 17 || p.writable != 0 || len(p.losses) != 0 || w.Code != 200 {
					t.Errorf("got %d failed frames, %d calls of Writable, %d losses; another client got status %d, want len(p.failed) == 17, p.writable == 0, len(p.losses) == 0 and w.Code == 200", len(p.failed), p.writable, len(p.losses), w.Code)
				}
			})
		})
	}
}

// newest returns the stream that was opened last.
func (p *peer) newest() transport.Stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened[len(p.opened)-1]
}

// The last frame of a response fits, however much is queued before it.
func TestLastFrameAlwaysFits(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		stuck, served := b.serveStuck("POST", modernBody("hold", ""), modernHeader("hold")...)
		p := b.peer(t, 0)
		frame := []byte(strings.Repeat("1", 1<<20))
		for range 17 { // one is in a write, sixteen are queued
			p.mustSend(t, transport.Outbound{Stream: 1, Frame: frame})
			synctest.Wait()
		}
		p.mustSend(t, transport.Outbound{Stream: 1, Last: true, Frame: frame})
		if err := p.send(t, transport.Outbound{Stream: 1, Frame: frame}); !errors.Is(err, transport.ErrNoRoute) {
			t.Errorf("Send after the last frame: %v", err)
		}
		close(stuck.released)
		<-served
		if n := p.count(func(p *peer) int { return len(p.lost) + len(p.failed) }); n != 0 {
			t.Errorf("%d streams and frames were lost, want none", n)
		}
	})
}

// A client that reads a long frame slowly but steadily gets all of it, as JSON and as
// an event. A client that reads less than a piece in the time of a write does not.
//
// Guarantees: G-0022.13
func TestSlowReaderGetsALongFrame(t *testing.T) {
	const pieces = 20
	for _, last := range []bool{true, false} {
		for pace, arrives := range map[time.Duration]bool{web.WritePatience - time.Second: true, web.WritePatience + time.Second: false} {
			inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
				w := &slowReader{ResponseRecorder: httptest.NewRecorder(), pace: pace}
				done := b.serveOn(w, modernBody("hold", ""), modernHeader("hold")...)
				p := b.peer(t, 0)
				frame := []byte(`"` + strings.Repeat("x", pieces*web.WriteSize) + `"`)
				p.mustSend(t, transport.Outbound{Stream: 1, Tag: 1, Last: last, Frame: frame})
				p.post(func() { p.link.End(1) })
				<-done
				if failed := p.count(func(p *peer) int { return len(p.failed) }); (failed == 0) != arrives || (w.Body.Len() > len(frame)-2) != arrives {
					t.Errorf("a piece each %v, last: %t: got %d bytes of %d, %d failures, want (failed == 0) == %v and (w.Body.Len() > len(frame)-2) == %v", pace, last, w.Body.Len(), len(frame), failed, arrives, arrives)
				}
			})
		}
	}
}

// A slowReader reads a piece at a steady pace.
type slowReader struct {
	*httptest.ResponseRecorder
	pace     time.Duration
	deadline time.Time
}

func (w *slowReader) SetWriteDeadline(deadline time.Time) error {
	w.deadline = deadline
	return nil
}

func (w *slowReader) Write(b []byte) (int, error) {
	done := time.Now().Add(w.pace * time.Duration(len(b)) / web.WriteSize)
	if !w.deadline.IsZero() && w.deadline.Before(done) {
		pass(time.Until(w.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	pass(time.Until(done))
	return w.ResponseRecorder.Write(b)
}

// A silent stream has no write deadline, because HTTP/2 would reset it then. The last
// write, which net/http makes, has one.
//
// Guarantees: G-0022.13
func TestQuietStreamHasNoWriteDeadline(t *testing.T) {
	inBubble(t, HandlerOptions{KeepAlive: time.Hour}, false, func(t *testing.T, b *bench) {
		w := &slowReader{ResponseRecorder: httptest.NewRecorder()}
		done := b.serveOn(w, modernBody("hold", ""), modernHeader("hold")...)
		p := b.peer(t, 0)
		p.mustSend(t, transport.Outbound{Stream: 1, Frame: notice(1)})
		synctest.Wait()
		if !w.deadline.IsZero() {
			t.Errorf("a silent stream has the deadline in %v, want none", time.Until(w.deadline))
		}
		pass(time.Minute)
		p.mustSend(t, transport.Outbound{Stream: 1, Last: true, Frame: notice(2)})
		<-done
		if time.Until(w.deadline) != web.WritePatience {
			t.Errorf("the end of a stream has the deadline in %v, want %v", time.Until(w.deadline), web.WritePatience)
		}

		w = &slowReader{ResponseRecorder: httptest.NewRecorder()}
		done = b.serveOn(w, modernBody("hold", ""), modernHeader("hold")...)
		p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(1)})
		pass(time.Minute)
		p.post(func() { p.link.End(2) })
		<-done
		if time.Until(w.deadline) != web.WritePatience {
			t.Errorf("the end of a stream without an answer has the deadline in %v, want %v", time.Until(w.deadline), web.WritePatience)
		}

		w = &slowReader{ResponseRecorder: httptest.NewRecorder()}
		<-b.serveOn(w, modernBody("echo", ""), modernHeader("echo")...)
		if time.Until(w.deadline) != web.WritePatience {
			t.Errorf("a JSON response has the deadline in %v, want %v", time.Until(w.deadline), web.WritePatience)
		}
	})
}

// If a client disconnects before its request was delivered, its stream is lost in every
// revision, because the request is not being executed.
//
// Guarantees: G-0022.10
func TestDisconnectBeforeDeliveryLosesTheStream(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...)
		for n, lines := range [][]string{{session}, modernHeader("hold")} {
			p := b.peer(t, n)
			p.stopGranting()
			body := holdBody
			if n == 1 {
				body = modernBody("hold", "")
			}
			ctx, leave := context.WithCancel(t.Context())
			_, done := b.serve(ctx, "POST", body, lines...)
			leave()
			<-done
			p.mu.Lock()
			if len(p.lost) != 1 || p.lost[0] != (transport.StreamLoss{Stream: 2, Reason: transport.ErrPeerClosed}) {
				t.Errorf("link %d: got the lost streams %+v", n, p.lost)
			}
			p.mu.Unlock()
		}
	})
}

// If a ResponseWriter panics, as a proxy's does after its client has disconnected, the
// stream ends, and the frame in the write is reported as failed.
func TestResponseWriterThatPanics(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		w := panickingWriter{httptest.NewRecorder()}
		aborted := make(chan any, 1)
		go func() {
			defer func() { aborted <- recover() }()
			b.handler.ServeHTTP(w, newRequest("POST", modernBody("hold", ""), modernHeader("hold")...))
		}()
		synctest.Wait()
		p := b.peer(t, 0)
		p.mustSend(t, transport.Outbound{Stream: 1, Tag: 1, Frame: notice(1)})
		<-aborted
		synctest.Wait()
		if err := p.send(t, transport.Outbound{Stream: 1, Frame: notice(2)}); !errors.Is(err, transport.ErrNoRoute) {
			t.Errorf("Send returned %v, want %v", err, transport.ErrNoRoute)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.lost) != 1 || len(p.failed) != 1 || p.failed[0].Tag != 1 {
			t.Errorf("got the lost streams %+v and the failures %+v, want len(p.lost) == 1, len(p.failed) == 1 and p.failed[0].Tag == 1", p.lost, p.failed)
		}
	})
}

type panickingWriter struct{ *httptest.ResponseRecorder }

func (panickingWriter) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

// Events need a ResponseWriter that can flush. A response in JSON does not.
func TestResponseWriterThatCannotFlush(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		request := func(method, body string, lines ...string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := newRequest(method, body, lines...)
			b.handler.ServeHTTP(plainWriter{w}, r)
			return w
		}
		if w := request("POST", modernBody("echo", ""), modernHeader("echo")...); w.Code != 200 {
			t.Errorf("JSON: got %d %s, want 200", w.Code, w.Body)
		}
		for name, w := range map[string]*httptest.ResponseRecorder{
			"events": request("POST", modernBody("notify", `"n":1,`), modernHeader("notify")...),
			"GET":    request("GET", "", session),
		} {
			id := map[string]string{"events": `"id":7,`}[name]
			if want := fmt.Sprintf(`500 "" {"jsonrpc":"2.0",%s"error":{"code":-32603,"message":%q}}`, id, errCannotFlush); said(w) != want {
				t.Errorf("%s: got %s, want %s", name, said(w), want)
			}
		}
	})
}

// A plainWriter has only the methods of http.ResponseWriter.
type plainWriter struct{ recorder *httptest.ResponseRecorder }

func (w plainWriter) Header() http.Header         { return w.recorder.Header() }
func (w plainWriter) WriteHeader(status int)      { w.recorder.WriteHeader(status) }
func (w plainWriter) Write(b []byte) (int, error) { return w.recorder.Write(b) }

// serveOn serves a POST on a ResponseWriter.
func (b *bench) serveOn(w http.ResponseWriter, body string, lines ...string) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		serveHTTP(b.handler, w, newRequest("POST", body, lines...))
	}()
	synctest.Wait()
	return done
}

func newRequest(method, body string, lines ...string) *http.Request {
	r := httptest.NewRequest(method, "http://mcp.example/", strings.NewReader(body))
	for _, line := range append(posting(), lines...) {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// A response that nobody can come back for has no ids: that to initialize, whose client does not know its session yet, and each of a handler without sessions.
func TestResponsesWithoutIDs(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		s := newScriptedSite(t, HandlerOptions{}, newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
			p.link.Send(transport.Outbound{Stream: in.Stream, Frame: notice(1)})
			respond(p, in, m)
		}))
		l := s.listen("POST", initializeBody(version), posting())
		l.want(noticeLine(1))
		if l.next(); l.id != "" {
			t.Errorf("%s: an event of the response to initialize has the id %q", version, l.id)
		}
		l.wantEnd()
		s = newSite(t, HandlerOptions{Stateless: true})
		l = s.listen("POST", `{"jsonrpc":"2.0","id":5,"method":"notify","params":{"n":1}}`, append(posting(), headerVersion+": "+version))
		l.want(noticeLine(0))
		if l.next(); l.id != "" {
			t.Errorf("%s: an event without a session has the id %q", version, l.id)
		}
		l.wantEnd()
	}
}
