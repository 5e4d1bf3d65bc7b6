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

// nearbyLimit is how many states of each plan are visited by default.
const nearbyLimit = 10_000

// A plan is a small environment to be searched: a supervisor, the children that it may get, in this order, and
// the events that may happen.
type plan struct {
	name     string
	options  Options
	nested   bool
	children []traits
	events   []choiceKind
	full     int // how many states the full search visits
}

// Times of the plans. A stop that is ignored becomes overdue before a restart no longer counts.
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
			&plan{name: "ordered starts", options: o, children: []traits{starter, starter, temporary}, events: one, full: 250_000},
			&plan{name: "runs that leave resources", options: o, children: []traits{worker, worker, worker}, events: []choiceKind{adds, leaves, closes, stopsAll, fires}, full: 200_000},
			&plan{name: "drain", options: o, children: []traits{finisher, worker, finisher}, events: drain, full: 200_000},
			&plan{name: "restart of the supervisor", options: o, nested: true, children: []traits{starter, patient, finisher}, events: nested, full: 300_000},
		)
	}
	return all
}

// TestExplore visits the states that a supervisor of three children can reach, breadth first, and checks the
// invariants in each. By default it visits nearbyLimit states of each plan. With -explore=full it continues
// until a plan has no new states, or up to the limit of the plan:
//
//	go test ./supervisor -run TestExplore -explore=full -v
//
// Guarantees: G-0002.1, G-0002.4, G-0002.5, G-0002.6, G-0002.11, G-0002.12, G-0002.13, G-0002.14, G-0002.15
func TestExplore(t *testing.T) {
	for _, p := range plans() {
		t.Run(fmt.Sprintf("%s/%s", p.options.Strategy, p.name), func(t *testing.T) {
			s := &explore.Search[*environment, choice]{World: p.world(), Limit: nearbyLimit}
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

// world returns what the search needs to know about the plan's environment.
func (p *plan) world() explore.World[*environment, choice] {
	return explore.World[*environment, choice]{
		New:     func() *environment { return newEnvironment(p) },
		Choices: (*environment).choices,
		Apply:   (*environment).apply,
		Clone:   (*environment).clone,
		Form:    func() func(*environment) []byte { return new(encoder).encode },
		Digest:  func(env *environment) uint64 { return env.digest },
		Fault:   func(env *environment) error { return env.fault },
		Talk:    func(env *environment) { env.tracing = true },
		Said: func(env *environment) []string {
			said := env.trace
			env.trace = nil
			return said
		},
	}
}

// A choice is one event that may happen next.
type choice struct {
	kind  choiceKind
	child uint8
}

func (c choice) String() string { return fmt.Sprintf("%s %d", c.kind, c.child) }

type choiceKind string

const (
	adds        choiceKind = "the program adds child"
	initializes choiceKind = "Init returns, of child"
	fails       choiceKind = "Run returns an error, of child"
	returns     choiceKind = "Run returns without an error, of child"
	leaves      choiceKind = "Run returns and leaves resources, of child" // the next Run would use them
	closes      choiceKind = "Run returns for good, of child"
	finishes    choiceKind = "Drain returns, of child"
	halts       choiceKind = "the program stops child"
	restarts    choiceKind = "the program restarts child"
	stopsAll    choiceKind = "the supervisor is stopped"
	keepsAll    choiceKind = "the supervisor is stopped, to be restarted"
	drainsAll   choiceKind = "the supervisor is drained"
	begins      choiceKind = "the supervisor is restarted"
	fires       choiceKind = "the timer fires"
	passes      choiceKind = "the period passes"
)

// A childRecord is what the environment knows about a child.
type childRecord struct {
	listed     bool // added, and not over
	alive      bool // its goroutine runs
	starting   bool // Init is running
	fresh      bool // it has never completed Init
	halted     bool // its goroutine was stopped
	again      bool // it will run again when that has ended
	draining   bool // Drain is running
	dismissing bool // only a discard of what it left is running
	left       bool // its last Run has left resources
	overdue    bool // it has ignored its stop
	kept       bool // it does not run, but will
	asked      bool // the program has stopped it
}

// An environment is a supervisor's core and everything around it.
type environment struct {
	plan      *plan
	core      *core
	now       instant
	children  [4]childRecord // 1 and following
	added     uint8
	ended     []instant // when children ended by themselves and were to be restarted
	stopping  bool
	keeping   bool
	hurried   bool // the time for the drain has passed
	concluded bool // the supervisor has stopped
	ordered   bool // the supervisor was restarted
	gaveUp    bool

	fault   error
	digest  uint64
	trace   []string
	tracing bool
}

func newEnvironment(p *plan) *environment {
	c := newCore(&p.options)
	env := &environment{plan: p, now: time.Second, core: &c}
	env.core.nested = p.nested
	return env
}

// choices appends what may happen next.
func (env *environment) choices(to []choice) []choice {
	may := func(kind choiceKind, child int) {
		if slices.Contains(env.plan.events, kind) {
			to = append(to, choice{kind, uint8(child)})
		}
	}
	if int(env.added) < len(env.plan.children) && !env.stopping {
		may(adds, int(env.added)+1)
	}
	for i := 1; i <= int(env.added); i++ {
		b := &env.children[i]
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
	if env.concluded && env.keeping {
		may(begins, 0)
	}
	if env.core.dueAt != 0 {
		may(fires, 0)
	}
	if len(env.ended) > 0 {
		may(passes, 0)
	}
	return to
}

// apply makes one choice happen, and checks the invariants.
func (env *environment) apply(c choice) {
	env.digest = 0
	b := &env.children[c.child]
	msg := &message{child: uint64(c.child)}
	switch c.kind {
	case adds:
		env.added++
		*b = childRecord{listed: true, fresh: true, kept: true}
		msg.kind, msg.traits = added, env.plan.children[c.child-1]
	case initializes:
		b.starting = false
		b.fresh = b.fresh && b.halted
		msg.kind = initialized
	case fails, returns, leaves, closes:
		env.end(c)
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
		b.asked = !env.stopping
		msg.kind = restartAsked
	case stopsAll, keepsAll, drainsAll:
		if keeps := c.kind == keepsAll && (!env.stopping || env.keeping); !env.concluded || env.keeping != keeps {
			env.keeping = keeps
			env.stop()
		}
		msg.kind, msg.keeps = stopAsked, c.kind == keepsAll
		if c.kind == drainsAll {
			msg.kind, msg.due = drainAsked, env.now+smallDrain
		}
	case begins:
		env.stopping, env.keeping, env.concluded, env.ordered, env.gaveUp, env.ended = false, false, false, true, false, nil
		msg.kind = begun
	case fires:
		env.now = max(env.now, env.core.dueAt)
		env.hurried = env.core.state == Draining && env.core.drainDue <= env.now
		msg.kind = tick
	case passes:
		env.now += smallPeriod + 1
		env.ended = nil
		return
	}
	env.step(msg)
	env.checkSettledState()
	b.asked, env.hurried = false, false
}

// stop records that the supervisor is to stop.
func (env *environment) stop() {
	env.stopping, env.concluded = true, false
	for i := range env.children {
		b := &env.children[i]
		b.again, b.kept = b.again && env.keeping, b.kept && env.keeping
	}
}

// end records that the goroutines of a child have ended.
func (env *environment) end(c choice) {
	b := &env.children[c.child]
	restart := env.plan.children[c.child-1].restart
	counts := !b.halted && !b.fresh && c.kind != closes && restart.follows(c.kind != returns)
	if counts && !env.stopping {
		env.ended = append(env.ended, env.now)
	}
	again := counts && (!env.stopping || env.keeping) || b.halted && b.again && c.kind != closes
	b.left = c.kind == leaves
	b.alive, b.starting, b.halted, b.draining, b.dismissing, b.overdue = false, false, false, false, false, false
	b.kept = again
}

// step steps the core, and performs its effects.
func (env *environment) step(msg *message) {
	for _, fx := range env.core.step(env.now, msg) {
		env.digest = (env.digest ^ uint64(fx.kind)<<8 ^ fx.child) * 0x100000001b3
		if env.tracing {
			env.trace = append(env.trace, fmt.Sprintf("%s %d", effectNames[fx.kind], fx.child))
		}
		env.perform(&fx)
	}
}

var effectNames = [...]string{
	launch: "launch", drain: "drain", halt: "halt", discard: "discard", stuck: "stuck",
	retire: "retire", giveUp: "give up", ready: "ready", conclude: "conclude",
}

// must keeps the first invariant that does not hold.
func (env *environment) must(holds bool, format string, args ...any) {
	if !holds && env.fault == nil {
		env.fault = fmt.Errorf(format, args...)
	}
}

func (env *environment) perform(fx *effect) {
	b := &env.children[fx.child]
	switch fx.kind {
	case launch:
		env.launch(fx)
	case halt:
		env.halt(fx)
	case drain:
		ready := !b.starting || env.plan.children[fx.child-1].early
		env.must(env.stopping && !env.keeping && b.alive && ready && !b.halted && !b.draining, "child %d is drained, which it must not be",
			fx.child)
		b.draining = true
	case discard:
		env.must(b.listed && !b.alive && b.left, "child %d is discarded, which has left nothing", fx.child)
		b.alive, b.dismissing, b.halted, b.left, b.again, b.kept = true, true, true, false, false, false
	case stuck:
		env.must(b.alive && b.halted && !b.overdue && env.plan.children[fx.child-1].shutdown >= 0, "child %d is reported as stuck, which it is not",
			fx.child)
		b.overdue = true
	case retire:
		env.must(b.listed && !b.alive && !b.left, "child %d is retired, which is not over", fx.child)
		b.listed, b.kept = false, false
	case giveUp:
		env.must(!env.stopping && !env.gaveUp, "the supervisor gives up while it is stopping")
		env.must(env.spent() > env.plan.options.Intensity, "the supervisor gives up after %d restarts, too early",
			env.spent())
		env.gaveUp, env.keeping = true, env.plan.nested
		env.stop()
	case ready:
		env.must(env.ordered, "the supervisor reports ready without a restart")
		env.ordered = false
		for i := 1; i <= int(env.added); i++ {
			b := &env.children[i]
			env.must(b.halted || !b.starting && (!b.kept || b.alive), "child %d was not started", i)
		}
	case conclude:
		env.conclude()
	}
}

// launch checks that at most one goroutine runs for a child, that none is started while the supervisor stops,
// and that under a group strategy the children before it run.
func (env *environment) launch(fx *effect) {
	b := &env.children[fx.child]
	env.must(b.listed && !b.alive && b.kept, "child %d is started, which must not run", fx.child)
	env.must(!env.stopping, "child %d is started while the supervisor is stopping", fx.child)
	for i := 1; i < int(fx.child); i++ {
		before := &env.children[i]
		if env.plan.options.Strategy != OneForOne && before.listed {
			env.must(before.overdue && !before.again || before.alive && !before.starting && !before.halted, "child %d is started before child %d runs", fx.child, i)
		}
	}
	for i := 1; i <= int(env.added) && env.plan.options.Strategy != OneForOne; i++ {
		other := &env.children[i]
		env.must(!other.alive || !other.halted || other.overdue && !other.again, "child %d is started before child %d has ended",
			fx.child, i)
	}
	inits := env.plan.children[fx.child-1].inits
	b.alive, b.starting, b.kept, b.left, b.again = true, inits, false, false, false
	b.fresh = b.fresh && inits
}

// halt checks that children are stopped in reverse order.
func (env *environment) halt(fx *effect) {
	b := &env.children[fx.child]
	env.must(b.alive && !b.halted, "child %d is stopped, which does not run", fx.child)
	for i := int(fx.child) + 1; i <= int(env.added); i++ {
		after := &env.children[i]
		if !b.asked && !env.hurried && !b.draining {
			env.must(!after.alive || after.overdue, "child %d is stopped before child %d", fx.child, i)
		}
	}
	b.halted, b.again = true, fx.rerun
	env.must(!fx.rerun || !env.stopping || env.keeping, "child %d is to run again while the supervisor stops", fx.child)
}

// conclude checks that, when the supervisor has stopped, all children that still run were reported as stuck.
func (env *environment) conclude() {
	env.must(env.stopping && !env.concluded, "the supervisor concludes without a stop, or twice")
	env.concluded = true
	env.must(env.core.dueAt == 0, "the supervisor has stopped and still has a deadline")
	for i := 1; i <= int(env.added); i++ {
		b := &env.children[i]
		env.must(!b.alive || b.overdue, "child %d still runs after the supervisor has stopped", i)
		env.must(!b.listed || b.alive || env.keeping && b.kept, "child %d is not over after the supervisor has stopped", i)
	}
}

// spent returns how many restarts count at present, at most.
func (env *environment) spent() (count int) {
	for _, at := range env.ended {
		if env.now-at <= smallPeriod {
			count++
		}
	}
	return count
}

// checkSettledState checks what must be true when no message is being stepped.
func (env *environment) checkSettledState() {
	busy, held := false, false
	for i := 1; i <= int(env.added); i++ {
		b := &env.children[i]
		busy = busy || b.alive && (b.starting || b.halted && !b.overdue || b.draining)
		held = held || b.overdue && b.again
		env.must(!env.hurried || !b.alive || b.halted, "child %d still runs after the time for the drain", i)
		env.must(!b.listed || b.alive || b.kept || env.stopping, "child %d is listed, and will not run again", i)
	}
	env.must(!env.stopping || env.concluded || busy, "the supervisor stops, but waits for nothing")
	for i := 1; i <= int(env.added); i++ {
		waits := env.children[i].listed && !env.children[i].alive
		env.must(!waits || env.stopping || busy || held && env.plan.options.Strategy != OneForOne, "child %d waits to be started, but for nothing",
			i)
	}
	if env.plan.options.Strategy == OneForOne {
		env.must(env.stopping || env.spent() <= env.plan.options.Intensity, "the supervisor has not given up after %d restarts",
			env.spent())
	}
	env.checkMembers()
}

// checkMembers compares the core's members with the records.
func (env *environment) checkMembers() {
	var counts stateCounts
	listed, last := 0, uint64(0)
	for m := range env.core.members.inOrder() {
		b := &env.children[m.key]
		env.must(m.key > last && env.core.members.byKey[m.key] == m && b.listed, "the list of members is wrong at child %d",
			m.key)
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
		env.must(m.state == want, "child %d is %s, want %s", m.key, m.state, want)
		env.must(m.stuck == b.overdue, "child %d is stuck: %v, want %v", m.key, m.stuck, b.overdue)
		bounded := m.state == Stopping && !m.stuck && m.shutdown >= 0
		env.must(!bounded || env.core.dueAt != 0 && env.core.dueAt <= m.due, "no deadline ends the wait for child %d",
			m.key)
	}
	env.must(counts == env.core.members.stateCounts && listed == len(env.core.members.byKey), "the counts of members are wrong")
	env.must(env.core.state != Draining || env.core.dueAt != 0 && env.core.dueAt <= env.core.drainDue, "no deadline ends the drain")
}

// clone returns a deep copy.
func (env *environment) clone() *environment {
	twin := *env
	twin.core, twin.ended, twin.trace = env.core.clone(), slices.Clone(env.ended), nil
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

// An encoder writes a state in canonical form: states with equal forms behave equally from then on. A time is
// written as its distance from now.
type encoder struct{ bytes []byte }

func (f *encoder) byte(b ...uint8) { f.bytes = append(f.bytes, b...) }

func (f *encoder) flags(flags ...bool) {
	var all uint16
	for i, flag := range flags {
		if flag {
			all |= 1 << i
		}
	}
	f.bytes = binary.LittleEndian.AppendUint16(f.bytes, all)
}

// at appends a time. All times that have passed are equal.
func (f *encoder) at(now, t instant) {
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

// encode returns the state of an environment in canonical form.
func (f *encoder) encode(env *environment) []byte {
	f.bytes = f.bytes[:0]
	c := env.core
	f.byte(env.added, c.state[1], c.state[2])
	f.flags(c.keeps, c.beginning && c.state == Running, env.stopping, env.keeping, env.concluded, env.ordered, env.gaveUp)
	f.at(env.now, c.dueAt)
	f.at(env.now, c.drainDue)
	f.ages(env.now, c.restarts)
	f.ages(env.now, env.ended)
	for m := range c.members.inOrder() {
		f.byte(uint8(m.key), m.state[0], m.state[2])
		f.flags(m.firstStart, m.rerun && (m.queued || m.state == Stopping), m.queued, m.resumes && m.state == Waiting, m.stuck, c.awaited == m)
		f.at(env.now, m.due)
	}
	f.byte(0)
	for _, m := range c.stopQueue {
		f.byte(uint8(m.key))
	}
	f.byte(0)
	for i := 1; i <= int(env.added); i++ {
		b := &env.children[i]
		f.flags(b.listed, b.alive, b.starting, b.fresh, b.halted, b.again, b.draining, b.dismissing, b.left, b.overdue, b.kept)
	}
	return f.bytes
}

// ages appends how long ago the given times were, without those older than a period.
func (f *encoder) ages(now instant, times []instant) {
	for _, t := range times {
		if age := now - t; age <= smallPeriod {
			f.byte(1)
			f.bytes = binary.LittleEndian.AppendUint64(f.bytes, uint64(age))
		}
	}
	f.byte(0)
}
