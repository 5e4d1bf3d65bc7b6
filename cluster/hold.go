//bowline:pure
package cluster

import "time"

// Times of a lease. A value of the bucket of leases expires leaseTTL after the Engine has
// got it. Its holder gives it up earlier, by its own clock and counted from the sending, so
// that nobody else can have it while the holder still believes in it: the difference is for
// clocks that run at different rates, and for the delivery.
const (
	leaseTTL   = 20 * time.Second
	leaseHeld  = 17 * time.Second
	renewEvery = 5 * time.Second
	retryEvery = time.Second

	// maxFlying is how many attempts for one key may wait for their answers.
	maxFlying = 5
)

// An instant is a time of the node's own clock, since the node began.
type instant = time.Duration

// A hold is the holder's side of one key of the bucket of leases. It decides when to write
// and what to believe: the key is held until leaseHeld after the sending of the last write
// that was accepted. Only writes decide; what a read or a watch shows leads at most to a
// write, or to the end of the hold.
type hold struct {
	keeps    bool    // the node's own lease: it is made again after a loss
	over     bool    // the key was given up, or lost and not kept
	revision uint64  // of the last own value that is known; 0: the key is to be created
	until    instant // the key is held before this
	due      instant // when the next attempt is made
	flying   uint8   // attempts that wait for their answers
	unknown  bool    // an attempt for this revision has failed, and may have been accepted
	look     bool    // the next attempt reads what the key has
	failing  bool    // the last attempt that ended was not accepted
}

// An attempt is something that the Engine shall do for a hold.
type attempt struct {
	op   operation
	base uint64  // the revision that an update replaces
	sent instant // before this the Engine has got nothing
}

type operation uint8

const (
	noOperation operation = iota
	update
	create
	read
)

// held reports whether the key is held at a time.
func (h *hold) held(now instant) bool { return !h.over && now < h.until }

// begun starts a hold whose first value was accepted.
func (h *hold) begun(sent instant, revision uint64) {
	h.revision, h.until, h.due = revision, sent+leaseHeld, sent+renewEvery
}

// wake is when next or expire has something to do.
func (h *hold) wake() instant {
	switch {
	case h.over:
		return never
	case h.until > 0 && h.until < h.due:
		return h.until
	default:
		return h.due
	}
}

// never is later than any time.
const never = instant(1<<63 - 1)

// next returns what to do at a time, and counts it as sent.
func (h *hold) next(now instant) attempt {
	if h.over || now < h.due {
		return attempt{}
	}
	h.due = now + retryEvery
	if h.flying >= maxFlying {
		return attempt{}
	}
	h.flying++
	a := attempt{op: update, base: h.revision, sent: now}
	switch {
	case h.look:
		a.op = read
	case h.revision == 0:
		a.op = create
	}
	return a
}

// accepted says that the Engine has done what an attempt asked for.
func (h *hold) accepted(a attempt, revision uint64) {
	h.flying--
	if h.over {
		return
	}
	h.until = max(h.until, a.sent+leaseHeld)
	if a.base == h.revision { // otherwise a read has shown this value, or a later one
		h.revision, h.unknown, h.look = revision, false, false
	}
	h.due, h.failing = max(h.due, a.sent+renewEvery), false
}

// failed says that nobody knows whether the Engine has done what an attempt asked for.
func (h *hold) failed(a attempt) {
	h.flying--
	h.failing = true
	if a.op != read && a.base == h.revision {
		h.unknown = true
	}
}

// refused says that the key has another value than an update replaces, or that a create found
// one. It reports whether the hold has ended.
func (h *hold) refused(now instant, a attempt) (lost bool) {
	h.flying--
	h.failing = true
	switch {
	case h.over, a.base != h.revision: // another attempt was accepted
		return false
	case a.op == create, h.unknown:
		h.look, h.due = true, now
		return false
	default:
		return h.vanish(now)
	}
}

// A finding is what the key has.
type finding uint8

const (
	nothing finding = iota // it has no value
	own                    // a value that this hold has written
	foreign                // a value of somebody else
)

// found says what a read has found. The value may be an older one. It reports whether the
// hold has ended.
func (h *hold) found(now instant, what finding, revision uint64) (lost bool) {
	h.flying--
	if h.over || !h.look {
		return false
	}
	switch {
	case what == own && revision != h.revision:
		h.revision, h.unknown, h.look, h.due = revision, false, false, now
		return false
	case what == own: // an older value than the one that the write has met
		return false
	case what == foreign && h.keeps && h.revision == 0: // somebody else has the name
		h.look = false
		return false
	default:
		return h.vanish(now)
	}
}

// shown says what a watch shows of the key. It reports whether the hold has ended.
func (h *hold) shown(now instant, what finding, revision uint64) (lost bool) {
	switch {
	case h.over, what == own, h.revision == 0 && what == foreign:
		return false
	case revision > h.revision:
		return h.vanish(now)
	default: // it is older, or the Engine has lost values; a write decides
		h.due = now
		return false
	}
}

// vanish ends the hold, because the key has no value of it any more.
func (h *hold) vanish(now instant) (lost bool) {
	lost = h.until > 0
	h.revision, h.until, h.unknown, h.look, h.due = 0, 0, false, false, now
	h.over = !h.keeps
	return lost
}

// expire ends the hold if its time has passed. It reports whether it has ended now.
func (h *hold) expire(now instant) (lost bool) {
	if h.over || h.until == 0 || now < h.until {
		return false
	}
	h.until = 0
	h.over = !h.keeps
	return true
}
