package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// Attacks over real sockets. In each of them some clients misbehave. Neither a good
// client nor the memory of the server may suffer from it.

// byUser identifies clients by a header, which stands for authentication.
func byUser(r *http.Request) string { return r.Header.Get("X-User") }

// userHeader returns the header that identifies a client.
func userHeader(user string) string { return "X-User: " + user }

// manyTimes calls do n times in all, on several goroutines.
func manyTimes(n int, do func()) {
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range n / 8 {
				do()
			}
		})
	}
	group.Wait()
}

// One client that begins ten times the allowed sessions ends no idle session of another
// client, and not the session that it uses itself.
//
// Guarantees: G-0038.1
func TestSessionsOfOneClientEndNoOthers(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 400, Identify: byUser})
	good := make(map[string]string)
	for n := range 200 {
		user := fmt.Sprint("good ", n)
		good[user] = s.initialize("2025-11-25", userHeader(user))
	}
	used := s.initialize("2025-11-25", userHeader("hostile"))
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, used, userHeader("hostile"))
	manyTimes(4000, func() { s.initialize("2025-11-25", userHeader("hostile")) })
	for user, session := range good {
		if r := s.post(echoBody, session, userHeader(user)); r.status != 200 {
			t.Errorf("the session of %s: got %+v, want 200", user, r)
		}
	}
	if r := s.post(echoBody, used, userHeader("hostile")); r.status != 200 {
		t.Errorf("the session in use: got %+v, want 200", r)
	}
	s.handler.table.mu.Lock()
	defer s.handler.table.mu.Unlock()
	if n := s.handler.table.clients[share.Client{Identity: "hostile"}].places; n != 53 {
		t.Errorf("got %d sessions of one client, want 53: as many as the square of what is free, of 400", n)
	}
}

// If many clients have one session each, those that were never used make room first.
//
// Guarantees: G-0038.1
func TestSessionsThatWereNeverUsedMakeRoomFirst(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 20, Identify: byUser})
	used := s.initialize("2025-11-25", userHeader("good"))
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, used, userHeader("good"))
	modern := s.modern("echo", "", userHeader("modern"))
	for n := range 100 {
		s.initialize("2025-11-25", userHeader(fmt.Sprint(n)))
	}
	if r := s.post(echoBody, used, userHeader("good")); r.status != 200 {
		t.Errorf("the session that was used: got %+v, want 200", r)
	}
	if r := s.modern("echo", "", userHeader("modern")); r.status != 200 || modern.status != 200 {
		t.Errorf("without a session: got %+v, want r.status == 200 and modern.status == 200", r)
	}
	if n := s.peer(t, 1).count(func(p *peer) int { return len(p.losses) }); n != 0 {
		t.Error("the link of the client without a session was removed, want it kept")
	}
}

// Clients that use all their sessions leave some to others. A session in use is never removed.
//
// Guarantees: G-0038.1, G-0083.9
func TestSessionsInUseLeaveRoomForOthers(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 64, Identify: byUser})
	hostile := []string{"first", "second", "third"}
	var streams []*eventReader
	for n, want := range []int{24, 12, 6} { // as many as the square of what is free then, of 64
		for range want {
			streams = append(streams, s.get(s.initialize("2025-11-25", userHeader(hostile[n])), userHeader(hostile[n])))
		}
		s.post(initializeBody("2025-11-25"), userHeader(hostile[n])).wantError(t, 503, -32050, "1", "overloaded: no more sessions are possible now")
	}
	for n := range 22 {
		s.initialize("2025-11-25", userHeader(fmt.Sprint("good ", n)))
	}
	for n := range streams {
		if lost := s.peer(t, n).count(func(p *peer) int { return len(p.losses) }); lost != 0 {
			t.Errorf("session %d in use has ended", n)
		}
	}
}

