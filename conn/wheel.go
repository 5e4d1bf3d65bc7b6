package conn

import (
	"slices"
	"sync"
	"time"
)

// A Wheel holds what many Conns share. To share one, put it into the Options of several
// Conns.
//
//   - Two timers: one tells idle Conns when to probe their peers (Options.Liveness), to a
//     quarter of a second, and one tells busy Conns when they may become idle.
//   - Workers: goroutines that have run a handler, for the next handler of any of the Conns.
//     They end when none of the Conns is busy.
//   - Spare memory: what a Conn gives up when it becomes idle, for the next one that becomes
//     busy. The garbage collector frees what is not used.
//
// The zero value is ready to use. A Wheel must not be copied.
type Wheel struct {
	probing slots // the loops that are to probe their peers
	parking slots // the loops that may park

	workers workers
	spares  spares
}

// set makes the wheel post a tick to a loop after wait, rounded up to a slot. The loop must be
// in no slot.
func (w *Wheel) set(l *loop, wait time.Duration) {
	l.probeSlot, _ = w.probing.add(l, wait, probeSlotLength, tick)
}

// unset takes a loop out of its slot, if it is in one.
func (w *Wheel) unset(l *loop) { w.probing.remove(l, l.probeSlot) }

// slots posts ticks to loops with one timer. Time is divided into slots of equal length, and
// loops that are due in the same one get their ticks together, at its end.
type slots struct {
	mu     sync.Mutex
	began  time.Time
	length time.Duration // the length of a slot
	kind   eventKind     // the kind of the ticks
	spare  []*loop       // empty; for the next slot
	used   []slot        // in no particular order; none of them is empty
	timer  *time.Timer
	next   int64 // the slot that the timer is set to; 0 if it is not set
}

// A slot holds the loops that are due in it.
type slot struct {
	number int64
	loops  []*loop
}

// fewLoops is the largest slot whose memory is kept for the next one.
const fewLoops = 16

const (
	probeSlotLength = 250 * time.Millisecond
	parkSlotLength  = 20 * time.Millisecond
)

// add makes the timer post one tick to a loop after wait, rounded up to a slot. The length of
// the slots and the kind of the ticks must be the same in all calls. add returns the number
// of the slot, and the time until its end.
func (s *slots) add(l *loop, wait, length time.Duration, kind eventKind) (number int64, until time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.length == 0 {
		s.began, s.length, s.kind = time.Now(), length, kind
	}
	now := time.Since(s.began)
	number = max(int64((now+wait+length-1)/length), 1)
	if at := s.find(number); at >= 0 {
		s.used[at].loops = append(s.used[at].loops, l)
	} else {
		s.used = append(s.used, slot{number, append(s.spare, l)})
		s.spare = nil
		s.arm()
	}
	return number, time.Duration(number)*length - now
}

// remove takes a loop out of a slot, if it is in it.
func (s *slots) remove(l *loop, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.find(number)
	if at < 0 {
		return
	}
	due := &s.used[at]
	if i := slices.Index(due.loops, l); i >= 0 {
		due.loops = slices.Delete(due.loops, i, i+1)
	}
	if len(due.loops) == 0 {
		if cap(due.loops) <= fewLoops {
			s.spare = due.loops
		}
		s.used = slices.Delete(s.used, at, at+1)
		s.arm()
	}
}

// find returns the index of a slot, or -1 if no loop is in it.
func (s *slots) find(number int64) int {
	return slices.IndexFunc(s.used, func(other slot) bool { return other.number == number })
}

// arm sets the timer to the end of the first slot that contains a loop.
func (s *slots) arm() {
	var first int64
	for _, other := range s.used {
		if first == 0 || other.number < first {
			first = other.number
		}
	}
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

// fire is the function of the timer. It posts a tick to each loop that is due, and lends this
// goroutine to one after the other. A loop that has ended takes no tick.
func (s *slots) fire() {
	due, kind := s.due()
	for _, present := range due {
		for _, l := range present.loops {
			l.lendTick(&event{kind: kind, id: present.number})
		}
	}
}

// due removes the slots whose time has come, and returns them.
func (s *slots) due() (due []slot, kind eventKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present := int64(time.Since(s.began) / s.length)
	s.used = slices.DeleteFunc(s.used, func(other slot) bool {
		if other.number > present {
			return false
		}
		due = append(due, other)
		return true
	})
	s.next = 0
	s.arm()
	return due, s.kind
}
