package share

import (
	"fmt"
	"math"
	"testing"
)

// A holder takes for a client in steps, as much as the pool allows.
type holder struct {
	pool *Pool
	Client
	held int
}

func (h *holder) take(step int) {
	for h.pool.Take(h.Client, step) {
		h.held += step
	}
}

func (h *holder) give(n int) {
	h.pool.Give(h.Client, n)
	h.held -= n
}

func holders(p *Pool, n int) []*holder {
	all := make([]*holder, n)
	for i := range all {
		all[i] = &holder{pool: p, Client: Client{Network: fmt.Sprint("10.0.0.", i)}}
	}
	return all
}

// One client alone gets half of a pool. Of N greedy ones each has 1/(N+1) in the end, and a
// newcomer has 1/(N+2) after each of their claims has ended once.
//
// Guarantees: G-0083.1
func TestNobodyTakesTheRest(t *testing.T) {
	const limit, step = 100_000, 10
	for _, n := range []int{1, 2, 3, 9, 40} {
		p := New(limit, step, nil)
		all := holders(p, n)
		for range limit / step { // their claims end one by one
			for _, h := range all {
				if h.held > 0 {
					h.give(step)
				}
				h.take(step)
			}
		}
		for _, h := range all {
			if fair := limit / (n + 1); h.held < fair*9/10 || h.held > fair*11/10 {
				t.Errorf("of %d greedy clients %s holds %d, want about %d", n, h.Network, h.held, fair)
			}
		}
		newcomer := &holder{pool: p, Client: Client{Identity: "newcomer"}}
		newcomer.take(step)
		if want := limit / (n + 2) * 9 / 20; newcomer.held < want {
			t.Errorf("beside %d greedy clients a newcomer gets %d at once, want at least %d", n, newcomer.held, want)
		}
		for _, h := range all {
			for range h.held / step {
				h.give(step)
				newcomer.take(step)
				h.take(step)
			}
		}
		if want := limit/(n+2) - (n+1)*step; newcomer.held < want {
			t.Errorf("beside %d greedy clients a newcomer has %d in the end, want at least %d", n, newcomer.held, want)
		}
	}
}

// If nobody ever gives anything back, N greedy clients leave more than 1/(N+1) of a pool of claims that last.
//
// Guarantees: G-0083.1
func TestWhoGivesNothingBackLeavesSomething(t *testing.T) {
	const limit = 10_000
	p := NewLasting(limit, 1)
	for i, h := range holders(p, 100) {
		h.take(1)
		if free, want := limit-p.Held(), limit/(i+2); free < want {
			t.Fatalf("after %d greedy clients %d of %d are free, want at least %d", i+1, free, limit, want)
		}
	}
}

// A client that holds nothing gets one piece as soon as others have given back so much,
// however many claims came after its own.
//
// Guarantees: G-0083.2
func TestOnePieceIsKept(t *testing.T) {
	p := New(1000, 100, nil)
	all := holders(p, 30)
	for _, h := range all { // each holds less than one piece: the pool is full
		for h.held < 33 && h.pool.Take(h.Client, 1) {
			h.held++
		}
	}
	for _, h := range all {
		h.take(1)
	}
	large := p.Claim(Client{Identity: "large"}, 100)
	if large == nil {
		t.Fatal("a piece was free, want a full pool")
	}
	for given := range 100 {
		if large.isGranted() {
			t.Fatalf("the claim of 100 was granted after %d were given back", given)
		}
		h := all[given%30]
		p.Give(h.Client, 1)
		if p.Take(Client{Identity: fmt.Sprint("late ", given)}, 1) {
			t.Fatal("a later claim took what was kept for one piece")
		}
		if why := p.Refused(1); why != "there is no room for more" {
			t.Fatalf("a later claim was refused because %s", why)
		}
	}
	if !large.isGranted() {
		t.Error("the claim of 100 was not granted after 100 were given back, want it granted")
	}
}

// Claims of clients above one piece are granted to whom holds least.
//
// Guarantees: G-0083.3
func TestWhoHoldsLeastComesFirst(t *testing.T) {
	p := New(1000, 10, nil)
	much, little, other := Client{Identity: "much"}, Client{Identity: "little"}, Client{Identity: "other"}
	if !p.Take(much, 400) || !p.Take(little, 200) || !p.Take(other, 200) {
		t.Fatal("a free pool refused its clients")
	}
	first, second := p.Claim(much, 100), p.Claim(little, 50)
	p.Give(other, 200)
	if !second.isGranted() || first.isGranted() {
		t.Errorf("got %t for the client that holds little and %t for the other, want true and false", second.isGranted(), first.isGranted())
	}
	p.Give(much, 300)
	if !first.isGranted() {
		t.Error("the claim of the client that held much was not granted in the end")
	}

	p = New(1000, 10, nil)
	p.Extend(much, 300)
	p.Extend(other, 300)
	if p.Claim(much, 60) == nil || p.Take(other, 20) {
		t.Error("a client passes the claim of another that holds as much")
	}
}