// Five addresses that begin more sessions than there are, and use them once, end no session of a client
// that has one.
//
// Guarantees: G-0038.1, G-0083.9
func TestManyIdleSessionsEndNoOnlySession(t *testing.T) {
	h := NewHandler(accepting(func(link transport.Link) { newEcho(link) }), HandlerOptions{MaxSessions: 1000})
	defer h.Close(0)
	from := func(address string, lines ...string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), newRequest("POST", lines[0], lines[1:]...)
		r.RemoteAddr = address + ":1"
		h.ServeHTTP(w, r)
		return w
	}
	begin := func(address string) (session string) {
		w := from(address, initializeBody("2025-11-25"))
		if w.Code != 200 {
			t.Fatalf("initialize from %s: got %d %s", address, w.Code, w.Body)
		}
		return headerSession + ": " + w.Header().Get(headerSession)
	}
	only := begin("192.0.2.1") // it is never used, and idle for longest
	for n := range 1250 {
		address := fmt.Sprint("198.51.100.", n%5)
		if w := from(address, echoBody, begin(address)); w.Code != 200 {
			t.Fatalf("a call: got %d %s", w.Code, w.Body)
		}
	}
	if w := from("192.0.2.1", echoBody, only); w.Code != 200 {
		t.Errorf("the only session of a client: got %d %s, want 200", w.Code, w.Body)
	}
	late := begin("192.0.2.2")
	if w := from("192.0.2.2", echoBody, late); w.Code != 200 {
		t.Errorf("the session of a newcomer: got %d %s, want 200", w.Code, w.Body)
	}
}

// The memory of sessions is limited in bytes, for one client and for all together. Clients that want as much as they
// can get have the same.
//
// Guarantees: G-0038.2, G-0083.9
func TestSessionMemoryIsBounded(t *testing.T) {
	const clients, each, size = 20, 40, 64 << 10
	s := newSite(t, HandlerOptions{MaxSessions: 1000, Identify: byUser})
	good := s.initialize("2025-11-25", userHeader("good"))
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, good, userHeader("good"))
	body := paddedInitialize(size)
	for n := range clients {
		for range each {
			if r := s.post(body, userHeader(fmt.Sprint(n))); r.status != 200 {
				t.Fatalf("got %+v, want 200", r)
			}
		}
	}
	s.handler.table.mu.Lock()
	defer s.handler.table.mu.Unlock()
	all, of := 0, make(map[share.Client]int)
	for _, l := range s.handler.table.sessions {
		all += int(l.size)
		of[l.key.Client]++
	}
	if all > 1000*bytesPerPlace || all < 700*bytesPerPlace {
		t.Errorf("%d sessions use %d bytes", len(s.handler.table.sessions), all)
	}
	least := of[share.Client{Identity: "0"}]
	for client, sessions := range of {
		if client.Identity != "good" && (sessions < least-1 || sessions > least+1) {
			t.Errorf("%v has %d sessions, and another client %d", client, sessions, least)
		}
	}
	if of[share.Client{Identity: "good"}] != 1 {
		t.Error("the session of the good client has ended")
	}
}

// A client that has many sessions with a few events each does not displace the result that is kept for another client,
// though the session of that client is the largest.
//
// Guarantees: G-0083.10
func TestManySessionsDisplaceNoKeptResult(t *testing.T) {
	s := newSite(t, HandlerOptions{Identify: byUser, EventStore: &MemoryStore{MaxBytes: 20_000}})
	user := userHeader("good")
	session := s.initialize("2025-11-25", user)
	p := s.peer(t, 0)
	begun := make(chan *eventReader, 1)
	go func() { begun <- s.listen("POST", holdBody, append(posting(), session, user)) }()
	p.awaitReceived(t, 2)
	p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(0)})
	events := <-begun
	events.want(noticeLine(0))
	events.leave()
	result := `{"jsonrpc":"2.0","id":5,"result":{"text":"` + strings.Repeat("x", 5_000) + `"}}`
	for n := range 60 {
		p, session := s.begin1125(t)
		c := s.breakCall(p, session)
		p.mustSend(t, transport.Outbound{Stream: c.stream, Frame: []byte(`{"jsonrpc":"2.0","method":"n","params":{"pad":"` + strings.Repeat("x", 500) + `"}}`)})
		if n == 0 {
			s.peer(t, 0).mustSend(t, answering(2, result))
		}
	}
	events = s.listen("GET", "", header{"Accept: text/event-stream", session, user, "Last-Event-ID: " + events.id})
	events.want(result)
	events.wantEnd()
}

