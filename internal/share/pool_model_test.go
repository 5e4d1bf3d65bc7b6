package share

import (
	"context"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A poolModel compares a pool with sums that are made anew after each step.
type poolModel struct {
	pool         *Pool
	limit, piece int
	lasting      bool
	held         map[Client][]int // what each client was granted and has not given back
	waiting      []*Claim
}

var modelClients = []Client{
	{Identity: "ada"}, {Identity: "bob"}, {Network: "10.0.0.1"}, {Network: "ada"}, {Identity: "2001:db8::/64"},
	{Network: "2001:db8::/64"}, {Network: "2001:db8:0:1::/64"}, {Network: "2001:db8:0:ffff::/64"}, {Network: "2001:db8:1::/64"},
}

// networkOf returns which of these clients share a /48.
func networkOf(c Client) string {
	switch {
	case c.Identity != "" || !strings.HasPrefix(c.Network, "2001:"):
		return ""
	case c.Network == "2001:db8:1::/64":
		return "2001:db8:1"
	default:
		return "2001:db8:0"
	}
}

func (m *poolModel) sum(of func(Client) bool) (sum int) {
	for c, pieces := range m.held {
		for _, n := range pieces {
			if of(c) {
				sum += n
			}
		}
	}
	return sum
}

func (m *poolModel) total() int { return m.sum(func(Client) bool { return true }) }

// of returns what a client holds.
func (m *poolModel) of(c Client) int { return m.sum(func(other Client) bool { return other == c }) }

// ofNetwork returns what all clients of a client's network hold.
func (m *poolModel) ofNetwork(c Client) int {
	return m.sum(func(other Client) bool { return networkOf(other) == networkOf(c) })
}

// may reports whether a client may take n if nothing is kept for others and no claim waits.
func (m *poolModel) may(c Client, n int) bool {
	held, of, free := m.of(c), m.ofNetwork(c), m.limit-m.total()
	most := free - n
	if m.lasting {
		most = most * most / m.limit
	}
	if networkOf(c) == "" {
		return n <= free && (held+n <= m.piece || held+n <= most)
	}
	return n <= free && (held+n <= m.piece && of+n <= min(4*m.piece, m.limit) || of+n <= most && 4*(held+n) <= most)
}

// counts returns what a client counts as holding.
func (m *poolModel) counts(c Client) int {
	if networkOf(c) == "" {
		return m.of(c)
	}
	return max(m.ofNetwork(c), 4*m.of(c))
}

// mustWait reports whether a claim above one piece comes after one that waits.
func (m *poolModel) mustWait(c Client, n int) bool {
	if m.of(c)+n <= m.piece && (networkOf(c) == "" || m.ofNetwork(c)+n <= 4*m.piece) || len(m.waiting) == 0 {
		return false
	}
	for _, w := range m.waiting {
		if networkOf(c) != "" && networkOf(w.client) == networkOf(c) && m.of(w.client)+w.n <= m.piece && m.pool.clients[w.client].claims[0] == w {
			return true
		}
	}
	top := m.pool.waiting[0]
	first, own := top.leaf().claims[0].client, m.counts(c)
	return top.within || m.counts(first) < own || m.counts(first) == own && m.of(first) <= m.of(c)
}

// settle moves the claims that have been granted, and checks that each of them was allowed.
func (m *poolModel) settle(t *rapid.T) {
	var still []*Claim
	var granted []*Claim
	for _, c := range m.waiting {
		if !c.isGranted() {
			still = append(still, c)
			continue
		}
		granted = append(granted, c)
		m.held[c.client] = append(m.held[c.client], c.n)
	}
	m.waiting = still
	for _, c := range granted { // their order is not known: each is allowed if it was the last
		pieces := m.held[c.client]
		m.held[c.client] = pieces[:len(pieces)-1]
		allowed := m.may(c.client, c.n)
		if m.held[c.client] = pieces; !allowed && len(granted) == 1 {
			t.Fatalf("%v got %d, want that to wait", c.client, c.n)
		}
	}
	if got, want := m.pool.Held(), m.total(); got != want || want > m.limit {
		t.Fatalf("the pool of %d holds %d, want %d", m.limit, got, want)
	}
	if got := m.checkQueue(t, m.pool.waiting); got != len(m.waiting) {
		t.Fatalf("%d claims are in the queue, want %d", got, len(m.waiting))
	} else if got == 0 {
		return
	}
	if first := m.pool.waiting[0].leaf().claims[0]; m.may(first.client, first.n) {
		t.Fatalf("the first claim, of %d by %v, waits, although it need not", first.n, first.client)
	}
}

// checkQueue checks that a queue is in order, and that each account of it is where its claims belong. It returns
// how many claims are in it.
func (m *poolModel) checkQueue(t *rapid.T, q queue) (claims int) {
	for i, a := range q {
		c := a.leaf().claims[0]
		within := m.of(c.client)+c.n <= m.piece
		held := m.of(c.client)
		if claims += len(a.claims); a.leaf() != a {
			within = within && m.ofNetwork(c.client)+c.n <= min(4*m.piece, m.limit)
			held = m.ofNetwork(c.client)
			claims += m.checkQueue(t, a.members)
		}
		if a.place != i+1 || a.within != within || a.held != held || i > 0 && q.Less(i, (i-1)/2) {
			t.Fatalf("at %d of %d accounts is one with the claim %+v: place %d, within %t, held %d; want within %t and held %d",
				i, len(q), c, a.place, a.within, a.held, within, held)
		}
	}
	return claims
}

// Guarantees: G-0083.2, G-0083.4
func TestPoolModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &poolModel{limit: rapid.IntRange(1, 100).Draw(t, "limit"), held: make(map[Client][]int)}
		m.piece = rapid.IntRange(1, m.limit).Draw(t, "piece")
		m.pool = New(m.limit, m.piece, nil)
		if m.lasting = rapid.Bool().Draw(t, "lasting"); m.lasting {
			m.pool = NewLasting(m.limit, m.piece)
		}
		client := rapid.SampledFrom(modelClients)
		amount := rapid.IntRange(1, m.limit)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				c, n := client.Draw(t, "client"), amount.Draw(t, "n")
				may, wait := m.may(c, n), m.mustWait(c, n)
				taken := m.pool.Take(c, n)
				if taken && (!may || wait) || may && !taken && len(m.waiting) == 0 {
					t.Fatalf("taking %d for %v: got %t, want %t", n, c, taken, may)
				}
				if taken {
					m.held[c] = append(m.held[c], n)
				}
			},
			"claim": func(t *rapid.T) {
				c, n := client.Draw(t, "client"), min(amount.Draw(t, "n"), m.piece)
				may, wait := m.may(c, n), m.mustWait(c, n) && c != m.pool.waiting[0].leaf().claims[0].client
				if claim := m.pool.Claim(c, n); claim != nil {
					if may && len(m.waiting) == 0 {
						t.Fatalf("a claim of %d by %v waits, although nobody came before", n, c)
					}
					m.waiting = append(m.waiting, claim)
				} else if !may || wait {
					t.Fatalf("a claim of %d by %v was granted at once, want it to wait", n, c)
				} else {
					m.held[c] = append(m.held[c], n)
				}
			},
			"extend": func(t *rapid.T) {
				c, n := client.Draw(t, "client"), amount.Draw(t, "n")
				fits, extend := n <= m.limit-m.total(), m.pool.Extend
				if rapid.Bool().Draw(t, "grows") {
					held := m.of(c)
					if networkOf(c) != "" {
						held = m.ofNetwork(c)
					}
					fits, extend = n <= m.limit-m.total()-m.limit/8 && held+n <= m.limit/2 || m.may(c, n), m.pool.Grow
				}
				if got := extend(c, n); got && !fits || fits && !got && len(m.waiting) == 0 {
					t.Fatalf("extending by %d for %v: got %t, want %t", n, c, got, fits)
				} else if got {
					m.held[c] = append(m.held[c], n)
				}
			},
			"give": func(t *rapid.T) {
				c := client.Draw(t, "client")
				if len(m.held[c]) == 0 {
					return
				}
				m.pool.Give(c, m.held[c][0])
				m.held[c] = m.held[c][1:]
			},
			"withdraw": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.waiting)-1).Draw(t, "claim")
				gone := m.waiting[i]
				m.waiting = append(m.waiting[:i:i], m.waiting[i+1:]...)
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				if gone.Wait(ended) {
					t.Fatal("a claim was granted that settle has seen waiting")
				}
			},
			"": m.settle,
		})
		m.drain(t)
	})
}

// drain gives everything back until every claim has been granted and given back as well.
func (m *poolModel) drain(t *rapid.T) {
	for len(m.waiting) > 0 || m.total() > 0 {
		before := len(m.waiting)
		for _, c := range modelClients {
			for _, n := range m.held[c] {
				m.pool.Give(c, n)
			}
			delete(m.held, c)
		}
		for _, c := range m.waiting {
			if !c.isGranted() {
				before--
			}
		}
		if len(m.waiting) > 0 && before == 0 {
			t.Fatalf("nobody holds anything, and %d claims wait", len(m.waiting))
		}
		m.settle(t)
	}
	if p := m.pool; p.Held() != 0 || p.free != p.limit || p.kept != 0 || len(p.clients)+len(p.networks)+len(p.waiting) > 0 {
		t.Fatalf("at the end %d of %d are free and %d kept, and %d clients, %d networks and %d claims are known",
			p.free, p.limit, p.kept, len(p.clients), len(p.networks), len(p.waiting))
	}
}
