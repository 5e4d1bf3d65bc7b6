package streamable

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

func isGranted(c *claim) bool {
	if c == nil {
		return true
	}
	select {
	case <-c.granted:
		return true
	default:
		return false
	}
}

// Claims are granted in order, even if there is enough for a later one.
func TestBudgetGrantsClaimsInOrder(t *testing.T) {
	b := &budget{free: 10}
	want := func(what string, free, waiting int, granted ...bool) {
		t.Helper()
		if b.free != free || len(b.waiting) != waiting || (b.waiting == nil) != (waiting == 0) {
			t.Errorf("%s: %d are free and %d claims wait, want %d and %d", what, b.free, len(b.waiting), free, waiting)
		}
		for i := 0; i < len(granted); i += 2 {
			if granted[i] != granted[i+1] {
				t.Errorf("%s: claim %d: granted is %v, want %v", what, i/2+1, granted[i], granted[i+1])
			}
		}
	}
	if b.claim(10) != nil {
		t.Fatal("a claim for everything was not granted, want it granted")
	}
	first, second, third := b.claim(3), b.claim(1), b.claim(2)
	b.give(2)
	want("too little for the first", 2, 3, isGranted(first), false, isGranted(second), false, isGranted(third), false)
	fourth := b.claim(1)
	want("enough for the last", 2, 4, isGranted(fourth), false)
	b.give(1)
	want("just enough for the first", 0, 3, isGranted(first), true, isGranted(second), false)
	b.withdraw(third) // waits behind another one
	want("one has left", 0, 2, isGranted(second), false, isGranted(fourth), false)
	b.give(1)
	want("enough for the second", 0, 1, isGranted(second), true, isGranted(fourth), false)
	b.withdraw(fourth)
	want("nobody waits", 0, 0)
	b.give(2)
	b.withdraw(first) // gives back what it was granted
	want("given up", 5, 0)
	if large, small := b.claim(6), b.claim(5); isGranted(large) || isGranted(small) {
		t.Error("more was granted than exists")
	} else {
		b.withdraw(large)
		want("the large one has left", 0, 0, isGranted(large), false, isGranted(small), true)
	}
}

// Small messages have their own pool, and each message counts more than its bytes.
func TestPoolsOfMessages(t *testing.T) {
	u := newUnread(&HandlerOptions{MaxUnread: 1 << 20, MaxFrame: 1 << 19})
	for size, small := range map[int]bool{0: true, smallSize: true, smallSize + 1: false} {
		if from, bytes := u.Of(share.Client{}, make([]byte, size)); (from == u.Small) != small || bytes != size+frameOverhead {
			t.Errorf("a message of %d bytes counts %d, as a small one: %v, want (from == u.Small) == %v and bytes == %v", size, bytes, from == u.Small, small, size+frameOverhead)
		}
		page := []StoredEvent{{Data: make([]byte, size)}}
		if from, bytes := poolOfPage(u, share.Client{}, page); (from == u.Small) != small || bytes != size+eventOverhead {
			t.Errorf("an event of %d bytes counts %d, as a small one: %v, want (from == u.Small) == %v and bytes == %v", size, bytes, from == u.Small, small, size+eventOverhead)
		}
	}
	for _, of := range []share.Client{{Identity: "ada"}, {Network: "2001:db8::/64"}} {
		o := HandlerOptions{}.withDefaults()
		if from, bytes := newUnread(&o).Of(of, make([]byte, o.MaxFrame)); !from.Take(of, bytes) {
			t.Errorf("the largest message is too large for %+v alone, with the default of MaxUnread", of)
		}
	}
	if _, bytes := poolOfPage(u, share.Client{}, make([]StoredEvent, 3)); bytes != 3*costOf(StoredEvent{}) {
		t.Errorf("three events count %d", bytes)
	}
	// One client may leave one frame of the largest size unread, where that is half of all, and 38 % of small ones.
	one, other := share.Client{Identity: "1"}, share.Client{Identity: "2"}
	if !u.Large.Take(one, 1<<19+frameOverhead) || u.Large.Take(one, 1) || !u.Large.Take(other, 1<<18) {
		t.Error("a client has one frame of the largest size unread: want no more of it, and the rest for others")
	}
	if !u.Small.Take(one, 380<<10) || u.Small.Take(one, 20<<10) {
		t.Error("a client has 380 KiB of 1 MiB unread, want that and no 20 KiB more")
	}
}

