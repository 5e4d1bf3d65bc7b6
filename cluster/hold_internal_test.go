package cluster

import (
	"testing"
	"time"
)

// begin returns a hold whose first write was sent at 1 s and has revision 10.
func begin(keeps bool) *hold {
	h := &hold{keeps: keeps}
	h.begun(time.Second, 10)
	return h
}

// TestHoldLasts checks until when a key is held, and when the next thing is to be done.
//
// Guarantees: G-0076.1
func TestHoldLasts(t *testing.T) {
	h := begin(false)
	last := time.Second + leaseHeld
	if !h.held(last-1) || h.held(last) || h.expire(last-1) {
		t.Error("the hold lasts too long, or not long enough")
	}
	if h.wake() != time.Second+renewEvery || h.next(time.Second+renewEvery-1).op != noOperation {
		t.Errorf("the next attempt is due at %v", h.wake())
	}
	for i := range maxFlying {
		now := time.Second + renewEvery + time.Duration(i)*retryEvery
		if a := h.next(now); a.op != update || a.base != 10 || a.sent != now || h.wake() != now+retryEvery && i < maxFlying-1 {
			t.Errorf("attempt %d is %+v, and the next one is due at %v", i, a, h.wake())
		}
		if h.next(now).op != noOperation {
			t.Error("two attempts at the same time")
		}
	}
	if h.wake() != last || h.next(12*time.Second).op != noOperation {
		t.Error("more attempts than may be under way")
	}
	h.failed(attempt{op: update, base: 10})
	if !h.failing || h.next(12*time.Second).op != update {
		t.Error("no attempt after one has ended")
	}
	if !h.expire(last) || !h.over || h.held(0) || h.expire(last+1) || h.next(last+1).op != noOperation || h.wake() != never {
		t.Error("a hold that has expired goes on")
	}
}

// TestHoldIsGivenUp checks that a hold that was released is not held, renewed or lost any more.
func TestHoldIsGivenUp(t *testing.T) {
	h := begin(false)
	a := h.next(6 * time.Second)
	h.over = true
	if h.held(7*time.Second) || h.next(8*time.Second).op != noOperation || h.wake() != never {
		t.Error("a hold that was given up is held or renewed")
	}
	h.accepted(a, 11)
	if h.held(7*time.Second) || h.revision != 10 || h.flying != 0 {
		t.Error("an answer brings it back")
	}
	if h.shown(7*time.Second, foreign, 12) || h.found(7*time.Second, a, foreign, 12) || h.expire(time.Hour) {
		t.Error("it is lost")
	}
}

// TestHoldCountsFromTheSending checks what an answer prolongs.
//
// Guarantees: G-0076.1
func TestHoldCountsFromTheSending(t *testing.T) {
	h := begin(false)
	first, second := h.next(6*time.Second), h.next(7*time.Second)
	h.accepted(second, 12)
	if !h.held(24*time.Second-1) || h.held(24*time.Second) || h.revision != 12 || h.wake() != 12*time.Second {
		t.Errorf("after the second answer: %+v", h)
	}
	h.refused(8*time.Second, first) // it came second to the engine
	if h.look || h.revision != 12 || h.wake() != 12*time.Second {
		t.Errorf("after the first answer: %+v", h)
	}
	late := h.next(12 * time.Second)
	h.flying++ // of an attempt whose value a read has found meanwhile
	h.accepted(attempt{op: update, base: 10, sent: 6 * time.Second}, 11)
	if h.held(24*time.Second) || h.revision != 12 {
		t.Errorf("an earlier answer: %+v", h)
	}
	h.accepted(late, 13)
	if h.failing || !h.held(29*time.Second-1) || h.held(29*time.Second) || h.revision != 13 || h.flying != 0 {
		t.Errorf("after the last answer: %+v", h)
	}
}

