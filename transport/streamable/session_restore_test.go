package streamable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// moved returns a session that began at another node, which has ended.
func moved(t *testing.T, shared *SharedStore, identity string) (session string) {
	t.Helper()
	session = newSessionID()
	shared.put(session, "there", SessionRecord{Identity: identity, Initialize: []byte(initializeBody("2025-11-25")), Version: "2025-11-25", State: []byte(`{"level":"info"}`), Streams: numbersStep})
	return session
}

// send serves a request of a session on the goroutine of the caller.
func (b *bench) send(method, session string, lines ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	body := map[string]string{"POST": echoBody}[method]
	serveHTTP(b.handler, w, newRequest(method, body, append(posting(), append(lines, headerSession+": "+session)...)...).WithContext(b.t.Context()))
	return w
}

func (b *bench) ask(session string, lines ...string) (status int, body string) {
	w := b.send("POST", session, lines...)
	return w.Code, w.Body.String()
}

// A session goes on: its server gets the initialize of the client and its own state, then
// initialized, and then the request. The client sees nothing of that, and nobody takes it for
// something that the client has sent.
//
// Guarantees: G-0073.5
func TestRestoreReplaysTheHandshake(t *testing.T) {
	inStore(t, HandlerOptions{Identify: byUser}, func(t *testing.T, b *bench, store *NodeStore) {
		session := moved(t, store.shared, "ada")
		if status, body := b.ask(session, userHeader("ada")); status != http.StatusOK || body != `{"jsonrpc":"2.0","id":5,"result":{"a":1}}` {
			t.Fatalf("got %d %s, want an answer", status, body)
		}
		p := b.peer(t, 0)
		if state, continues := keeper(p).Kept(); string(state) != `{"level":"info"}` || !continues {
			t.Errorf("Kept returned %q, %t", state, continues)
		}
		var got []string
		for _, in := range p.received {
			m, err := jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
			got = append(got, fmt.Sprint(m.Method, " ", in.Implied, " ", in.Stream, " ", in.Origin.Identity, err))
		}
		want := []string{"initialize true 1025 ada<nil>", "notifications/initialized true 0 ada<nil>", "echo false 1026 ada<nil>"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the server got %q, want %q", got, want)
		}
		if string(p.received[0].Frame) != initializeBody("2025-11-25") {
			t.Errorf("the server got %s, want the initialize of the client", p.received[0].Frame)
		}
		if network := transport.LinkTraitsOf(p.link).Network; network != (transport.Network{HTTP: "1.1", Session: session}) {
			t.Errorf("the link tells of %+v, want HTTP 1.1 and the session %q", network, session)
		}
		r, owner, _ := store.shared.record(session)
		if owner != "here" || string(r.State) != `{"level":"info"}` || r.Streams != 2*numbersStep || r.Version != "2025-11-25" || r.Identity != "ada" {
			t.Errorf("got the record %+v of %q", r, owner)
		}
		keeper(p).Keep([]byte(`{}`))
		if state, _ := keeper(p).Kept(); string(state) != `{"level":"info"}` {
			t.Errorf("after Keep, Kept returned %q, want the same as before", state)
		}
		b.begin(userHeader("bob"))
		if state, continues := keeper(b.peer(t, 1)).Kept(); state != nil || continues {
			t.Errorf("a new session: Kept returned %q, %t, want nothing", state, continues)
		}
	})
}

