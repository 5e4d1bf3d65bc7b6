package supervisor

import (
	"encoding/binary"
	"flag"
	"fmt"
	"slices"
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

// world returns the world of a plan.
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

// A choice is one thing that may happen next in a small world.
type choice struct {
	kind  choiceKind
	child uint8
}

func (c choice) String() string { return fmt.Sprintf("%s %d", c.kind, c.child) }

type choiceKind string

const (
	adds        choiceKind = "the program adds child"
	initializes choiceKind = "Init has returned, of child"
	fails       choiceKind = "an error ends child"
	returns     choiceKind = "nothing is wrong, and ended is child"
	leaves      choiceKind = "something is left behind, and ended is child" // another Run would go on with it
	closes      choiceKind = "it has closed for good, and ended is child"
	finishes    choiceKind = "Drain has returned, of child"
	halts       choiceKind = "the program stops child"
	restarts    choiceKind = "the program restarts child"
	stopsAll    choiceKind = "the supervisor is stopped"
	keepsAll    choiceKind = "the supervisor is stopped, to begin again"
	drainsAll   choiceKind = "the supervisor is drained"
	begins      choiceKind = "the supervisor begins again"
	fires       choiceKind = "the timer fires"
	passes      choiceKind = "the period passes"
)

// A childBook is what the small world knows of a child.
type childBook struct {
	listed     bool // added, and not over
	alive      bool // its goroutine runs
	starting   bool // that is in Init
	fresh      bool // it has never got past it
	halted     bool // that was told to stop
	again      bool // to run again
	draining   bool // its Drain runs
	dismissing bool // all that runs is what closes what was left
	left       bool // its last Run has left something
	overdue    bool // it has ignored its stop
	kept       bool // it does not run, and is to
	asked      bool // somebody asked for its stop alone
}

// A scene is a supervisor in its small world.
type scene struct {
	plan     *plan
	core     *core
	now      instant
	children [4]childBook // 1 and following
	added    uint8
	ended    []instant // restartable ends of children that nobody told to stop
	stopping bool
	keeping  bool
	hurried  bool // the time for the drain was up
	over     bool // the supervisor has stopped
	ordered  bool // it begins again
	gaveUp   bool

	fault  error
	digest uint64
	said   []string
	talks  bool
}

func newScene(p *plan) *scene {
	c := newCore(&p.options)
	w := &scene{plan: p, now: time.Second, core: &c}
	w.core.nested = p.nested
	return w
}

// choices appends what may happen next.
func (w *scene) choices(to []choice) []choice {
	may := func(kind choiceKind, child int) {
		if slices.Contains(w.plan.events, kind) {
			to = append(to, choice{kind, uint8(child)})
		}
	}
	if int(w.added) < len(w.plan.children) && !w.stopping {
		may(adds, int(w.added)+1)
	}
	for i := 1; i <= int(w.added); i++ {
		b := &w.children[i]
		if b.alive && b.starting && !b.dismissing {
			may(initializes, i)
		}
		if b.alive {
			may(fails, i)
			may(returns, i)
			may(closes, i)
			if !b.dismissing {
				may(leaves, i)
			}
		}
		if b.draining {
			may(finishes, i)
		}
		if b.listed {
			may(halts, i)
			may(restarts, i)
		}
	}
	may(stopsAll, 0)
	may(keepsAll, 0)
	may(drainsAll, 0)
	if w.over && w.keeping {
		may(begins, 0)
	}
	if w.core.dueAt != 0 {
		may(fires, 0)
	}
	if len(w.ended) > 0 {
		may(passes, 0)
	}
	return to
}

// apply does one choice, and holds the invariants.
func (w *scene) apply(c choice) {
	w.digest = 0
	b := &w.children[c.child]
	msg := &message{child: uint64(c.child)}
	switch c.kind {
	case adds:
		w.added++
		*b = childBook{listed: true, fresh: true, kept: true}
		msg.kind, msg.traits = added, w.plan.children[c.child-1]
	case initializes:
		b.starting = false
		b.fresh = b.fresh && b.halted
		msg.kind = initialized
	case fails, returns, leaves, closes:
		w.end(c)
		msg.kind, msg.failed, msg.resumes = ended, c.kind != returns, c.kind == leaves
		msg.final = c.kind == closes
	case finishes:
		b.draining, b.asked = false, true
		msg.kind = drained
	case halts:
		b.asked, b.again = true, false
		b.kept = b.kept && b.alive
		msg.kind = haltAsked
	case restarts:
		b.asked = !w.stopping
		msg.kind = restartAsked
	case stopsAll, keepsAll, drainsAll:
		if keeps := c.kind == keepsAll && (!w.stopping || w.keeping); !w.over || w.keeping != keeps {
			w.keeping = keeps
			w.stop()
		}
		msg.kind, msg.keeps = stopAsked, c.kind == keepsAll
		if c.kind == drainsAll {
			msg.kind, msg.due = drainAsked, w.now+smallDrain
		}
	case begins:
		w.stopping, w.keeping, w.over, w.ordered, w.gaveUp, w.ended = false, false, false, true, false, nil
		msg.kind = begun
	case fires:
		w.now = max(w.now, w.core.dueAt)
		w.hurried = w.core.state == Draining && w.core.drainDue <= w.now
		msg.kind = tick
	case passes:
		w.now += smallPeriod + 1
		w.ended = nil
		return
	}
	w.step(msg)
	w.checkRest()
	b.asked, w.hurried = false, false
}

// stop enters that the supervisor is to stop.
func (w *scene) stop() {
	w.stopping, w.over = true, false
	for i := range w.children {
		b := &w.children[i]
		b.again, b.kept = b.again && w.keeping, b.kept && w.keeping
	}
}

// end enters the end of a child's goroutines.
func (w *scene) end(c choice) {
	b := &w.children[c.child]
	restart := w.plan.children[c.child-1].restart
	counts := !b.halted && !b.fresh && c.kind != closes && restart.follows(c.kind != returns)
	if counts && !w.stopping {
		w.ended = append(w.ended, w.now)
	}
	again := counts && (!w.stopping || w.keeping) || b.halted && b.again && c.kind != closes
	b.left = c.kind == leaves
	b.alive, b.starting, b.halted, b.draining, b.dismissing, b.overdue = false, false, false, false, false, false
	b.kept = again
}

// step feeds the core, and has the small world do what it says.
func (w *scene) step(msg *message) {
	for _, fx := range w.core.step(w.now, msg) {
		w.digest = (w.digest ^ uint64(fx.kind)<<8 ^ fx.child) * 0x100000001b3
		if w.talks {
			w.said = append(w.said, fmt.Sprintf("%s %d", effectNames[fx.kind], fx.child))
		}
		w.perform(&fx)
	}
}

var effectNames = [...]string{
	launch: "launch", drain: "drain", halt: "halt", discard: "discard", stuck: "stuck",
	retire: "retire", giveUp: "give up", ready: "ready", conclude: "conclude",
}

// must notes the first invariant that does not hold.
func (w *scene) must(holds bool, format string, args ...any) {
	if !holds && w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
	}
}

