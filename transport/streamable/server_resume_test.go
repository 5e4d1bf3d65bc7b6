package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A brokenCall is a call of a session whose client has read some events and then lost
// its connection.
type brokenCall struct {
	session string
	stream  transport.Stream
	id      string // id of the last event that was read
}

// breakCall makes a call and closes its connection after the first event.
func (s *site) breakCall(p *peer, session string) brokenCall {
	s.t.Helper()
	begun := s.startHeld(p, session)
	stream := p.newest()
	p.mustSend(s.t, transport.Outbound{Stream: stream, Frame: notice(0)})
	events := <-begun
	events.want(noticeLine(0))
	events.leave()
	if events.id == "" {
		s.t.Fatal("got an event without an id, want one")
	}
	return brokenCall{session, stream, events.id}
}

func (s *site) resume(c brokenCall) *eventReader {
	s.t.Helper()
	return s.listen("GET", "", header{"Accept: text/event-stream", c.session, "Last-Event-ID: " + c.id})
}

const heldAnswer = `{"jsonrpc":"2.0","id":5,"result":{}}`

// A response is not lost if its connection breaks: the client gets it when it resumes
// the stream.
//
// Guarantees: G-0033.1
func TestAnswerIsNotLostWithItsConnection(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		for name, early := range map[string]bool{"answered before the client reconnects": true, "answered after": false} {
			t.Run(version+" "+name, func(t *testing.T) {
				s := newSite(t, HandlerOptions{})
				session := s.initialize(version)
				p := s.peer(t, 0)
				c := s.breakCall(p, session)
				p.mustSend(t, transport.Outbound{Stream: c.stream, Frame: notice(1)})
				if early {
					p.mustSend(t, answering(c.stream, heldAnswer))
				}
				events := s.resume(c)
				events.want(noticeLine(1))
				if !early {
					p.mustSend(t, answering(c.stream, heldAnswer))
				}
				events.want(heldAnswer)
				events.wantEnd()
				again := s.resume(c)
				again.want(noticeLine(1))
				again.want(heldAnswer)
				again.wantEnd()
				if n := p.count(func(p *peer) int { return len(p.lost) + len(p.failed) }); n != 0 {
					t.Errorf("got %d stream losses, want none", n)
				}
			})
		}
	}
}

// A client of an old revision whose response began with a comment can come back from the first event that it gets, as it can if the
// response began with that event.
//
// Guarantees: G-0033.1
func TestAResponseThatBeganEmptyCanBeResumed(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		inBubble(t, HandlerOptions{KeepAlive: time.Minute}, false, func(t *testing.T, b *bench) {
			begun, done := b.serve(t.Context(), "POST", initializeBody(version))
			<-done
			session := "Mcp-Session-Id: " + begun.Header().Get("Mcp-Session-Id")
			p := b.peer(t, 0)
			ctx, leave := context.WithCancel(t.Context())
			w, done := b.serve(ctx, "POST", holdBody, session)
			pass(time.Minute + time.Second)
			stream := p.newest()
			for _, frame := range [][]byte{notice(0), notice(1)} {
				p.mustSend(t, transport.Outbound{Stream: stream, Frame: frame})
			}
			pass(time.Second)
			leave()
			<-done
			if !strings.Contains(w.Body.String(), noticeLine(1)) {
				t.Errorf("%s: got %q, want the event", version, w.Body)
			}
			p.mustSend(t, answering(stream, heldAnswer))
			again, done := b.serve(t.Context(), "GET", "", "Accept: text/event-stream", session, "Last-Event-ID: "+eventID{stream, 1}.String())
			if <-done; again.Code != 200 || strings.Contains(again.Body.String(), noticeLine(0)) || !strings.Contains(again.Body.String(), noticeLine(1)) || !strings.Contains(again.Body.String(), heldAnswer) {
				t.Errorf("%s: got %d %q, want the events after the first one, and the answer", version, again.Code, again.Body)
			}
		})
	}
}