// A session is restored for its own identity only. Nothing changes for others, who learn
// nothing of it.
//
// Guarantees: G-0073.6
func TestRestoreForAnotherIdentity(t *testing.T) {
	inStore(t, HandlerOptions{Identify: byUser}, func(t *testing.T, b *bench, store *NodeStore) {
		session := moved(t, store.shared, "ada")
		for _, user := range []string{"eve", ""} {
			status, body := b.ask(session, userHeader(user))
			unknown, unknownBody := b.ask("unknown", userHeader(user))
			if status != http.StatusNotFound || status != unknown || body != unknownBody {
				t.Errorf("got %d %s, want the same as for an unknown session, %d %s", status, body, unknown, unknownBody)
			}
		}
		if _, owner, _ := store.shared.record(session); owner != "there" || b.links() != 0 || len(store.of("Free"))+len(store.of("Forget")) > 0 {
			t.Errorf("the session belongs to %q, and there are %d links, want no change: %+v", owner, b.links(), store.calls)
		}
		if status, _ := b.ask(session, userHeader("ada")); status != http.StatusOK {
			t.Errorf("its own identity: got %d, want 200", status)
		}
		store.shared.put("wrong", "", SessionRecord{Identity: "eve", Initialize: []byte(initializeBody("2025-11-25")), Version: "2025-11-25"})
		b.handler.savings.store = careless{store}
		if status, _ := b.ask("wrong", userHeader("ada")); status != http.StatusNotFound || b.links() != 1 {
			t.Errorf("from a careless store: got %d and %d links, want 404 and 1", status, b.links())
		}
		if frees := store.of("Free"); len(frees) != 1 || frees[0].session != "wrong" {
			t.Errorf("got the calls %+v, want Free of the session of another identity", store.calls)
		}
	})
}

// A request of another identity that comes first, and fails, says nothing about the one that has the
// session.
//
// Guarantees: G-0073.6
func TestRestoreForAnotherIdentityFirst(t *testing.T) {
	inStore(t, HandlerOptions{Identify: byUser}, func(t *testing.T, b *bench, store *NodeStore) {
		session, release := moved(t, store.shared, "ada"), make(chan struct{})
		store.taking = func(context.Context, string) error { <-release; return nil }
		var both sync.WaitGroup
		// Eve is refused after her request was read: with 403 if the session of ada is here by then.
		for user, want := range map[string][]int{"eve": {http.StatusNotFound, http.StatusForbidden}, "ada": {http.StatusOK}} {
			both.Go(func() {
				if user == "ada" {
					pass(time.Second)
				}
				if status, body := b.ask(session, userHeader(user)); !slices.Contains(want, status) {
					t.Errorf("%s got %d %s, want %d", user, status, body, want)
				}
			})
		}
		pass(2 * time.Second)
		close(release)
		both.Wait()
	})
}

// While a session is being restored, the store is asked for it once, whoever else wants it: what a second attempt gets or
// gives back would be the session of the first.
//
// Guarantees: G-0073.5, G-0073.6
func TestOneRestoreAtATimeWhoeverAsks(t *testing.T) {
	inStore(t, HandlerOptions{Identify: byUser}, func(t *testing.T, b *bench, store *NodeStore) {
		session, release := moved(t, store.shared, "ada"), make(chan struct{})
		store.taking = func(context.Context, string) error { <-release; return nil }
		var all sync.WaitGroup
		for _, user := range []string{"ada", "eve", "ada"} {
			all.Go(func() {
				want := map[string]int{"ada": http.StatusOK, "eve": http.StatusForbidden}[user]
				if status, body := b.ask(session, userHeader(user)); status != want {
					t.Errorf("%s got %d %s, want %d", user, status, body, want)
				}
			})
			synctest.Wait()
		}
		close(release)
		all.Wait()
		if takes := store.of("Take"); len(takes) != 1 {
			t.Errorf("the store was asked %d times, want once: %+v", len(takes), takes)
		}
	})
}

// A session is restored although the client that has asked for it first leaves meanwhile: others may want it, too.
//
// Guarantees: G-0073.5
func TestARestoreGoesOnWithoutItsClient(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		session := moved(t, store.shared, "")
		ctx, leave := context.WithCancel(t.Context())
		store.taking = func(taking context.Context, _ string) error {
			leave()
			return taking.Err()
		}
		_, done := b.serve(ctx, "POST", echoBody, headerSession+": "+session)
		if <-done; !b.handler.table.has(session) {
			t.Error("the session is not here")
		}
	})
}

// A careless store ignores identities.
type careless struct{ *NodeStore }

func (c careless) Take(ctx context.Context, session, _ string) (SessionRecord, error) {
	return c.NodeStore.Take(ctx, session, "eve")
}

