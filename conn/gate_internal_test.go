package conn

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
)

// admittedEpochs returns the incarnations for which the gate has admitted a loop since the last call.
func admittedEpochs(l *loop) (epochs []uint64) {
	for _, ev := range taken(l) {
		if ev.kind == admitted {
			epochs = append(epochs, ev.epoch)
		}
	}
	return epochs
}

func wantAdmitted(t *testing.T, l *loop, epochs ...uint64) {
	t.Helper()
	if got := admittedEpochs(l); !slices.Equal(got, epochs) {
		t.Errorf("the loop was admitted for the epochs %v, want %v", got, epochs)
	}
}

// admitSoon and forget do what a loop does with its place.
func (g *Gate) admitSoon(l *loop, epoch uint64) { l.place = g.ask(&l.mailbox, epoch) }

func (g *Gate) forget(l *loop) {
	g.leave(l.place)
	l.place = nil
}

// timerRuns reports whether the gate's timer is running.
func (g *Gate) timerRuns() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.armed
}

// wantEmpty checks that no loop holds a place or waits, and that no timer runs.
func (g *Gate) wantEmpty(t interface{ Errorf(string, ...any) }) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held.Len() != 0 || g.waiting.Len() != 0 || g.armed || g.timer != nil && g.timer.Stop() {
		t.Errorf("%d hold a place, %d wait, timer running %v; want none", g.held.Len(), g.waiting.Len(), g.armed)
	}
}

// A gate admits loops in the order in which they ask. One that leaves while it waits is not admitted.
//
// Guarantees: G-0027.2
func TestGateAdmitsInTheOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, loops := &Gate{Places: 1}, []*loop{idle(), idle(), idle(), idle()}
		for i, l := range loops {
			g.admitSoon(l, uint64(i))
		}
		g.forget(loops[2]) // while it waits
		left := loops[2]
		loops = slices.Delete(loops, 2, 3)
		for i, l := range loops {
			wantAdmitted(t, l, []uint64{0, 1, 3}[i])
			for _, later := range loops[i+1:] {
				wantAdmitted(t, later)
			}
			g.forget(l)
		}
		wantAdmitted(t, left)
		g.wantEmpty(t)
	})
}

// The zero Gate and one with negative fields have the default places and hold.
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
					g.admitSoon(l, 1)
				}
				for _, l := range loops[:64] {
					wantAdmitted(t, l, 1)
				}
				advance(time.Second - 1)
				wantAdmitted(t, loops[64])
				advance(1)
				wantAdmitted(t, loops[64], 1)
			})
		})
	}
}

// A loop keeps its place as long as no other loop needs it. Then it loses the place if it has held it
// for Hold.
//
// Guarantees: G-0027.3, G-0027.6
func TestGateTakesAPlaceBackWhenItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, first, second, third := &Gate{Places: 1, Hold: time.Second}, idle(), idle(), idle()
		g.admitSoon(first, 1)
		advance(time.Hour)
		if g.held.Len() != 1 || g.timer != nil {
			t.Errorf("%d places are held, timer %v; want 1 and none while no loop waits", g.held.Len(), g.timer)
		}
		g.admitSoon(second, 1)
		wantAdmitted(t, second, 1)
		g.forget(first) // the place was already taken from it
		g.admitSoon(third, 1)
		advance(time.Second - 1)
		wantAdmitted(t, third)
		advance(1)
		wantAdmitted(t, third, 1)
		g.forget(second)
		g.forget(third)
		g.forget(third)
		g.wantEmpty(t)
	})
}

// If the oldest place is given back before the timer fires, the timer is set again for the oldest
// place that is still held.
//
// Guarantees: G-0027.3, G-0027.6
func TestGateTimerFollowsTheOldestPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, loops := &Gate{Places: 2, Hold: time.Second}, []*loop{idle(), idle(), idle(), idle()}
		g.admitSoon(loops[0], 1)
		advance(time.Second / 2)
		g.admitSoon(loops[1], 1)
		g.admitSoon(loops[2], 1)
		g.admitSoon(loops[3], 1)
		g.forget(loops[0])
		wantAdmitted(t, loops[2], 1)
		advance(time.Second - 1)
		wantAdmitted(t, loops[3])
		advance(1)
		wantAdmitted(t, loops[3], 1)
		if g.timerRuns() {
			t.Error("the timer runs although no loop waits")
		}
	})
}

