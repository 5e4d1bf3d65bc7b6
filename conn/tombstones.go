//bowline:pure

package conn

import "time"

// maxTombstones bounds the graveyard; the oldest go first.
const maxTombstones = 4096

// tombstones remembers requests that ended without their answer, so that an
// answer that still comes is known as late (ADR-0005). It only classifies:
// what has no entry is never delivered either.
type tombstones struct {
	graves  map[int64]grave
	order   []int64 // oldest first; entries all live equally long
	sweepAt instant // 0 while there is nothing to sweep
}

// A grave says how a request ended, until it decays.
type grave struct {
	cause  Cause
	expiry instant
}

func (t *tombstones) len() int { return len(t.graves) }

func (t *tombstones) add(id int64, g grave, sweepAt instant) {
	if t.graves == nil {
		t.graves = make(map[int64]grave)
	}
	if len(t.order) == maxTombstones {
		t.removeOldest()
	}
	t.graves[id] = g
	t.order = append(t.order, id)
	if t.sweepAt == 0 {
		t.sweepAt = sweepAt
	}
}

// look says how the request that lies here ended, or 0 when none does, or it
// has decayed.
func (t *tombstones) look(id int64, now instant) Cause {
	if g, ok := t.graves[id]; ok && now < g.expiry {
		return g.cause
	}
	return 0
}

// sweep removes what has decayed, when it is due.
func (t *tombstones) sweep(now instant, every time.Duration) {
	if !passed(now, t.sweepAt) {
		return
	}
	for len(t.order) > 0 && t.graves[t.order[0]].expiry <= now {
		t.removeOldest()
	}
	t.sweepAt = now + every
	if len(t.order) == 0 {
		*t = tombstones{}
	}
}

func (t *tombstones) removeOldest() {
	delete(t.graves, t.order[0])
	t.order = t.order[1:]
}