// Many requests of a session that come at once cause one Take. None of them is served before the
// handshake has ended, and then each of them is.
//
// Guarantees: G-0073.5
func TestRestoreIsDoneOnceForManyRequests(t *testing.T) {
	store := NewSharedStore().Node("here")
	synctest.Test(t, func(t *testing.T) {
		a := newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
			if m.Method != "initialize" {
				respond(p, in, m)
			}
		})
		b := &bench{t: t, handler: NewHandler(a, HandlerOptions{Sessions: store}), acceptor: a}
		defer a.finish(t)
		defer b.handler.Close(0)
		session := moved(t, store.shared, "")
		release := make(chan struct{})
		store.taking = func(context.Context, string) error { <-release; return nil }
		var work sync.WaitGroup
		statuses := make([]int, 100)
		for n := range statuses {
			work.Go(func() { statuses[n], _ = b.ask(session) })
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		p := b.peer(t, 0)
		if n := p.count(func(p *peer) int { return len(p.received) }); n != 1 || b.handler.table.has(session) {
			t.Errorf("before initialize was answered, the server got %d messages, and the session is visible: %t, want 1 and false", n, b.handler.table.has(session))
		}
		p.mustSend(t, answering(p.received[0].Stream, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}`))
		work.Wait()
		for n, status := range statuses {
			if status != http.StatusOK {
				t.Fatalf("request %d: got %d, want 200", n, status)
			}
		}
		if takes := len(store.of("Take")); takes != 1 || b.links() != 1 {
			t.Errorf("got %d Takes and %d links, want one of each", takes, b.links())
		}
	})
}

// A server that does not take notifications does not get a session, because the client's
// notifications/initialized has no effect. The session is free then.
//
// Guarantees: G-0073.5
func TestRestoreAtAServerThatIsBusy(t *testing.T) {
	store := NewSharedStore().Node("here")
	inBubble(t, HandlerOptions{Sessions: store}, true, func(t *testing.T, b *bench) {
		session := moved(t, store.shared, "")
		go func() {
			p := b.peer(t, 0)
			p.await(t, "the stream of initialize", func(p *peer) bool { return len(p.opened) > 0 })
			p.post(func() { p.link.Grant(p.opened[0], 1) }) // and nothing on Main
		}()
		if status, body := b.ask(session); status != http.StatusServiceUnavailable {
			t.Errorf("got %d %s, want 503", status, body)
		}
		if _, owner, known := store.shared.record(session); owner != "" || !known {
			t.Errorf("the session belongs to %q and is known: %t, want it free", owner, known)
		}
	})
}

// A request waits 5 s for its session and no longer: for a store or a server that does not
// answer. The session is free then, and the next attempt succeeds.
//
// Guarantees: G-0073.5
func TestRestoreIsGivenUp(t *testing.T) {
	for name, inServer := range map[string]bool{"store": false, "server": true} {
		t.Run(name, func(t *testing.T) {
			store := NewSharedStore().Node("here")
			synctest.Test(t, func(t *testing.T) {
				silent := true
				a := newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
					if !silent || !inServer {
						respond(p, in, m)
					}
				})
				b := &bench{t: t, handler: NewHandler(a, HandlerOptions{Sessions: store}), acceptor: a}
				defer a.finish(t)
				defer b.handler.Close(0)
				if !inServer {
					store.taking = func(ctx context.Context, _ string) error {
						if silent {
							<-ctx.Done()
						}
						return ctx.Err()
					}
				}
				session := moved(t, store.shared, "")
				begun := time.Now()
				var work sync.WaitGroup
				for n := range 3 {
					work.Go(func() {
						w := b.send("POST", session)
						if took := time.Since(begun); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || took != restorePatience {
							t.Errorf("request %d: got %d %v after %v, want 503 with Retry-After: 1 after 5s", n, w.Code, w.Header(), took)
						}
					})
				}
				work.Wait()
				if inServer {
					if _, owner, _ := store.shared.record(session); owner != "" {
						t.Errorf("the session belongs to %q, want nobody", owner)
					}
				}
				silent = false
				if status, body := b.ask(session); status != http.StatusOK {
					t.Errorf("the next request: got %d %s, want 200", status, body)
				}
			})
		})
	}
}

// A session does not go on if its server refuses the initialize, or would speak another
// revision, or if the record is no record of a session. The client begins another one then.
//
// Guarantees: G-0073.5
func TestRestoreOfASessionThatCannotGoOn(t *testing.T) {
	good := SessionRecord{Initialize: []byte(initializeBody("2025-11-25")), Version: "2025-11-25"}
	for name, damage := range map[string]func(r *SessionRecord){
		"refused":          func(r *SessionRecord) { r.Initialize = []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`) },
		"another revision": func(r *SessionRecord) { r.Version = "2025-06-18" },
		"no initialize":    func(r *SessionRecord) { r.Initialize = []byte(echoBody) },
		"a notification":   func(r *SessionRecord) { r.Initialize = []byte(`{"jsonrpc":"2.0","method":"initialize"}`) },
		"nothing":          func(r *SessionRecord) { r.Initialize = nil },
		"too long":         func(r *SessionRecord) { r.Initialize = []byte(paddedInitialize(MaxStoredInitialize + 1)) },
		"no JSON":          func(r *SessionRecord) { r.Initialize = []byte("{") },
		"numbers":          func(r *SessionRecord) { r.Streams = mostNumbers + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
				r := good
				damage(&r)
				session := newSessionID()
				store.shared.put(session, "", r)
				if status, body := b.ask(session); status != http.StatusNotFound || !strings.Contains(body, `"id":5`) {
					t.Errorf("got %d %s, want 404", status, body)
				}
				if _, _, known := store.shared.record(session); known {
					t.Errorf("the store has the session, want it forgotten: %+v", store.calls)
				}
				b.handler.table.mu.Lock()
				defer b.handler.table.mu.Unlock()
				if n := b.handler.table.places.Held(); n != 0 {
					t.Errorf("%d links are left, want none", n)
				}
			})
		})
	}
}