// paddedInitialize returns an initialize of the given length.
func paddedInitialize(size int) string {
	body := initializeBody("2025-11-25")
	return strings.Replace(body, `"params":{`, `"params":{"pad":"`+strings.Repeat("x", size-len(body)-9)+`",`, 1)
}

// If the acceptor is slow for one client, others are not delayed.
//
// Guarantees: G-0022.11
func TestSlowAcceptDelaysNoOtherClient(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	a := newAcceptor(respond)
	first := make(chan struct{}, 1)
	s := newScriptedSite(t, HandlerOptions{Identify: byUser}, newAcceptor(respond))
	s.handler.acceptor = accepting(func(link transport.Link) {
		if link.(*serverLink).key.Identity == "slow" {
			first <- struct{}{}
			<-release
		}
		a.Accept(link)
	})
	var slow []<-chan reply
	for range 2 { // the second request waits for the link of the first one
		slow = append(slow, s.pending(s.ctx, modernBody("echo", ""), append(modernHeader("echo"), userHeader("slow"))...))
	}
	<-first
	if r := s.modern("echo", "", userHeader("good")); r.status != 200 {
		t.Errorf("the other client: got %+v, want 200", r)
	}
	release <- struct{}{}
	for _, replies := range slow {
		if r := s.receive(replies); r.status != 200 {
			t.Errorf("the slow client: got %+v, want 200", r)
		}
	}
	if n := a.links(); n != 2 {
		t.Errorf("%d links for two clients", n)
	}
}

