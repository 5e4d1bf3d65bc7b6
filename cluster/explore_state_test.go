package cluster

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"
)

// check returns which invariant is broken.
func (env *environment) check() error {
	if fault := env.consistent(); fault != nil {
		return fault
	}
	return env.clone().settle()
}

// consistent returns what is wrong now.
func (env *environment) consistent() error {
	if env.fault != nil {
		return env.fault
	}
	for p := range env.processes {
		node := &env.processes[p]
		if !node.runs() {
			continue
		}
		if v := env.keys[leaseOf(p)]; env.believes(p, &node.lease) && (!v.exists || v.writer != p) {
			return fmt.Errorf("%s believes in its lease, and somebody else can have it", env.nameOf(p))
		}
		if v := env.keys[srvKey]; node.claiming == claimed && env.believes(p, &node.claim) && (!v.exists || v.writer != p || v.number != node.number) {
			return fmt.Errorf("%s believes in its claim, and somebody else can have it", env.nameOf(p))
		}
	}
	return nil
}

// settle ends all faults, and returns what does not come back within 80 s.
func (env *environment) settle() error {
	env.settling = true
	for len(env.messages) > 0 {
		m := env.messages[0]
		env.messages = env.messages[1:]
		if !m.abandoned {
			env.lose(m)
		}
	}
	for p := range env.processes {
		env.processes[p].paused, env.processes[p].cut = false, false
		env.run(p)
	}
	env.deliverAll()
	for range 16 {
		env.tick()
		env.deliverAll()
		for p := range env.processes {
			env.wish(p)
		}
		env.deliverAll()
	}
	if env.fault != nil {
		return fmt.Errorf("after the end of all faults, %w", env.fault)
	}
	return env.unsettled()
}

// wish lets a process want all that it could have.
func (env *environment) wish(p int) {
	node := &env.processes[p]
	if !node.runs() {
		return
	}
	if env.plan.session && env.mayTake(p) {
		env.tryTake(p, env.record)
	}
	if env.plan.claims && node.claiming == unclaimed {
		node.claimSrv(env, p)
	}
}

func (env *environment) deliverAll() {
	before := env.settling
	env.settling = true
	for p := range env.processes {
		env.flush(p)
		for len(env.processes[p].queue) > 0 && env.processes[p].runs() {
			env.show(p)
		}
	}
	env.settling = before
}

// flush delivers the messages of a process.
func (env *environment) flush(p int) {
	for i := 0; i < len(env.messages); {
		if env.messages[i].from != p {
			i++
			continue
		}
		if !env.messages[i].answered {
			env.arrive(i)
		}
		env.answer(i)
	}
}

// unsettled returns what has no owner, or does not come back.
func (env *environment) unsettled() error {
	for p := range env.processes {
		node := &env.processes[p]
		if !node.runs() || env.plan.claims {
			continue
		}
		lease := env.keys[leaseOf(p)]
		if !lease.exists || !env.processes[lease.writer].runs() || !env.believes(lease.writer, &env.processes[lease.writer].lease) {
			return fmt.Errorf("%s does not get its lease", env.nameOf(p))
		}
	}
	if env.plan.session {
		owner := &env.processes[env.record.writer]
		lease := env.keys[leaseOf(env.record.writer)]
		if !owner.runs() || lease.writer != env.record.writer {
			return fmt.Errorf("the session of %v is lost", env.ownerOf(env.record))
		}
	}
	if srv := env.keys[srvKey]; env.plan.claims && (!srv.exists || !env.processes[srv.writer].runs() || !env.believes(srv.writer, &env.processes[srv.writer].claim)) {
		return fmt.Errorf("nobody gets the key")
	}
	return nil
}

// clone returns a deep copy.
func (env *environment) clone() *environment {
	twin := *env
	twin.messages, twin.trace = slices.Clone(env.messages), nil
	twin.tracing = false
	for p := range twin.processes {
		node := &twin.processes[p]
		node.queue = slices.Clone(node.queue)
		node.view = node.view.clone()
	}
	return &twin
}

func (v *view) clone() view {
	twin := *v
	twin.asked = maps.Clone(v.asked)
	twin.nodes = make(map[string]*sight, len(v.nodes))
	for name, s := range v.nodes {
		other := *s
		other.ended = slices.Clone(s.ended)
		twin.nodes[name] = &other
	}
	return twin
}

// An encoder writes a state in canonical form: states with equal forms behave equally from
// then on. Times are written relative to the clock that counts for them, and revisions and
// terms as their ranks.
type encoder struct {
	bytes     []byte
	revisions []uint64
}

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

// until appends how far a time is away; all times that have passed are equal.
func (f *encoder) until(now, at instant) {
	left := max(0, min(at-now, 30*time.Second))
	f.bytes = binary.LittleEndian.AppendUint16(f.bytes, uint16(left/(time.Second/4)))
	f.flags(at == 0)
}

