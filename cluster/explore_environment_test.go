package cluster

import (
	"fmt"
	"slices"
	"time"
)

const (
	maxProcesses = 3
	maxMessages  = 2  // of one process; what it sends beyond is lost at once
	maxQueue     = 12 // changes that wait for a watch; the oldest are shown before more come

	tick = renewEvery
)

// The keys of the model.
const (
	leaseOfA = iota
	leaseOfB
	srvKey
	modelKeys
)

// names has the name of each process. The third is a later process of the first node, or a
// second one with the same name.
var modelNames = [maxProcesses]string{"a", "b", "a"}

func leaseOf(p int) int { return [maxProcesses]int{leaseOfA, leaseOfB, leaseOfA}[p] }

// A process is one node: its machines, and the code around them in short.
type process struct {
	started, crashed, paused bool
	cut                      bool // what it sends is lost, and nothing is shown to it

	clock    instant
	lease    hold
	claim    hold
	claiming claimPhase
	number   uint64 // of the last claim
	view     view
	queue    []change
}

type claimPhase uint8

const (
	unclaimed claimPhase = iota
	claiming             // a create is on its way
	claimed
	releasing
)

func (p *process) runs() bool { return p.started && !p.crashed && !p.paused }

// A stored value is what the engine has for a key.
type stored struct {
	exists   bool
	revision uint64
	expires  instant
	writer   int    // the process
	number   uint64 // the term, or the number of the claim
}

// A change is what a watch shows. A deleted one may have revision 0.
type change struct {
	key int
	stored
}

// A message is a request on its way, or its answer.
type message struct {
	from      int
	kind      messageKind
	attempt   attempt
	number    uint64 // the term or the number of the claim that it writes
	answered  bool   // the engine has got it
	abandoned bool   // the sender does not wait any more

	revision uint64 // the answer
	done     bool
	what     finding
}

type messageKind uint8

const (
	forLease messageKind = iota
	forClaim
	firstClaim // creates the claim
	reads      // what an earlier claim of the process may have left
	adopts
	frees
	taking // replaces the record of the session
)

// An environment is an engine and its processes.
type environment struct {
	plan      *plan
	now       instant // by the engine's clock
	processes [maxProcesses]process
	keys      [modelKeys]stored
	before    [modelKeys]stored // what a stale read finds
	revision  uint64
	messages  []message

	record       stored // of the session: writer and number are its owner
	recordBefore stored
	records      uint64 // the revision of the newest record

	settling bool // nothing is lost or delayed any more
	fault    error
	digest   uint64
	trace    []string
	tracing  bool
}

func newEnvironment(plan *plan) *environment {
	env := &environment{plan: plan, settling: true}
	env.start(0)
	env.start(1)
	if plan.claims {
		env.processes[0].claimSrv(env, 0)
	}
	env.deliverAll()
	env.settling = false
	if plan.session {
		env.save(0)
	}
	return env
}

func (env *environment) start(p int) {
	epoch := fmt.Sprintf("%s%d", modelNames[p], p)
	env.processes[p] = process{started: true, clock: time.Second, lease: hold{keeps: true, over: env.plan.claims}, view: newView(owner{Node: modelNames[p], Epoch: epoch})}
	env.relist(p, env.keys)
	env.run(p)
	env.limitLag()
}

// relist begins the watch of a process anew, with what the engine had at some time.
func (env *environment) relist(p int, with [modelKeys]stored) {
	q := &env.processes[p].queue
	*q = (*q)[:0]
	for key, v := range with {
		if !v.exists {
			v = stored{}
		}
		*q = append(*q, change{key, v})
		if now := env.keys[key]; now != v && (now.exists || v.exists) {
			*q = append(*q, change{key, now})
		}
	}
}

func (env *environment) say(format string, args ...any) {
	if env.tracing {
		env.trace = append(env.trace, fmt.Sprintf(format, args...))
	}
}

func (env *environment) violated(format string, args ...any) {
	if env.fault == nil {
		env.fault = fmt.Errorf(format, args...)
	}
}

