package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// The link of messages without a session is closed after it was idle for long enough.
// The next message gets a new one.
//
// Guarantees: G-0022.12, G-0028.4
func TestAnIdleModernLinkIsGivenUp(t *testing.T) {
	inBubble(t, HandlerOptions{SessionIdle: time.Minute}, false, func(t *testing.T, b *bench) {
		call := func() {
			t.Helper()
			if w, done := b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...); w.Code != 200 {
				<-done
				t.Errorf("status %d", w.Code)
			}
		}
		call()
		pass(59 * time.Second)
		call()
		pass(59 * time.Second)
		synctest.Wait()
		if n := b.peer(t, 0).count(func(p *peer) int { return len(p.losses) }); n != 0 {
			t.Fatal("the link was closed early")
		}
		pass(2 * time.Second)
		if loss := b.peer(t, 0).awaitLoss(t); loss.Reason != transport.ErrSessionExpired {
			t.Errorf("got the reason %v, want %v", loss.Reason, transport.ErrSessionExpired)
		}
		call()
		if b.links() != 2 {
			t.Errorf("%d links", b.links())
		}
	})
}

// A session accepts notifications, requests and responses until DELETE.
//
// Guarantees: G-0022.12
func TestSessionLife(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for n, version := range protocol.LegacyVersions() {
		session := s.initialize(version)
		p := s.peer(t, n)
		if r := s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, session); r.status != 202 || r.body != "" {
			t.Errorf("a notification: got %d %q, want r.status == 202 and r.body == %q", r.status, r.body, "")
		}
		if n := p.count(func(p *peer) int { return len(p.received) }); n != 2 {
			t.Errorf("got %d frames before status 202", n)
		}
		r := s.post(echoBody, session, "Mcp-Protocol-Version: "+version)
		if r.status != 200 || r.body != `{"jsonrpc":"2.0","id":5,"result":{"a":1}}` || r.header.Get("Content-Type") != "application/json" {
			t.Errorf("got %+v", r)
		}
		if r.header.Get("Content-Length") != fmt.Sprint(len(r.body)) {
			t.Errorf("got Content-Length: %s", r.header.Get("Content-Length"))
		}
		if r := s.post(`{"jsonrpc":"2.0","id":1,"result":{}}`, session); r.status != 202 {
			t.Errorf("a response: got %+v, want 202", r)
		}
		if r := s.post(`{"jsonrpc":"2.0","id":1,"method":"fail","params":{"code":-32601}}`, session); r.status != 200 {
			t.Errorf("an error: got %+v, want 200", r)
		}
		if r := s.do("DELETE", "", header{session}); r.status != 204 || r.body != "" {
			t.Errorf("DELETE: got %+v, want r.status == 204 and r.body == %q", r, "")
		}
		if loss := p.awaitLoss(t); loss.Reason != transport.ErrPeerClosed {
			t.Errorf("got the reason %v, want %v", loss.Reason, transport.ErrPeerClosed)
		}
		s.post(echoBody, session).wantError(t, 404, -32600, "5", "session not found")
		if r := s.do("DELETE", "", header{session}); r.status != 404 {
			t.Errorf("DELETE again: got %+v, want 404", r)
		}
	}
}

