package conn

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// clone is a deep copy: what happens to one does not touch the other. Requests
// of the peer's are shared, since the core does not change them once held.
func (w *scene) clone() *scene {
	twin := *w
	twin.core, twin.returned, twin.said = w.core.clone(), nil, nil
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
	for _, s := range c.streams.owed {
		twin.streams.owed = append(twin.streams.owed, twin.streams.find(s.number))
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

// A form is a state in canonical form: equal forms have equal futures. Instants
// are their rank among those that are to come, and how far off they are.
type form struct {
	bytes []byte
	now   instant
	times []instant
}

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

// at appends an instant. What is past is past.
func (f *form) at(t instant) {
	switch rank, _ := slices.BinarySearch(f.times, t); {
	case t == 0:
		f.byte(0)
	case t <= f.now:
		f.byte(1)
	default:
		f.byte(2+uint8(rank), distance(t-f.now))
	}
}

func distance(d time.Duration) uint8 {
	steps := [...]time.Duration{20 * time.Millisecond, 500 * time.Millisecond, 4 * time.Second, 15 * time.Second}
	at, _ := slices.BinarySearch(steps[:], d)
	return uint8(at)
}

// write puts the state of an scene in canonical form.
func (f *form) write(w *scene) []byte {
	f.bytes, f.now = f.bytes[:0], w.now
	f.collect(w)
	f.core(w)
	f.traffic(w)
	f.books(w)
	return f.bytes
}

// collect orders the instants to come.
func (f *form) collect(w *scene) {
	c := w.core
	f.times = append(f.times[:0], c.retryAt, c.initDue, c.closeDue, c.drainDue, c.idleAt, c.outbound.retryAt, c.outbound.stuckAt,
		c.tombstones.sweepAt, c.streams.main.resumeAt, w.proven(), c.flow.until, c.flow.since, c.liveness.dueAt, c.liveness.heardAt+2*c.liveness.every)
	for _, r := range c.pending.byDeadline {
		f.times = append(f.times, r.deadline, r.limit)
	}
	for _, s := range c.streams.others {
		f.times = append(f.times, s.resumeAt)
	}
	for _, cancelled := range c.incoming.cancelled {
		f.times = append(f.times, cancelled.due)
	}
	for _, g := range c.tombstones.byID {
		f.times = append(f.times, g.expiry)
	}
	for i := range w.lanes {
		f.times = append(f.times, w.lanes[i].floor)
	}
	for i := range w.links {
		f.times = append(f.times, w.links[i].closeBy)
	}
	slices.Sort(f.times)
	f.times = slices.Compact(f.times)
	f.times = slices.DeleteFunc(f.times, func(t instant) bool { return t <= f.now })
}

// proven is when a Conn that is ready has proved itself.
func (w *scene) proven() instant {
	if w.core.state() != Ready || w.core.role == acceptor {
		return 0
	}
	return w.core.readyAt + w.core.options.ProvenAfter
}

func (f *form) core(w *scene) {
	c := w.core
	f.byte(byte(c.place), c.state()[0], c.state()[1], byte(c.epoch), byte(min(c.unproven, crashLoop)), byte(c.malformed.frames), byte(c.lastID))
	f.flags(c.linked, c.draining, c.ended, c.retryWhy != "", c.grace > c.options.StopGrace)
	f.schedule(c.schedule)
	f.byte(byte(c.initTime / c.options.InitTimeout))
	for _, t := range [...]instant{c.initDue, c.retryAt, w.proven(), c.closeDue, c.drainDue, c.idleAt,
		c.outbound.retryAt, c.outbound.stuckAt, c.tombstones.sweepAt} {
		f.at(t)
	}
	for id := range int64(len(w.calls)) {
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
	f.watch(w)
	f.byte(byte(len(c.tombstones.order)))
	for _, id := range c.tombstones.order {
		g := c.tombstones.byID[id]
		f.byte(byte(id), byte(g.cause))
		f.at(g.expiry)
	}
}

// watch appends how credit and the peer are watched.
func (f *form) watch(w *scene) {
	c := w.core
	f.flags(c.flow.crowded, w.crowded, c.liveness.every != 0, c.liveness.asked)
	f.byte(byte(c.flow.stall), w.probes, byte(c.liveness.missed), byte(c.liveness.probe))
	f.at(c.flow.until)
	f.byte(byte(c.flow.pausedFor(w.now) / (time.Second / 4)))
	f.at(c.liveness.dueAt)
	if c.liveness.every != 0 {
		f.byte(byte((w.now - c.liveness.heardAt) / (time.Second / 2)))
	}
	if r := c.pending.byID[c.liveness.probe]; r != nil {
		f.flags(true, r.sent)
	}
}

// schedule appends how far a backoff has come.
func (f *form) schedule(s *schedule) {
	if s == nil {
		f.byte(0)
		return
	}
	delays := s.delays
	f.byte(1 + byte(delays.NextBackOff()/s.min))
}

func (f *form) traffic(w *scene) {
	c := w.core
	for i := range w.questions {
		in := w.questions[i].incoming
		f.flags(in != nil && c.incoming.serving[in.key] == in, in != nil && c.incoming.exclusive == in)
	}
	f.byte(byte(len(c.incoming.cancelled)), byte(c.incoming.stuck))
	for _, cancelled := range c.incoming.cancelled {
		f.requests(w, []*Incoming{cancelled.Incoming})
		f.at(cancelled.due)
	}
	f.requests(w, c.incoming.streaming)
	f.requests(w, c.incoming.waiting)
	f.byte(byte(c.incoming.bytes), byte(len(c.outbound.waiting())))
	for i := range c.outbound.waiting() {
		out := &c.outbound.waiting()[i]
		attempts := min(out.attempts, busyRetries+2) // a reply is offered for ever
		f.byte(byte(out.id), byte(out.stream), attempts, out.frame[0], out.frame[1])
		f.flags(out.notification, out.reply, out.last, out.answers == nil)
		if out.reply && out.frame[0] != '#' {
			f.byte(byte(w.questionOf(*out)))
		}
	}
	f.stream(w, &c.streams.main)
	for number := range transport.Stream(lanes) {
		f.stream(w, c.streams.others[number])
	}
	f.numbers(c.streams.owed)
	f.numbers(c.streams.cut)
}

func (f *form) requests(w *scene, of []*Incoming) {
	f.byte(byte(len(of)))
	for _, in := range of {
		f.byte(byte(w.number(in)))
	}
}

func (f *form) numbers(of []*stream) {
	f.byte(byte(len(of)))
	for _, s := range of {
		f.byte(byte(s.number))
	}
}

func (f *form) stream(w *scene, s *stream) {
	if s == nil {
		f.byte(0)
		return
	}
	f.byte(1, byte(s.request), byte(s.withheld), byte(s.nested))
	f.flags(s.complete)
	f.requests(w, s.requests)
	f.at(s.resumeAt)
	f.schedule(s.schedule)
}

func (f *form) books(w *scene) {
	f.byte(w.room, byte(w.bound))
	f.flags(w.moved, w.refused, w.oversize, w.severed, w.closed, w.terminated)
	for _, v := range w.visits {
		f.flags(v.asked, v.came, v.left)
	}
	for i := range w.links {
		l := &w.links[i]
		f.flags(l.opening, l.open, l.shaking, l.over, l.ended, l.gone)
		f.byte(l.closing)
		f.at(l.closeBy)
	}
	for i := range w.lanes {
		l := &w.lanes[i]
		f.flags(l.opened, l.complete, l.over, l.ended, l.cut, l.partial, l.answered)
		f.byte(byte(l.credit))
		f.at(l.floor)
	}
	for i := range w.calls {
		c := &w.calls[i]
		f.flags(c.made, c.accepted, c.settled, c.answered, c.taken, c.unsent, c.failed)
		f.byte(byte(c.epoch), c.lane)
	}
	for i := range w.questions {
		q := &w.questions[i]
		f.flags(q.asked, q.running, q.stuck, q.served, q.answered, q.large, q.excused)
		f.flags(q.before[:]...)
		if q.running {
			f.byte(byte(q.incoming.Epoch))
		}
	}
}
