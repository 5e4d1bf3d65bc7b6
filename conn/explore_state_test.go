package conn

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// clone returns a deep copy. Only requests of the peer are shared, because the core does not change them.
func (env *environment) clone() *environment {
	twin := *env
	twin.core, twin.returned, twin.trace = env.core.clone(), nil, nil
	return &twin
}

func (c *core) clone() *core {
	twin, under := *c, *c.traffic
	twin.traffic = &under
	twin.out = nil
	twin.schedule = c.schedule.clone()
	twin.pending = c.pending.clone()
	twin.tombstones.byID, twin.tombstones.order = maps.Clone(c.tombstones.byID), slices.Clone(c.tombstones.order)
	twin.incoming.serving, twin.incoming.cancelled = maps.Clone(c.incoming.serving), slices.Clone(c.incoming.cancelled)
	twin.incoming.streaming, twin.incoming.waiting = slices.Clone(c.incoming.streaming), slices.Clone(c.incoming.waiting)
	twin.incoming.waitingByKey = maps.Clone(c.incoming.waitingByKey)
	twin.outbound.slots = slices.Clone(c.outbound.slots)
	twin.streams = streams{main: c.streams.main.clone()}
	if c.streams.others != nil {
		twin.streams.others = make(map[transport.Stream]*stream, len(c.streams.others))
	}
	for number, s := range c.streams.others {
		other := s.clone()
		twin.streams.others[number] = &other
	}
	for _, s := range c.streams.throttled {
		twin.streams.throttled = append(twin.streams.throttled, twin.streams.find(s.number))
	}
	for _, s := range c.streams.cut {
		twin.streams.cut = append(twin.streams.cut, twin.streams.find(s.number))
	}
	return &twin
}

func (p *pending) clone() pending {
	twin := pending{calls: p.calls}
	if len(p.byID) == 0 {
		return twin
	}
	twin.byID = make(map[int64]*request, len(p.byID))
	twin.byDeadline = make(requestHeap, len(p.byDeadline))
	for id, r := range p.byID {
		other := *r
		if twin.byID[id] = &other; other.position >= 0 {
			twin.byDeadline[other.position] = &other
		}
	}
	return twin
}

func (s *stream) clone() stream {
	twin := *s
	twin.requests = slices.Clone(s.requests)
	twin.schedule = s.schedule.clone()
	return twin
}

func (s *schedule) clone() *schedule {
	if s == nil {
		return nil
	}
	twin := *s
	return &twin
}

