package share

import (
	"fmt"
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
}

// All networks of a site are one client, and one of them gets a quarter of what the site may.
//
// Guarantees: G-0083.4
func TestNetworksOfASite(t *testing.T) {
	p := New(10_000, 10, nil)
	networks := make([]*holder, 100)
	for i := range networks {
		networks[i] = &holder{pool: p, Client: Client{Network: fmt.Sprintf("2001:db8:7:%x::/64", i)}}
	}
	if networks[0].take(10); networks[0].held < 1000 || networks[0].held > 1250 {
		t.Errorf("one network of a site has %d of 10000, want about an eighth", networks[0].held)
	}
	site := 0
	for range 5 {
		for _, h := range networks[1:] {
			h.take(10)
		}
	}
	for _, h := range networks {
		site += h.held
	}
	if site < 4900 || site > 5000 {
		t.Errorf("a site has %d of 10000, want about half", site)
	}
	other := &holder{pool: p, Client: Client{Network: "2001:db8:8::/64"}}
	if other.take(10); other.held < 600 {
		t.Errorf("beside it a network of another site has %d, want at least an eighth of what was free", other.held)
	}
}
