package share

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func neighbour(i int) Client { return Client{Network: fmt.Sprintf("2001:db8:0:%x::/64", i)} }

// The clients of one /48 hold together what one client may, and one of them a quarter of that at most.
//
// Guarantees: G-0083.7
func TestOneNetworkIsLikeOneClient(t *testing.T) {
	const limit = 100_000
	for neighbours, want := range map[int]int{1: limit / 5, 4: limit / 2, 1000: limit / 2} {
		for _, lasting := range []bool{false, true} {
			p := New(limit, 10, nil)
			if p.lasting = lasting; lasting && neighbours == 1 {
				want = limit * 17 / 100 // where 4·x = (1-x)²
			} else if lasting {
				want = limit * 38 / 100
			}
			held, most := 0, 0
			for i := range neighbours {
				h := holder{pool: p, Client: neighbour(i)}
				h.take(10)
				held, most = held+h.held, max(most, h.held)
			}
			if held < want*95/100 || held > want*105/100 || most > limit/5 {
				t.Errorf("lasting %t: %d of one /48 hold %d, and one of them %d, want about %d and at most %d", lasting, neighbours, held, most, want, limit/5)
			}
			elsewhere := holder{pool: p, Client: Client{Network: "2001:db8:1::/64"}}
			if elsewhere.take(10); elsewhere.held < (limit-held)/10 {
				t.Errorf("lasting %t: beside %d of one /48 a client of another gets %d of %d", lasting, neighbours, elsewhere.held, limit-held)
			}
		}
	}
	for _, c := range []Client{
		{Identity: "2001:db8::/64"}, {Network: "::/64"}, {Network: "fe80::/64"}, {Network: "192.0.2.1"}, {Network: "192.0.2.1/64"}, {Network: "name/64"},
	} {
		h := holder{pool: New(limit, 10, nil), Client: c}
		if h.take(10); h.held != limit/2 {
			t.Errorf("%+v holds %d, want %d: it belongs to no network", c, h.held, limit/2)
		}
	}
}

// Four pieces are free for the clients of a /48; more of them cannot fill a pool with pieces.
//
// Guarantees: G-0083.7
func TestPiecesOfOneNetwork(t *testing.T) {
	p := New(1000, 10, nil)
	for _, h := range holders(p, 98) { // each holds one piece
		p.Take(h.Client, 10)
	}
	got := 0
	for i := range 100 {
		if p.Take(neighbour(i), 5) {
			got++
		}
	}
	if free := 1000 - p.Held(); got != 4 || free != 0 {
		t.Errorf("of 20 free, clients of one /48 took 5 %d times and left %d, want all", got, free)
	}
	p.Give(Client{Network: "10.0.0.0"}, 10)
	p.Give(Client{Network: "10.0.0.1"}, 10)
	p.Give(Client{Network: "10.0.0.2"}, 10)
	for i := range 100 {
		if p.Take(neighbour(i), 5) {
			got++
		}
	}
	if free := 1000 - p.Held(); got != 8 || free != 10 {
		t.Errorf("clients of one /48 took 5 %d times and left %d, want 8 times and 10", got, free)
	}
}

// Smaller claims that came later do not pass one that its network keeps from its piece, and it is granted as soon as
// the network has given back enough.
//
// Guarantees: G-0083.7
func TestNeighboursDoNotPass(t *testing.T) {
	p := New(1000, 100, nil)
	for _, h := range holders(p, 6) {
		p.Take(h.Client, 100)
	}
	for i := range 8 {
		if !p.Take(neighbour(i), 45) {
			t.Fatal("four pieces of a /48 are not free")
		}
	}
	large := p.Claim(neighbour(100), 100)
	if large == nil {
		t.Fatal("a piece that is not free was granted")
	}
	if p.Take(neighbour(101), 10) {
		t.Error("a neighbour took a place that a claim waits for")
	}
	small := p.Claim(neighbour(102), 20)
	if small == nil {
		t.Error("a neighbour's later claim was granted before the first")
	}
	other := p.Claim(Client{Identity: "other"}, 20)
	if other != nil {
		t.Error("claims that wait for their network hold up a client of another")
	}
	p.Give(neighbour(0), 45)
	if large.isGranted() || small.isGranted() {
		t.Error("got a grant after 45 were given back, want none")
	}
	p.Give(neighbour(1), 45)
	if !large.isGranted() || small.isGranted() {
		t.Errorf("got %t and %t after 90 were given back, want the first claim granted only", large.isGranted(), small.isGranted())
	}
	p.Give(neighbour(2), 45)
	if !small.isGranted() {
		t.Error("the second claim was not granted")
	}

	p = New(1000, 100, nil)
	p.Extend(Client{Identity: "other"}, 150)
	for i := range 8 {
		p.Take(neighbour(i), 50)
	}
	if p.Claim(neighbour(0), 50) == nil || p.Take(neighbour(100), 10) {
		t.Error("a newcomer, whose claim is smaller, passes a neighbour that waits for its piece")
	}
}

