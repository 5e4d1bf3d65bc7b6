package share

import (
	"context"
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
	{Identity: "ada"}, {Identity: "bob"}, {Network: "10.0.0.1"}, {Network: "10.0.0.2"}, {Network: "ada"},
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

// may reports whether a client may take n if nothing is kept for others.
func (m *poolModel) may(c Client, n int) bool {
	held, free := m.of(c), m.limit-m.total()
	most := free - n
	if m.lasting {
		most = most * most / m.limit
	}
	return n <= free && (held+n <= m.piece || held+n <= most)
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
	// Of the first claims of clients, the one that has been within one piece for longest waits only for want of room.
	var first *Claim
	seen := make(map[Client]bool)
	for _, c := range m.waiting {
		if !seen[c.client] && m.of(c.client)+c.n <= m.piece && (first == nil || c.number < first.number) {
			first = c
		}
		seen[c.client] = true
	}
	if first != nil && m.limit-m.total() >= first.n {
		t.Fatalf("a claim of %d waits, although so much is free", first.n)
	}
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
				may := m.may(c, n)
				taken := m.pool.Take(c, n)
				if taken && !may || may && !taken && len(m.waiting) == 0 {
					t.Fatalf("taking %d for %v: got %t, want %t", n, c, taken, may)
				}
				if taken {
					m.held[c] = append(m.held[c], n)
				}
			},
			"claim": func(t *rapid.T) {
				c, n := client.Draw(t, "client"), min(amount.Draw(t, "n"), m.piece)
				may := m.may(c, n)
				if claim := m.pool.Claim(c, n); claim != nil {
					if may && len(m.waiting) == 0 {
						t.Fatalf("a claim of %d by %v waits, although nobody came before", n, c)
					}
					m.waiting = append(m.waiting, claim)
				} else if !may {
					t.Fatalf("a claim of %d by %v was granted at once, want it to wait", n, c)
				} else {
					m.held[c] = append(m.held[c], n)
				}
			},
			"extend": func(t *rapid.T) {
				c, n := client.Draw(t, "client"), amount.Draw(t, "n")
				fits := n <= m.limit-m.total()
				if got := m.pool.Extend(c, n); got && !fits || fits && !got && len(m.waiting) == 0 {
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
	if p := m.pool; p.Held() != 0 || p.free != p.limit || p.kept != 0 || len(p.clients) > 0 || p.waiting.Len() > 0 {
		t.Fatalf("at the end %d of %d are free and %d kept, and %d clients and %d claims are known",
			p.free, p.limit, p.kept, len(p.clients), p.waiting.Len())
	}
}