// TestHoldIsRefused checks that a refused write leads to a read, and what its findings lead to.
func TestHoldIsRefused(t *testing.T) {
	for _, c := range []struct {
		name     string
		keeps    bool
		what     finding
		revision uint64
		lost     bool
		op       operation // the next one
		base     uint64
		at       instant
	}{
		{"an own value that was accepted", false, own, 11, false, update, 11, 6 * time.Second},
		{"the value that is known", false, own, 10, false, read, 10, 7 * time.Second},
		{"an old value of its own", false, own, 9, false, read, 10, 7 * time.Second},
		{"a foreign value", false, foreign, 11, true, noOperation, 0, 0},
		{"an old foreign value", false, foreign, 9, false, read, 10, 7 * time.Second},
		{"nothing", false, nothing, 0, true, noOperation, 0, 0},
		{"no lease", true, nothing, 0, true, create, 0, 6 * time.Second},
		{"a foreign lease", true, foreign, 11, true, create, 0, 6 * time.Second},
		{"an old foreign lease", true, foreign, 9, false, read, 10, 7 * time.Second},
	} {
		h := begin(c.keeps)
		a := h.next(6 * time.Second)
		h.refused(6*time.Second, a)
		r := h.next(6 * time.Second)
		if r.op != read || !h.held(18*time.Second-1) || h.failing {
			t.Errorf("%s: after the refusal %+v", c.name, r)
		}
		if lost := h.found(6*time.Second, r, c.what, c.revision); lost != c.lost || h.held(6*time.Second) == c.lost || h.flying != 0 {
			t.Errorf("%s: lost %v, %+v", c.name, lost, h)
		}
		if c.op == noOperation {
			if !h.over {
				t.Errorf("%s: it goes on", c.name)
			}
			continue
		}
		if h.wake() != c.at || h.next(c.at-1).op != noOperation {
			t.Errorf("%s: the next attempt is due at %v", c.name, h.wake())
		}
		if next := h.next(c.at); next.op != c.op || next.base != c.base {
			t.Errorf("%s: the next attempt is %+v", c.name, next)
		}
	}
}

// TestReadsThatComeLate checks that a read says nothing after a write was accepted.
func TestReadsThatComeLate(t *testing.T) {
	h := begin(false)
	first, second := h.next(6*time.Second), h.next(7*time.Second)
	h.refused(7*time.Second, first)
	r := h.next(7 * time.Second)
	h.accepted(second, 11)
	if h.found(7*time.Second, r, nothing, 0) || !h.held(8*time.Second) || h.revision != 11 || h.next(12*time.Second).op != update {
		t.Errorf("a read has ended a hold that was renewed: %+v", h)
	}
}

// TestLeaseIsMadeAgain checks the way of a lease that is lost: it is created again with the
// next term, and answers from before count for nothing.
func TestLeaseIsMadeAgain(t *testing.T) {
	h := begin(true)
	if h.term() != 1 || h.nextTerm() != 1 {
		t.Errorf("terms %d and %d", h.term(), h.nextTerm())
	}
	before, refused := h.next(6*time.Second), h.next(7*time.Second)
	if !h.shown(7*time.Second, nothing, 11) || h.held(7*time.Second) || h.term() != 1 || h.nextTerm() != 2 {
		t.Errorf("after its end was shown: %+v", h)
	}
	h.accepted(before, 11)
	h.refused(7*time.Second, refused)
	if h.held(7*time.Second) || h.revision != 0 || h.look {
		t.Errorf("an answer from before has changed %+v", h)
	}
	c := h.next(7 * time.Second)
	if c.op != create || c.base != 0 {
		t.Fatalf("the next attempt is %+v", c)
	}
	h.refused(7*time.Second, c) // somebody has the name
	r := h.next(7 * time.Second)
	if r.op != read || h.found(7*time.Second, r, foreign, 12) || h.wake() != 8*time.Second {
		t.Errorf("with a foreign value: %+v, %+v", r, h)
	}
	if c = h.next(8 * time.Second); c.op != create {
		t.Errorf("the next attempt is %+v", c)
	}
	h.failed(c)
	if h.held(8*time.Second) || h.term() != 1 {
		t.Errorf("an attempt without an answer: %+v", h)
	}
	c = h.next(9 * time.Second)
	h.refused(9*time.Second, c)
	r = h.next(9 * time.Second)
	if h.found(9*time.Second, r, own, 13) || h.held(9*time.Second) || h.term() != 2 { // the attempt without an answer
		t.Errorf("an own value was found: %+v", h)
	}
	u := h.next(9 * time.Second)
	h.accepted(u, 14)
	if u.op != update || u.base != 13 || !h.held(26*time.Second-1) || h.held(26*time.Second) || h.term() != 2 {
		t.Errorf("%+v, %+v", u, h)
	}
}