// If the connection breaks repeatedly, each event is delivered once and in order.
//
// Guarantees: G-0033.1, G-0033.2
func TestStreamIsResumedRepeatedly(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	p, session := s.begin1125(t)
	c := s.breakCall(p, session)
	ids := map[string]bool{c.id: true}
	for n := range 50 {
		p.mustSend(t, transport.Outbound{Stream: c.stream, Frame: notice(n + 1)})
		events := s.resume(c)
		events.want(noticeLine(n + 1))
		if events.leave(); ids[events.id] || events.retry != "1000" {
			t.Fatalf("got the id %s, perhaps again, and retry %q, want another one and 1000", events.id, events.retry)
		}
		ids[events.id], c.id = true, events.id
	}
}

func (s *site) begin1125(t *testing.T) (*peer, string) {
	session := s.initialize("2025-11-25")
	return s.peer(t, s.links()-1), session
}

// A notification is not lost if the GET stream breaks.
//
// Guarantees: G-0033.1
func TestNotificationIsNotLostWithItsConnection(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	p, session := s.begin1125(t)
	listener := s.get(session)
	p.mustSend(t, transport.Outbound{Frame: notice(1)})
	listener.want(noticeLine(1))
	listener.leave()
	for n := range 20 {
		p.mustSend(t, transport.Outbound{Frame: notice(n + 2)})
	}
	again := s.get(session, "Last-Event-ID: "+listener.id)
	for n := range 20 {
		again.want(noticeLine(n + 2))
	}
	p.mustSend(t, transport.Outbound{Frame: notice(22)})
	again.want(noticeLine(22))
}

// Messages of Main that are sent before the client opens its first GET stream are kept
// for it, for a limited time. Requests are not kept, because somebody waits for their
// response.
//
// Guarantees: G-0033.8
func TestNotificationBeforeTheFirstStreamIsNotLost(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			s := newSite(t, HandlerOptions{})
			session := s.initialize(version)
			p := s.peer(t, s.links()-1)
			for n := range 3 {
				p.mustSend(t, transport.Outbound{Frame: notice(n + 1)})
			}
			listener := s.listen("GET", "", header{"Accept: text/event-stream", session})
			if wantsInitialID(version) {
				listener.wantComment()
			}
			for n := range 3 {
				listener.want(noticeLine(n + 1))
			}
			p.mustSend(t, transport.Outbound{Frame: notice(4)})
			listener.want(noticeLine(4))
		})
	}
	t.Run("a client that never listens", func(t *testing.T) {
		inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
			b.initialize()
			p := b.peer(t, 0)
			p.mustSend(t, transport.Outbound{Frame: notice(1)})
			ask := transport.Outbound{Frame: notice(2), Route: transport.Route{Kind: jsonrpc.KindRequest, Method: "ping"}}
			if err := p.send(t, ask); !errors.Is(err, transport.ErrNoRoute) {
				t.Errorf("a request: got %v, want %v", err, transport.ErrNoRoute)
			}
			pass(comingTime + time.Second)
			if err := p.send(t, transport.Outbound{Frame: notice(3)}); !errors.Is(err, transport.ErrNoRoute) {
				t.Errorf("after %v: got %v", comingTime, err)
			}
		})
	})
	t.Run("a handler without streams", func(t *testing.T) {
		s := newSite(t, HandlerOptions{NoListening: true})
		s.initialize("2025-11-25")
		if err := s.peer(t, s.links()-1).send(t, transport.Outbound{Frame: notice(1)}); !errors.Is(err, transport.ErrNoRoute) {
			t.Errorf("got %v, want %v", err, transport.ErrNoRoute)
		}
	})
}

// Messages of Main are not stored for a client that stays away.
//
// Guarantees: G-0033.1
func TestNothingIsStoredForAnAbsentClient(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		ctx, leave := context.WithCancel(t.Context())
		_, done := b.serve(ctx, "GET", "", session)
		p := b.peer(t, 0)
		leave()
		<-done
		p.mustSend(t, transport.Outbound{Frame: notice(1)})
		pass(awayTime + time.Second)
		if err := p.send(t, transport.Outbound{Frame: notice(2)}); err == nil {
			t.Error("Send accepted a message for a client that stays away, want an error")
		}
	})
}