// The longest initialize and the highest number make a session, too. It counts as one whose client
// has used its id.
func TestRestoreAtTheBounds(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		session := newSessionID()
		store.shared.put(session, "", SessionRecord{Initialize: []byte(paddedInitialize(MaxStoredInitialize)), Version: "2025-11-25", Streams: mostNumbers})
		if status, body := b.ask(session); status != http.StatusOK {
			t.Fatalf("got %d %s, want 200", status, body)
		}
		if l := b.handler.table.lookup(session); !l.use.confirmed || l.size != MaxStoredInitialize {
			t.Errorf("the session is confirmed: %t, and has %d bytes, want true and %d", l.use.confirmed, l.size, MaxStoredInitialize)
		}
	})
}

// A handler without sessions stores none, and is told of no loss. One that is told of a session
// that it has not stored changes nothing.
func TestRestoreWithoutStoredSessions(t *testing.T) {
	inStore(t, HandlerOptions{Stateless: true}, func(t *testing.T, b *bench, store *NodeStore) {
		w, done := b.serve(t.Context(), "POST", initializeBody("2025-11-25"))
		<-done
		b.send("POST", "x")
		if store.lost("x"); w.Code != http.StatusOK || len(store.calls) != 1 {
			t.Errorf("got %d and the calls %+v, want 200 and Bind", w.Code, store.calls)
		}
	})
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		w, done := b.serve(t.Context(), "POST", paddedInitialize(MaxStoredInitialize+1))
		<-done
		session := w.Header().Get(headerSession)
		if store.lost(session); !b.handler.table.has(session) {
			t.Error("a session that is not stored was lost, want it here")
		}
	})
}

// After close nobody begins to restore a session.
func TestRestoreAfterClose(t *testing.T) {
	all := newRestores(nil)
	all.close()
	if r, first := all.join("x", ""); r != nil || first {
		t.Errorf("got the attempt %v, first: %t, want none", r, first)
	}
}

