package streamable

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A process is one handler of a node, which a test replaces by another.
type process struct {
	*bench
	store *NodeStore
}

// inProcesses runs a test with a function that starts the next process of a node. The one before
// is killed then.
func inProcesses(t *testing.T, o HandlerOptions, test func(t *testing.T, next func() *process)) {
	synctest.Test(t, func(t *testing.T) {
		shared := NewSharedStore()
		var all []*process
		test(t, func() *process {
			if len(all) > 0 {
				shared.Kill("here")
			}
			o.Sessions = shared.Node("here")
			a := newAcceptor(respond)
			p := &process{&bench{t: t, handler: NewHandler(a, o), acceptor: a}, o.Sessions.(*NodeStore)}
			all = append(all, p)
			return p
		})
		for _, p := range all {
			p.handler.Close(0)
			p.finish(t)
		}
	})
}

// listening opens the GET stream of a session. Its recorder may be read when nobody writes.
func (b *bench) listening(session, last string) (_ *httptest.ResponseRecorder, leave func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	lines := []string{headerSession + ": " + session}
	if last != "" {
		lines = append(lines, "Last-Event-ID: "+last)
	}
	w, done := b.serve(ctx, "GET", "", lines...)
	return w, func() {
		cancel()
		<-done
	}
}

// idsOf returns the ids of events that have a message.
func idsOf(events string) (ids []string) {
	for block := range strings.SplitSeq(events, "\n\n") {
		id, _, _ := strings.Cut(strings.TrimPrefix(block, "id: "), "\n")
		if strings.Contains(block, "data: {") {
			ids = append(ids, id)
		}
	}
	return ids
}

// The ids of events are not used again after a session has moved, twice. A client that comes back
// for its GET stream with an id of an earlier process is told that messages may be missing, and
// gets what the new process has sent. A client that has just begun to listen is told nothing.
//
// Guarantees: G-0073.3, G-0033.2, G-0033.9
func TestMovedSessionNumbersOn(t *testing.T) {
	var logged bytes.Buffer
	o := HandlerOptions{Log: slog.New(slog.NewTextHandler(&logged, nil))}
	inProcesses(t, o, func(t *testing.T, next func() *process) {
		p := next()
		session, link := p.begin()
		seen, last := make(map[string]bool), ""
		for n := range 3 {
			if n > 0 {
				p = next()
				if status, body := p.ask(session); status != http.StatusOK {
					t.Fatalf("after %d moves: got %d %s, want 200", n, status, body)
				}
				link = p.peer(t, 0)
			}
			w, leave := p.listening(session, last)
			for range 3 {
				link.mustSend(t, transport.Outbound{Frame: notice(n)})
			}
			synctest.Wait()
			leave()
			if noted := strings.Contains(w.Body.String(), ": messages may be missing"); noted != (n > 0) {
				t.Errorf("after %d moves: the stream says that messages may be missing: %t: %q", n, noted, w.Body)
			}
			ids := idsOf(w.Body.String())
			for _, id := range ids {
				if seen[id] {
					t.Errorf("the id %s was used twice", id)
				}
				seen[id], last = true, id
			}
			if len(ids) != 3 {
				t.Fatalf("after %d moves: got the events %q, want 3", n, ids)
			}
		}
		p = next()
		p.ask(session)
		p.peer(t, 0).mustSend(t, transport.Outbound{Frame: notice(9)}) // before anybody listens
		w, leave := p.listening(session, "")
		synctest.Wait()
		leave()
		if text := w.Body.String(); strings.Contains(text, "missing") || len(idsOf(text)) != 1 {
			t.Errorf("a client that has not listened before: got %q, want one event", text)
		}
		if logged.Len() > 0 {
			t.Errorf("got the log %s, want nothing, since nothing is known to be missing", logged.Bytes())
		}
	})
}

// Of events that this process has sent and not kept, their number is said as ever.
//
// Guarantees: G-0033.9
func TestMovedSessionCountsWhatItHasLost(t *testing.T) {
	o := HandlerOptions{EventStore: forgetful{}, Log: slog.New(slog.DiscardHandler)}
	inProcesses(t, o, func(t *testing.T, next func() *process) {
		session, _ := next().begin()
		p := next()
		p.ask(session)
		link := p.peer(t, 0)
		_, leave := p.listening(session, "")
		for range 5 {
			link.mustSend(t, transport.Outbound{Frame: notice(1)})
		}
		synctest.Wait()
		leave()
		for last, want := range map[string]string{
			fmt.Sprintf("0-%d", numbersStep+2): ": 3 messages are not kept any more\n\n",
			fmt.Sprintf("0-%d", numbersStep):   ": 5 messages are not kept any more\n\n",
			"0-7":                              ": messages may be missing, because the session has moved\n\n: 5 messages are not kept any more\n\n",
		} {
			w, leave := p.listening(session, last)
			leave()
			if got := w.Body.String(); !strings.Contains(got, want) || strings.Contains(want, "may be") != strings.Contains(got, "may be") {
				t.Errorf("after %s: got %q, want %q", last, got, want)
			}
		}
	})
}