// A client is away from the moment at which its GET stream breaks off, however old its session and
// that stream are, and each time that it breaks off.
//
// Guarantees: G-0033.1
func TestTheTimeAwayBeginsWhenTheStreamBreaks(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		p := b.peer(t, 0)
		sent := 0
		for turn := range 3 {
			ctx, leave := context.WithCancel(t.Context())
			w, done := b.serve(ctx, "GET", "", session)
			pass(awayTime + time.Minute)
			leave()
			<-done
			for n := sent - 2; turn > 0 && n < sent; n++ {
				if !strings.Contains(w.Body.String(), noticeLine(n)) {
					t.Errorf("turn %d: notification %d is lost: got %q", turn, n, w.Body)
				}
			}
			for _, later := range []time.Duration{0, awayTime} {
				pass(later)
				if err := p.send(t, transport.Outbound{Frame: notice(sent)}); err != nil {
					t.Errorf("turn %d, %v after the stream broke off: got %v", turn, later, err)
				}
				sent++
			}
		}
		pass(time.Second)
		if err := p.send(t, transport.Outbound{Frame: notice(sent)}); err == nil {
			t.Error("Send accepted a message for a client that stays away, want an error")
		}
	})
}

// A session never gets the events of another session, whatever id it names.
//
// Guarantees: G-0033.3
func TestAnotherSessionsStreamIsNeverRead(t *testing.T) {
	s := newSite(t, HandlerOptions{Identify: byUser})
	victim := s.initialize("2025-11-25", userHeader("victim"))
	p := s.peer(t, 0)
	begun := s.pending(s.ctx, holdBody, victim, userHeader("victim"))
	p.await(t, "the request", func(p *peer) bool { return len(p.opened) > 1 })
	p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(1)})
	p.mustSend(t, answering(2, heldAnswer))
	if r := s.receive(begun); !strings.Contains(r.body, "id: 2-1\n") {
		t.Fatalf("got %+v, want %q in it", r, "id: 2-1\n")
	}
	hostile := s.initialize("2025-11-25", userHeader("hostile"))
	accept := "Accept: text/event-stream"
	for _, id := range []string{"2-0", "2-1", "1-0", "3-0"} {
		r := s.do("GET", "", header{accept, hostile, userHeader("hostile"), "Last-Event-ID: " + id})
		if r.status != 410 || strings.Contains(r.body, "result") {
			t.Errorf("%s: got %+v, want r.status == 410 and no %q in it", id, r, "result")
		}
		if r := s.do("GET", "", header{accept, victim, userHeader("hostile"), "Last-Event-ID: " + id}); r.status != 403 {
			t.Errorf("%s with the session of the other client: got %+v, want 403", id, r)
		}
	}
	if r := s.do("GET", "", header{accept, victim, userHeader("victim"), "Last-Event-ID: 2-1"}); !strings.Contains(r.body, heldAnswer) {
		t.Errorf("the session itself: got %+v, want %v in it", r, heldAnswer)
	}
}

// A replay is refused if an event in it is no longer stored.
//
// Guarantees: G-0033.4
func TestPurgedReplayIsRefused(t *testing.T) {
	s := newSite(t, HandlerOptions{EventStore: &MemoryStore{MaxSessionBytes: 10_000}})
	p, session := s.begin1125(t)
	c := s.breakCall(p, session)
	for n := range 100 {
		p.mustSend(t, transport.Outbound{Stream: c.stream, Frame: notice(n + 1)})
	}
	for _, last := range []bool{false, true} {
		if last {
			p.mustSend(t, answering(c.stream, heldAnswer))
		}
		r := s.do("GET", "", header{"Accept: text/event-stream", session, "Last-Event-ID: " + c.id})
		if r.status != 410 {
			t.Errorf("a replay with a gap: got %+v, want 410", r)
		}
	}
	events := s.resume(brokenCall{session, c.stream, fmt.Sprintf("%d-%d", c.stream, 101)})
	events.want(heldAnswer)
	events.wantEnd()
	for _, wrong := range []string{"x", "2", "-", "1-2-3", "0x1-1", "01-1", "1-18446744073709551616", strings.Repeat("9", 5000)} {
		if r := s.do("GET", "", header{"Accept: text/event-stream", session, "Last-Event-ID: " + wrong}); r.status != 400 {
			t.Errorf("Last-Event-ID %.20s: got %+v, want 400", wrong, r)
		}
	}
}