// A loop that accepts no events has ended, and gets no place.
//
// Guarantees: G-0027.5
func TestGateGivesNoPlaceToEndedConns(t *testing.T) {
	g, ended, next := &Gate{Places: 1}, idle(), idle()
	ended.mailbox.close()
	g.admitSoon(ended, 1)
	g.admitSoon(next, 1)
	wantAdmitted(t, next, 1)
	g.forget(ended)
	g.forget(next)
	g.wantEmpty(t)
}

// queuedLoop returns the loop of a Conn that waits at a gate whose only place is held. The test calls
// its work.
func queuedLoop(t *testing.T, g *Gate) *loop {
	g.admitSoon(idle(), 1)
	l := entered(t, New(dead{}, Options{Tuning: Tuning{Gate: g}}))
	worked(l)
	if g.waiting.Len() != 1 {
		t.Fatalf("%d loops wait, want 1", g.waiting.Len())
	}
	t.Cleanup(l.leave)
	return l
}

// Whatever ends the loop of a Conn that waits at a gate, the loop leaves the queue.
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
			l := queuedLoop(t, g)
			l.mailbox.post(end)
			if over, _ := worked(l); !over || g.waiting.Len() != 0 || g.armed {
				t.Errorf("over %v, %d loops wait, timer %v; want true and none", over, g.waiting.Len(), g.armed)
			}
		})
	}
}

// If a Conn is admitted just after it was stopped, its place goes to the next one.
//
// Guarantees: G-0027.5
func TestPlaceOfAStoppedConnGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Places: 1}
		l, next := queuedLoop(t, g), idle()
		g.admitSoon(next, 1)
		l.mailbox.post(event{kind: stopAsked})
		g.leave(g.held.Front().Value.(*gatePlace)) // the event of its place comes behind the stop
		if worked(l); l.incarnation != nil || l.status.state() != Closing {
			t.Errorf("state %s, a link was opened: %v; want closing and none", l.status.state(), l.incarnation != nil)
		}
		wantAdmitted(t, next, 1)
		g.forget(next)
		g.wantEmpty(t)
	})
}

// With a gate, the core asks for a place before each attempt, and has no deadline while it waits.
// It leaves the gate once when the attempt ends. Without a gate, it opens a link at once.
//
// Guarantees: G-0027.4
func TestCoreAtTheGate(t *testing.T) {
	d := drive(t, initiator, Options{})
	d.start()
	d.want(openLink)
	d.wantNothing("there is no gate")

	d = drive(t, initiator, Options{Tuning: Tuning{Gate: new(Gate)}})
	d.start()
	if fx := d.want(askPlace); fx.epoch != 1 || fx.reason.Kind != Queued || d.core.deadline() != 0 {
		t.Errorf("asked in epoch %d for %v, deadline %v; want 1, Queued, none", fx.epoch, fx.reason, d.core.deadline())
	}
	d.wake()
	d.advance(time.Hour)
	d.wantNothing("it waits for its place")
	d.stepCurrent(event{kind: admitted})
	if fx := d.want(openLink); fx.reason.Kind != Admitted || d.core.deadline() != d.now+10*time.Second {
		t.Errorf("opened for %v, deadline %v; want Admitted, 10s from now", fx.reason, d.core.deadline())
	}
	d.stepCurrent(event{kind: admitted})
	d.wantNothing("it already has a place")
	d.stepCurrent(event{kind: openFailed, eventExtra: &eventExtra{reason: Reason{OpenFailed, errors.New("no")}}})
	d.wantTransition(Backoff, OpenFailed)
	d.want(leaveGate)
	d.want(endTasks)
	d.advanceToDeadline()
	d.wantTransition(Starting, RetryDue)
	if fx := d.want(askPlace); fx.epoch != 2 {
		t.Errorf("asked in epoch %d, want 2", fx.epoch)
	}
	d.stepCurrent(event{kind: admitted})
	d.dropEffects()
	d.open()
	d.dropEffects()
	d.handshaken()
	d.wantTransition(Ready, Handshaken)
	d.want(leaveGate)
	d.loseLink()
	if d.count(leaveGate) != 0 {
		t.Error("the core left the gate twice")
	}
}