// Session ids are long, consist of visible ASCII, and are unique.
//
// Guarantees: G-0022.12
func TestSessionIDs(t *testing.T) {
	var ids []string
	for range 1000 {
		id := newSessionID()
		if len(id) < 43 || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Fatalf("got the id %q", id)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 1000 {
		t.Error("got equal ids, want unique ones")
	}
}

// A session whose initialize fails gets no id and ends.
func TestInitializeThatFails(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	r := s.post(`{"jsonrpc":"2.0","id":"i","method":"initialize"}`)
	r.wantError(t, 200, -32602, `"i"`)
	if _, named := r.header["Mcp-Session-Id"]; named {
		t.Error("got a session id, want none")
	}
	if loss := s.peer(t, 0).awaitLoss(t); loss.Reason != transport.ErrPeerClosed {
		t.Errorf("got the reason %v, want %v", loss.Reason, transport.ErrPeerClosed)
	}
}

// The response to initialize can be a stream that begins with other messages.
func TestInitializeWithEventsFirst(t *testing.T) {
	s := newScriptedSite(t, HandlerOptions{}, newAcceptor(func(*peer, transport.Inbound, jsonrpc.Message) {}))
	l := make(chan *eventReader, 1)
	go func() { l <- s.listen("POST", initializeBody("2025-03-26"), posting()) }()
	p := s.peer(t, 0)
	p.awaitReceived(t, 1)
	p.mustSend(t, transport.Outbound{Stream: 1, Frame: notice(0)})
	p.mustSend(t, transport.Outbound{Stream: 1, Last: true, Frame: []byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26"}}`)})
	events := <-l
	events.want(noticeLine(0))
	events.want(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26"}}`)
	events.wantEnd()
	if n := p.count(func(p *peer) int { return len(p.losses) }); n != 0 {
		t.Error("the session has ended, want it open")
	}
}

// A batch is delivered as one frame, and its responses are sent together.
func TestBatches(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize(protocol.Version20250326)
	p := s.peer(t, 0)
	if r := s.post(`[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":1,"result":1}]`, session); r.status != 202 {
		t.Errorf("a batch without a request: got %+v, want 202", r)
	}
	for _, batch := range []string{`[{"jsonrpc":"2.0","method":"a"},` + echoBody + `]`, `[7]`} {
		replies := s.pending(s.ctx, batch, session)
		p.await(t, "the batch", func(p *peer) bool {
			last := p.received[len(p.received)-1]
			return string(last.Frame) == batch && last.Last && last.Stream != transport.Main
		})
		stream := transport.Stream(p.count(func(p *peer) int { return int(p.opened[len(p.opened)-1]) }))
		p.mustSend(t, transport.Outbound{Stream: stream, Last: true, Frame: []byte(`[]`)})
		if r := s.receive(replies); r.status != 200 || r.body != "[]" {
			t.Errorf("got %+v, want r.status == 200 and r.body == %q", r, "[]")
		}
	}
	for batch, code := range map[string]int64{`[]`: -32600, `[`: -32700, `[` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `]`: -32600} {
		s.post(batch, session).wantError(t, 400, code, "")
	}
}

// If a client closes the response of a request in a session, the request is not
// cancelled.
//
// Guarantees: G-0022.10
func TestDisconnectKeepsARequestOfASession(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	p := s.peer(t, 0)
	l := s.startHeld(p, session)
	p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(0)})
	events := <-l
	events.want(noticeLine(0))
	events.leave()
	for range 10 {
		p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(1)}) // stored for the case that the client reconnects
		s.post(echoBody, session)                                      // leaves time to notice the disconnect
	}
	if n := p.count(func(p *peer) int { return len(p.lost) + len(p.losses) }); n != 0 {
		t.Errorf("got %d stream losses, want none", n)
	}
}

// startHeld POSTs a request to which the test sends events.
func (s *site) startHeld(p *peer, session string) <-chan *eventReader {
	s.t.Helper()
	received := p.count(func(p *peer) int { return len(p.received) })
	l := make(chan *eventReader, 1)
	go func() {
		l <- s.listen("POST", `{"jsonrpc":"2.0","id":5,"method":"hold"}`, append(posting(), session))
	}()
	p.awaitReceived(s.t, received+1)
	return l
}

// A request that was delivered may have been executed, however its session ends. Only a
// request that was not delivered is refused for an unknown session.
//
// Guarantees: G-0022.1, G-0022.8
func TestDeliveredRequestIsNotRefusedAsUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		end         func(*site, *peer, string)
		undelivered int
	}{
		"deleted": {func(s *site, _ *peer, session string) { s.do("DELETE", "", header{session}) }, 404},
		"expired": {func(_ *site, p *peer, _ string) { p.link.(*serverLink).end(transport.ErrSessionExpired, 0) }, 404},
		"closed":  {func(_ *site, p *peer, _ string) { p.link.Close(time.Second) }, 503},
		"stopped": {func(s *site, _ *peer, _ string) { s.handler.Close(time.Second) }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, HandlerOptions{})
			session := s.initialize("2025-11-25")
			p := s.peer(t, 0)
			held := s.pending(s.ctx, `{"jsonrpc":"2.0","id":"delivered","method":"hold"}`, session)
			p.awaitReceived(t, 2)
			p.stopGranting()
			waiting := s.pending(s.ctx, `{"jsonrpc":"2.0","id":"not","method":"hold"}`, session)
			p.await(t, "a stream", func(p *peer) bool { return len(p.opened) == 3 })
			test.end(s, p, session)
			s.receive(held).wantError(t, 503, -32603, `"delivered"`, "the session has ended before the response came")
			code := map[int]int64{404: -32600, 503: -32050}[test.undelivered]
			s.receive(waiting).wantError(t, test.undelivered, code, `"not"`)
		})
	}
}