// A replay is refused if the store has nothing of what a client has missed, not even a later event, while the stream goes on.
//
// Guarantees: G-0033.4
func TestReplayOfForgottenEventsIsRefused(t *testing.T) {
	s := newSite(t, HandlerOptions{EventStore: forgetful{}})
	p, session := s.begin1125(t)
	c := s.breakCall(p, session)
	p.mustSend(t, transport.Outbound{Stream: c.stream, Frame: notice(1)})
	if r := s.do("GET", "", header{"Accept: text/event-stream", session, "Last-Event-ID: " + c.id}); r.status != 410 {
		t.Errorf("got %+v, want 410", r)
	}
}

// From 2025-11-25 on, a stream begins with an event that has an id and no data, so that
// a client can resume it before the first message. Earlier clients would try to decode
// the empty data.
//
// Guarantees: G-0033.5
func TestStreamBeginsWithAnIDFrom20251125(t *testing.T) {
	for version, initialID := range map[string]bool{"2025-03-26": false, "2025-06-18": false, "2025-11-25": true} {
		s := newSite(t, HandlerOptions{Retry: 1500 * time.Millisecond, KeepAlive: 20 * time.Millisecond})
		session := s.initialize(version)
		p := s.peer(t, 0)
		events := <-s.startHeld(p, session)
		if events.wantComment(); (events.id != "") != initialID || (events.retry == "1500") != initialID {
			t.Errorf("%s: got a first event with the id %q, retry %q", version, events.id, events.retry)
		}
		if !initialID {
			continue
		}
		events.leave()
		p.mustSend(t, answering(p.newest(), heldAnswer))
		again := s.resume(brokenCall{session, p.newest(), events.id})
		again.want(heldAnswer)
		again.wantEnd()
	}
}

// A response that is ready quickly is JSON, not a stream.
//
// Guarantees: G-0033.5
func TestQuickAnswerIsNoStream(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		for _, slow := range []bool{false, true} {
			w, done := b.serve(t.Context(), "POST", holdBody, session)
			p := b.peer(t, 0)
			synctest.Wait()
			if slow {
				pass(eventsAfter + time.Millisecond)
			}
			p.mustSend(t, answering(p.newest(), heldAnswer))
			<-done
			want := heldAnswer
			if slow {
				want = "id: 3-0\nretry: 1000\ndata: \n\nid: 3-1\ndata: " + heldAnswer + "\n\n"
			}
			if got := strings.Replace(w.Body.String(), web.Comment, "", 1); got != want {
				t.Errorf("slow: %t: got %q, want %q", slow, got, want)
			}
		}
	})
}

// A handler can ask its client to reconnect for the response.
//
// Guarantees: G-0033.6
func TestHandlerCanAskItsClientToReconnect(t *testing.T) {
	for name, sent := range map[string]int{"before anything was sent": 0, "after events": 3} {
		t.Run(name, func(t *testing.T) {
			polled := make(chan bool, 1)
			s := newScriptedSite(t, HandlerOptions{}, newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
				if m.Method != "hold" {
					respond(p, in, m)
					return
				}
				for n := range sent {
					p.link.Send(transport.Outbound{Stream: in.Stream, Frame: notice(n)})
				}
				polled <- in.Origin.Exchange.Poll(40 * time.Millisecond)
				if in.Origin.Exchange.Poll(time.Second) || in.Origin.Exchange.Events() {
					p.note(func() { p.breaches = append(p.breaches, "a disconnected client was asked to reconnect") })
				}
			}))
			p, session := s.begin1125(t)
			events := s.listen("POST", holdBody, append(posting(), session))
			for n := range sent {
				events.want(noticeLine(n))
			}
			events.wantEnd()
			if !<-polled || events.retry != "40" {
				t.Errorf("got a last event with retry %q", events.retry)
			}
			p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(7)})
			again := s.resume(brokenCall{session, 2, events.id})
			again.want(noticeLine(7))
			p.mustSend(t, answering(2, heldAnswer))
			again.want(heldAnswer)
			again.wantEnd()
		})
	}
}

// Before 2025-11-25, a handler cannot ask its client to reconnect.
//
// Guarantees: G-0033.6
func TestNoReconnectRequestBefore20251125(t *testing.T) {
	said := make(chan bool, 1)
	s := newScriptedSite(t, HandlerOptions{}, newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
		if m.Method == "echo" {
			said <- in.Origin.Exchange.Poll(time.Second)
		}
		respond(p, in, m)
	}))
	session := s.initialize("2025-06-18")
	if r := s.post(echoBody, session); r.status != 200 || <-said {
		t.Errorf("got %+v", r)
	}
	if r := s.modern("echo", ""); r.status != 200 || <-said {
		t.Errorf("got %+v", r)
	}
}