// What the store says decides about the status.
//
// Guarantees: G-0073.5
func TestRestoreSaysWhatTheStoreSays(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		text string // "": the session is unknown
	}{
		"unknown":     {ErrNoSession, ""},
		"wrapped":     {fmt.Errorf("store: %w", ErrNoSession), ""},
		"elsewhere":   {&OwnedError{Node: "there"}, "the session is not available at the moment"},
		"here":        {&OwnedError{Node: "here"}, "the session is not available at the moment"},
		"unavailable": {errors.New("the disk is full"), "overloaded: sessions cannot be restored now"},
	} {
		t.Run(name, func(t *testing.T) {
			inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
				store.taking = func(context.Context, string) error { return c.err }
				for _, method := range []string{"POST", "GET", "DELETE"} {
					unknown := fmt.Sprintf(`404 "" {"jsonrpc":"2.0",%s"error":{"code":-32600,"message":"session not found"}}`, map[string]string{"POST": `"id":5,`}[method])
					want := cmp.Or(map[string]string{"": unknown}[c.text], saysBusy("", c.text))
					if w := b.send(method, "x"); said(w) != want {
						t.Errorf("%s: got %s, want %s", method, said(w), want)
					}
				}
			})
		})
	}
}

// A store that fails is reported once until it works again, however many requests come.
func TestRestoreReportsAFailingStoreOnce(t *testing.T) {
	var logged strings.Builder
	inStore(t, HandlerOptions{Log: slog.New(slog.NewTextHandler(&logged, nil))}, func(t *testing.T, b *bench, store *NodeStore) {
		var err error
		store.taking = func(context.Context, string) error { return err }
		for _, err = range []error{errors.New("first"), errors.New("again"), ErrNoSession, &OwnedError{}, fmt.Errorf("store: %w", &OwnedError{}), errors.New("second"), errors.New("again")} {
			b.send("POST", "x")
		}
		if text := logged.String(); strings.Count(text, "WARN") != 2 || !strings.Contains(text, "first") || !strings.Contains(text, "second") {
			t.Errorf("got the log %s, want the first and the second failure", text)
		}
	})
}

// An attempt that ends because the handler is closed says nothing about the store.
func TestCloseReportsNoFailingStore(t *testing.T) {
	var logged strings.Builder
	inStore(t, HandlerOptions{Log: slog.New(slog.NewTextHandler(&logged, nil))}, func(t *testing.T, b *bench, store *NodeStore) {
		store.taking = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
		refused := make(chan int, 1)
		go func() { refused <- b.send("POST", "x").Code }()
		synctest.Wait()
		b.handler.Close(0)
		if status := <-refused; status != http.StatusServiceUnavailable || strings.Contains(logged.String(), "cannot be taken") {
			t.Errorf("got %d, and the log %s", status, &logged)
		}
	})
}

// A restored session counts as one that begins: it replaces an idle one, and is refused if none
// is idle. The store keeps what was refused.
//
// Guarantees: G-0073.7
func TestRestoreCountsAgainstTheLimits(t *testing.T) {
	inStore(t, HandlerOptions{MaxSessions: 2}, func(t *testing.T, b *bench, store *NodeStore) {
		first, second, third := moved(t, store.shared, ""), moved(t, store.shared, ""), moved(t, store.shared, "")
		for _, session := range []string{first, second, third} {
			if status, body := b.ask(session); status != http.StatusOK {
				t.Errorf("got %d %s, want 200", status, body)
			}
		}
		if _, _, known := store.shared.record(first); known {
			t.Error("the first session is still known, want it replaced by the third")
		}
		for _, session := range []string{second, third} {
			b.serve(t.Context(), "GET", "", headerSession+": "+session)
		}
		fourth := moved(t, store.shared, "")
		if status, body := b.ask(fourth); status != http.StatusServiceUnavailable || !strings.Contains(body, "overloaded: no more sessions are possible now") {
			t.Errorf("with no idle session: got %d %s, want 503", status, body)
		}
		if _, owner, known := store.shared.record(fourth); owner != "" || !known {
			t.Errorf("the refused session belongs to %q and is known: %t, want it free", owner, known)
		}
	})
}

