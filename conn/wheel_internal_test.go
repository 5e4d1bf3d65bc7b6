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

// idle returns a loop whose mailbox is open, and that takes nothing from it.
func idle() *loop {
	l := &loop{record: &newConn(initiator, Starting, Options{}).record, mailbox: mailbox{pools: new(pools)}}
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
	if slots, loops, runs := w.probing.Used(); slots != 0 || loops != 0 || runs {
		t.Errorf("%d slots are left with %d loops, the timer runs: %t; want none", slots, loops, runs)
	}
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

// A loop that is interrupted leaves the wheel, although its core has not ended.
//
// Guarantees: G-0025.6
func TestInterruptedLoopLeavesTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(Wheel)
		l := watched(t, w)
		l.mailbox.post(event{kind: interrupted, err: ErrInterrupted})
		if over, _ := worked(l); !over {
			t.Error("the loop goes on, want its end")
		}
		l.leave()
		w.wantEmpty(t)
	})
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
		if slots, _, _ := w.probing.Used(); l.armed != 0 || slots != 1 {
			t.Errorf("its timer is set to %v, %d slots; want none, 1", l.armed, slots)
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
		l.step(&event{kind: linkLost, epoch: 1, eventExtra: &eventExtra{reason: Reason{Kind: LinkBroken}}})
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
			if slots, loops, _ := w.probing.Used(); slots != 1 || loops != 2 || first.probeSlot != second.probeSlot {
				t.Errorf("%d slots with %d loops, want one that both share", slots, loops)
			}
			finish(first)
			finish(second)
		})
	})
	w.wantEmpty(t)
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
