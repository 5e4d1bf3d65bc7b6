package conn

import (
	"testing"
	"testing/synctest"
	"time"
)

// ticked counts the ticks in a mailbox, and empties it.
func ticked(l *loop) (n int) {
	for _, ev := range l.conn.mailbox.take(nil) {
		if ev.kind == tick {
			n++
		}
	}
	return n
}

// idle is a loop whose mailbox is open, and that takes nothing from it.
func idle() *loop {
	l := &loop{conn: newConn(initiator, Starting, Options{})}
	l.conn.mailbox.begin(func() {}, nil)
	return l
}

func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// wantEmpty holds that no timer is left for nobody.
func (w *Wheel) wantEmpty(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.slots) != 0 || w.next != 0 || w.timer.Stop() {
		t.Errorf("%d slots are left, the next is %d", len(w.slots), w.next)
	}
}

// Guarantees: G-0025.6
func TestWheelTicksEachOnceInItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, loops := new(Wheel), []*loop{idle(), idle(), idle(), idle()}
		for i, wait := range []time.Duration{1, slot, slot + 1, 5 * slot} {
			w.set(loops[i], wait)
		}
		for turn, want := range [][]int{{1, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 0}} {
			pass(slot)
			for i, l := range loops {
				if got := ticked(l); got != want[i] {
					t.Errorf("in turn %d loop %d was ticked %d times", turn+1, i, got)
				}
			}
		}
		w.wantEmpty(t)
	})
}

// Guarantees: G-0025.6
func TestWheelForgetsWhoeverLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := new(Wheel), idle(), idle()
		w.set(first, slot)
		w.set(second, 2*slot)
		w.unset(first)
		w.unset(first)
		pass(2 * slot)
		if ticked(first) != 0 || ticked(second) != 1 {
			t.Error("who had left was ticked, or who had not was not")
		}
		w.set(first, slot)
		w.unset(first)
		w.wantEmpty(t)
	})
}

// However many Conns there are, one timer is armed, for the earliest.
//
// Guarantees: G-0025.6
func TestWheelHasOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(Wheel)
		var loops []*loop
		for i := range 100 {
			loops = append(loops, idle())
			w.set(loops[i], time.Duration(100-i)*slot)
		}
		w.mu.Lock()
		if w.next != 1 {
			t.Errorf("the timer is set to slot %d", w.next)
		}
		w.mu.Unlock()
		pass(100 * slot)
		for i, l := range loops {
			if ticked(l) != 1 {
				t.Errorf("loop %d was not ticked once", i)
			}
		}
	})
}