// A handler can make its response a stream of events at once.
//
// Guarantees: G-0033.7
func TestEventsOnDemand(t *testing.T) {
	s := newScriptedSite(t, HandlerOptions{}, newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
		if m.Method == "hold" && !in.Origin.Exchange.Events() {
			p.note(func() { p.breaches = append(p.breaches, "the response is no stream of events") })
		}
		respond(p, in, m)
	}))
	for n, version := range []string{"2025-06-18", "2025-11-25"} {
		session := s.initialize(version)
		events := s.listen("POST", holdBody, append(posting(), session))
		events.wantComment()
		s.peer(t, n).mustSend(t, answering(2, heldAnswer))
		events.want(heldAnswer)
		events.wantEnd()
	}
	events := s.listen("POST", modernBody("hold", ""), append(posting(), modernHeader("hold")...))
	events.wantComment()
	s.peer(t, 2).mustSend(t, answering(1, heldAnswer))
	events.want(heldAnswer)
	events.wantEnd()
}

// It is one even if the answer comes before anything was written. Then, too, a client that has got
// only the first id can come back for the answer.
//
// Guarantees: G-0033.7
func TestEventsOnDemandBeforeAnAnswerAtOnce(t *testing.T) {
	s := newScriptedSite(t, HandlerOptions{}, newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
		if m.Method == "echo" && !in.Origin.Exchange.Events() {
			p.note(func() { p.breaches = append(p.breaches, "the response is no stream of events") })
		}
		respond(p, in, m)
	}))
	check := func(version string, r reply) (ids []string) {
		t.Helper()
		if got := r.header.Get("Content-Type"); r.status != 200 || got != "text/event-stream" || strings.Count(r.body, "data: {") != 1 {
			t.Errorf("%s: got %d, %s, %q", version, r.status, got, r.body)
		}
		for line := range strings.Lines(r.body) {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				ids = append(ids, strings.TrimSpace(id))
			}
		}
		return ids
	}
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		session := s.initialize(version)
		for range 20 { // the answer may still come too late
			ids := check(version, s.post(echoBody, session))
			if version == "2025-06-18" {
				continue // its first id comes with the answer
			}
			again := s.do("GET", "", header{"Accept: text/event-stream", session, "Last-Event-ID: " + ids[0]})
			if again.status != 200 || strings.Count(again.body, "data: {") != 1 {
				t.Errorf("%s: resumed after %s: got %d, %q", version, ids[0], again.status, again.body)
			}
		}
	}
	check("2026-07-28", s.modern("echo", ""))
}

// If a client opens a second connection for a stream because it takes the first one for
// dead, the second one gets all later messages.
//
// Guarantees: G-0033.2
func TestOneMessageGoesOutOnOneConnection(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	p, session := s.begin1125(t)
	begun := s.startHeld(p, session)
	p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(0)})
	first := <-begun
	first.want(noticeLine(0))
	second := s.resume(brokenCall{session, 2, first.id})
	if rest, _ := io.ReadAll(first.lines); strings.Contains(string(rest), "data: {") {
		t.Errorf("the first connection got %q, want no %q in it", rest, "data: {")
	}
	p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(1)})
	second.want(noticeLine(1))
	p.mustSend(t, answering(2, heldAnswer))
	second.want(heldAnswer)
	second.wantEnd()
}