func (w *scene) perform(fx *effect) {
	b := &w.children[fx.child]
	switch fx.kind {
	case launch:
		w.launch(fx)
	case halt:
		w.halt(fx)
	case drain:
		ready := !b.starting || w.plan.children[fx.child-1].early
		w.must(w.stopping && !w.keeping && b.alive && ready && !b.halted && !b.draining, "a drain of child %d", fx.child)
		b.draining = true
	case discard:
		w.must(b.listed && !b.alive && b.left, "a discard of child %d, which has left nothing", fx.child)
		b.alive, b.dismissing, b.halted, b.left, b.again, b.kept = true, true, true, false, false, false
	case stuck:
		w.must(b.alive && b.halted && !b.overdue && w.plan.children[fx.child-1].shutdown >= 0, "child %d is called stuck", fx.child)
		b.overdue = true
	case retire:
		w.must(b.listed && !b.alive && !b.left, "child %d is called over", fx.child)
		b.listed, b.kept = false, false
	case giveUp:
		w.must(!w.stopping && !w.gaveUp, "a supervisor gives up that is stopping")
		w.must(w.spent() > w.plan.options.Intensity, "the supervisor gives up after %d restarts", w.spent())
		w.gaveUp, w.keeping = true, w.plan.nested
		w.stop()
	case ready:
		w.must(w.ordered, "children are called started that were not to be")
		w.ordered = false
		for i := 1; i <= int(w.added); i++ {
			b := &w.children[i]
			w.must(b.halted || !b.starting && (!b.kept || b.alive), "child %d was not started", i)
		}
	case conclude:
		w.conclude()
	}
}

