// Package slots ticks many members with one timer, so that none of them needs a timer of its own. Ticks
// come on the goroutine of that timer, one after the other.
package slots

import (
	"slices"
	"sync"
	"time"
)

// Slots ticks members with one timer. Time is divided into slots of equal length, and members that are due in
// the same one are ticked together, at its end. So a thousand members set the timer no more often than one does.
// There are few slots at a time, because all members wait for about equally long: a search through them is
// cheaper than a heap. The zero value is ready to use; it must not be copied.
//
// A tick may come after Remove, if it was under way, so a member must know by the number whether it still waits.
type Slots[M comparable] struct {
	mu     sync.Mutex
	began  time.Time
	length time.Duration  // the length of a slot
	tick   func(M, int64) // called without the lock
	spare  []M            // empty; for the next slot
	used   []slot[M]      // in no particular order; none of them is empty
	timer  *time.Timer
	next   int64 // the slot that the timer is set to; 0 if it is not set
}

// A slot holds the members that are due in it.
type slot[M comparable] struct {
	number  int64
	members []M
}

// few is the largest slot whose memory is kept for the next one.
const few = 16

// Add makes the timer call tick once for a member after wait, rounded up to a slot. While tick runs, the
// members behind it wait. The member must be in no slot. The length of the slots and tick must be the same in
// all calls. Add returns the number of the slot, which tick gets, too, and the time until its end.
func (s *Slots[M]) Add(m M, wait, length time.Duration, tick func(m M, number int64)) (number int64, until time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.length == 0 {
		s.began, s.length, s.tick = time.Now(), length, tick
	}
	now := time.Since(s.began)
	// No slot has the number 0, which means none.
	number = max(int64((now+wait+length-1)/length), 1)
	if at := s.find(number); at >= 0 {
		s.used[at].members = append(s.used[at].members, m)
	} else {
		s.used = append(s.used, slot[M]{number, append(s.spare, m)})
		s.spare = nil
		s.arm()
	}
	return number, time.Duration(number)*length - now
}

// Remove takes a member out of a slot, if it is in it. A tick that is under way may still come.
func (s *Slots[M]) Remove(m M, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.find(number)
	if at < 0 {
		return
	}
	due := &s.used[at]
	if i := slices.Index(due.members, m); i >= 0 {
		due.members = slices.Delete(due.members, i, i+1)
	}
	// An empty slot must go, because the timer is set for the first slot that there is.
	if len(due.members) == 0 {
		if cap(due.members) <= few {
			s.spare = due.members
		}
		s.used = slices.Delete(s.used, at, at+1)
		s.arm()
	}
}

// Used returns how many slots have members, how many members there are, and whether the timer runs.
func (s *Slots[M]) Used() (slots, members int, runs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.used {
		members += len(other.members)
	}
	return len(s.used), members, s.next != 0
}

// find returns the index of a slot, or -1 if no member is in it.
func (s *Slots[M]) find(number int64) int {
	return slices.IndexFunc(s.used, func(other slot[M]) bool { return other.number == number })
}

// arm sets the timer to the end of the first slot that contains a member.
func (s *Slots[M]) arm() {
	var first int64
	for _, other := range s.used {
		if first == 0 || other.number < first {
			first = other.number
		}
	}
	// Most calls change nothing: a reset of the timer would cost more than everything else here.
	if first == s.next {
		return
	}
	s.next = first
	switch wait := time.Duration(first)*s.length - time.Since(s.began); {
	case first == 0:
		s.timer.Stop()
	case s.timer == nil:
		s.timer = time.AfterFunc(wait, s.fire)
	default:
		s.timer.Reset(wait)
	}
}

// fire is the function of the timer, on whose goroutine the ticks come. If a member blocked there, those behind
// it would come late, but none would be lost. It ticks the members without the lock, since they may call Add.
func (s *Slots[M]) fire() {
	due, tick := s.due()
	for _, present := range due {
		for _, m := range present.members {
			tick(m, present.number)
		}
	}
}

// due removes the slots whose time has come, and returns them. They leave the list before their members are
// ticked: a member may call Add from its tick, and must then get another slot.
func (s *Slots[M]) due() (due []slot[M], tick func(M, int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A slot is due only when it has passed: a member must not be ticked before its time, since it would
	// come again at once.
	present := int64(time.Since(s.began) / s.length)
	s.used = slices.DeleteFunc(s.used, func(other slot[M]) bool {
		if other.number > present {
			return false
		}
		due = append(due, other)
		return true
	})
	// The timer has fired, so it is not set any more, even if no slot was due.
	s.next = 0
	s.arm()
	return due, s.tick
}
