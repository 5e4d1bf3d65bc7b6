package conn

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A Wheel holds what many Conns share. It wakes idle Conns to probe their peers
// (Options.Liveness), with one timer and a resolution of a quarter of a second. And it
// keeps the memory that a Conn gives up when it becomes idle, for the next Conn that
// becomes busy, until a garbage collection or two later. To share a Wheel, put it into
// the Options of several Conns. The zero value is ready to use. A Wheel must not be
// copied.
type Wheel struct {
	mu    sync.Mutex
	began time.Time
	slots map[int64]map[*loop]struct{} // who is due, by the number of the slot
	timer *time.Timer
	next  int64 // the slot that the timer is set to; 0 when it is not

	spares spares
}

// slot is how long the Conns of one turn are gathered.
const slot = 250 * time.Millisecond

// set has a loop ticked after wait, rounded up to a slot. It is in none.
func (w *Wheel) set(l *loop, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.slot = w.after(wait)
	if w.slots[l.slot] == nil {
		w.slots[l.slot] = make(map[*loop]struct{})
	}
	w.slots[l.slot][l] = struct{}{}
	w.arm()
}

// unset takes a loop out of its slot, should it be in one.
func (w *Wheel) unset(l *loop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due, ok := w.slots[l.slot]
	if !ok {
		return
	}
	if delete(due, l); len(due) == 0 {
		delete(w.slots, l.slot)
		w.arm()
	}
}

// after is the number of the first slot that begins when wait is over.
func (w *Wheel) after(wait time.Duration) int64 {
	if w.slots == nil {
		w.slots, w.began = make(map[int64]map[*loop]struct{}), time.Now()
	}
	return max(int64((time.Since(w.began)+wait+slot-1)/slot), 1)
}

// arm sets the timer to the first slot that somebody is in.
func (w *Wheel) arm() {
	var first int64
	for number := range w.slots {
		if first == 0 || number < first {
			first = number
		}
	}
	if first == w.next {
		return
	}
	w.next = first
	stop(w.timer)
	if first != 0 {
		w.timer = time.AfterFunc(time.Duration(first)*slot-time.Since(w.began), w.turn)
	}
}

// turn ticks whoever is due. A loop that is over takes no tick.
func (w *Wheel) turn() {
	for _, l := range w.due() {
		l.mailbox.post(event{kind: tick})
	}
}

func (w *Wheel) due() (due []*loop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	present := int64(time.Since(w.began) / slot)
	for number, loops := range w.slots {
		if number <= present {
			due = slices.AppendSeq(due, maps.Keys(loops))
			delete(w.slots, number)
		}
	}
	w.next = 0
	w.arm()
	return due
}
