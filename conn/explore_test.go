package conn

import (
	"flag"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/explore"
)

var reach = flag.String("explore", "near", "how far TestExplore goes: near or full")

// TestExplore visits every state that a small world can come to, breadth
// first, and holds the invariants in each. In the ordinary run it goes a few
// steps; with -explore=full it goes on until a plan has no new states, or
// as many as the plan allows:
//
//	go test ./conn -run TestExplore -explore=full -v
//
// Guarantees: G-0001.1, G-0001.2, G-0001.6, G-0001.7, G-0001.10, G-0003.1, G-0003.2, G-0003.6, G-0003.10, G-0004.1, G-0009.2, G-0019.1, G-0019.4, G-0019.5
func TestExplore(t *testing.T) {
	for _, p := range plans() {
		t.Run(p.name, func(t *testing.T) {
			s := &explore.Search[*scene, choice]{World: p.world(), Limit: nearby}
			if *reach == "full" {
				s.Limit = p.full
			}
			began := time.Now()
			s.Run()
			t.Logf("%d states, %d steps, depth %d, closed: %v, %v", s.States(), s.Steps, s.Depth, s.Closed, time.Since(began).Round(time.Millisecond))
			if s.Found != nil {
				t.Fatal(s.Found)
			}
		})
	}
}

// nearby is how many states of each plan the ordinary run visits.
const nearby = 1500

// world is that of a plan.
func (p *plan) world() explore.World[*scene, choice] {
	return explore.World[*scene, choice]{
		New:     func() *scene { return newScene(p) },
		Choices: (*scene).choices,
		Apply:   (*scene).apply,
		Clone:   (*scene).clone,
		Form:    func() func(*scene) []byte { return new(form).write },
		Digest:  func(w *scene) uint64 { return w.digest },
		Fault:   func(w *scene) error { return w.fault },
		Talk:    func(w *scene) { w.talks = true },
		Said: func(w *scene) []string {
			said := w.said
			w.said = nil
			return said
		},
	}
}