// An acceptor needs no place at the gate, because it opens no link.
//
// Guarantees: G-0027.1
func TestAcceptorPassesNoGate(t *testing.T) {
	d := drive(t, acceptor, Options{Tuning: Tuning{Gate: new(Gate)}})
	d.start()
	if d.count(askPlace) != 0 {
		t.Error("the acceptor asks for a place")
	}
	d.wantState(Ready)
}

// A queueModel is a simple model of a gate: who waits in which order, and who has held a place since
// when.
type queueModel struct {
	known         []int // those that have asked and not left
	waiting, held []int
	since         map[int]time.Time
	places        int
	hold          time.Duration
}

// admit gives places to those that have waited longest, and returns them.
func (q *queueModel) admit() (served []int) {
	for len(q.waiting) > 0 {
		if len(q.held) == q.places {
			if time.Since(q.since[q.held[0]]) < q.hold {
				return served
			}
			q.held = q.held[1:]
		}
		next := q.waiting[0]
		q.waiting, q.held = q.waiting[1:], append(q.held, next)
		q.since[next] = time.Now()
		served = append(served, next)
	}
	return served
}

func (q *queueModel) leave(i int) {
	is := func(other int) bool { return other == i }
	q.known = slices.DeleteFunc(q.known, is)
	q.waiting, q.held = slices.DeleteFunc(q.waiting, is), slices.DeleteFunc(q.held, is)
}

// A gate behaves like its model when loops ask, leave and let time pass in any order.
//
// Guarantees: G-0027.1, G-0027.2, G-0027.3, G-0027.5, G-0027.6
func TestGateIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, checkQueue) })
}

func checkQueue(t *rapid.T) {
	places := rapid.IntRange(1, 3).Draw(t, "places")
	g := &Gate{Places: places, Hold: 10 * time.Second}
	q := &queueModel{places: places, hold: g.Hold, since: map[int]time.Time{}}
	loops, asked := []*loop{idle(), idle(), idle(), idle(), idle(), idle()}, make([]uint64, 6)
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		var served []int
		i := rapid.IntRange(0, len(loops)-1).Draw(t, "who")
		switch what := rapid.IntRange(0, 2).Draw(t, "what"); {
		case what == 0 && !slices.Contains(q.known, i):
			asked[i]++
			g.admitSoon(loops[i], asked[i])
			q.known, q.waiting = append(q.known, i), append(q.waiting, i)
		case what == 1:
			g.forget(loops[i])
			q.leave(i)
		default:
			for range rapid.IntRange(1, 12).Draw(t, "seconds") {
				advance(time.Second)
				served = append(served, q.admit()...)
			}
		}
		served = append(served, q.admit()...)
		for i, l := range loops {
			var want []uint64
			if slices.Contains(served, i) {
				want = []uint64{asked[i]}
			}
			if got := admittedEpochs(l); !slices.Equal(got, want) {
				t.Fatalf("loop %d was admitted for the epochs %v, want %v", i, got, want)
			}
		}
		if g.timerRuns() != (len(q.waiting) > 0) {
			t.Fatalf("%d wait, timer running %v; want it to run exactly while some wait", len(q.waiting), g.timerRuns())
		}
	}
	for _, l := range loops {
		g.forget(l)
	}
	g.wantEmpty(t)
}

// An attemptResult says how the transport and the handshake of an attempt end.
type attemptResult int

const (
	succeeds attemptResult = iota
	openFails
	openHangs
	handshakeHangs
	handshakeFails
	finalPanics
	attemptResults
)

