package conn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/actor"
	"github.com/bowline-mcp/bowline/transport"
)

// ticked empties a mailbox, and returns how many ticks were in it.
func ticked(l *loop) (n int) {
	for _, ev := range taken(l) {
		if ev.kind == tick {
			n++
		}
	}
	return n
}

// idle returns a loop whose mailbox is open, and that takes nothing from it.
func idle() *loop {
	l := &loop{conn: newConn(initiator, Starting, Options{}), mailbox: mailbox{spares: new(spares)}}
	plays(l)
	return l
}

func advance(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// wantEmpty checks that no loop and no timer is left.
func (w *Wheel) wantEmpty(t *testing.T) {
	t.Helper()
	w.probing.mu.Lock()
	defer w.probing.mu.Unlock()
	if len(w.probing.used) != 0 || w.probing.next != 0 || w.probing.timer.Stop() {
		t.Errorf("%d slots are left, the next is %d; want none", len(w.probing.used), w.probing.next)
	}
}

// The wheel ticks each loop once, at the end of the slot in which its time passes.
//
// Guarantees: G-0025.6
func TestWheelTicksEachLoopOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, loops := new(Wheel), []*loop{idle(), idle(), idle(), idle()}
		for i, wait := range []time.Duration{1, probeSlotLength, probeSlotLength + 1, 5 * probeSlotLength} {
			w.set(loops[i], wait)
		}
		for turn, want := range [][]int{{1, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 0}} {
			advance(probeSlotLength)
			for i, l := range loops {
				if got := ticked(l); got != want[i] {
					t.Errorf("in turn %d loop %d was ticked %d times, want %d", turn+1, i, got, want[i])
				}
			}
		}
		w.wantEmpty(t)
	})
}

// A loop that was unset is not ticked, and keeps no timer.
//
// Guarantees: G-0025.6
func TestWheelDoesNotTickAnUnsetLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := new(Wheel), idle(), idle()
		w.set(first, probeSlotLength)
		w.set(second, 2*probeSlotLength)
		w.unset(first)
		w.unset(first)
		advance(2 * probeSlotLength)
		if first, second := ticked(first), ticked(second); first != 0 || second != 1 {
			t.Errorf("the unset loop was ticked %d times, the other %d times; want 0, 1", first, second)
		}
		w.set(first, probeSlotLength)
		w.unset(first)
		w.wantEmpty(t)
	})
}

// However many loops there are, one timer is set, for the earliest slot.
//
// Guarantees: G-0025.6
func TestWheelHasOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(Wheel)
		var loops []*loop
		for i := range 100 {
			loops = append(loops, idle())
			w.set(loops[i], time.Duration(100-i)*probeSlotLength)
		}
		w.probing.mu.Lock()
		if w.probing.next != 1 {
			t.Errorf("the timer is set to slot %d, want 1", w.probing.next)
		}
		w.probing.mu.Unlock()
		advance(100 * probeSlotLength)
		for i, l := range loops {
			if ticked(l) != 1 {
				t.Errorf("loop %d was not ticked exactly once", i)
			}
		}
	})
}

// A dead transport opens links that do nothing.
type dead struct{}

func (dead) Open(context.Context) (transport.Link, error) { return deadLink{}, nil }

// plays opens a mailbox, if it is closed, for a test that plays the loop's own goroutine with worked and
// taken. Nobody else gets the loop.
func plays(l *loop) {
	o := &l.mailbox.owner
	o.Lock()
	defer o.Unlock()
	if !o.Accepts() {
		o.Adopt(o.Open(func(actor.Held) {}))
	}
	o.Bring(actor.Post) // wakes the test
	o.Last()
}

// playing returns the token of the loop's own goroutine. If that was woken, it is awake now.
func playing(l *loop) actor.Held {
	o := &l.mailbox.owner
	o.Lock()
	defer o.Unlock()
	o.Bring(actor.Post)
	select {
	case <-o.Rest(o.Last(), true):
	default:
	}
	return o.Bring(actor.Post).Held
}

// worked lets the loop work as its own goroutine, which does no jobs.
func worked(l *loop) (over bool, err error) {
	_, _, over, err = l.work(playing(l))
	return over, err
}

// taken takes the events of a mailbox.
func taken(l *loop) []event { return l.mailbox.take(playing(l), nil) }