// The responses that clients do not read are limited, for one client and for all
// together. What finds no room is refused to its sender, and a short answer in its place finds room.
//
// Guarantees: G-0038.3, G-0087.2
func TestUnreadAnswersAreBounded(t *testing.T) {
	const each, size, most = 40, 1 << 20, 32 << 20
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"result":%q}`, strings.Repeat("x", size))
	short := `{"jsonrpc":"2.0","id":7,"error":{"code":-32051,"message":"dropped"}}`
	inBubble(t, HandlerOptions{MaxUnread: most, MaxFrame: 4 << 20, Identify: byUser}, false, func(t *testing.T, b *bench) {
		var unread []*stuckWriter
		var served []chan struct{}
		for n := range 5 {
			lines := append(modernHeader("hold"), userHeader(fmt.Sprint("hostile ", n)))
			for range each {
				w, done := b.serveStuck("POST", modernBody("hold", ""), lines...)
				p := b.peer(t, n)
				err := p.send(t, answering(p.newest(), answer))
				if err == transport.ErrNoRoom {
					err = p.send(t, answering(p.newest(), short))
				}
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				unread, served = append(unread, w), append(served, done)
			}
			if p := b.peer(t, n); p.count(func(p *peer) int { return len(p.lost) }) > 0 {
				t.Errorf("client %d lost streams: %v", n, p.lost)
			}
			if held := b.handler.unread.Large.Held(); held > most || n == 0 && held > most/2 {
				t.Errorf("%d bytes are held for %d clients", held, n+1)
			}
		}
		w, done := b.serve(t.Context(), "POST", modernBody("echo", ""), append(modernHeader("echo"), userHeader("good"))...)
		if <-done; w.Code != 200 {
			t.Errorf("another client: got status %d, want 200", w.Code)
		}
		kept := 0
		for n, w := range unread {
			close(w.released)
			<-served[n]
			if w.status != 200 || w.aborted {
				t.Errorf("got status %d, aborted: %t; want a complete response", w.status, w.aborted)
			}
			if w.writes >= size/web.WriteSize {
				kept++
			}
		}
		if kept == 0 || kept > most/size {
			t.Errorf("%d responses were kept", kept)
		}
		if held := b.held(); held != 0 {
			t.Errorf("%d bytes are charged at the end, want 0", held)
		}
	})
}

// If not even a short answer to a message of a batch finds room, the response ends, be it a result or an error: the client would wait
// for it.
//
// Guarantees: G-0038.3
func TestAShortAnswerOfABatchThatFindsNoRoom(t *testing.T) {
	for _, answer := range []string{result(5), `{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"failed"}}`} {
		inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
			w, done := b.serve(t.Context(), "POST", initializeBody("2025-03-26"))
			<-done
			_, served := b.serve(t.Context(), "POST", "["+holdBody+"]", headerSession+": "+w.Header().Get(headerSession))
			p := b.peer(t, 0)
			client, unread, taken := p.link.(*serverLink).key.Client, b.handler.unread.Small, 0
			for ; unread.Take(client, 100); taken += 100 {
			}
			o := answering(p.newest(), answer)
			o.Last = false
			if err := p.send(t, o); !errors.Is(err, transport.ErrNoRoute) {
				t.Errorf("%s: Send returned %v, want %v", answer, err, transport.ErrNoRoute)
			}
			unread.Give(client, taken)
			synctest.Wait()
			if n := p.count(func(p *peer) int { return len(p.lost) }); n != 1 {
				t.Errorf("%s: %d streams were lost, want the one of the batch", answer, n)
			}
			p.link.Close(0)
			<-served
		})
	}
}

// A request for whose answer there would be no room, not even for an error, is refused before it is
// delivered.
//
// Guarantees: G-0087.1
func TestRequestWithoutRoomForItsAnswerIsNotExecuted(t *testing.T) {
	const most = 64 << 10
	inBubble(t, HandlerOptions{MaxUnread: most}, false, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		session := b.initialize()
		var held []chan struct{}
		for range most / answerRoom {
			w, done := b.serve(ctx, "POST", modernBody("hold", ""), modernHeader("hold")...)
			if held = append(held, done); w.Code != 200 {
				t.Fatalf("request %d: got status %d", len(held), w.Code)
			}
			if b.held() > most-answerRoom-100 {
				break
			}
		}
		refused := map[string]func() (*httptest.ResponseRecorder, chan struct{}){
			"modern": func() (*httptest.ResponseRecorder, chan struct{}) {
				return b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...)
			},
			"legacy": func() (*httptest.ResponseRecorder, chan struct{}) {
				return b.serve(t.Context(), "POST", echoBody, session)
			},
		}
		before := b.peer(t, 0).count(func(p *peer) int { return len(p.received) }) + b.peer(t, 1).count(func(p *peer) int { return len(p.received) })
		for name, again := range refused {
			w, done := again()
			if <-done; w.Code != 503 || w.Header().Get("Retry-After") != soon || !strings.Contains(w.Body.String(), "-32050") {
				t.Errorf("%s: got status %d and %s, want 503 and the error -32050", name, w.Code, w.Body)
			}
		}
		if n := b.peer(t, 0).count(func(p *peer) int { return len(p.received) }) + b.peer(t, 1).count(func(p *peer) int { return len(p.received) }); n != before {
			t.Errorf("%d requests were delivered nevertheless", n-before)
		}
		cancel()
		for _, done := range held {
			<-done
		}
		for name, again := range refused {
			w, done := again()
			if <-done; w.Code != 200 {
				t.Errorf("%s, when there is room: got status %d and %s", name, w.Code, w.Body)
			}
		}
		if n := b.held(); n != 0 {
			t.Errorf("%d bytes are held at the end", n)
		}
	})
}

// Answers that are being encoded take room before that, so those of one client never take more memory than it may
// leave unread. All of it is given back, however a request ends.
//
// Guarantees: G-0087.5
func TestAnswersTakeRoomBeforeTheyAreEncoded(t *testing.T) {
	const each, size, most = 12, 1 << 20, 16 << 20
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"result":%q}`, strings.Repeat("x", size))
	inBubble(t, HandlerOptions{MaxUnread: most, MaxFrame: 4 << 20}, false, func(t *testing.T, b *bench) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		large := b.handler.unread.Large
		var done []chan struct{}
		var stuck *stuckWriter
		for n := range each {
			var served chan struct{}
			if n == 1 {
				stuck, served = b.serveStuck("POST", modernBody("hold", ""), modernHeader("hold")...)
			} else {
				_, served = b.serve(ctx, "POST", modernBody("hold", ""), modernHeader("hold")...)
			}
			done = append(done, served)
			reserver := b.peer(t, 0).received[n].Origin.Exchange.(transport.Reserver)
			if room := reserver.Reserve(size); room != (large.Held() == (n+1)*(size+frameOverhead)) || room != (n < most*38/100/size) {
				t.Fatalf("answer %d: got room: %t, and %d bytes are held", n+1, room, large.Held())
			}
		}
		p := b.peer(t, 0)
		kept := large.Held()
		p.mustSend(t, answering(p.opened[0], answer)) // it is somewhat larger than was estimated
		if synctest.Wait(); large.Held() != kept-size-frameOverhead {
			t.Errorf("%d bytes are held after an answer was written, want %d", large.Held(), kept-size-frameOverhead)
		}
		p.mustSend(t, answering(p.opened[1], `{"jsonrpc":"2.0","id":7,"result":1}`))
		if synctest.Wait(); large.Held() != kept-2*(size+frameOverhead) {
			t.Errorf("%d bytes are held after an answer that is shorter than was estimated, and is not read", large.Held())
		}
		close(stuck.released)
		leave()
		for _, served := range done {
			<-served
		}
		if held := b.held(); held != 0 {
			t.Errorf("%d bytes are held after the client has left, want 0", held)
		}
	})
}