// believes reports whether a process believes in a hold.
func (env *environment) believes(p int, h *hold) bool {
	if env.plan.mistake == checksByTimer {
		return !h.over && h.until != 0
	}
	return h.held(env.processes[p].clock)
}

// run does what is due, as the loop of a node does.
func (env *environment) run(p int) {
	node := &env.processes[p]
	if !node.runs() {
		return
	}
	node.lease.expire(node.clock)
	if a := node.lease.next(node.clock); a.op != noOperation {
		env.send(message{from: p, kind: forLease, attempt: a, number: env.term(node.lease.nextTerm())})
	}
	if node.claiming == claimed {
		node.claim.expire(node.clock)
		if a := node.claim.next(node.clock); a.op != noOperation {
			env.send(message{from: p, kind: forClaim, attempt: a, number: node.number})
		}
		node.forgetClaim()
	}
}

// term is the term that a process writes.
func (env *environment) term(of uint64) uint64 {
	if env.plan.mistake == keepsTerm {
		return 1
	}
	return of
}

func (node *process) forgetClaim() {
	if node.claiming == claimed && node.claim.over && node.claim.flying == 0 {
		node.claiming = unclaimed
	}
}

// claimSrv begins a claim, as Node.claim does.
func (node *process) claimSrv(env *environment, p int) {
	node.number++
	node.claim, node.claiming = hold{due: never}, claiming
	env.send(message{from: p, kind: firstClaim, attempt: attempt{op: create, sent: node.clock}, number: node.number})
}

// send puts a message on its way.
func (env *environment) send(m message) {
	env.say("%s sends %v", env.nameOf(m.from), m)
	waiting := 0
	for _, other := range env.messages {
		if other.from == m.from && !other.abandoned {
			waiting++
		}
	}
	env.messages = append(env.messages, m)
	switch {
	case waiting >= maxMessages, env.processes[m.from].cut:
		env.messages = env.messages[:len(env.messages)-1]
		env.lose(m)
	case env.settling, m.kind == forLease && !env.plan.delayed[m.from]:
		env.arrive(len(env.messages) - 1)
		env.answer(len(env.messages) - 1)
	}
}

// arrive lets the engine do what a message asks for.
func (env *environment) arrive(i int) {
	m := &env.messages[i]
	m.answered = true
	key := srvKey
	if m.kind == forLease {
		key = leaseOf(m.from)
	}
	has := env.keys[key]
	switch {
	case m.kind == taking:
		env.take(m)
	case m.attempt.op == read:
		m.answerRead(has)
	case m.kind == frees:
		if m.done = has.exists && has.revision == m.attempt.base; m.done {
			env.write(key, stored{})
		}
	case m.attempt.op == create && !has.exists, m.attempt.op == update && has.exists && has.revision == m.attempt.base:
		env.write(key, stored{exists: true, expires: env.now + leaseTTL, writer: m.from, number: m.number})
		m.done, m.revision = true, env.revision
	}
}

// answerRead answers with what a read shows.
func (m *message) answerRead(has stored) {
	m.done, m.revision, m.what = true, has.revision, nothing
	if has.exists {
		m.what = foreign
	}
	if has.exists && has.writer == m.from && (m.kind != forClaim || has.number == m.number) {
		m.what = own
	}
}

func (env *environment) write(key int, v stored) {
	env.revision++
	v.revision = env.revision
	env.before[key], env.keys[key] = env.keys[key], v
	for p := range env.processes {
		node := &env.processes[p]
		if node.started && !node.crashed {
			node.queue = append(node.queue, change{key, v})
		}
	}
}

// limitLag shows what has waited long enough. A process that is paused or cut off is shown less
// later.
func (env *environment) limitLag() {
	for p := range env.processes {
		node := &env.processes[p]
		limit := 0
		if env.plan.lagging[p] || node.paused || node.cut {
			limit = maxQueue
		}
		for len(node.queue) > limit {
			if !node.paused && !node.cut {
				env.show(p)
			} else if !node.compact() {
				break
			}
		}
	}
}