// stopGranting makes the peer grant no more credit.
func (p *peer) stopGranting() { p.note(func() { p.manualCredit = true }) }

// At the limit, the session that has been idle for longest is removed for a new one. If
// no session is idle, the new one is refused.
//
// Guarantees: G-0022.12
func TestSessionsAreBounded(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 2})
	first, second := s.initialize("2025-06-18"), s.initialize("2025-06-18")
	s.post(echoBody, first)
	third := s.initialize("2025-06-18")
	s.post(echoBody, second).wantError(t, 404, -32600, "5", "session not found")
	if loss := s.peer(t, 1).awaitLoss(t); loss.Reason != transport.ErrSessionExpired {
		t.Errorf("got the reason %v, want %v", loss.Reason, transport.ErrSessionExpired)
	}
	s.get(first)
	listener := s.get(third)
	s.post(initializeBody("2025-06-18")).wantError(t, 503, -32050, "1", "overloaded: no more sessions are possible now")
	if s.links() != 3 {
		t.Errorf("got %d links, want 3", s.links())
	}
	listener.leave()
	for s.ctx.Err() == nil {
		if r := s.post(initializeBody("2025-06-18")); r.status == 200 {
			break
		}
	}
	s.post(echoBody, first)
	s.post(echoBody, third).wantError(t, 404, -32600, "5", "session not found")
}

// Links of clients without a session are removed first, because these clients lose
// nothing.
//
// Guarantees: G-0022.12
func TestClientsWithoutASessionEndNoSession(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 2, Identify: func(r *http.Request) string { return r.Header.Get("X-User") }})
	session := s.initialize("2025-06-18")
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, session)
	for n := range 5 {
		if r := s.modern("echo", "", fmt.Sprint("X-User: ", n)); r.status != 200 {
			t.Fatalf("client %d: got %+v, want 200", n, r)
		}
	}
	if r := s.post(echoBody, session); r.status != 200 {
		t.Errorf("the session: got %+v, want 200", r)
	}
}

// However many sessions are begun concurrently, a handler keeps MaxSessions at most.
//
// Guarantees: G-0022.12
func TestConcurrentSessionsAreBounded(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 10})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				if r := s.post(initializeBody("2025-06-18")); r.status != 200 {
					t.Errorf("got %+v, want 200", r)
				}
			}
		})
	}
	group.Wait()
	if n := len(s.handler.table.sessions); n != 10 {
		t.Errorf("got %d sessions, want 10", n)
	}
}

// If DELETE races with other ends of a session, the session is lost once, and each
// request gets a response.
func TestDeleteRaces(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for n := range 20 {
		session := s.initialize("2025-06-18")
		p := s.peer(t, n)
		held := s.pending(s.ctx, `{"jsonrpc":"2.0","id":5,"method":"hold"}`, session)
		p.awaitReceived(t, 2)
		var group sync.WaitGroup
		group.Go(func() { s.do("DELETE", "", header{session}) })
		group.Go(func() { s.do("DELETE", "", header{session}) })
		group.Go(func() {
			if r := s.post(echoBody, session); r.status != 200 && r.status != 404 && r.status != 503 {
				t.Errorf("got %+v", r)
			}
		})
		group.Go(func() { p.link.Close(time.Second) })
		testenv.Within(t, "requests and DELETEs are answered", group.Wait)
		if r := s.receive(held); r.status != 503 {
			t.Errorf("got %+v, want 503", r)
		}
		p.awaitLoss(t)
	}
}

