package streamable

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// inStore runs a test of a handler whose sessions are stored, on the clock of a bubble.
func inStore(t *testing.T, o HandlerOptions, test func(t *testing.T, b *bench, store *NodeStore)) {
	store := NewSharedStore().Node("here")
	o.Sessions = store
	inBubble(t, o, false, func(t *testing.T, b *bench) { test(t, b, store) })
}

// begin begins a session, and returns its id and the receiver of its link.
func (b *bench) begin(lines ...string) (session string, p *peer) {
	w, done := b.serve(b.t.Context(), "POST", initializeBody("2025-11-25"), lines...)
	<-done
	return w.Header().Get(headerSession), b.peer(b.t, b.links()-1)
}

func keeper(p *peer) transport.Keeper { return p.link.(transport.Keeper) }

// After a session has ended here, or another node has it, it is not saved any more, even if its server has begun it just then.
//
// Guarantees: G-0073.1
func TestNothingIsSavedOfASessionThatIsOver(t *testing.T) {
	store := NewSharedStore().Node("here")
	s := newSavings(&HandlerOptions{Sessions: store, SessionIdle: time.Hour, MaxSessions: 1})
	defer s.close()
	for name, end := range map[string]func(*savedSession){
		"ended": func(k *savedSession) { k.end(false) }, "goes on": func(k *savedSession) { k.end(true) }, "lost": (*savedSession).lose,
	} {
		k := s.resume(name, SessionRecord{})
		end(k)
		k.serve("2025-11-25")
		k.keep([]byte("{}"))
		k.saveAgain()
		if saves := store.of("Save"); len(saves) > 0 {
			t.Errorf("%s: got %+v, want no Save", name, saves)
		}
	}
}

// A session is stored when initialize was answered: with the request as it was sent, the
// identity and the revision. A session that is refused, or whose client was not there for the
// answer, is not.
//
// Guarantees: G-0073.1
func TestSavesBeginWithTheSession(t *testing.T) {
	inStore(t, HandlerOptions{Identify: byUser}, func(t *testing.T, b *bench, store *NodeStore) {
		if got := fmt.Sprint(len(store.of("Bind")), len(store.calls)); got != "1 1" {
			t.Errorf("got %s calls of Bind and of all methods, want one", got)
		}
		session, _ := b.begin(userHeader("ada"))
		r, owner, known := store.shared.record(session)
		if !known || owner != "here" || r.Identity != "ada" || string(r.Initialize) != initializeBody("2025-11-25") ||
			r.Version != protocol.Version20251125 || r.State != nil || r.Streams != numbersStep {
			t.Errorf("got the record %+v of %q, %t", r, owner, known)
		}
		w, done := b.serve(t.Context(), "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
		if <-done; w.Header().Get(headerSession) != "" {
			t.Error("got a session for an initialize that failed, want none")
		}
		if saves := store.of("Save"); len(saves) != 1 || len(store.of("Forget")) != 0 {
			t.Errorf("got the calls %+v, want one Save", store.calls)
		}
	})
}

// A frame belongs to its receiver, which may change it. What is stored is what the client has sent, also of a session that is restored.
//
// Guarantees: G-0073.1
func TestSavesAreOfWhatTheClientHasSent(t *testing.T) {
	store := NewSharedStore().Node("here")
	synctest.Test(t, func(t *testing.T) {
		a := newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
			respond(p, in, m)
			clear(in.Frame)
		})
		b := &bench{t: t, handler: NewHandler(a, HandlerOptions{Sessions: store}), acceptor: a}
		defer a.finish(t)
		defer b.handler.Close(0)
		begun, _ := b.begin()
		restored := moved(t, store.shared, "")
		b.ask(restored)
		synctest.Wait()
		for _, session := range []string{begun, restored} {
			if r, owner, _ := store.shared.record(session); owner != "here" || string(r.Initialize) != initializeBody("2025-11-25") {
				t.Errorf("got the initialize %q, owned by %q, want that of the client", r.Initialize, owner)
			}
		}
	})
}

