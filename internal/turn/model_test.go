package turn

import (
	"context"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/internal/share"
	"pgregory.net/rapid"
)

// A schedule compares a scheduler with what its clients have asked for.
type schedule struct {
	*Scheduler[share.Client]
	places  int
	doing   []share.Client
	asked   map[share.Client][]*piece // the pieces that wait, oldest first
	largest int                       // the cost of the largest piece so far

	done  map[share.Client]int // the cost of all pieces that have begun
	since map[share.Client]int // since which step a piece of the client waits without interruption
	steps []map[share.Client]int
}

var modelClients = []share.Client{{Identity: "ada"}, {Identity: "bob"}, {Network: "10.0.0.1"}, {Network: "10.0.0.2"}, {Network: "ada"}}

func hasBegun(p *piece) bool {
	select {
	case <-p.begins:
		return true
	default:
		return false
	}
}

// settle notes which pieces have begun, and checks whose turn it was.
func (m *schedule) settle(t *rapid.T) {
	for _, c := range modelClients {
		for i, p := range m.asked[c] {
			if !hasBegun(p) {
				continue
			}
			if i > 0 {
				t.Fatalf("a piece of %v has begun before one that came earlier", c)
			}
			m.begun(c, p.cost)
			m.asked[c] = slices.Delete(m.asked[c], 0, 1)
			break // a second one would be found below
		}
	}
	if len(m.doing) > m.places {
		t.Fatalf("%d pieces are done at a time, want at most %d", len(m.doing), m.places)
	}
	for _, c := range modelClients {
		at := slices.Index(m.doing, c)
		if at >= 0 && slices.Contains(m.doing[at+1:], c) || slices.ContainsFunc(m.asked[c], hasBegun) {
			t.Fatalf("two pieces of %v are done at a time", c)
		}
		if at < 0 && len(m.asked[c]) > 0 && len(m.doing) < m.places {
			t.Fatalf("a piece of %v waits, although there is a place", c)
		}
	}
	m.compare(t)
}

func (m *schedule) begun(c share.Client, cost int) {
	m.doing = append(m.doing, c)
	m.done[c] += cost
}

// compare checks that with one place, clients that have waited for the same time have got the same, but for two pieces.
func (m *schedule) compare(t *rapid.T) {
	now := make(map[share.Client]int)
	for _, c := range modelClients {
		now[c] = m.done[c]
		if _, waits := m.since[c]; waits != (len(m.asked[c]) > 0) {
			delete(m.since, c)
			if !waits {
				m.since[c] = len(m.steps)
			}
		}
	}
	m.steps = append(m.steps, now)
	for a, since := range m.since {
		for b, other := range m.since {
			then := m.steps[max(since, other)]
			if got, least := now[a]-then[a], now[b]-then[b]; m.places == 1 && got > least+2*m.largest {
				t.Fatalf("%v got %d while %v got %d, although both waited; no piece is above %d", a, got, b, least, m.largest)
			}
		}
	}
}

// end ends the pieces that are done, in any order, and in the end all.
func (m *schedule) end(t *rapid.T, i int) {
	c := m.doing[i]
	m.doing = slices.Delete(m.doing, i, i+1)
	m.leave(c)
	m.settle(t)
}

// Guarantees: G-0085.1, G-0085.2
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		processors := rapid.IntRange(1, 4).Draw(t, "processors")
		m := &schedule{
			Scheduler: New[share.Client](processors), places: max(1, processors-1), asked: make(map[share.Client][]*piece),
			done: make(map[share.Client]int), since: make(map[share.Client]int),
		}
		client, cost := rapid.SampledFrom(modelClients), rapid.IntRange(Small+1, 64*Small)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				c, n := client.Draw(t, "client"), cost.Draw(t, "cost")
				m.largest = max(m.largest, n)
				if p := m.enter(c, n); p == nil {
					m.begun(c, n)
				} else {
					m.asked[c] = append(m.asked[c], p)
				}
			},
			"end": func(t *rapid.T) {
				if len(m.doing) > 0 {
					m.end(t, rapid.IntRange(0, len(m.doing)-1).Draw(t, "which"))
				}
			},
			"give up": func(t *rapid.T) {
				c := client.Draw(t, "client")
				if len(m.asked[c]) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.asked[c])-1).Draw(t, "which")
				if m.await(ended, c, m.asked[c][i]) {
					t.Fatal("a piece has begun that settle has seen waiting")
				}
				m.asked[c] = slices.Delete(m.asked[c], i, i+1)
			},
			"": m.settle,
		})
		for len(m.doing) > 0 {
			m.end(t, 0)
		}
		for c, left := range m.asked {
			if len(left) > 0 {
				t.Fatalf("nothing is done, and %d pieces of %v wait", len(left), c)
			}
		}
		if len(m.clients) > 0 || m.waiting.Len() > 0 || m.running != 0 {
			t.Fatalf("at the end %d clients are known, %d wait and %d pieces are done", len(m.clients), m.waiting.Len(), m.running)
		}
	})
}