// When a link is closed, its waiting requests get a response, and streams that were not
// complete are aborted.
//
// Guarantees: G-0022.15, G-0022.16
func TestClosedLinkAnswersItsRequests(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	p := s.peer(t, 0)
	silent := s.pending(s.ctx, `{"jsonrpc":"2.0","id":"silent","method":"hold"}`, session)
	p.awaitReceived(t, 2)
	begun := s.startHeld(p, session)
	p.mustSend(t, transport.Outbound{Stream: 3, Frame: notice(0)})
	get := s.get(session)
	const frames = 100
	for n := range frames {
		p.mustSend(t, transport.Outbound{Stream: 3, Tag: 1, Frame: notice(n + 1)})
		p.mustSend(t, transport.Outbound{Stream: transport.Main, Tag: 1, Frame: notice(n)})
	}
	closed := make(chan error, 1)
	go func() { closed <- p.link.Close(hangLimit) }()
	events := <-begun
	events.want(noticeLine(0))
	for n := range frames {
		events.want(noticeLine(n + 1))
		get.want(noticeLine(n))
	}
	events.wantAbort() // its response was never sent
	get.wantEnd()
	s.receive(silent).wantError(t, 503, -32603, `"silent"`, "the session has ended before the response came")
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if loss := p.awaitLoss(t); len(loss.Unsent) != 0 || loss.Reason != transport.ErrClosed {
		t.Errorf("got the loss %+v, want len(loss.Unsent) == 0 and loss.Reason == %v", loss, transport.ErrClosed)
	}
	if err := p.link.Send(transport.Outbound{Stream: 3}); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Send returned %v, want %v", err, transport.ErrClosed)
	}
	s.post(echoBody, session).wantError(t, 404, -32600, "5", "session not found")
}

// Links of all kinds expire after the same idle time, in the order in which they became
// idle.
//
// Guarantees: G-0022.12
func TestIdleLinksExpireInOrder(t *testing.T) {
	kinds := map[string]func(*testing.T, *bench){
		"used": func(t *testing.T, b *bench) {
			session := b.initialize()
			_, done := b.serve(t.Context(), "POST", echoBody, session)
			<-done
		},
		"never used": func(_ *testing.T, b *bench) { b.initialize() },
		"shared": func(t *testing.T, b *bench) {
			_, done := b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...)
			<-done
		},
	}
	for _, order := range [][]string{{"used", "never used", "shared"}, {"shared", "used", "never used"}, {"never used", "shared", "used"}} {
		inBubble(t, HandlerOptions{SessionIdle: time.Minute}, false, func(t *testing.T, b *bench) {
			for _, kind := range order {
				kinds[kind](t, b)
				pass(10 * time.Second)
			}
			pass(29 * time.Second) // 59 s after the first one
			for ended := range 4 {
				synctest.Wait()
				for n := range order {
					if losses := b.peer(t, n).count(func(p *peer) int { return len(p.losses) }); losses != min(1, max(0, ended-n)) {
						t.Errorf("%v: got %d losses of link %d when %d links should have expired", order, losses, n, ended)
					}
				}
				pass(10 * time.Second)
			}
		})
	}
}

// A session expires when it has been idle for long enough. One timer serves all
// sessions.
//
// Guarantees: G-0022.12
func TestIdleSessionExpires(t *testing.T) {
	inBubble(t, HandlerOptions{SessionIdle: time.Minute}, false, func(t *testing.T, b *bench) {
		var sessions []string
		for range 3 {
			sessions = append(sessions, b.initialize())
			pass(10 * time.Second)
		}
		listening, stop := context.WithCancel(t.Context())
		_, left := b.serve(listening, "GET", "", sessions[2])
		pass(29 * time.Second) // 59 s after the first one
		if w, done := b.serve(t.Context(), "POST", echoBody, sessions[0]); w.Code != 200 {
			<-done
			t.Errorf("a session expired early: got %d", w.Code)
		}
		for _, want := range []struct {
			after time.Duration
			lost  [3]int
		}{{10 * time.Second, [3]int{0, 0, 0}}, {2 * time.Second, [3]int{0, 1, 0}}, {46 * time.Second, [3]int{0, 1, 0}}, {3 * time.Second, [3]int{1, 1, 0}}, {time.Hour, [3]int{1, 1, 0}}} {
			pass(want.after)
			synctest.Wait()
			for n := range sessions {
				if got := b.peer(t, n).count(func(p *peer) int { return len(p.losses) }); got != want.lost[n] {
					t.Errorf("session %d: got %d losses, want %d", n, got, want.lost[n])
				}
			}
		}
		stop()
		<-left
		pass(61 * time.Second)
		synctest.Wait()
		for n := range sessions {
			if loss := b.peer(t, n).awaitLoss(t); !errors.Is(loss.Reason, transport.ErrSessionExpired) {
				t.Errorf("session %d: got the reason %v, want %v", n, loss.Reason, transport.ErrSessionExpired)
			}
		}
		if w, done := b.serve(t.Context(), "POST", echoBody, sessions[0]); w.Code != 404 {
			<-done
			t.Errorf("an expired session: got %d", w.Code)
		}
	})
}