// An initialize of 16 KiB is stored, and a longer one is not. The session works all the same,
// and the store hears nothing of it.
//
// Guarantees: G-0073.1
func TestSavesLeaveOutALongInitialize(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		for size, stored := range map[int]bool{MaxStoredInitialize: true, MaxStoredInitialize + 1: false} {
			w, done := b.serve(t.Context(), "POST", paddedInitialize(size))
			<-done
			session := w.Header().Get(headerSession)
			if _, _, known := store.shared.record(session); known != stored {
				t.Errorf("%d bytes: the session is stored: %t, want %t", size, known, stored)
			}
			if _, keeps := b.peer(t, b.links()-1).link.(transport.Keeper); keeps != stored {
				t.Errorf("%d bytes: the link is a Keeper: %t, want %t", size, keeps, stored)
			}
			for _, c := range []struct {
				method, body string
				want         int
			}{{"POST", echoBody, http.StatusOK}, {"DELETE", "", http.StatusNoContent}} {
				w, done := b.serve(t.Context(), c.method, c.body, headerSession+": "+session)
				if <-done; w.Code != c.want {
					t.Errorf("%d bytes: %s: got %d, want %d", size, c.method, w.Code, c.want)
				}
			}
			for _, c := range store.calls {
				if c.session == session && !stored {
					t.Errorf("got the call %s for a session that is not stored", c.method)
				}
			}
		}
	})
}

// The state of a server is stored at once, and then at most every 100 ms. The last one wins. A
// state that is not new is not stored.
//
// Guarantees: G-0073.2
func TestSavesOfStates(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		session, p := b.begin()
		other, q := b.begin()
		begun := time.Now()
		at := func(session string) (saves []string) {
			for _, c := range store.of("Save") {
				if c.session == session {
					saves = append(saves, fmt.Sprintf("%s after %v", c.record.State, c.at.Sub(begun)))
				}
			}
			return saves
		}
		want := func(session string, want ...string) {
			t.Helper()
			if got := at(session); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got the Saves %q, want %q", got, want)
			}
		}
		keeper(p).Keep([]byte("1")) // just after initialize
		keeper(q).Keep([]byte("1"))
		pass(50 * time.Millisecond)
		keeper(p).Keep([]byte("2"))
		want(session, " after 0s")
		pass(time.Second)
		want(session, " after 0s", "2 after 100ms")
		want(other, " after 0s", "1 after 100ms")
		keeper(p).Keep([]byte("2"))
		pass(savingPause)
		keeper(q).Keep([]byte("2"))
		pass(savingPause)
		keeper(q).Keep([]byte("3")) // at the earliest time
		keeper(p).Keep([]byte("3"))
		pass(50 * time.Millisecond)
		keeper(q).Keep([]byte("4"))
		keeper(p).Keep([]byte("4"))
		pass(10 * time.Second)
		want(session, " after 0s", "2 after 100ms", "3 after 1.25s", "4 after 1.4s")
		want(other, " after 0s", "1 after 100ms", "2 after 1.15s", "3 after 1.25s", "4 after 1.4s")
		keeper(p).Keep([]byte("5"))
		pass(30 * time.Millisecond)
		keeper(q).Keep([]byte("5"))
		pass(30 * time.Millisecond)
		keeper(p).Keep([]byte("6"))
		pass(30 * time.Millisecond)
		keeper(q).Keep([]byte("6"))
		pass(time.Second)
		want(session, " after 0s", "2 after 100ms", "3 after 1.25s", "4 after 1.4s", "5 after 11.3s", "6 after 11.46s")
		want(other, " after 0s", "1 after 100ms", "2 after 1.15s", "3 after 1.25s", "4 after 1.4s", "5 after 11.33s", "6 after 11.49s")
		keeper(p).Keep([]byte("3"))
		for n := range 25 {
			pass(7 * time.Millisecond)
			keeper(p).Keep(fmt.Append(nil, 4+n))
		}
		pass(time.Second)
		begun = time.Now()
		saves := at(session)
		if want := "[3 after -1.175s 18 after -1.068s 28 after -963ms]"; fmt.Sprint(saves[len(saves)-3:]) != want {
			t.Errorf("got the Saves %q, want at the end %s", saves, want)
		}
	})
}

// The pause between two Saves of states begins anew when the session is saved for another reason meanwhile.
//
// Guarantees: G-0073.2
func TestSavesOfStatesAfterAnotherSave(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		_, p := b.begin()
		begun := time.Now()
		keeper(p).Keep([]byte("1")) // due after 100 ms
		pass(50 * time.Millisecond)
		for range numbersStep / 2 { // so many numbers that more are reserved
			p.mustSend(t, transport.Outbound{Frame: notice(1)})
		}
		pass(10 * time.Millisecond)
		keeper(p).Keep([]byte("2"))
		pass(time.Second)
		var saves []string
		for _, c := range store.of("Save") {
			saves = append(saves, fmt.Sprintf("%s after %v", c.record.State, c.at.Sub(begun)))
		}
		if want := []string{" after 0s", "1 after 50ms", "2 after 160ms"}; !slices.Equal(saves, want) {
			t.Errorf("got the Saves %q, want %q", saves, want)
		}
	})
}