// launch holds that one goroutine runs for a child, that nothing runs any more
// when the supervisor is to stop, and that what a child needs is there.
func (w *scene) launch(fx *effect) {
	b := &w.children[fx.child]
	w.must(b.listed && !b.alive && b.kept, "child %d is run, which was not to be", fx.child)
	w.must(!w.stopping, "child %d is run by a supervisor that is stopping", fx.child)
	for i := 1; i < int(fx.child); i++ {
		before := &w.children[i]
		if w.plan.options.Strategy != OneForOne && before.listed {
			w.must(before.overdue && !before.again || before.alive && !before.starting && !before.halted, "child %d is run before child %d", fx.child, i)
		}
	}
	for i := 1; i <= int(w.added) && w.plan.options.Strategy != OneForOne; i++ {
		other := &w.children[i]
		w.must(!other.alive || !other.halted || other.overdue && !other.again, "child %d is run before child %d is gone", fx.child, i)
	}
	inits := w.plan.children[fx.child-1].inits
	b.alive, b.starting, b.kept, b.left, b.again = true, inits, false, false, false
	b.fresh = b.fresh && inits
}

// halt holds that children are stopped in reverse order.
func (w *scene) halt(fx *effect) {
	b := &w.children[fx.child]
	w.must(b.alive && !b.halted, "child %d is told to stop, which does not run", fx.child)
	for i := int(fx.child) + 1; i <= int(w.added); i++ {
		after := &w.children[i]
		if !b.asked && !w.hurried && !b.draining {
			w.must(!after.alive || after.overdue, "child %d is told to stop before child %d", fx.child, i)
		}
	}
	b.halted, b.again = true, fx.rerun
	w.must(!fx.rerun || !w.stopping || w.keeping, "child %d is to run again", fx.child)
}

// conclude holds that what is left when the supervisor has stopped was named.
func (w *scene) conclude() {
	w.must(w.stopping && !w.over, "the supervisor concludes")
	w.over = true
	w.must(w.core.dueAt == 0, "the supervisor has stopped, and waits for a deadline")
	for i := 1; i <= int(w.added); i++ {
		b := &w.children[i]
		w.must(!b.alive || b.overdue, "child %d runs when the supervisor has stopped", i)
		w.must(!b.listed || b.alive || w.keeping && b.kept, "child %d is not over when the supervisor has stopped", i)
	}
}

// spent is how many restarts count at present, at most.
func (w *scene) spent() (count int) {
	for _, at := range w.ended {
		if w.now-at <= smallPeriod {
			count++
		}
	}
	return count
}

// checkRest holds what is true whenever the core has nothing to do.
func (w *scene) checkRest() {
	busy, held := false, false
	for i := 1; i <= int(w.added); i++ {
		b := &w.children[i]
		busy = busy || b.alive && (b.starting || b.halted && !b.overdue || b.draining)
		held = held || b.overdue && b.again
		w.must(!w.hurried || !b.alive || b.halted, "child %d runs on when the time for the drain is up", i)
		w.must(!b.listed || b.alive || b.kept || w.stopping, "child %d is forgotten", i)
	}
	w.must(!w.stopping || w.over || busy, "the supervisor does not get on with its stop")
	for i := 1; i <= int(w.added); i++ {
		waits := w.children[i].listed && !w.children[i].alive
		w.must(!waits || w.stopping || busy || held && w.plan.options.Strategy != OneForOne, "child %d waits for nothing", i)
	}
	if w.plan.options.Strategy == OneForOne {
		w.must(w.stopping || w.spent() <= w.plan.options.Intensity, "%d restarts, and the supervisor has not given up", w.spent())
	}
	w.checkMembers()
}

