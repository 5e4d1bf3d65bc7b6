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
	look     bool    // a write was refused: the next attempt reads what the key has
	failing  bool    // the last attempt that ended got no answer
	losses   uint64  // how often the key was found to have no own value any more
}

// An attempt is something that the Engine shall do for a hold.
type attempt struct {
	op   operation
	base uint64  // the revision that an update replaces
	sent instant // before this the Engine has got nothing

	losses uint64 // of the hold when the attempt was made: an answer from before a loss says nothing
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

// wake returns the time at which next or expire has something to do. While too many attempts are
// under way, that is when one of them ends.
func (h *hold) wake() instant {
	wake := h.due
	if h.over || h.flying >= maxFlying {
		wake = never
	}
	if !h.over && h.until > 0 {
		wake = min(wake, h.until)
	}
	return wake
}

// nextTerm is the term of the lease that is written now, and term that of the latest lease
// that the node has had.
func (h *hold) nextTerm() uint64 { return h.losses + 1 }

func (h *hold) term() uint64 {
	if h.revision == 0 {
		return h.losses
	}
	return h.nextTerm()
}

// never is later than any time.
const never = instant(1<<63 - 1)

// next returns what to do at a time, and counts it as sent.
func (h *hold) next(now instant) attempt {
	if h.over || now < h.due || h.flying >= maxFlying {
		return attempt{}
	}
	h.due = now + retryEvery
	h.flying++
	a := attempt{op: update, base: h.revision, sent: now, losses: h.losses}
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
	if !h.answered(a) {
		return
	}
	h.until = max(h.until, a.sent+leaseHeld)
	if a.base == h.revision { // otherwise a read has shown this value, or a later one
		h.revision, h.look = revision, false
	}
	h.due = max(h.due, a.sent+renewEvery)
}

// answered counts the end of an attempt. It reports whether the answer counts.
func (h *hold) answered(a attempt) bool {
	h.flying--
	h.failing = false
	return !h.over && a.losses == h.losses
}

// failed says that nobody knows whether the Engine has done what an attempt asked for.
func (h *hold) failed(a attempt) {
	h.answered(a)
	h.failing = true
}

// refused says that the key has another value than an update replaces, or that a create found
// one. Perhaps an earlier attempt was accepted, and its answer was lost.
func (h *hold) refused(now instant, a attempt) {
	if h.answered(a) && a.base == h.revision { // otherwise another attempt was accepted
		h.look, h.due = true, now
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
func (h *hold) found(now instant, a attempt, what finding, revision uint64) (lost bool) {
	switch {
	case !h.answered(a) || !h.look:
		return false
	case what == own && revision > h.revision:
		h.revision, h.look, h.due = revision, false, now
		return false
	case h.revision == 0: // somebody else has the name, or had it
		h.look = false
		return false
	case what != nothing && revision <= h.revision: // older than what the write has met
		return false
	default:
		return h.vanish(now)
	}
}

// shown says what a watch shows of the key. It reports whether the hold has ended.
func (h *hold) shown(now instant, what finding, revision uint64) (lost bool) {
	switch {
	case h.over, what == own, h.revision == 0:
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
	h.revision, h.until, h.look, h.due = 0, 0, false, now
	h.losses++
	h.over = !h.keeps
	return lost
}

// expire ends the hold if its time has passed. It reports whether it has ended now.
func (h *hold) expire(now instant) (lost bool) {
	if h.over || h.until == 0 || now < h.until {
		return false
	}
	if h.look { // nobody knows what the key has; to create it tells
		return h.vanish(now)
	}
	h.until = 0
	h.over = !h.keeps
	return true
}