// Every number of a stream is reserved in the store before it is used: 1,024 at a time, for
// streams of requests and for events of the GET stream.
//
// Guarantees: G-0073.3
func TestSavesReserveNumbers(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		session, _ := b.begin()
		check := func(used uint64) {
			t.Helper()
			r, _, _ := store.shared.record(session)
			if r.Streams <= used || r.Streams > used+2*numbersStep {
				t.Fatalf("%d numbers are used, and %d reserved", used, r.Streams)
			}
		}
		for n := range uint64(3 * numbersStep) {
			_, done := b.serve(t.Context(), "POST", echoBody, headerSession+": "+session)
			<-done
			check(n + 2) // initialize was the first
		}
		if n := len(store.of("Save")); n != 4 {
			t.Errorf("got %d Saves for 3 × 1,024 calls, want 4", n)
		}
		session, p := b.begin()
		for n := range uint64(3 * numbersStep) {
			p.mustSend(t, transport.Outbound{Frame: notice(1)})
			check(n + 1)
		}
		if n := len(store.of("Save")); n != 8 {
			t.Errorf("got %d Saves after 3 × 1,024 notifications, want 4 more", n)
		}
	})
}

// A session is stored again after a quarter of SessionIdle since its last Save. 10,000 idle
// sessions never give more than 12 Saves a second, and each of them is stored again within
// three quarters. Calls cause none.
//
// Guarantees: G-0073.2
func TestTenThousandIdleSessionsAreSavedSlowly(t *testing.T) {
	const sessions = 10_000
	inStore(t, HandlerOptions{Identify: byUser}, func(t *testing.T, b *bench, store *NodeStore) {
		for n := range sessions {
			fuzzed(b.handler, "POST", strings.Join(append(posting(), userHeader(fmt.Sprint(n))), "\n"), initializeBody("2025-11-25"))
		}
		store.mu.Lock()
		clear(store.calls)
		store.calls = store.calls[:0]
		store.mu.Unlock()
		begun := time.Now()
		pass(29 * time.Minute)
		perSecond, first := make(map[time.Duration]int), make(map[string]time.Duration)
		for _, c := range store.of("Save") {
			after := c.at.Sub(begun)
			if perSecond[after/time.Second]++; first[c.session] == 0 {
				first[c.session] = after
			}
			if first[c.session] < 449*time.Second {
				t.Fatalf("a session was stored again after %v, want 450s at least", first[c.session])
			}
		}
		for second, n := range perSecond {
			if n > 12 {
				t.Errorf("got %d Saves in second %d, want at most 12", n, second)
			}
		}
		if len(first) != sessions {
			t.Errorf("%d sessions were stored again, want all", len(first))
		}
	})
}

// Calls cause no Save but those that reserve numbers. Sessions that are due at the same time are saved
// one after the other, whatever else is saved meanwhile.
//
// Guarantees: G-0073.2
func TestSavesAreSpread(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		begun := time.Now()
		for range 20 {
			b.begin()
		}
		_, busy := b.begin()
		pass(449 * time.Second)
		for n := range 400 {
			pass(10 * time.Millisecond)
			keeper(busy).Keep(fmt.Append(nil, n))
		}
		latest := time.Duration(0)
		for _, c := range store.of("Save")[21:] {
			if c.record.State != nil {
				continue
			}
			after := c.at.Sub(begun)
			if after < 450*time.Second || after-latest < renewalPause {
				t.Errorf("a session was saved again after %v, and the one before after %v", after, latest)
			}
			latest = after
		}
		if latest < 450*time.Second+19*renewalPause || latest > 452*time.Second {
			t.Errorf("the last session was saved again after %v", latest)
		}
	})
	inStore(t, HandlerOptions{SessionIdle: time.Minute}, func(t *testing.T, b *bench, store *NodeStore) {
		session, _ := b.begin()
		for range 600 {
			pass(100 * time.Millisecond)
			_, done := b.serve(t.Context(), "POST", echoBody, headerSession+": "+session)
			<-done
		}
		if n := len(store.of("Save")); n < 4 || n > 6 { // and one for its numbers
			t.Errorf("got %d Saves in a minute of calls, want one every 15 s", n)
		}
	})
}

