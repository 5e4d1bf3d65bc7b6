package streamable

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// Attacks over real sockets. In each of them some clients misbehave, and a good
// client, or the memory of the server, must not feel it.

// byUser tells clients apart by a header. As it is authenticated elsewhere, no
// client can send another's.
func byUser(r *http.Request) string { return r.Header.Get("X-User") }

// as is the header of a client.
func as(user string) string { return "X-User: " + user }

// manyTimes has several goroutines do something n times altogether.
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

// One client begins ten times as many sessions as there may be. The idle sessions of
// others live, and so does the one that this client really uses.
//
// Guarantees: G-0038.1
func TestManySessionsOfOneClientEndNoOthers(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 400, Identify: byUser})
	good := make(map[string]string)
	for n := range 200 {
		user := fmt.Sprint("good ", n)
		good[user] = s.initialize("2025-11-25", as(user))
	}
	used := s.initialize("2025-11-25", as("hostile"))
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, used, as("hostile"))
	manyTimes(4000, func() { s.initialize("2025-11-25", as("hostile")) })
	for user, session := range good {
		if r := s.post(echoBody, session, as(user)); r.status != 200 {
			t.Errorf("the session of %s: %+v", user, r)
		}
	}
	if r := s.post(echoBody, used, as("hostile")); r.status != 200 {
		t.Errorf("the session that was used: %+v", r)
	}
	s.handler.table.mu.Lock()
	defer s.handler.table.mu.Unlock()
	if n := s.handler.table.links.links; n != 300 {
		t.Errorf("%d sessions are held", n)
	}
}

// Many clients together begin more sessions than there may be. Those that were
// never used make room for each other.
//
// Guarantees: G-0038.1
func TestSessionsThatWereNeverUsedMakeRoomFirst(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 20, Identify: byUser})
	used := s.initialize("2025-11-25", as("good"))
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, used, as("good"))
	modern := s.modern("echo", "", as("good"))
	for n := range 100 {
		s.initialize("2025-11-25", as(fmt.Sprint(n)))
	}
	if r := s.post(echoBody, used, as("good")); r.status != 200 {
		t.Errorf("the session that was used: %+v", r)
	}
	if r := s.modern("echo", "", as("good")); r.status != 200 || modern.status != 200 {
		t.Errorf("without a session: %+v", r)
	}
	if n := s.peer(t, 1).count(func(p *peer) int { return len(p.losses) }); n != 0 {
		t.Error("the link of the client without a session made room")
	}
}

// The sessions of a client that uses all of them are bounded, too.
//
// Guarantees: G-0038.1
func TestSessionsInUseAreBoundedPerClient(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 10, MaxClientSessions: 3, Identify: byUser})
	for range 3 {
		s.get(s.initialize("2025-11-25", as("hostile")), as("hostile"))
	}
	s.post(initializeBody("2025-11-25"), as("hostile")).wantError(t, 503, -32050, "1")
	s.initialize("2025-11-25", as("good"))
}

// What sessions keep of their clients is bounded in bytes, for one client and for
// all.
//
// Guarantees: G-0038.2
func TestSessionMemoryIsBounded(t *testing.T) {
	const clients, each, size = 20, 40, 64 << 10
	s := newSite(t, HandlerOptions{MaxSessions: 1000, MaxClientSessions: 1000, Identify: byUser})
	good := s.initialize("2025-11-25", as("good"))
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, good, as("good"))
	body := paddedInitialize(size)
	for n := range clients {
		for range each {
			if r := s.post(body, as(fmt.Sprint(n))); r.status != 200 {
				t.Fatalf("%+v", r)
			}
		}
	}
	s.handler.table.mu.Lock()
	links, bytes := s.handler.table.links.share.links, s.handler.table.links.bytes
	ofOne := s.handler.table.clients[client{identity: "0"}]
	s.handler.table.mu.Unlock()
	if bytes > 1000*bytesPerSession || bytes < 900*bytesPerSession {
		t.Errorf("%d sessions keep %d bytes", links, bytes)
	}
	if ofOne != nil && ofOne.bytes > 1000*bytesPerSession/4 {
		t.Errorf("one client keeps %d bytes", ofOne.bytes)
	}
	if r := s.post(echoBody, good, as("good")); r.status != 200 {
		t.Errorf("the good client: %+v", r)
	}
}

