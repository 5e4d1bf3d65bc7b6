package supervisor

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/explore"
)

var reach = flag.String("explore", "near", "how far TestExplore goes: near or full")

// nearby is how many states of each plan the ordinary run visits.
const nearby = 10_000

// A plan is a small world: a supervisor, the children it may be given, in this
// order, and what may happen.
type plan struct {
	name     string
	options  Options
	nested   bool
	children []traits
	events   []choiceKind
	full     int // states that the full search visits
}

// Times of the small world. A stop that is ignored is overdue before a restart
// is forgotten.
const (
	smallShutdown = 3 * time.Second
	smallPeriod   = 10 * time.Second
	smallDrain    = 5 * time.Second
)

var (
	worker    = traits{restart: Permanent, shutdown: smallShutdown}
	starter   = traits{restart: Permanent, shutdown: smallShutdown, inits: true}
	finisher  = traits{restart: Transient, shutdown: smallShutdown, drains: true}
	temporary = traits{restart: Temporary, shutdown: smallShutdown}
	patient   = traits{restart: Transient, shutdown: -1, inits: true, drains: true, early: true} // as a supervisor is
)

func plans() []*plan {
	life := []choiceKind{adds, initializes, fails, returns, stopsAll, fires, passes}
	one := append(life[:len(life):len(life)], halts, restarts)
	drain := append(one[:len(one):len(one)], drainsAll, finishes)
	nested := append(drain[:len(drain):len(drain)], keepsAll, begins, leaves, closes)
	var all []*plan
	for _, strategy := range []Strategy{OneForOne, OneForAll, RestForOne} {
		o := Options{Strategy: strategy, Intensity: 2, Period: smallPeriod}
		all = append(all,
			&plan{name: "three workers", options: o, children: []traits{worker, worker, worker}, events: life, full: 200_000},
			&plan{name: "what is started in order", options: o, children: []traits{starter, starter, temporary}, events: one, full: 250_000},
			&plan{name: "what is left behind", options: o, children: []traits{worker, worker, worker}, events: []choiceKind{adds, leaves, closes, stopsAll, fires}, full: 200_000},
			&plan{name: "a drain", options: o, children: []traits{finisher, worker, finisher}, events: drain, full: 200_000},
			&plan{name: "a supervisor that begins again", options: o, nested: true, children: []traits{starter, patient, finisher}, events: nested, full: 300_000},
		)
	}
	return all
}

// TestExplore visits every state that a supervisor of three children can come
// to, breadth first, and holds the invariants in each. In the ordinary run it
// goes a few steps; with -explore=full until a plan has no new states, or as
// many as the plan allows:
//
//	go test ./supervisor -run TestExplore -explore=full -v
//
// Guarantees: G-0002.1, G-0002.4, G-0002.5, G-0002.6, G-0002.11, G-0002.12, G-0002.13, G-0002.15
func TestExplore(t *testing.T) {
	for _, p := range plans() {
		t.Run(fmt.Sprintf("%s/%s", p.options.Strategy, p.name), func(t *testing.T) {
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