// A message that the receiver does not take in time is refused, and an overloaded
// server answers with a status that says so.
//
// Guarantees: G-0038.4, G-0038.5
func TestOverload(t *testing.T) {
	inBubble(t, HandlerOptions{}, true, func(t *testing.T, b *bench) {
		p := make(chan *peer, 1)
		go func() {
			of := b.peer(t, 0)
			of.await(t, "a stream", func(p *peer) bool { return len(p.opened) > 0 })
			of.post(func() { of.link.Grant(1, 1) })
			p <- of
		}()
		session := b.initialize()
		<-p
		begun := time.Now()
		w, done := b.serve(t.Context(), "POST", `{"jsonrpc":"2.0","method":"n"}`, session)
		if <-done; w.Code != 503 || time.Since(begun) != roomPatience || w.Header().Get("Retry-After") != soon || !strings.Contains(w.Body.String(), "not taken") {
			t.Errorf("a notification that is not taken: got %d %s after %v", w.Code, w.Body, time.Since(begun))
		}
	})
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-11-25")
	r := s.post(`{"jsonrpc":"2.0","id":3,"method":"fail","params":{"code":-32050}}`, session)
	if r.wantError(t, 503, jsonrpc.CodeOverloaded, "3"); r.header.Get("Retry-After") != soon {
		t.Errorf("in a session: got %+v, want %v", r, soon)
	}
	r = s.modern("fail", `"code":-32050,`)
	if r.wantError(t, 503, jsonrpc.CodeOverloaded, "7"); r.header.Get("Retry-After") != soon {
		t.Errorf("without a session: got %+v, want %v", r, soon)
	}
}
