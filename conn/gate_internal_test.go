package conn

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// admissions are the incarnations that a loop was told of a place for, since it
// was last asked.
func admissions(l *loop) (epochs []uint64) {
	for _, ev := range l.mailbox.take(nil) {
		if ev.kind == admitted {
			epochs = append(epochs, ev.epoch)
		}
	}
	return epochs
}

func wantAdmitted(t *testing.T, l *loop, epochs ...uint64) {
	t.Helper()
	if got := admissions(l); !slices.Equal(got, epochs) {
		t.Errorf("it was told of places for %v, want %v", got, epochs)
	}
}

// runs reports whether the timer does.
func (g *Gate) runs() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.armed
}

// wantEmpty holds that nobody holds a place or waits, and no timer runs.
func (g *Gate) wantEmpty(t interface{ Errorf(string, ...any) }) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held.Len() != 0 || g.waiting.Len() != 0 || g.armed || g.timer != nil && g.timer.Stop() {
		t.Errorf("%d hold a place, %d wait; the timer runs: %v", g.held.Len(), g.waiting.Len(), g.armed)
	}
}

// Guarantees: G-0027.2
func TestGateAdmitsInTheOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, loops := &Gate{Places: 1}, []*loop{idle(), idle(), idle(), idle()}
		for i, l := range loops {
			g.ask(l, uint64(i))
		}
		g.leave(loops[2]) // while it waits
		left := loops[2]
		loops = slices.Delete(loops, 2, 3)
		for i, l := range loops {
			wantAdmitted(t, l, []uint64{0, 1, 3}[i])
			for _, later := range loops[i+1:] {
				wantAdmitted(t, later)
			}
			g.leave(l)
		}
		wantAdmitted(t, left)
		g.wantEmpty(t)
	})
}

// The zero value has the places and the hold that are documented.
//
// Guarantees: G-0027.1, G-0027.3
func TestGateDefaults(t *testing.T) {
	for name, g := range map[string]*Gate{"zero": {}, "negative": {Places: -1, Hold: -1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var loops []*loop
				for range 65 {
					l := idle()
					loops = append(loops, l)
					g.ask(l, 1)
				}
				for _, l := range loops[:64] {
					wantAdmitted(t, l, 1)
				}
				pass(time.Second - 1)
				wantAdmitted(t, loops[64])
				pass(1)
				wantAdmitted(t, loops[64], 1)
			})
		})
	}
}

// A place is not taken from its holder before another needs it, and then at
// once, if it was held for long enough.
//
// Guarantees: G-0027.3, G-0027.6
func TestGateTakesAPlaceBackWhenItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, first, second, third := &Gate{Places: 1, Hold: time.Second}, idle(), idle(), idle()
		g.ask(first, 1)
		pass(time.Hour)
		if g.held.Len() != 1 || g.timer != nil {
			t.Error("a place was taken back, or a timer made, for nobody")
		}
		g.ask(second, 1)
		wantAdmitted(t, second, 1)
		g.leave(first) // it has none any more
		g.ask(third, 1)
		pass(time.Second - 1)
		wantAdmitted(t, third)
		pass(1)
		wantAdmitted(t, third, 1)
		g.leave(second)
		g.leave(third)
		g.leave(third)
		g.wantEmpty(t)
	})
}

// A timer that was set for a place that was given back fires, and is set again
// for the oldest that is held.
//
// Guarantees: G-0027.3, G-0027.6
func TestGateTimerFollowsTheOldestPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, loops := &Gate{Places: 2, Hold: time.Second}, []*loop{idle(), idle(), idle(), idle()}
		g.ask(loops[0], 1)
		pass(time.Second / 2)
		g.ask(loops[1], 1)
		g.ask(loops[2], 1)
		g.ask(loops[3], 1)
		g.leave(loops[0])
		wantAdmitted(t, loops[2], 1)
		pass(time.Second - 1)
		wantAdmitted(t, loops[3])
		pass(1)
		wantAdmitted(t, loops[3], 1)
		if g.runs() {
			t.Error("the timer runs, and nobody waits")
		}
	})
}

// A loop that takes no events is over, and keeps no place.
//
// Guarantees: G-0027.5
func TestGateGivesNoPlaceToWhoIsOver(t *testing.T) {
	g, over, next := &Gate{Places: 1}, idle(), idle()
	over.mailbox.close()
	g.ask(over, 1)
	g.ask(next, 1)
	wantAdmitted(t, next, 1)
	g.leave(over)
	g.leave(next)
	g.wantEmpty(t)
}