// A request of up to 4 KiB to a handler without sessions takes one place while it is served, and gives it back.
//
// Guarantees: G-0022.18
func TestAStatelessRequestTakesOnePlace(t *testing.T) {
	inBubble(t, HandlerOptions{Stateless: true}, false, func(t *testing.T, b *bench) {
		for _, pad := range []int{0, 3 << 10} {
			_, done := b.serve(t.Context(), "POST", legacyHold(`"pad":"`+strings.Repeat("x", pad)+`",`))
			if places := b.handler.table.places.Held(); places != 1 {
				t.Errorf("a request of %d more bytes takes %d places, want 1", pad, places)
			}
			p := b.peer(t, b.links()-1)
			p.mustSend(t, answering(p.newest(), heldAnswer))
			<-done
			if places := b.handler.table.places.Held(); places != 0 {
				t.Errorf("after the answer %d places are taken, want none", places)
			}
		}
	})
}

// A lateReceiver takes long to hear of the loss.
type lateReceiver struct {
	*workReceiver
	heard chan struct{}
}

func (r lateReceiver) Lost(transport.Loss) { <-r.heard }

// Close waits until the links that have just expired have ended.
func TestCloseWaitsForWhatExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard, closed := make(chan struct{}), make(chan struct{})
		h := NewHandler(accepting(func(link transport.Link) {
			link.Bind(lateReceiver{&workReceiver{mute: mute{link: link}}, heard})
		}), HandlerOptions{SessionIdle: time.Minute})
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, newRequest("POST", modernBody("echo", ""), modernHeader("echo")...)); w.Code != http.StatusOK {
			t.Errorf("got %d %s, want 200", w.Code, w.Body)
		}
		pass(2 * time.Minute)
		go func() {
			defer close(closed)
			h.Close(0)
		}()
		synctest.Wait()
		if wait.IsClosed(closed) {
			t.Error("Close has returned before the link has ended")
		}
		close(heard)
		<-closed
	})
}

// The server of a stateless request gets a handshake before it. If the server refuses that, so is the request.
//
// Guarantees: G-0022.18
func TestAStatelessRequestBeginsWithAHandshake(t *testing.T) {
	version := headerVersion + ": 2025-11-25"
	inBubble(t, HandlerOptions{Stateless: true}, false, func(t *testing.T, b *bench) {
		_, done := b.serve(t.Context(), "POST", echoBody, version)
		<-done
		var got []string
		for _, in := range b.peer(t, 0).received {
			m, err := jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
			got = append(got, fmt.Sprint(m.Method, err))
		}
		if want := "[initialize<nil> notifications/initialized<nil> echo<nil>]"; fmt.Sprint(got) != want {
			t.Errorf("the server got %v, want %s", got, want)
		}
	})
	inBubble(t, HandlerOptions{Stateless: true}, false, func(t *testing.T, b *bench) {
		b.play = func(p *peer, in transport.Inbound, m jsonrpc.Message) {
			p.link.Send(answering(in.Stream, string(jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: 1, Message: "no"}))))
		}
		w, done := b.serve(t.Context(), "POST", echoBody, version)
		<-done
		if want := `503 "" {"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"the server does not serve this revision"}}`; said(w) != want {
			t.Errorf("got %s, want %s", said(w), want)
		}
	})
}
