package streamable

import "testing"

// The room of one client is reused for another client once it holds no body, and for one
// client only.
//
// Guarantees: G-0022.13
func TestRoomIsUsedByOneClientAtATime(t *testing.T) {
	m := newRoom(1000, 1000, nil)
	a, b, c := client{identity: "a"}, client{identity: "b"}, client{identity: "c"}
	first, again := m.enter(a), m.enter(a)
	if first != again {
		t.Error("one client has two rooms at a time, want one")
	}
	m.leave(a)
	if m.enter(b) == first {
		t.Error("a room that one client uses was given to another")
	}
	m.leave(b)
	m.leave(a)
	if m.enter(b) == m.enter(c) {
		t.Error("two clients got the same room, want one each")
	}
	m.leave(b)
	if n := testing.AllocsPerRun(100, func() { m.enter(a); m.leave(a) }); n != 0 {
		t.Errorf("%v allocations for a client that comes and goes, want 0", n)
	}
}

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
	b := &budget{free: 10, limit: 10}
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

// There is a limit for each client, and one for all clients together.
func TestAccountsAreBounded(t *testing.T) {
	a := newAccounts(100, 10)
	one, two := client{identity: "1"}, client{identity: "2"}
	for i, step := range []struct {
		from  client
		bytes int // negative: given back
		holds bool
		held  int
		own   int
	}{
		{one, 20, true, 20, 20},
		{one, 6, false, 20, 20},
		{one, 5, true, 25, 25}, // a quarter of everything
		{two, 25, true, 50, 25},
		{client{identity: "3"}, 25, true, 75, 25},
		{client{identity: "4"}, 24, true, 99, 24},
		{client{identity: "5"}, 2, false, 99, 0},
		{client{identity: "5"}, 1, true, 100, 1}, // everything
		{one, -5, true, 95, 20},
		{one, 6, false, 95, 20},
		{one, 5, true, 100, 25},
		{one, -25, true, 75, 0},
		{two, -5, true, 70, 20},
	} {
		holds := true
		if step.bytes > 0 {
			holds = a.charge(step.from, step.bytes)
		} else {
			a.credit(step.from, -step.bytes)
		}
		_, known := a.of[step.from]
		if holds != step.holds || a.held != step.held || a.of[step.from] != step.own || known != (step.own > 0) {
			t.Errorf("step %d: got %v with %d held, %d of them by its client (%v)", i, holds, a.held, a.of[step.from], known)
		}
	}
	for piece, want := range map[int]int{10: 25, 30: 30, 200: 100} {
		if got := newAccounts(100, piece).mostOfOne; got != want {
			t.Errorf("with pieces of %d, one client may have %d, want %v", piece, got, want)
		}
	}
}

// Small messages have their own account, and each message counts more than its bytes.
func TestAccountsOfMessages(t *testing.T) {
	u := newUnread(&HandlerOptions{MaxUnread: 1 << 20, MaxFrame: 1 << 19})
	if u.small.most != 1<<20 || u.small.mostOfOne != 1<<18 || u.large.most != 1<<20 || u.large.mostOfOne != 1<<19+frameOverhead {
		t.Errorf("got %+v and %+v", u.small, u.large)
	}
	if tiny := newUnread(&HandlerOptions{MaxUnread: 100 << 10, MaxFrame: 1}); tiny.small.mostOfOne != smallSize+frameOverhead {
		t.Errorf("the limit for small messages of one client is %d, want %v", tiny.small.mostOfOne, smallSize+frameOverhead)
	}
	for size, small := range map[int]bool{0: true, smallSize: true, smallSize + 1: false} {
		if from, bytes := u.account(make([]byte, size)); (from == u.small) != small || bytes != size+frameOverhead {
			t.Errorf("a message of %d bytes counts %d, as a small one: %v, want (from == u.small) == %v and bytes == %v", size, bytes, from == u.small, small, size+frameOverhead)
		}
		page := []StoredEvent{{Data: make([]byte, size)}}
		if from, bytes := u.accountOfPage(page); (from == u.small) != small || bytes != size+eventOverhead {
			t.Errorf("an event of %d bytes counts %d, as a small one: %v, want (from == u.small) == %v and bytes == %v", size, bytes, from == u.small, small, size+eventOverhead)
		}
	}
	if _, bytes := u.accountOfPage(make([]StoredEvent, 3)); bytes != 3*costOf(StoredEvent{}) {
		t.Errorf("three events count %d", bytes)
	}
}