// resting opens a mailbox as if the loop's own goroutine waited for woken.
func resting(l *loop) (woken <-chan actor.Held) {
	o := &l.mailbox.owner
	o.Lock()
	defer o.Unlock()
	if o.Accepts() {
		o.Bring(actor.Post)
		o.End()
	}
	return o.Rest(o.Adopt(o.Open(func(actor.Held) {})), true)
}

// entered returns the loop of a Conn that was started. The test calls its work.
func entered(t *testing.T, c *Conn) *loop {
	l, held, err := c.enter(t.Context(), func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	l.mailbox.adopt(held)
	plays(l)
	return l
}

// watched returns the loop of a Conn that is ready, with a peer that is probed. The test calls its work.
func watched(t *testing.T, w *Wheel) *loop {
	c := New(dead{}, Options{Dialect: cancellingDialect{}, Tuning: Tuning{Liveness: time.Hour, Wheel: w}})
	l := entered(t, c)
	for c.State() != Ready {
		worked(l)
		synctest.Wait()
	}
	t.Cleanup(l.leave)
	return l
}

// finish stops the Conn of a watched loop, and works until the loop has ended.
func finish(l *loop) {
	plays(l)
	l.mailbox.post(event{kind: stopAsked})
	for over := false; !over; over, _ = worked(l) {
		synctest.Wait()
	}
}

// An idle Conn whose peer is probed has no timer of its own, but a slot of the wheel.
//
// Guarantees: G-0025.6
func TestWatchedConnHasNoTimerOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(Wheel)
		l := watched(t, w)
		advance(time.Minute) // the deadline of the handshake has passed
		worked(l)
		if l.armed != 0 || len(w.probing.used) != 1 {
			t.Errorf("its timer is set to %v, %d slots; want none, 1", l.armed, len(w.probing.used))
		}
		finish(l)
	})
}

// When the link is lost, the Conn leaves the wheel.
//
// Guarantees: G-0025.6
func TestConnLeavesTheWheelWithItsLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(Wheel)
		l := watched(t, w)
		l.step(&event{kind: tick}) // for another deadline
		l.step(&event{kind: linkLost, epoch: 1, particulars: &particulars{reason: Reason{Kind: LinkBroken}}})
		worked(l)
		w.wantEmpty(t)
		finish(l)
	})
}

// Conns share a slot of the wheel, and leave it when they end.
//
// Guarantees: G-0025.6
func TestConnLeavesTheWheelAtItsEnd(t *testing.T) {
	w := new(Wheel)
	t.Run("two Conns", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			first, second := watched(t, w), watched(t, w)
			if len(w.probing.used) != 1 || len(w.probing.used[0].loops) != 2 || first.probeSlot != second.probeSlot {
				t.Errorf("%d slots, want one that both share", len(w.probing.used))
			}
			finish(first)
			finish(second)
		})
	})
	if len(w.probing.used) != 0 || w.probing.next != 0 {
		t.Errorf("%d slots are left, want none", len(w.probing.used))
	}
}

// A Conn keeps its deadlines and parks, even if its own clock differs from that of the wheel when it becomes
// busy.
//
// Guarantees: G-0001.13
func TestConnKeepsItsDeadlinesAfterTheWheelHasTicked(t *testing.T) {
	for _, difference := range []time.Duration{-1, 0, 1, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := New(dead{}, Options{Dialect: cancellingDialect{}, Tuning: Tuning{Liveness: -1}})
			if err := c.Start(t.Context(), func(error) {}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			l := c.running.Load()
			l.parkAt += difference
			advance(lingering - 10*time.Millisecond)
			ended := make(chan error, 1)
			began := time.Now()
			go func() {
				_, err := c.Call(t.Context(), Request{Method: "m", Timeout: 5 * time.Second})
				ended <- err
			}()
			advance(time.Minute)
			select {
			case err := <-ended:
				if !errors.Is(err, ErrTimedOut) {
					t.Errorf("difference %v: the call ended with %v, want ErrTimedOut", difference, err)
				}
			default:
				t.Errorf("difference %v: a call with a timeout of 5 s has not ended after %v", difference, time.Since(began))
			}
			if l.buffers != nil {
				t.Errorf("difference %v: the idle Conn has not parked", difference)
			}
			c.Stop()
			<-c.Done()
		})
	}
}