// paddedInitialize is an initialize of that length.
func paddedInitialize(size int) string {
	body := initializeBody("2025-11-25")
	return strings.Replace(body, `"params":{`, `"params":{"pad":"`+strings.Repeat("x", size-len(body)-9)+`",`, 1)
}

// A server that takes long to accept one client's link holds up no other client's.
//
// Guarantees: G-0022.11
func TestASlowAcceptHoldsUpNobodyElse(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	a := newAcceptor(respond)
	first := make(chan struct{}, 1)
	s := newScriptedSite(t, HandlerOptions{Identify: byUser}, newAcceptor(respond))
	s.handler.acceptor = accepting(func(link transport.Link) {
		if link.(*serverLink).key.identity == "slow" {
			first <- struct{}{}
			<-release
		}
		a.Accept(link)
	})
	var slow []<-chan reply
	for range 2 { // the second waits for the link of the first
		slow = append(slow, s.pending(s.ctx, modernBody("echo", ""), append(modernHeader("echo"), as("slow"))...))
	}
	<-first
	if r := s.modern("echo", "", as("good")); r.status != 200 {
		t.Errorf("the other client: %+v", r)
	}
	release <- struct{}{}
	for _, replies := range slow {
		if r := s.receive(replies); r.status != 200 {
			t.Errorf("the slow client: %+v", r)
		}
	}
	if n := a.links(); n != 2 {
		t.Errorf("%d links for two clients", n)
	}
}

// Clients that do not read what they asked for, all together and one alone. What
// waits for them is bounded, and what is cut off never ends in good order.
//
// Guarantees: G-0038.3
func TestUnreadAnswersAreBounded(t *testing.T) {
	const each, size, most = 40, 1 << 20, 32 << 20
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"result":%q}`, strings.Repeat("x", size))
	inBubble(t, HandlerOptions{MaxUnread: most, MaxFrame: 4 << 20, Identify: byUser}, false, func(t *testing.T, b *bench) {
		var unread []*stuckWriter
		var served []chan struct{}
		for n := range 5 {
			lines := append(modernHeader("hold"), as(fmt.Sprint("hostile ", n)))
			for range each {
				w, done := b.serveStuck("POST", modernBody("hold", ""), lines...)
				p := b.peer(t, n)
				_ = p.send(t, answering(p.newest(), answer)) // the link says that some are cut off
				synctest.Wait()
				unread, served = append(unread, w), append(served, done)
			}
			if held := b.handler.unread.large.held; held > most || n == 0 && held > most/4 {
				t.Errorf("%d bytes wait for %d clients", held, n+1)
			}
		}
		w, done := b.serve(t.Context(), "POST", modernBody("echo", ""), append(modernHeader("echo"), as("good"))...)
		if <-done; w.Code != 200 {
			t.Errorf("another client gets %d", w.Code)
		}
		kept := 0
		for n, w := range unread {
			close(w.released)
			<-served[n]
			switch {
			case w.status == 200 && !w.aborted && w.writes >= size/web.WriteSize:
				kept++
			case w.status == 200 && !w.aborted:
				t.Errorf("a response that was cut off ends in good order after %d writes", w.writes)
			}
		}
		if kept == 0 || kept > most/size {
			t.Errorf("%d answers were kept", kept)
		}
		if held := b.handler.unread.large.held; held != 0 {
			t.Errorf("%d bytes are charged at the end", held)
		}
	})
}

// A message that nobody takes in time does not wait for ever, and a server that is
// overloaded says so.
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
		if <-done; w.Code != 503 || time.Since(begun) != roomPatience || w.Header().Get("Retry-After") != soon {
			t.Errorf("a notification that is not taken: %d after %v", w.Code, time.Since(begun))
		}
	})
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-11-25")
	r := s.post(`{"jsonrpc":"2.0","id":3,"method":"fail","params":{"code":-32050}}`, session)
	if r.wantError(t, 200, jsonrpc.CodeOverloaded, "3"); r.header.Get("Retry-After") != "" {
		t.Errorf("in a session: %+v", r)
	}
	r = s.modern("fail", `"code":-32050,`)
	if r.wantError(t, 503, jsonrpc.CodeOverloaded, "7"); r.header.Get("Retry-After") != soon {
		t.Errorf("without a session: %+v", r)
	}
}