// What ends for good is forgotten, once, and never stored again: after DELETE, even while the process shuts down, when it was idle
// for too long, when it makes room, and when its server ends it.
//
// Guarantees: G-0073.4
func TestSavesEndWithTheSession(t *testing.T) {
	for name, end := range map[string]func(b *bench, session string, p *peer){
		"DELETE": func(b *bench, session string, _ *peer) {
			b.serve(b.t.Context(), "DELETE", "", headerSession+": "+session)
		},
		"DELETE in a drain": func(b *bench, session string, _ *peer) {
			b.handler.table.drain()
			b.serve(b.t.Context(), "DELETE", "", headerSession+": "+session)
		},
		"idle":      func(*bench, string, *peer) { pass(2 * time.Minute) },
		"evicted":   func(b *bench, _ string, _ *peer) { b.begin() },
		"by server": func(_ *bench, _ string, p *peer) { p.link.Close(0) },
	} {
		t.Run(name, func(t *testing.T) {
			inStore(t, HandlerOptions{MaxSessions: 1, SessionIdle: time.Minute}, func(t *testing.T, b *bench, store *NodeStore) {
				session, p := b.begin()
				end(b, session, p)
				p.awaitLoss(t)
				synctest.Wait()
				keeper(p).Keep([]byte("late"))
				pass(time.Hour)
				if forgotten := store.of("Forget"); len(forgotten) == 0 || forgotten[0].session != session || len(store.of("Free")) > 0 {
					t.Errorf("got the calls %+v, want Forget of the session", store.calls)
				}
				over := false
				for _, c := range store.calls {
					if c.session != session {
						continue
					}
					if over {
						t.Errorf("got %s after Forget", c.method)
					}
					over = c.method == "Forget"
				}
			})
		})
	}
}

// A session that ends because its process does is stored a last time if it has changed, and
// then anyone may take it, before its server hears of the end. What its client has missed stays in the store of events.
//
// Guarantees: G-0073.4
func TestSavesAtAShutdown(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		session, p := b.begin()
		keeper(p).Keep([]byte("changed"))
		p.mustSend(t, transport.Outbound{Frame: notice(0)})
		b.begin()
		store.saving = func() {
			if n := p.count(func(p *peer) int { return len(p.losses) }); n > 0 {
				t.Error("the server heard of the loss before the store did")
			}
		}
		if err := b.handler.Close(0); err != nil {
			t.Error(err)
		}
		r, owner, _ := store.shared.record(session)
		if string(r.State) != "changed" || owner != "" {
			t.Errorf("got the state %q of %q, want the last one, of nobody", r.State, owner)
		}
		if events, err := b.handler.options.EventStore.After(t.Context(), session, transport.Main, 0, 1<<20); len(events) != 1 || err != nil {
			t.Errorf("got the events %+v, %v, want the one that the client has missed", events, err)
		}
		if saves, frees := len(store.of("Save")), len(store.of("Free")); saves != 3 || frees != 2 || len(store.of("Forget")) > 0 {
			t.Errorf("got %d Saves and %d Frees, want 3 and 2: %+v", saves, frees, store.calls)
		}
	})
}

// The numbers are raised when half of a step is left, and not before.
func TestSavesRaiseNumbersInTime(t *testing.T) {
	k := new(savedSession)
	k.reserved.Store(numbersStep)
	for number, want := range map[uint64]uint64{1: 1024, 511: 1024} {
		if k.reserve(number) || k.reserved.Load() != want {
			t.Errorf("number %d: %d are reserved, want %d", number, k.reserved.Load(), want)
		}
	}
	if !k.reserve(512) || k.reserved.Load() != 2048 {
		t.Errorf("number 512: %d are reserved, want 2048", k.reserved.Load())
	}
	if k.reserve(513) || k.reserve(1535) || !k.reserve(1536) || k.reserved.Load() != 3072 {
		t.Errorf("number 1536: %d are reserved, want 3072", k.reserved.Load())
	}
	if !k.reserve(10_000) || k.reserved.Load() != 11264 {
		t.Errorf("number 10,000: %d are reserved, want 11264", k.reserved.Load())
	}
}