// forgetful keeps no events.
type forgetful struct{}

func (forgetful) Append(string, StoredEvent) {}
func (forgetful) Forget(string)              {}
func (forgetful) After(context.Context, string, transport.Stream, uint64, int) ([]StoredEvent, error) {
	return nil, nil
}

// A response that was under way when its process died cannot be resumed, even if the new process
// has as many streams.
//
// Guarantees: G-0073.3, G-0033.4
func TestMovedSessionHasNoEarlierResponses(t *testing.T) {
	inProcesses(t, HandlerOptions{}, func(t *testing.T, next func() *process) {
		p := next()
		session, link := p.begin()
		hold := `{"jsonrpc":"2.0","id":5,"method":"hold"}`
		p.serve(t.Context(), "POST", hold, headerSession+": "+session)
		link.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(0)})
		p = next()
		for _, stream := range []int{2, numbersStep, numbersStep + 2} {
			w := p.send("GET", session, fmt.Sprintf("Last-Event-ID: %d-1", stream))
			if w.Code != http.StatusGone {
				t.Errorf("the response on stream %d: got %d %s, want 410", stream, w.Code, w.Body)
			}
		}
	})
}

// Another node has taken the session of a node that was thought dead. The node ends its copy at
// once, and tells the store nothing. A call whose response has not begun gets 503, and streams
// break. A later request finds the other node.
//
// Guarantees: G-0073.4
func TestMovedSessionEndsHere(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh, a, b, c *meshNode) {
		session, p := a.begin()
		other, q := a.begin()
		listener, listened := a.serve(t.Context(), "GET", "", headerSession+": "+session)
		call, called := a.serve(t.Context(), "POST", `{"jsonrpc":"2.0","id":5,"method":"hold"}`, headerSession+": "+session)
		m.shared.Lose("a")
		a.down = true
		b.want(session, "b>a")
		m.shared.telling.Wait()
		if loss := p.awaitLoss(t); loss.Reason != transport.ErrSessionMoved {
			t.Errorf("got the reason %v, want %v", loss.Reason, transport.ErrSessionMoved)
		}
		<-listened
		<-called
		if said(call) != `503 "" {"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"the session has ended before the response came"}}` {
			t.Errorf("the call got %d %v, want 503, not to be repeated", call.Code, call.Header())
		}
		if listener.Code != http.StatusOK {
			t.Errorf("the listener got %d, want 200", listener.Code)
		}
		if n := len(a.store.of("Free")) + len(a.store.of("Forget")); n > 0 {
			t.Errorf("the node has told the store of its end: %+v", a.store.calls)
		}
		if n := q.count(func(p *peer) int { return len(p.losses) }); n > 0 || !a.handler.table.has(other) {
			t.Error("another session has ended, too, want only the one that has moved")
		}
		keeper(p).Keep([]byte("late"))
		pass(10 * time.Minute)
		if again := a.store.of("Save"); again[len(again)-1].session != other || len(again) != 3 {
			t.Errorf("got %d Saves, the last one of %s, want one more, of the other session", len(again), again[len(again)-1].session)
		}
		if r, owner, _ := m.shared.record(session); owner != "b" || string(r.State) == "late" {
			t.Errorf("the session belongs to %q with the state %q, want b and its own", owner, r.State)
		}
		a.handler.lost("unknown")
	})
}

// A request that comes to a copy while it ends is refused, and may be repeated: it is not told that
// the session is gone.
//
// Guarantees: G-0073.4
func TestMovedSessionIsNotUnknown(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		session, _ := b.begin()
		l := b.handler.table.find(session)
		defer b.handler.table.leave(l)
		l.beginEnd(transport.ErrSessionMoved)
		if w := b.send("POST", session); said(w) != saysBusy(`"id":5,`, "the session is not available at the moment") {
			t.Errorf("got %s, want 503 with Retry-After: 1", said(w))
		}
		l.listed.remove(l, transport.ErrSessionMoved)
		l.recv.Lose(transport.Loss{Reason: transport.ErrSessionMoved})
	})
}

// Two requests that find each other: another node takes the session while this one still restores
// it. The session is served by one of them.
//
// Guarantees: G-0073.4, G-0073.5
func TestMovedSessionIsLostWhileItIsRestored(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		session := moved(t, store.shared, "")
		store.taking = func(context.Context, string) error {
			b.handler.lost(session)
			return nil
		}
		if w := b.send("POST", session); said(w) != saysBusy(`"id":5,`, "the session is not available at the moment") {
			t.Errorf("got %s, want 503", said(w))
		}
		if loss := b.peer(t, 0).awaitLoss(t); loss.Reason != transport.ErrSessionMoved || b.handler.table.has(session) {
			t.Errorf("got the reason %v, and the session is here: %t", loss.Reason, b.handler.table.has(session))
		}
	})
}