// A claim that comes within one piece because its client gave something back follows those that have been so for
// longer.
//
// Guarantees: G-0083.2
func TestOldClaimsDoNotPassNewcomers(t *testing.T) {
	p := New(100, 10, nil)
	greedy, other := Client{Identity: "greedy"}, Client{Identity: "other"}
	p.Extend(greedy, 12)
	p.Extend(Client{Identity: "others"}, 88)
	old := p.Claim(greedy, 10)
	newcomer := p.Claim(other, 10)
	p.Give(greedy, 12)
	if !newcomer.isGranted() || old.isGranted() {
		t.Errorf("got %t for the newcomer and %t for the old claim, want true and false", newcomer.isGranted(), old.isGranted())
	}

	p = New(100, 10, nil)
	p.Extend(Client{Identity: "others"}, 95)
	old = p.Claim(greedy, 10) // it is within one piece, then no more, and then again
	p.Extend(greedy, 5)
	newcomer = p.Claim(other, 10)
	if p.Give(greedy, 5); old.isGranted() || newcomer.isGranted() {
		t.Fatal("a claim was granted for which there is no room")
	}
	p.Give(Client{Identity: "others"}, 5)
	if !newcomer.isGranted() || old.isGranted() {
		t.Errorf("got %t for the newcomer and %t for the older claim, want true and false", newcomer.isGranted(), old.isGranted())
	}
}

// What is kept for a claim within one piece is free again when its client takes more, and the claim is above one piece.
//
// Guarantees: G-0083.2
func TestKeptForNoLongerThanItIsOnePiece(t *testing.T) {
	for name, more := range map[string]func(*Pool, Client, int) bool{"Take": (*Pool).Take, "Extend": (*Pool).Extend} {
		p, waits, others := New(100, 10, nil), Client{Identity: "waits"}, Client{Identity: "others"}
		p.Extend(others, 95)
		claim := p.Claim(waits, 10)
		p.Give(others, 3) // which is kept for the claim
		if p.Take(Client{Identity: "early"}, 6) || !more(p, waits, 5) || !p.Take(Client{Identity: "late"}, 3) {
			t.Errorf("%s: what was kept for a claim that is above one piece now is not free", name)
		}
		if claim.isGranted() || p.Held() != 100 {
			t.Errorf("%s: the claim is granted: %t, and the pool holds %d of 100", name, claim.isGranted(), p.Held())
		}
	}
}

// In a pool of places that last, few clients cannot take the rest; a few places go to whom comes first.
//
// Guarantees: G-0083.1
func TestPlaces(t *testing.T) {
	for places, clients := range map[int]int{1000: 60, 1024: 60, 10_000: 160} {
		p := NewPlaces(places)
		for _, h := range holders(p, clients) {
			h.take(1)
		}
		if !p.Take(Client{Identity: "newcomer"}, 1) {
			t.Errorf("after %d greedy clients none of %d places is free", clients, places)
		}
	}
	few := holders(NewPlaces(8), 1)[0]
	if few.take(1); few.held != 8 {
		t.Errorf("one client has %d of 8 places, want all", few.held)
	}
	nobody := NewPlaces(8)
	if nobody.Claim(few.Client, 0) != nil || len(nobody.clients) > 0 {
		t.Error("a claim of nothing waits, or leaves an account")
	}
	if unlimited := NewPlaces(math.MaxInt); !unlimited.Take(few.Client, 1<<40) || !unlimited.Take(few.Client, 1) {
		t.Error("a pool without a limit refuses a client")
	}
}

// What a client has may grow whatever its share is, up to half of the pool and but for the last eighth of that. Growing
// by nothing needs no room.
//
// Guarantees: G-0083.6
func TestGrow(t *testing.T) {
	p := NewLasting(100, 1)
	greedy := Client{Identity: "greedy"}
	p.Take(greedy, 38)
	if p.Take(greedy, 1) || !p.Grow(greedy, 12) || p.Grow(greedy, 1) || !p.Take(greedy, 0) {
		t.Error("want that a client at its share takes no more, but may extend what it has up to half of the pool")
	}
	if got, want := p.Refused(1), "this client has its share of them"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if other := (Client{Identity: "other"}); !p.Grow(other, 37) || p.Grow(other, 2) {
		t.Error("want that what another client has grows up to an eighth below the limit")
	}
	for i := range 13 {
		if newcomer := (Client{Identity: fmt.Sprint(i)}); !p.Grow(newcomer, 1) {
			t.Error("a client within its share cannot extend what it has")
		}
	}
	if q := NewLasting(100, 1); !q.Extend(greedy, 99) || q.Extend(greedy, 2) || !q.Extend(greedy, 1) {
		t.Error("want that a client gets all that is free")
	}
	if got, want := p.Refused(1), "there is no room for more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A claim that was made to fit is granted by a pool of which nobody holds anything, and one more is not.
func TestFit(t *testing.T) {
	for _, c := range []Client{{Identity: "a"}, {Network: "10.0.0.1"}, {Network: "2001:db8::/64"}} {
		for name, p := range map[string]*Pool{"lasting": NewLasting(1000, 100), "other": New(1000, 100, nil), "one piece": New(100, 100, nil)} {
			most := p.Fit(c, 5000)
			if p.Fit(c, most) != most || p.Fit(c, most-1) != most-1 || p.Take(c, most+1) || !p.Take(c, most) {
				t.Errorf("%v of the %s pool: 5000 becomes %d, want the most that the client gets", c, name, most)
			}
		}
	}
	if n := NewLasting(math.MaxInt, 1).Fit(Client{Identity: "a"}, 1<<40); n != 1<<40 {
		t.Errorf("a pool without a limit gives at most %d", n)
	}
}