// checkMembers holds that the core has its own books in order.
func (w *scene) checkMembers() {
	var counts stateCounts
	listed, last := 0, uint64(0)
	for m := range w.core.members.inOrder() {
		b := &w.children[m.key]
		w.must(m.key > last && w.core.members.byKey[m.key] == m && b.listed, "the list is broken at child %d", m.key)
		last = m.key
		listed++
		want := Running
		switch {
		case !b.alive:
			want = Waiting
		case b.halted:
			want = Stopping
		case b.draining:
			want = Draining
		case b.starting:
			want = Starting
		}
		counts.count(want, 1)
		w.must(m.state == want, "child %d is %s, and should be %s", m.key, m.state, want)
		w.must(m.stuck == b.overdue, "child %d is stuck: %v, and should be: %v", m.key, m.stuck, b.overdue)
		bounded := m.state == Stopping && !m.stuck && m.shutdown >= 0
		w.must(!bounded || w.core.dueAt != 0 && w.core.dueAt <= m.due, "nothing ends the wait for child %d", m.key)
	}
	w.must(counts == w.core.members.stateCounts && listed == len(w.core.members.byKey), "the counts are wrong")
	w.must(w.core.state != Draining || w.core.dueAt != 0 && w.core.dueAt <= w.core.drainDue, "nothing ends the drain")
}

// clone is a deep copy: what happens to one does not touch the other.
func (w *scene) clone() *scene {
	twin := *w
	twin.core, twin.ended, twin.said = w.core.clone(), slices.Clone(w.ended), nil
	return &twin
}

func (c *core) clone() *core {
	twin := *c
	twin.out, twin.restarts = nil, slices.Clone(c.restarts)
	twin.members = members{byKey: make(map[uint64]*member), stateCounts: c.members.stateCounts}
	for m := range c.members.inOrder() {
		other := *m
		other.previous, other.next = nil, nil
		twin.members.link(&other)
	}
	twin.stopQueue = nil
	for _, m := range c.stopQueue {
		if other := twin.members.byKey[m.key]; other != nil {
			twin.stopQueue = append(twin.stopQueue, other)
		} else {
			gone := *m
			twin.stopQueue = append(twin.stopQueue, &gone)
		}
	}
	if c.awaited != nil {
		twin.awaited = twin.members.byKey[c.awaited.key]
	}
	return &twin
}

// A form is a state in canonical form: equal forms have equal futures. Instants
// are how far off they are.
type form struct{ bytes []byte }

func (f *form) byte(b ...uint8) { f.bytes = append(f.bytes, b...) }

func (f *form) flags(flags ...bool) {
	var all uint16
	for i, flag := range flags {
		if flag {
			all |= 1 << i
		}
	}
	f.bytes = binary.LittleEndian.AppendUint16(f.bytes, all)
}

// at appends an instant. What is past is past; what is older than a period is
// forgotten.
func (f *form) at(now, t instant) {
	switch {
	case t == 0:
		f.byte(0)
	case t <= now:
		f.byte(1)
	default:
		f.byte(2)
		f.bytes = binary.LittleEndian.AppendUint64(f.bytes, uint64(t-now))
	}
}

// write puts the state of a scene in canonical form.
func (f *form) write(w *scene) []byte {
	f.bytes = f.bytes[:0]
	c := w.core
	f.byte(w.added, c.state[1], c.state[2])
	f.flags(c.keeps, c.beginning && c.state == Running, w.stopping, w.keeping, w.over, w.ordered, w.gaveUp)
	f.at(w.now, c.dueAt)
	f.at(w.now, c.drainDue)
	f.ages(w.now, c.restarts)
	f.ages(w.now, w.ended)
	for m := range c.members.inOrder() {
		f.byte(uint8(m.key), m.state[0], m.state[2])
		f.flags(m.firstStart, m.rerun && (m.queued || m.state == Stopping), m.queued, m.resumes && m.state == Waiting, m.stuck, c.awaited == m)
		f.at(w.now, m.due)
	}
	f.byte(0)
	for _, m := range c.stopQueue {
		f.byte(uint8(m.key))
	}
	f.byte(0)
	for i := 1; i <= int(w.added); i++ {
		b := &w.children[i]
		f.flags(b.listed, b.alive, b.starting, b.fresh, b.halted, b.again, b.draining, b.dismissing, b.left, b.overdue, b.kept)
	}
	return f.bytes
}

// ages appends how long ago something was, as far as that matters.
func (f *form) ages(now instant, times []instant) {
	for _, t := range times {
		if age := now - t; age <= smallPeriod {
			f.byte(1)
			f.bytes = binary.LittleEndian.AppendUint64(f.bytes, uint64(age))
		}
	}
	f.byte(0)
}