// TestLeaseExpires checks that a lease whose time has passed is written on, since the engine may
// still have it.
func TestLeaseExpires(t *testing.T) {
	h := begin(true)
	if !h.expire(18*time.Second) || h.over || h.expire(19*time.Second) || h.wake() != 6*time.Second {
		t.Errorf("after its time: %+v", h)
	}
	a := h.next(18 * time.Second)
	h.accepted(a, 11)
	if a.op != update || !h.held(18*time.Second) || h.term() != 1 {
		t.Errorf("%+v, %+v", a, h)
	}
	if a = h.next(23 * time.Second); a.op != update {
		t.Fatalf("%+v", a)
	}
	h.refused(23*time.Second, a) // and no read tells what the key has
	h.failed(h.next(23 * time.Second))
	if h.found(24*time.Second, h.next(24*time.Second), own, 11) || h.next(25*time.Second).op != read {
		t.Errorf("an old value was found: %+v", h)
	}
	if !h.expire(35*time.Second) || h.next(35*time.Second).op != create || h.nextTerm() != 2 {
		t.Errorf("after its time without a read: %+v", h)
	}
}

// TestLossIsReportedOnce checks that a lease that has expired is not lost again when the engine
// shows that it has.
func TestLossIsReportedOnce(t *testing.T) {
	h := begin(true)
	a := h.next(6 * time.Second)
	if !h.expire(18 * time.Second) {
		t.Fatal("it does not expire")
	}
	h.refused(18*time.Second, a)
	if r := h.next(18 * time.Second); r.op != read || h.found(18*time.Second, r, nothing, 0) || h.term() != 1 || h.nextTerm() != 2 {
		t.Errorf("it is lost again: %+v, %+v", r, h)
	}
	h = begin(true)
	h.expire(18 * time.Second)
	if h.shown(18*time.Second, nothing, 11) || h.next(18*time.Second).op != create {
		t.Errorf("it is lost again: %+v", h)
	}
}

// TestHoldIsShown checks what the watch of a key leads to.
func TestHoldIsShown(t *testing.T) {
	for _, c := range []struct {
		name     string
		what     finding
		revision uint64
		lost     bool
		due      instant
	}{
		{"its own value", own, 10, false, 6 * time.Second},
		{"its next value", own, 11, false, 6 * time.Second},
		{"its end", nothing, 11, true, 2 * time.Second},
		{"the end of the one before", nothing, 10, false, 2 * time.Second},
		{"an end without a revision", nothing, 0, false, 2 * time.Second},
		{"another value", foreign, 11, true, 2 * time.Second},
		{"another value before", foreign, 9, false, 2 * time.Second},
	} {
		h := begin(true)
		if lost := h.shown(2*time.Second, c.what, c.revision); lost != c.lost || h.held(2*time.Second) == c.lost || h.due != c.due {
			t.Errorf("%s: lost %v, %+v", c.name, lost, h)
		}
	}
	reserved := &hold{due: never}
	if reserved.shown(2*time.Second, nothing, 11) || reserved.over || reserved.due != never {
		t.Errorf("a key that is being claimed has ended: %+v", reserved)
	}
	isolated := &hold{keeps: true, losses: 1, due: 3 * time.Second}
	if isolated.shown(2*time.Second, foreign, 11) || isolated.due != 3*time.Second || isolated.losses != 1 {
		t.Errorf("a lease that is not held has ended again: %+v", isolated)
	}
}