// Large bodies and batches are decoded in turn. Small messages do not wait for them.
//
// Guarantees: G-0085.3, G-0085.4, G-0085.6
func TestLargeBodiesAreDecodedInTurn(t *testing.T) {
	batch := "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"`+strings.Repeat("a", turn.Small/batchCost/100)+`"},`, 100) + `{"jsonrpc":"2.0","method":"a"}]`
	large := modernBody("echo", `"pad":"`+strings.Repeat("x", turn.Small)+`",`)
	for name, test := range map[string]struct {
		body   string
		head   []string
		status int
	}{
		"large": {large, modernHeader("echo"), 200},
		"batch": {batch, []string{"Mcp-Protocol-Version: 2025-03-26"}, 202},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, HandlerOptions{Stateless: true}, false, func(t *testing.T, b *bench) {
				turns, end, ended := b.handler.bodies.turns, make(chan struct{}), make(chan struct{})
				places := max(1, runtime.GOMAXPROCS(0)-1)
				for n := range places {
					go func() {
						_ = turns.Do(t.Context(), share.Client{Identity: fmt.Sprint(n)}, turn.Small+1, nil, func() { <-end })
						ended <- struct{}{}
					}()
				}
				synctest.Wait()
				w, done := b.serve(t.Context(), "POST", test.body, test.head...)
				leaving, leave := context.WithCancel(t.Context())
				_, left := b.serve(leaving, "POST", test.body, test.head...)
				small, smallDone := b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...)
				if <-smallDone; small.Code != 200 {
					t.Errorf("a small call: %d %s", small.Code, small.Body)
				}
				leave()
				<-left
				if wait.IsClosed(done) {
					t.Fatalf("it was decoded while as many pieces as possible were done: %d %s", w.Code, w.Body)
				}
				close(end)
				if <-done; w.Code != test.status {
					t.Errorf("after that: %d %s", w.Code, w.Body)
				}
				for range places {
					<-ended
				}
			})
		})
	}
}

// A boundedAcceptor says how much memory its handler may use.
type boundedAcceptor struct {
	transport.Acceptor
	memory int
}

func (b *boundedAcceptor) MaxMemory() int { return b.memory }

// The limits of a handler are parts of MaxMemory, which it takes from its server. What the program sets stays.
//
// Guarantees: G-0083.13
func TestMaxMemory(t *testing.T) {
	for name, c := range map[string]struct {
		memory  int // of the acceptor
		options HandlerOptions
		want    [3]int // MaxHeld, MaxUnread, and that of the store
	}{
		"default":             {0, HandlerOptions{}, [3]int{32 << 20, 64 << 20, 16 << 20}},
		"that of the server":  {96 << 20, HandlerOptions{}, [3]int{8 << 20, 16 << 20, 4 << 20}},
		"that of the handler": {96 << 20, HandlerOptions{MaxMemory: 48 << 20}, [3]int{4 << 20, 8 << 20, 2 << 20}},
		"one of them":         {96 << 20, HandlerOptions{MaxHeld: 5 << 20}, [3]int{5 << 20, 16 << 20, 4 << 20}},
	} {
		h := NewHandler(&boundedAcceptor{memory: c.memory}, c.options)
		if got := [3]int{h.options.MaxHeld, h.options.MaxUnread, h.options.EventStore.(*MemoryStore).MaxBytes}; got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
		if err := h.Close(0); err != nil {
			t.Error(err)
		}
	}
}

// A field of zero or less means its default.
func TestDefaultsOfAHandler(t *testing.T) {
	store := new(MemoryStore)
	want := HandlerOptions{
		MaxBody: 4 << 20, MaxFrame: 16 << 20, MaxSessions: 10_000, SessionIdle: 30 * time.Minute, MaxMemory: 384 << 20, MaxHeld: 32 << 20,
		MaxUnread: 64 << 20, KeepAlive: 15 * time.Second, Retry: time.Second, ShutdownGrace: 10 * time.Second, EventStore: store,
	}
	negative := HandlerOptions{
		MaxBody: -1, MaxFrame: -1, MaxSessions: -1, SessionIdle: -1, MaxMemory: -1, MaxHeld: -1, MaxUnread: -1, KeepAlive: -1, Retry: -1,
		ShutdownGrace: -1, EventStore: store,
	}
	given := want
	given.MaxBody, given.MaxUnread, given.JSONOnly, given.NoListening = 1, smallSize, true, true
	for _, test := range []struct{ given, want HandlerOptions }{
		{HandlerOptions{EventStore: store}, want}, {negative, want}, {given, given},
		{HandlerOptions{EventStore: store, MaxBody: 1, MaxUnread: 1, JSONOnly: true}, given},
	} {
		if diff := cmp.Diff(test.want, test.given.withDefaults(), cmpopts.IgnoreFields(HandlerOptions{}, "EventStore")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// A request of up to 64 KiB counts as a small one, and an answer of that size needs no room before it is encoded.
//
// Guarantees: G-0083.12
func TestWhatCountsAsSmall(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		for taken, want := range map[int]*share.Pool{1: b.handler.served.small, smallSize: b.handler.served.small, smallSize + 1: b.handler.served.medium} {
			if pool, n := b.handler.served.pool(taken); pool != want || n != taken {
				t.Errorf("%d bytes come from another pool, as %d", taken, n)
			}
		}
		w, done := b.serve(t.Context(), "POST", modernBody("hold", ""), modernHeader("hold")...)
		p, pool, filled := b.peer(t, 0), b.handler.unread.Large, 0
		for pool.Take(share.Client{Identity: fmt.Sprint(filled)}, smallSize) {
			filled++
		}
		p.mu.Lock()
		room := p.received[0].Origin.Exchange.(transport.Reserver)
		p.mu.Unlock()
		if !room.Reserve(smallSize) || room.Reserve(smallSize+1) {
			t.Error("without room for large answers, a small one has none, or a large one has some")
		}
		for n := range filled {
			pool.Give(share.Client{Identity: fmt.Sprint(n)}, smallSize)
		}
		p.mustSend(t, answering(p.newest(), `{"jsonrpc":"2.0","id":7,"result":{}}`))
		if <-done; w.Code != 200 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		p.returned(0)
	})
}