// A client has used its session before it is restored, whatever comes of the request that wants it: another one that is idle longer makes room
// first.
//
// Guarantees: G-0073.7
func TestARestoredSessionCountsAsUsed(t *testing.T) {
	inStore(t, HandlerOptions{MaxSessions: 2}, func(t *testing.T, b *bench, store *NodeStore) {
		used, _ := b.begin()
		b.ask(used)
		pass(time.Second)
		restored := moved(t, store.shared, "")
		if w, done := b.serve(t.Context(), "POST", "{", headerSession+": "+restored); w.Code != http.StatusBadRequest {
			<-done
			t.Errorf("got %d %s, want 400", w.Code, w.Body)
		}
		pass(time.Second)
		b.begin()
		if b.handler.table.has(used) || !b.handler.table.has(restored) {
			t.Errorf("the session that was idle longest is here: %t, and the restored one: %t, want false and true", b.handler.table.has(used), b.handler.table.has(restored))
		}
	})
}

// At most 64 sessions are restored at a time, and half of them for one client. Others wait for 5 s. A flood of
// one client does not delay another.
//
// Guarantees: G-0073.7
func TestRestoreIsLimited(t *testing.T) {
	inStore(t, HandlerOptions{Identify: byUser}, func(t *testing.T, b *bench, store *NodeStore) {
		release := make(chan struct{})
		store.taking = func(ctx context.Context, session string) error {
			if strings.HasPrefix(session, "flood") {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return ErrNoSession
		}
		var work sync.WaitGroup
		refused, began := make(chan int, 1000), time.Now()
		flood := func(client, n int) {
			work.Go(func() {
				status, body := b.ask(fmt.Sprintf("flood-%d-%d", client, n), userHeader(fmt.Sprint("hostile ", client)))
				if status == http.StatusServiceUnavailable && !strings.Contains(body, "too many") {
					t.Errorf("got %s, want the reason", body)
				}
				refused <- status
			})
		}
		for n := range 40 {
			flood(0, n)
		}
		synctest.Wait()
		if n := len(store.of("Take")); n != 32 {
			t.Errorf("got %d Takes at a time of one client, want 32", n)
		}
		if status, _ := b.ask("other", userHeader("good")); status != http.StatusNotFound || time.Since(began) > 0 {
			t.Errorf("another client: got %d after %v, want 404 at once", status, time.Since(began))
		}
		for client := range 5 {
			for n := range 20 {
				flood(client+1, n)
			}
		}
		synctest.Wait()
		if n := len(store.of("Take")); n > 64+1 || n < 60 {
			t.Errorf("got %d Takes, want about 64 at a time and the one of the other client", n)
		}
		pass(restorePatience)
		work.Wait()
		for range 140 {
			if status := <-refused; status != http.StatusServiceUnavailable && status != http.StatusNotFound {
				t.Errorf("got %d, want 503 or 404", status)
			}
		}
		if held := b.handler.restores.places.Held(); held > 0 || len(b.handler.restores.all) > 0 {
			t.Errorf("%d sessions are still being restored, want none", held)
		}
	})
}

// Of an attempt to restore a session nothing is left, whether it was restored or not: what could end it early is forgotten, too.
//
// Guarantees: G-0073.5
func TestNothingIsLeftOfARestore(t *testing.T) {
	inStore(t, HandlerOptions{Identify: byUser}, func(t *testing.T, b *bench, store *NodeStore) {
		watched := &watchedContext{Context: b.handler.restores.ctx}
		b.handler.restores.ctx = watched
		for session, want := range map[string]int{moved(t, store.shared, "ada"): http.StatusOK, "unknown": http.StatusNotFound} {
			if status, body := b.ask(session, userHeader("ada")); status != want {
				t.Errorf("got %d %s, want %d", status, body, want)
			}
		}
		if made, left := watched.made.Load(), watched.left.Load(); made != 2 || left != 0 {
			t.Errorf("%d attempts wait for the end of the handler, and %d still do; want 2 and none", made, left)
		}
	})
}

// A watchedContext counts who waits for its end.
type watchedContext struct {
	context.Context
	made, left atomic.Int64
}

// Value hides the context within, so that context.AfterFunc calls AfterFunc.
func (w *watchedContext) Value(any) any { return nil }

func (w *watchedContext) AfterFunc(f func()) (stop func() bool) {
	w.made.Add(1)
	w.left.Add(1)
	stopInner := context.AfterFunc(w.Context, f)
	return func() bool {
		w.left.Add(-1)
		return stopInner()
	}
}