var errAttempt = errors.New("result")

func (f *attemptResult) open(ctx context.Context) (transport.Link, error) {
	switch *f {
	case openFails, finalPanics:
		return nil, errAttempt
	case openHangs:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	default:
		return deadLink{}, nil
	}
}

func (f *attemptResult) handshake(ctx context.Context, _ *Incarnation) error {
	switch *f {
	case handshakeFails:
		return errAttempt
	case handshakeHangs:
		<-ctx.Done()
		return context.Cause(ctx)
	default:
		return nil
	}
}

func (f *attemptResult) final(Reason) bool {
	if *f == finalPanics {
		panic(errAttempt)
	}
	return false
}

// A gatedConn is a Conn that is run, interrupted and run again at a gate.
type gatedConn struct {
	*Conn
	result attemptResult
	since  time.Time // of the last call of Open
	end    context.CancelCauseFunc
	ended  chan struct{} // closed when its Run has returned
}

func (p *gatedConn) Open(ctx context.Context) (transport.Link, error) {
	p.since = time.Now()
	return p.result.open(ctx)
}

// run runs the Conn, unless it is already running.
func (p *gatedConn) run() {
	select {
	case <-p.ended:
	default:
		return
	}
	ctx, end := context.WithCancelCause(context.Background())
	p.end, p.ended = end, make(chan struct{})
	go func() {
		defer close(p.ended)
		p.Run(ctx)
	}()
	synctest.Wait()
}

// progress reports whether the Conn is starting, waits at the gate, and has been past the gate for
// less than the hold.
func (p *gatedConn) progress(hold time.Duration) (starting, waits, recently bool) {
	status := p.Status()
	starting = p.running.Load() != nil && (status.State == Starting || status.State == Initializing)
	waits = starting && status.Reason.Kind == Queued
	return starting, waits, starting && !waits && time.Since(p.since) < hold
}

// Conns with attempts of all results are run, stopped and interrupted at one gate at random times.
// After each step, exactly those hold a place that are starting or have lately begun to.
//
// Guarantees: G-0027.1, G-0027.5
func TestNoPlaceIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, checkPlaces) })
}

func checkPlaces(t *rapid.T) {
	g := &Gate{Places: 2, Hold: time.Second}
	var conns []*gatedConn
	defer func() {
		for _, p := range conns {
			p.Stop()
			<-p.ended
		}
		g.wantEmpty(t)
	}()
	for range 5 {
		p := &gatedConn{result: attemptResult(rapid.IntRange(0, int(attemptResults)-1).Draw(t, "result")), ended: make(chan struct{})}
		p.Conn = New(p, Options{Handshake: p.result.handshake, Tuning: Tuning{Gate: g, Final: p.result.final, InitTimeout: 3 * time.Second}})
		close(p.ended)
		p.run()
		conns = append(conns, p)
	}
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		p := conns[rapid.IntRange(0, len(conns)-1).Draw(t, "who")]
		switch rapid.IntRange(0, 9).Draw(t, "what") {
		case 0:
			p.Stop()
		case 1, 2, 3:
			p.end(ErrInterrupted)
		case 4, 5, 6:
			p.run()
		default:
			advance(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
		}
		synctest.Wait()
		g.wantConns(t, conns)
	}
}

// wantConns checks that the right number of Conns holds a place, and the right number waits.
func (g *Gate) wantConns(t *rapid.T, conns []*gatedConn) {
	begin, wait, recent := 0, 0, 0
	for _, p := range conns {
		starting, waits, recently := p.progress(g.Hold)
		for count, is := range map[*int]bool{&begin: starting, &wait: waits, &recent: recently} {
			if is {
				*count++
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if held := g.held.Len(); held < recent || held > min(begin-wait, g.Places) || g.waiting.Len() != wait || wait > 0 && held < g.Places {
		t.Fatalf("%d hold a place and %d wait; want %d to %d and %d",
			held, g.waiting.Len(), recent, min(begin-wait, g.Places), wait)
	}
}