// The server is chosen for the request that brings the session. If there is none, the session
// stays where it is.
//
// Guarantees: G-0073.5
func TestRestoreChoosesTheServer(t *testing.T) {
	type key struct{}
	a := newAcceptor(respond)
	o := HandlerOptions{Choose: func(r *http.Request) transport.Acceptor {
		if r.Context().Value(key{}) == nil {
			return nil
		}
		return a
	}}
	inStore(t, o, func(t *testing.T, b *bench, store *NodeStore) {
		defer a.finish(t)
		defer b.handler.Close(0)
		session := moved(t, store.shared, "")
		if w := b.send("POST", session); w.Code != http.StatusNotFound || len(store.of("Take")) > 0 {
			t.Errorf("without a server: got %d after %d Takes, want 404 and none", w.Code, len(store.of("Take")))
		}
		w := httptest.NewRecorder()
		r := newRequest("POST", echoBody, headerSession+": "+session)
		b.handler.ServeHTTP(w, r.WithContext(context.WithValue(t.Context(), key{}, true)))
		if w.Code != http.StatusOK || a.links() != 1 || b.links() != 0 {
			t.Errorf("got %d with %d links at the server, want 200 and one", w.Code, a.links())
		}
	})
}

// A store that panics spoils one attempt. The requests that wait for it are refused.
func TestRestoreSurvivesAStoreThatPanics(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		session, panics, release := moved(t, store.shared, ""), true, make(chan struct{})
		store.taking = func(context.Context, string) error {
			if panics {
				<-release
				panic(http.ErrAbortHandler)
			}
			return nil
		}
		var both sync.WaitGroup
		both.Go(func() { b.send("POST", session) })
		synctest.Wait()
		both.Go(func() {
			if w := b.send("POST", session); w.Code != http.StatusServiceUnavailable {
				t.Errorf("the request that waited got %d, want 503", w.Code)
			}
		})
		synctest.Wait()
		close(release)
		both.Wait()
		if panics = false; len(b.handler.restores.all) > 0 || b.handler.restores.places.Held() > 0 {
			t.Error("the attempt is not over, want it to be")
		}
		if status, _ := b.ask(session); status != http.StatusOK {
			t.Errorf("the next request: got %d, want 200", status)
		}
	})
}

// Close ends attempts to restore sessions, and waits for them. The session is free then, and the
// request may be repeated elsewhere.
//
// Guarantees: G-0073.4
func TestRestoreEndsWithTheHandler(t *testing.T) {
	for name, inServer := range map[string]bool{"store": false, "server": true} {
		t.Run(name, func(t *testing.T) {
			store := NewSharedStore().Node("here")
			synctest.Test(t, func(t *testing.T) {
				a := newAcceptor(func(*peer, transport.Inbound, jsonrpc.Message) {})
				b := &bench{t: t, handler: NewHandler(a, HandlerOptions{Sessions: store}), acceptor: a}
				defer a.finish(t)
				session := moved(t, store.shared, "")
				var taken atomic.Bool
				store.taking = func(ctx context.Context, _ string) error {
					if !inServer {
						<-ctx.Done()
					}
					taken.Store(true)
					return nil
				}
				var asking sync.WaitGroup
				for range 2 {
					asking.Go(func() {
						if w := b.send("POST", session); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
							t.Errorf("got %d %v, want 503 to be repeated", w.Code, w.Header())
						}
					})
				}
				synctest.Wait()
				begun := time.Now()
				if err := b.handler.Close(0); err != nil || time.Since(begun) > 0 {
					t.Errorf("Close: %v after %v, want no error at once", err, time.Since(begun))
				}
				if !taken.Load() {
					t.Error("Close has returned while the store is asked")
				}
				if _, owner, known := store.shared.record(session); owner == "here" || !known {
					t.Errorf("the session belongs to %q and is known: %t, want it free", owner, known)
				}
				asking.Wait()
			})
		})
	}
}

// A session goes on, too, if its server has kept nothing.
//
// Guarantees: G-0073.5
func TestMovedSessionOfAServerThatKeepsNothing(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		session := newSessionID()
		store.shared.put(session, "there", SessionRecord{Initialize: []byte(initializeBody("2025-11-25")), Version: "2025-11-25", Streams: numbersStep})
		if status, body := b.ask(session); status != http.StatusOK {
			t.Fatalf("got %d %s, want an answer", status, body)
		}
		if state, continues := keeper(b.peer(t, 0)).Kept(); state != nil || !continues {
			t.Errorf("Kept returned %q, %t, want nothing of a session that continues", state, continues)
		}
	})
}