// If the first connection takes nothing, its write is interrupted as soon as the client has come
// back, whether it writes something new or stored events.
//
// Guarantees: G-0033.2
func TestABlockedConnectionIsClosedWhenItsClientComesBack(t *testing.T) {
	wantClosed := func(t *testing.T, what string, done chan struct{}) {
		t.Helper()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Errorf("%s is still open", what)
		}
	}
	t.Run("the stream of a request", func(t *testing.T) {
		inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
			session := b.initialize()
			first, firstDone := b.serveStuck("POST", holdBody, session)
			defer close(first.released)
			p := b.peer(t, 0)
			stream := p.newest()
			p.mustSend(t, transport.Outbound{Stream: stream, Frame: notice(0)})
			synctest.Wait()
			if first.writes != 1 {
				t.Fatalf("the first connection got %d writes, want one that blocks", first.writes)
			}
			second, secondDone := b.serveStuck("GET", "", session, fmt.Sprintf("Last-Event-ID: %d-0", stream))
			defer close(second.released)
			wantClosed(t, "the first connection", firstDone)
			if second.writes != 1 {
				t.Fatalf("the second connection got %d writes, want one that blocks", second.writes)
			}
			w, done := b.serve(t.Context(), "GET", "", session, fmt.Sprintf("Last-Event-ID: %d-0", stream))
			wantClosed(t, "the second connection", secondDone)
			p.mustSend(t, answering(stream, heldAnswer))
			<-done
			if got := w.Body.String(); strings.Count(got, noticeLine(0)) != 1 || strings.Count(got, heldAnswer) != 1 {
				t.Errorf("the third connection got %q", got)
			}
		})
	})
	t.Run("stored notifications", func(t *testing.T) {
		inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
			session := b.initialize()
			p := b.peer(t, 0)
			p.mustSend(t, transport.Outbound{Frame: notice(0)})
			first, firstDone := b.serveStuck("GET", "", session, "Last-Event-ID: 0-0")
			defer close(first.released)
			if first.writes != 1 {
				t.Fatalf("the first connection got %d writes, want one that blocks", first.writes)
			}
			ctx, leave := context.WithCancel(t.Context())
			w, done := b.serve(ctx, "GET", "", session, "Last-Event-ID: 0-0")
			wantClosed(t, "the first connection", firstDone)
			leave()
			<-done
			if got := w.Body.String(); strings.Count(got, noticeLine(0)) != 1 {
				t.Errorf("the second connection got %q", got)
			}
		})
	})
}

// With NoListening there is no GET stream for Main. A client can still resume the
// stream of a request.
//
// Guarantees: G-0022.19
func TestNoListening(t *testing.T) {
	s := newSite(t, HandlerOptions{NoListening: true})
	p, session := s.begin1125(t)
	c := s.breakCall(p, session)
	for _, id := range []string{"", "0-0"} {
		r := s.do("GET", "", header{"Accept: text/event-stream", session, "Last-Event-ID: " + id})
		if r.status != 405 || r.header.Get("Allow") != "POST, DELETE" {
			t.Errorf("got %+v", r)
		}
	}
	p.mustSend(t, answering(c.stream, heldAnswer))
	events := s.resume(c)
	events.want(heldAnswer)
	events.wantEnd()
}

// logLines receives what a log writes.
type logLines chan string

func (l logLines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A client that reconnects too late for some notifications gets those that are still
// stored, and a comment with the number of the others. The log says it once.
//
// Guarantees: G-0033.9
func TestMissedNotificationsAreReported(t *testing.T) {
	said := make(logLines, 10)
	s := newSite(t, HandlerOptions{EventStore: &MemoryStore{MaxSessionBytes: 1000}, Log: slog.New(slog.NewTextHandler(said, nil))})
	p, session := s.begin1125(t)
	listener := s.get(session)
	p.mustSend(t, transport.Outbound{Frame: notice(1)})
	listener.want(noticeLine(1))
	listener.leave()
	const last, kept = 100, 5 // 163 bytes each, including overhead
	for n := range last - 1 {
		p.mustSend(t, transport.Outbound{Frame: notice(n + 2)})
	}
	for range 3 {
		again := s.get(session, "Last-Event-ID: "+listener.id)
		if got, want := again.next(), fmt.Sprintf(": %d messages are not kept any more\n", last-1-kept); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for n := last - kept + 1; n <= last; n++ {
			again.want(noticeLine(n))
		}
		again.leave()
	}
	select {
	case got := <-said:
		if !strings.Contains(got, `msg="bowline: messages that a client has missed are not kept any more" identity="" address=127.0.0.1 messages=94`) {
			t.Errorf("got the log %s, want %q in it and %q in it", got, "not kept any more", "messages=94")
		}
	case <-s.ctx.Done():
		t.Error("got no log entry, want one")
	}
	s.server.Close() // ends every listener, after its log entries
	if len(said) > 0 {
		t.Errorf("got another log entry: %s, want none", <-said)
	}
}