// The pause between two sessions that are saved again lets each of them have its turn within half
// of SessionIdle.
func TestSavesPause(t *testing.T) {
	for most, want := range map[int]time.Duration{10: renewalPause, 10_000: renewalPause, 20_000: 45 * time.Millisecond, 1_000_000: 900 * time.Microsecond} {
		o := HandlerOptions{Sessions: NewSharedStore().Node("here"), MaxSessions: most}.withDefaults()
		if s := newSavings(&o); s.pause != want || s.every != 450*time.Second {
			t.Errorf("%d sessions: got the pause %v and the interval %v, want %v and 450s", most, s.pause, s.every, want)
		}
	}
}

// Sessions are in the order of their last Save, whatever comes and goes.
func TestSavesKeepAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &savings{store: NewSharedStore().Node("here"), every: time.Hour}
		defer s.close()
		all := make([]*savedSession, 5)
		for n := range all {
			all[n] = &savedSession{by: s, id: fmt.Sprint(n)}
		}
		var model []*savedSession
		for _, n := range rapid.SliceOf(rapid.IntRange(0, 9)).Draw(t, "steps") {
			k := all[n/2]
			model = slices.DeleteFunc(model, func(other *savedSession) bool { return other == k })
			if n%2 == 0 {
				s.wasSaved(k)
				model = append(model, k)
			} else {
				s.remove(k)
			}
			var forward, backward []*savedSession
			for k := s.oldest; k != nil && len(forward) < 10; k = k.newer {
				forward = append(forward, k)
			}
			for k := s.newest; k != nil && len(backward) < 10; k = k.older {
				backward = append(backward, k)
			}
			slices.Reverse(backward)
			if !slices.Equal(forward, model) || !slices.Equal(backward, model) {
				t.Fatalf("got %d sessions forwards and %d backwards, want %d", len(forward), len(backward), len(model))
			}
		}
	})
}

// A change of a session that has ended meanwhile does not keep others from being saved again, and
// is forgotten.
//
// Guarantees: G-0073.2
func TestSavesAfterAChangeOfAnEndedSession(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		other, _ := b.begin()
		_, p := b.begin()
		keeper(p).Keep([]byte("1"))
		p.link.Close(0)
		pass(2 * savingPause)
		s := b.handler.savings
		s.mu.Lock()
		if len(s.changed) > 0 {
			t.Errorf("%d changes are due, want none", len(s.changed))
		}
		s.mu.Unlock()
		pass(451 * time.Second)
		if saves := store.of("Save"); len(saves) != 3 || saves[2].session != other {
			t.Errorf("got the Saves %+v, want a third one of the other session", saves)
		}
	})
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		_, p := b.begin()
		keeper(p).Keep([]byte("1"))
		p.link.Close(0)
		pass(time.Second)
		s := b.handler.savings
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.changed) > 0 || s.timer != nil {
			t.Errorf("%d changes are due, and the timer is set: %t, want nothing", len(s.changed), s.timer != nil)
		}
	})
}

// Close waits for a Save of the timer. Nothing is saved after it.
func TestSavesEndWithTheHandler(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		_, p := b.begin()
		release, closed := make(chan struct{}), make(chan struct{})
		store.saving = func() { <-release }
		keeper(p).Keep([]byte("1"))
		pass(savingPause) // the timer saves it now
		go func() {
			defer close(closed)
			b.handler.savings.close()
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("close has returned during a Save, want it to wait")
		default:
		}
		close(release)
		<-closed
		if b.handler.savings.wasSaved(new(savedSession)); b.handler.savings.timer != nil {
			t.Error("the timer is set after close, want none")
		}
	})
}

// If the timer fires just when it is set again, it fires once.
func TestSavesSetATimerThatFires(t *testing.T) {
	inStore(t, HandlerOptions{}, func(t *testing.T, b *bench, store *NodeStore) {
		_, p := b.begin()
		keeper(p).Keep([]byte("1"))
		s := b.handler.savings
		s.mu.Lock()
		pass(savingPause) // the timer of this bubble fires at the same time, and waits for the mutex
		s.at = s.at.Add(time.Hour)
		s.arm()
		s.mu.Unlock()
		pass(time.Second)
		if n := len(store.of("Save")); n != 2 {
			t.Errorf("got %d Saves, want 2", n)
		}
	})
}