// queued is the loop of a Conn that waits at a gate whose only place another
// holds; the test has its turns.
func queued(t *testing.T, g *Gate) *loop {
	g.ask(idle(), 1)
	l := entered(t, New(dead{}, Options{Gate: g}))
	l.work()
	if g.waiting.Len() != 1 {
		t.Fatalf("%d wait", g.waiting.Len())
	}
	t.Cleanup(l.leave)
	return l
}

// Whatever ends the loop of a Conn that waits, it waits no longer.
//
// Guarantees: G-0027.5
func TestLoopThatEndsLeavesTheQueue(t *testing.T) {
	for name, end := range map[string]event{
		"stop":         {kind: stopAsked},
		"close":        {kind: drainAsked, timeout: time.Hour},
		"interruption": {kind: interrupted, err: ErrInterrupted},
		"panic":        {epoch: 1}, // there is no such event
	} {
		t.Run(name, func(t *testing.T) {
			g := &Gate{Places: 1}
			l := queued(t, g)
			l.mailbox.post(end)
			if _, over, _ := l.work(); !over || g.waiting.Len() != 0 || g.armed {
				t.Errorf("it is over: %v; %d wait", over, g.waiting.Len())
			}
		})
	}
}

// A place that comes when the Conn has just left is not taken, and goes on to
// the next.
//
// Guarantees: G-0027.5
func TestPlaceThatComesTooLateGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Places: 1}
		l, next := queued(t, g), idle()
		g.ask(next, 1)
		l.mailbox.post(event{kind: stopAsked})
		g.leave(g.held.Front().Value.(*visit).loop) // its place is on its way behind the stop
		if l.work(); l.incarnation != nil || l.conn.State() != Closing {
			t.Errorf("in %s; it was opened: %v", l.conn.State(), l.incarnation != nil)
		}
		wantAdmitted(t, next, 1)
		g.leave(next)
		g.wantEmpty(t)
	})
}

// The core asks for nothing, and waits for nobody, where there is no gate.
//
// Guarantees: G-0027.4
func TestCoreAtTheGate(t *testing.T) {
	d := drive(t, initiator, Options{})
	d.start()
	d.want(openLink)
	d.wantNothing("there is no gate")

	d = drive(t, initiator, Options{Gate: new(Gate)})
	d.start()
	if fx := d.want(askPlace); fx.epoch != 1 || fx.reason.Kind != Queued || d.core.deadline() != 0 {
		t.Errorf("asked in epoch %d, %v; a tick is wanted at %v", fx.epoch, fx.reason, d.core.deadline())
	}
	d.wake()
	d.after(time.Hour)
	d.wantNothing("it waits")
	d.own(event{kind: admitted})
	if fx := d.want(openLink); fx.reason.Kind != Admitted || d.core.deadline() != d.now+10*time.Second {
		t.Errorf("opened as %v; a tick is wanted at %v", fx.reason, d.core.deadline())
	}
	d.own(event{kind: admitted})
	d.wantNothing("it has a place already")
	d.own(event{kind: openFailed, reason: Reason{OpenFailed, errors.New("no")}})
	d.wantTransition(Backoff, OpenFailed)
	d.want(leaveGate)
	d.want(endTasks)
	d.atDeadline()
	d.wantTransition(Starting, RetryDue)
	if fx := d.want(askPlace); fx.epoch != 2 {
		t.Errorf("asked in epoch %d", fx.epoch)
	}
	d.own(event{kind: admitted})
	d.forget()
	d.open()
	d.forget()
	d.handshaken()
	d.wantTransition(Ready, Handshaken)
	d.want(leaveGate)
	d.lost()
	if d.count(leaveGate) != 0 {
		t.Error("the place was given back twice")
	}
}

// An acceptor does not begin anything, and asks for no place.
//
// Guarantees: G-0027.1
func TestAcceptorPassesNoGate(t *testing.T) {
	d := drive(t, acceptor, Options{Gate: new(Gate)})
	d.start()
	if d.count(askPlace) != 0 {
		t.Error("it asks for a place")
	}
	d.wantState(Ready)
}