// An encoder writes a state in canonical form: states with equal forms behave equally from then on. A
// time is written as its rank among all times to come, and roughly how far away it is.
type encoder struct {
	bytes []byte
	now   instant
	times []instant
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

// at appends a time. All times that have passed are equal.
func (f *encoder) at(t instant) {
	switch rank, _ := slices.BinarySearch(f.times, t); {
	case t == 0:
		f.byte(0)
	case t <= f.now:
		f.byte(1)
	default:
		f.byte(2+uint8(rank), distanceClass(t-f.now))
	}
}

func distanceClass(d time.Duration) uint8 {
	steps := [...]time.Duration{20 * time.Millisecond, 500 * time.Millisecond, 4 * time.Second, 15 * time.Second}
	at, _ := slices.BinarySearch(steps[:], d)
	return uint8(at)
}

// encode returns the state of an environment in canonical form.
func (f *encoder) encode(env *environment) []byte {
	f.bytes, f.now = f.bytes[:0], env.now
	f.collectTimes(env)
	f.core(env)
	f.traffic(env)
	f.records(env)
	return f.bytes
}

// collectTimes collects all times to come, in order.
func (f *encoder) collectTimes(env *environment) {
	c := env.core
	f.times = append(f.times[:0], c.retryAt, c.initDue, c.closeDue, c.drainDue, c.idleAt, c.quietAt(), c.refuseUntil, c.outbound.retryAt, c.outbound.stuckAt,
		c.tombstones.sweepAt, c.streams.main.resumeAt, env.proven(), c.flow.until, c.flow.since, c.liveness.dueAt, c.liveness.readAt+2*c.liveness.every)
	for _, r := range c.pending.byDeadline {
		f.times = append(f.times, r.deadline, r.limit)
	}
	for _, s := range c.streams.others {
		f.times = append(f.times, s.resumeAt)
	}
	for _, request := range slices.Concat(c.incoming.cancelled, c.incoming.waiting) {
		f.times = append(f.times, request.due)
	}
	for _, g := range c.tombstones.byID {
		f.times = append(f.times, g.expiry)
	}
	for i := range env.streams {
		f.times = append(f.times, env.streams[i].floor)
	}
	for i := range env.links {
		f.times = append(f.times, env.links[i].closeBy)
	}
	slices.Sort(f.times)
	f.times = slices.Compact(f.times)
	f.times = slices.DeleteFunc(f.times, func(t instant) bool { return t <= f.now })
}

// proven returns when the present incarnation will be proven.
func (env *environment) proven() instant {
	if env.core.state() != Ready || env.core.role == acceptor {
		return 0
	}
	return env.core.readyAt + env.core.options.ProvenAfter
}

func (f *encoder) core(env *environment) {
	c := env.core
	f.byte(byte(c.place), c.state()[0], c.state()[1], byte(c.epoch), byte(min(c.unproven, crashLoop)), byte(c.malformed.frames), byte(c.lastID))
	f.flags(c.linked, c.draining, c.ended, c.retryWhy != "", c.grace > c.options.StopGrace, c.installs)
	f.schedule(c.schedule)
	f.byte(c.initDoublings)
	for _, t := range [...]instant{c.initDue, c.retryAt, env.proven(), c.closeDue, c.drainDue, c.idleAt,
		c.quietAt(), c.refuseUntil, c.outbound.retryAt, c.outbound.stuckAt, c.tombstones.sweepAt} {
		f.at(t)
	}
	for id := range int64(len(env.calls)) {
		r := c.pending.byID[id]
		if r == nil {
			f.byte(0)
			continue
		}
		f.flags(true, r.silent, r.sent, r.streaming, r.suspended)
		f.byte(byte(r.stream))
		f.at(r.deadline)
		f.at(r.limit)
		f.byte(byte(r.remaining / (time.Second / 8)))
	}
	f.watch(env)
	f.byte(byte(len(c.tombstones.order)))
	for _, id := range c.tombstones.order {
		g := c.tombstones.byID[id]
		f.byte(byte(id), byte(g.cause))
		f.at(g.expiry)
	}
}

// watch appends the state of the flow control and of the probes.
func (f *encoder) watch(env *environment) {
	c := env.core
	f.flags(c.flow.crowded, env.crowded, c.notified, env.handling, env.awaited, c.liveness.every != 0, c.liveness.asked, c.liveness.doubted, env.doubts)
	f.byte(byte(c.flow.stall), env.probes, env.refuted, env.denied, c.liveness.missed, byte(c.liveness.probe))
	f.at(c.flow.until)
	f.byte(byte(c.flow.pausedFor(env.now) / (time.Second / 4)))
	f.at(c.liveness.dueAt)
	if c.liveness.every != 0 {
		f.byte(byte((env.now - c.liveness.readAt) / (time.Second / 2)))
	}
	if r := c.pending.byID[c.liveness.probe]; r != nil {
		f.flags(true, r.sent)
	}
}

// schedule appends how much the delay of a backoff has grown.
func (f *encoder) schedule(s *schedule) {
	if s == nil {
		f.byte(0)
		return
	}
	delays := s.delays
	f.byte(1 + byte(delays.NextBackOff()/s.min))
}

func (f *encoder) traffic(env *environment) {
	c := env.core
	for i := range env.requests {
		in := env.requests[i].incoming
		f.flags(in != nil && c.incoming.serving[in.key] == in, in != nil && c.incoming.exclusive == in)
	}
	f.byte(byte(len(c.incoming.cancelled)), byte(c.incoming.stuck), byte(len(c.incoming.waiting)))
	for _, request := range slices.Concat(c.incoming.cancelled, c.incoming.waiting) {
		f.requests(env, []*Incoming{request.Incoming})
		f.at(request.due)
	}
	f.requests(env, c.incoming.streaming)
	f.byte(byte(c.incoming.bytes), byte(len(c.outbound.waiting())))
	for i := range c.outbound.waiting() {
		out := &c.outbound.waiting()[i]
		attempts := min(out.attempts, busyRetries+2) // a reply is offered without a limit
		f.byte(byte(out.id), byte(out.stream), attempts, out.frame[0], out.frame[1])
		f.flags(out.notification, out.reply, out.last, out.answers == nil)
		if out.reply && out.frame[0] != '#' {
			f.byte(byte(env.answeredBy(*out)))
		}
	}
	f.stream(env, &c.streams.main)
	for number := range transport.Stream(maxStreams) {
		f.stream(env, c.streams.others[number])
	}
	f.streamNumbers(c.streams.throttled)
	f.streamNumbers(c.streams.cut)
}

func (f *encoder) requests(env *environment, of []*Incoming) {
	f.byte(byte(len(of)))
	for _, in := range of {
		f.byte(byte(env.numberOf(in)))
	}
}

func (f *encoder) streamNumbers(of []*stream) {
	f.byte(byte(len(of)))
	for _, s := range of {
		f.byte(byte(s.number))
	}
}

func (f *encoder) stream(env *environment, s *stream) {
	if s == nil {
		f.byte(0)
		return
	}
	f.byte(1, byte(s.request), byte(s.withheld), byte(s.nested))
	f.flags(s.complete)
	f.requests(env, s.requests)
	f.at(s.resumeAt)
	f.schedule(s.schedule)
	if s.schedule != nil {
		f.at(s.resumed + env.core.options.ProvenAfter)
	}
}

func (f *encoder) records(env *environment) {
	f.byte(env.room, byte(env.bound))
	f.flags(env.moved, env.refused, env.oversize, env.severed, env.closed, env.terminated)
	for _, v := range env.gateRecords {
		f.flags(v.asked, v.given, v.left)
	}
	for i := range env.links {
		l := &env.links[i]
		f.flags(l.opening, l.open, l.handshaking, l.lost, l.ended, l.gone)
		f.byte(l.closing)
		f.at(l.closeBy)
	}
	for i := range env.streams {
		l := &env.streams[i]
		f.flags(l.opened, l.complete, l.lost, l.ended, l.cut, l.partial, l.answered)
		f.byte(byte(l.credit))
		f.at(l.floor)
	}
	for i := range env.calls {
		c := &env.calls[i]
		f.flags(c.made, c.accepted, c.settled, c.answered, c.taken, c.unsent, c.failed)
		f.byte(byte(c.epoch), c.streamNumber)
	}
	for i := range env.requests {
		q := &env.requests[i]
		f.flags(q.asked, q.running, q.stuck, q.served, q.answered, q.large, q.noAnswerDue)
		f.flags(q.sentBefore[:]...)
		if q.running {
			f.byte(byte(q.incoming.Epoch))
		}
	}
}
