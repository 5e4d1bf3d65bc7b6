package conn

import (
	"slices"
	"sync"
	"time"
)

// A Wheel holds what many Conns share. It wakes idle Conns to probe their peers
// (Options.Liveness), with one timer and a resolution of a quarter of a second. As long
// as one of its Conns is busy, it keeps goroutines that have run a handler, for the next
// handler of any of them. And it keeps the memory that a Conn gives up when it becomes
// idle, for the next Conn that becomes busy, until a garbage collection or two later. To
// share a Wheel, put it into the Options of several Conns. The zero value is ready to
// use. A Wheel must not be copied.
type Wheel struct {
	turning         // who is to be probed
	parking turning // who may park

	workers workers
	spares  spares
}

// set has a loop ticked after wait, rounded up to a slot. It is in none.
func (w *Wheel) set(l *loop, wait time.Duration) { l.slot, _ = w.add(l, wait, slot, tick) }

// unset takes a loop out of its slot, should it be in one.
func (w *Wheel) unset(l *loop) { w.remove(l, l.slot) }

// A turning ticks loops with one timer. Those who are due at about the same time
// are gathered in a slot.
type turning struct {
	mu    sync.Mutex
	began time.Time
	every time.Duration // how long a slot is
	kind  eventKind     // what it posts
	slots []turn        // in no order, none of them empty
	timer *time.Timer
	next  int64 // the slot that the timer is set to; 0 when it is not
}

// A turn is who is due in a slot.
type turn struct {
	slot  int64
	loops []*loop
}

const (
	slot        = 250 * time.Millisecond // of probes
	parkingSlot = 20 * time.Millisecond
)

// add has a loop ticked once after wait, rounded up to a slot of so much time. It
// returns the slot, and how long it is until then.
func (t *turning) add(l *loop, wait, every time.Duration, kind eventKind) (number int64, until time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.every == 0 {
		t.began, t.every, t.kind = time.Now(), every, kind
	}
	now := time.Since(t.began)
	number = max(int64((now+wait+every-1)/every), 1)
	if at := t.find(number); at >= 0 {
		t.slots[at].loops = append(t.slots[at].loops, l)
	} else {
		t.slots = append(t.slots, turn{number, []*loop{l}})
		t.arm()
	}
	return number, time.Duration(number)*every - now
}

func (t *turning) remove(l *loop, number int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.find(number)
	if at < 0 {
		return
	}
	due := &t.slots[at]
	if i := slices.Index(due.loops, l); i >= 0 {
		due.loops = slices.Delete(due.loops, i, i+1)
	}
	if len(due.loops) == 0 {
		t.slots = slices.Delete(t.slots, at, at+1)
		t.arm()
	}
}

// find returns the index of a slot, or -1 if nobody is in it.
func (t *turning) find(number int64) int {
	return slices.IndexFunc(t.slots, func(other turn) bool { return other.slot == number })
}

// arm sets the timer to the first slot that somebody is in.
func (t *turning) arm() {
	var first int64
	for _, other := range t.slots {
		if first == 0 || other.slot < first {
			first = other.slot
		}
	}
	if first == t.next {
		return
	}
	t.next = first
	switch wait := time.Duration(first)*t.every - time.Since(t.began); {
	case first == 0:
		t.timer.Stop()
	case t.timer == nil:
		t.timer = time.AfterFunc(wait, t.turn)
	default:
		t.timer.Reset(wait)
	}
}

// turn ticks whoever is due, and lends this goroutine to them, one after the other. A
// loop that is over takes no tick.
func (t *turning) turn() {
	due, kind := t.due()
	for _, present := range due {
		for _, l := range present.loops {
			l.lendTick(&event{kind: kind, id: present.slot})
		}
	}
}

// due removes the slots whose time has come, and returns them.
func (t *turning) due() (due []turn, kind eventKind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	present := int64(time.Since(t.began) / t.every)
	t.slots = slices.DeleteFunc(t.slots, func(other turn) bool {
		if other.slot > present {
			return false
		}
		due = append(due, other)
		return true
	})
	t.next = 0
	t.arm()
	return due, t.kind
}