// The claims of a /48 count for all that its clients hold: a client elsewhere that holds less comes first.
// Among its clients, so does the one that holds less.
//
// Guarantees: G-0083.3, G-0083.7
func TestNetworksComeInTurn(t *testing.T) {
	p := New(1000, 10, nil)
	for i := range 30 {
		p.Extend(neighbour(i), 11)
	}
	p.Extend(Client{Identity: "holds less"}, 300)
	p.Extend(Client{Identity: "much"}, 369)
	p.Extend(neighbour(0), 1)
	third, second, first := p.Claim(neighbour(0), 10), p.Claim(neighbour(1), 10), p.Claim(Client{Identity: "holds less"}, 10)
	if p.Give(Client{Identity: "much"}, 350); !first.isGranted() || second.isGranted() || third.isGranted() {
		t.Errorf("want that who holds 300 comes before the clients of a /48 that hold 331")
	}
	if p.Give(Client{Identity: "much"}, 19); !second.isGranted() || third.isGranted() {
		t.Errorf("want that who holds 11 comes before its neighbour that holds 12")
	}
}

// A client that holds much of what its /48 holds counts for four times that.
//
// Guarantees: G-0083.3, G-0083.7
func TestOneOfANetworkCountsFourfold(t *testing.T) {
	p, elsewhere, others := New(1000, 10, nil), Client{Identity: "elsewhere"}, Client{Identity: "others"}
	p.Extend(neighbour(0), 100)
	p.Extend(elsewhere, 200)
	p.Extend(others, 700)
	second, first := p.Claim(neighbour(0), 10), p.Claim(elsewhere, 10)
	if p.Give(others, 225); !first.isGranted() || second.isGranted() {
		t.Errorf("got %t for who holds 200 and %t for one of a /48 that holds 100, want true and false", first.isGranted(), second.isGranted())
	}
}

// What the clients of a /48 have grows up to half of the pool for all of them together, and even the largest pieces are
// free for them.
//
// Guarantees: G-0083.6, G-0083.7
func TestGrowthOfANetwork(t *testing.T) {
	p := NewLasting(800, 1)
	if !p.Grow(neighbour(0), 300) || p.Grow(neighbour(1), 101) || !p.Grow(neighbour(1), 100) {
		t.Error("want that two clients of a /48 grow up to 400 of 800 together")
	}
	p = New(math.MaxInt, math.MaxInt/2, nil)
	p.Extend(Client{Identity: "other"}, math.MaxInt-100)
	if !p.Take(neighbour(0), 100) {
		t.Error("four pieces that are more than the whole pool are not free")
	}
}

// Only a client without an identity, of a public address of IPv6, belongs to a /48.
//
// Guarantees: G-0083.7
func TestWide(t *testing.T) {
	for c, want := range map[Client]string{
		{Network: "2001:db8:1:2::/64"}:                "2001:db8:1::/48",
		{Identity: "a", Network: "2001:db8:1:2::/64"}: "invalid Prefix",
		{Network: "fd00:1:2:3::/64"}:                  "invalid Prefix",
		{Network: "fe80::/64"}:                        "invalid Prefix",
		{Network: "192.0.2.1"}:                        "invalid Prefix",
		{}:                                            "invalid Prefix",
	} {
		if got := c.Wide().String(); got != want {
			t.Errorf("%+v: got %s, want %s", c, got, want)
		}
	}
}

// A greedyClient has always one claim that waits.
type greedyClient struct {
	Client
	held  []int
	claim *Claim
}

// claims claims in steps until one waits.
func (g *greedyClient) claims(p *Pool, step int) {
	if g.claim != nil && !g.claim.isGranted() {
		return
	}
	if g.claim != nil {
		g.held = append(g.held, g.claim.n)
	}
	for g.claim = p.Claim(g.Client, step); g.claim == nil; g.claim = p.Claim(g.Client, step) {
		g.held = append(g.held, step)
	}
}

// However many clients are greedy, in a /48 and elsewhere, a newcomer gets a piece after each of their claims has ended
// once, and one of that /48 after few more.
//
// Guarantees: G-0083.2, G-0083.7
func TestNewcomersBesideANetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(100, 1000).Draw(t, "limit")
		piece := rapid.IntRange(1, limit/10).Draw(t, "piece")
		p := New(limit, piece, nil)
		all := make([]*greedyClient, rapid.IntRange(1, 12).Draw(t, "neighbours"), 24)
		for i := range all {
			all[i] = &greedyClient{Client: neighbour(i)}
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "others") {
			all = append(all, &greedyClient{Client: Client{Network: fmt.Sprint("10.0.0.", i)}})
		}
		steps := rapid.IntRange(max(1, piece/8), piece)
		for _, g := range all {
			g.claims(p, steps.Draw(t, "step"))
		}
		newcomers := map[string]*Claim{"neighbour": p.Claim(neighbour(0xffff), piece), "other": p.Claim(Client{Identity: "other"}, piece)}
		for who, atMost := range map[string]int{"other": 1, "neighbour": 4} {
			c := newcomers[who]
			for round := 0; c != nil && !c.isGranted(); round++ {
				if round >= atMost {
					t.Fatalf("the %s waits for %d of %d after each claim has ended %d times", who, piece, limit, round)
				}
				for _, g := range rapid.Permutation(all).Draw(t, "order") {
					ending := g.held
					for g.held = nil; len(ending) > 0; ending = ending[1:] {
						p.Give(g.Client, ending[0])
						for _, g := range all {
							g.claims(p, steps.Draw(t, "step"))
						}
					}
				}
			}
		}
	})
}