// age appends how long ago something was; ages above 30 s are equal.
func (f *encoder) age(now, at instant) {
	f.byte(uint8(min(now-at, 30*time.Second) / (time.Second / 4)))
}

func (f *encoder) revision(r uint64) {
	at, _ := slices.BinarySearch(f.revisions, r)
	f.byte(uint8(at))
}

func (f *encoder) collect(env *environment) {
	f.revisions = append(f.revisions[:0], 0)
	for key := range env.keys {
		f.revisions = append(f.revisions, env.keys[key].revision, env.before[key].revision)
	}
	for _, m := range env.messages {
		f.revisions = append(f.revisions, m.attempt.base, m.revision)
	}
	for p := range env.processes {
		node := &env.processes[p]
		f.revisions = append(f.revisions, node.lease.revision, node.claim.revision, node.view.wrote, node.view.shown)
		for _, s := range node.view.nodes {
			f.revisions = append(f.revisions, s.revision)
		}
		for _, c := range node.queue {
			f.revisions = append(f.revisions, c.revision)
		}
	}
	slices.Sort(f.revisions)
	f.revisions = slices.Compact(f.revisions)
}

// encode returns the state of an environment in canonical form.
func (f *encoder) encode(env *environment) []byte {
	f.bytes = f.bytes[:0]
	f.collect(env)
	for key := range env.keys {
		f.stored(env, env.keys[key])
		f.stored(env, env.before[key])
	}
	for _, r := range []stored{env.record, env.recordBefore} {
		f.flags(r.exists, r.revision == env.records)
		f.byte(uint8(r.writer), uint8(r.number))
	}
	f.byte(uint8(len(env.messages)))
	for i := range env.messages {
		f.message(env, &env.messages[i])
	}
	for p := range env.processes {
		f.process(env, &env.processes[p])
	}
	return f.bytes
}

func (f *encoder) stored(env *environment, v stored) {
	f.flags(v.exists)
	f.byte(uint8(v.writer), uint8(v.number))
	f.revision(v.revision)
	if v.exists {
		f.until(env.now, v.expires)
	}
}

func (f *encoder) message(env *environment, m *message) {
	node := &env.processes[m.from]
	losses := node.claim.losses
	if m.kind == forLease {
		losses = node.lease.losses
	}
	f.byte(uint8(m.from), uint8(m.kind), uint8(m.attempt.op), uint8(m.number), uint8(m.what))
	f.flags(m.answered, m.abandoned, m.done, m.attempt.losses == losses, m.kind == taking && m.attempt.base == env.record.revision)
	if m.kind != taking {
		f.revision(m.attempt.base)
		f.revision(m.revision)
	}
	f.age(node.clock, m.attempt.sent)
}

func (f *encoder) process(env *environment, node *process) {
	f.flags(node.started, node.crashed, node.paused, node.cut)
	if !node.started || node.crashed {
		return
	}
	f.byte(uint8(node.lease.losses), uint8(node.claiming), uint8(node.number))
	f.hold(node, &node.lease)
	f.hold(node, &node.claim)
	f.byte(uint8(len(node.queue)))
	for _, c := range node.queue {
		f.byte(uint8(c.key), uint8(c.writer), uint8(c.number))
		f.flags(c.exists)
		f.revision(c.revision)
	}
	f.view(node)
}

func (f *encoder) hold(node *process, h *hold) {
	f.flags(h.over, h.look, h.failing)
	f.byte(h.flying)
	f.revision(h.revision)
	f.until(node.clock, h.until)
	f.until(node.clock, h.due)
}

func (f *encoder) view(node *process) {
	v := &node.view
	f.revision(v.wrote)
	f.revision(v.shown)
	f.age(node.clock, v.confirmed)
	f.age(node.clock, v.sent)
	for _, name := range []string{"a", "b"} {
		s := v.nodes[name]
		if s == nil {
			f.byte(0xff)
			continue
		}
		f.byte(uint8(s.state), uint8(s.owner.Term), uint8(len(s.ended)))
		f.bytes = append(f.bytes, s.owner.Epoch...)
		f.revision(s.revision)
		f.flags(s.denied)
		f.age(node.clock, s.since)
		for _, o := range s.ended {
			f.byte(uint8(o.Term))
			f.bytes = append(f.bytes, o.Epoch...)
		}
	}
	asked := slices.Collect(maps.Keys(v.asked))
	slices.SortFunc(asked, func(a, b owner) int { return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Term, b.Term)) })
	for _, o := range asked {
		f.byte(uint8(o.Term))
		f.bytes = append(f.bytes, o.Epoch...)
		f.age(node.clock, v.asked[o])
	}
}