// compactable returns the position of the oldest change that another one of its key has
// replaced; -1 if there is none.
func (node *process) compactable() int {
	return slices.IndexFunc(node.queue, func(c change) bool {
		last := node.queue[len(node.queue)-1]
		for i := range node.queue {
			if node.queue[i].key == c.key {
				last = node.queue[i]
			}
		}
		return last != c
	})
}

// compact leaves out that change, if there is one, and reports whether it has.
func (node *process) compact() bool {
	i := node.compactable()
	if i >= 0 {
		node.queue = slices.Delete(node.queue, i, i+1)
	}
	return i >= 0
}

// answer hands an answer to its sender.
func (env *environment) answer(i int) {
	m := env.messages[i]
	env.messages = slices.Delete(env.messages, i, i+1)
	node := &env.processes[m.from]
	if m.abandoned || node.crashed {
		return
	}
	env.say("%s gets the answer to %v: done %v, revision %d", env.nameOf(m.from), m, m.done, m.revision)
	if env.plan.mistake == countsFromReply {
		m.attempt.sent = node.clock
	}
	switch m.kind {
	case forLease:
		node.apply(&node.lease, m)
		if m.done && m.attempt.op != read {
			node.view.renewed(m.attempt.sent, m.revision)
		}
	case forClaim:
		node.apply(&node.claim, m)
		node.forgetClaim()
	case frees:
		node.claiming = unclaimed
	case firstClaim, adopts:
		node.claimAnswered(env, m)
	case reads:
		if m.what != own {
			node.claiming = unclaimed
			break
		}
		a := attempt{op: update, base: m.revision, sent: m.attempt.sent}
		env.send(message{from: m.from, kind: adopts, attempt: a, number: m.number})
	}
	env.run(m.from)
}

func (node *process) apply(h *hold, m message) {
	switch {
	case m.attempt.op == read:
		h.found(node.clock, m.attempt, m.what, m.revision)
	case m.done:
		h.accepted(m.attempt, m.revision)
	default:
		h.refused(node.clock, m.attempt)
	}
}

func (node *process) claimAnswered(env *environment, m message) {
	switch {
	case m.done:
		node.claiming = claimed
		node.claim.begun(m.attempt.sent, m.revision)
	case m.kind == firstClaim:
		env.send(message{from: m.from, kind: reads, attempt: attempt{op: read, sent: m.attempt.sent}, number: m.number})
	default:
		node.claiming = unclaimed
	}
}

// lose tells the sender that nobody knows what has become of a message.
func (env *environment) lose(m message) {
	node := &env.processes[m.from]
	if node.crashed {
		return
	}
	switch m.kind {
	case forLease:
		node.lease.failed(m.attempt)
	case forClaim:
		node.claim.failed(m.attempt)
		node.forgetClaim()
	case taking:
	default:
		node.claiming = unclaimed
	}
}

// show applies a change to what a process knows, as the watch does.
func (env *environment) show(p int) {
	node := &env.processes[p]
	c := node.queue[0]
	node.queue = slices.Delete(node.queue, 0, 1)
	what := nothing
	if c.exists && c.writer == p {
		what = own
	} else if c.exists {
		what = foreign
	}
	env.say("%s is shown key %d, revision %d: %v by %d", env.nameOf(p), c.key, c.revision, c.exists, c.writer)
	switch {
	case c.key == srvKey:
		if what == own && c.number != node.number {
			what = foreign
		}
		if node.claiming == claimed {
			node.claim.shown(node.clock, what, c.revision)
			node.forgetClaim()
		}
	case c.key == leaseOf(p):
		if what == own {
			node.view.showOwn(c.revision)
		}
		node.lease.shown(node.clock, what, c.revision)
	case c.exists:
		node.view.show(modelNames[c.writer], &owner{modelNames[c.writer], fmt.Sprintf("%s%d", modelNames[c.writer], c.writer), c.number}, c.revision)
	case env.plan.mistake == believesLists:
		node.view.hide(node.clock, [modelKeys]string{"a", "b"}[c.key], 1<<32)
	default:
		node.view.hide(node.clock, [modelKeys]string{"a", "b"}[c.key], c.revision)
	}
	env.run(p)
}

func (env *environment) nameOf(p int) string { return fmt.Sprintf("%s%d", modelNames[p], p) }
