package supervisor

import (
	"encoding/binary"
	"slices"
)

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
