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
				advance(time.Second - 1)
				wantAdmitted(t, loops[64])
				advance(1)
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
		advance(time.Hour)
		if g.held.Len() != 1 || g.timer != nil {
			t.Error("a place was taken back, or a timer made, for nobody")
		}
		g.ask(second, 1)
		wantAdmitted(t, second, 1)
		g.leave(first) // it has none any more
		g.ask(third, 1)
		advance(time.Second - 1)
		wantAdmitted(t, third)
		advance(1)
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
		advance(time.Second / 2)
		g.ask(loops[1], 1)
		g.ask(loops[2], 1)
		g.ask(loops[3], 1)
		g.leave(loops[0])
		wantAdmitted(t, loops[2], 1)
		advance(time.Second - 1)
		wantAdmitted(t, loops[3])
		advance(1)
		wantAdmitted(t, loops[3], 1)
		if g.runs() {
			t.Error("the timer runs, and nobody waits")
		}
	})
}

// A loop that takes no events is over, and keeps no place.
//
// Guarantees: G-0027.5
func TestGateGivesNoPlaceToEndedConns(t *testing.T) {
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
	l.work(nil)
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
			if _, over, _ := l.work(nil); !over || g.waiting.Len() != 0 || g.armed {
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
		if l.work(nil); l.incarnation != nil || l.conn.State() != Closing {
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
	d.advance(time.Hour)
	d.wantNothing("it waits")
	d.stepCurrent(event{kind: admitted})
	if fx := d.want(openLink); fx.reason.Kind != Admitted || d.core.deadline() != d.now+10*time.Second {
		t.Errorf("opened as %v; a tick is wanted at %v", fx.reason, d.core.deadline())
	}
	d.stepCurrent(event{kind: admitted})
	d.wantNothing("it has a place already")
	d.stepCurrent(event{kind: openFailed, particulars: &particulars{reason: Reason{OpenFailed, errors.New("no")}}})
	d.wantTransition(Backoff, OpenFailed)
	d.want(leaveGate)
	d.want(endTasks)
	d.advanceToDeadline()
	d.wantTransition(Starting, RetryDue)
	if fx := d.want(askPlace); fx.epoch != 2 {
		t.Errorf("asked in epoch %d", fx.epoch)
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

// A line is the gate as one would draw it: who waits in order, and who holds a
// place since when.
type line struct {
	known         []int // who has asked, and not left
	waiting, held []int
	since         map[int]time.Time
	places        int
	hold          time.Duration
}

// serve gives places to those who have waited longest, and names them.
func (q *line) serve() (served []int) {
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

func (q *line) leave(i int) {
	is := func(other int) bool { return other == i }
	q.known = slices.DeleteFunc(q.known, is)
	q.waiting, q.held = slices.DeleteFunc(q.waiting, is), slices.DeleteFunc(q.held, is)
}

// TestGateIsAQueue has loops ask, leave and let time pass in any order.
//
// Guarantees: G-0027.1, G-0027.2, G-0027.3, G-0027.5, G-0027.6
func TestGateIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, queueUp) })
}

func queueUp(t *rapid.T) {
	places := rapid.IntRange(1, 3).Draw(t, "places")
	g := &Gate{Places: places, Hold: 10 * time.Second}
	q := &line{places: places, hold: g.Hold, since: map[int]time.Time{}}
	loops, asked := []*loop{idle(), idle(), idle(), idle(), idle(), idle()}, make([]uint64, 6)
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		var served []int
		i := rapid.IntRange(0, len(loops)-1).Draw(t, "who")
		switch what := rapid.IntRange(0, 2).Draw(t, "what"); {
		case what == 0 && !slices.Contains(q.known, i):
			asked[i]++
			g.ask(loops[i], asked[i])
			q.known, q.waiting = append(q.known, i), append(q.waiting, i)
		case what == 1:
			g.leave(loops[i])
			q.leave(i)
		default:
			for range rapid.IntRange(1, 12).Draw(t, "seconds") {
				advance(time.Second)
				served = append(served, q.serve()...)
			}
		}
		served = append(served, q.serve()...)
		for i, l := range loops {
			var want []uint64
			if slices.Contains(served, i) {
				want = []uint64{asked[i]}
			}
			if got := admissions(l); !slices.Equal(got, want) {
				t.Fatalf("loop %d was told of places for %v, want %v", i, got, want)
			}
		}
		if g.runs() != (len(q.waiting) > 0) {
			t.Fatalf("%d wait, and the timer runs: %v", len(q.waiting), g.runs())
		}
	}
	for _, l := range loops {
		g.leave(l)
	}
	g.wantEmpty(t)
}

// A fate is what becomes of an attempt, as its transport and its handshake
// have it.
type fate int

const (
	begins fate = iota
	failsToOpen
	hangsOpening
	hangsShaking
	failsToShake
	panicsOnFailure
	fates
)

var errFate = errors.New("fate")

func (f *fate) open(ctx context.Context) (transport.Link, error) {
	switch *f {
	case failsToOpen, panicsOnFailure:
		return nil, errFate
	case hangsOpening:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	default:
		return deadLink{}, nil
	}
}

func (f *fate) shake(ctx context.Context, _ *Incarnation) error {
	switch *f {
	case failsToShake:
		return errFate
	case hangsShaking:
		<-ctx.Done()
		return context.Cause(ctx)
	default:
		return nil
	}
}

func (f *fate) final(Reason) bool {
	if *f == panicsOnFailure {
		panic(errFate)
	}
	return false
}

// A patron is a Conn that is run, interrupted and run again at a gate.
type patron struct {
	*Conn
	fate  fate
	since time.Time // when it was last asked for a link
	end   context.CancelCauseFunc
	ended chan struct{} // closed when its Run has returned
}

func (p *patron) Open(ctx context.Context) (transport.Link, error) {
	p.since = time.Now()
	return p.fate.open(ctx)
}

// run runs it, unless it runs already.
func (p *patron) run() {
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

// begins reports whether it is at the gate or past it and not ready, waits
// there, and has been past it for less than the hold.
func (p *patron) begins(hold time.Duration) (begins, waits, recently bool) {
	status := p.Status()
	begins = p.running.Load() != nil && (status.State == Starting || status.State == Initializing)
	waits = begins && status.Reason.Kind == Queued
	return begins, waits, begins && !waits && time.Since(p.since) < hold
}

// TestNoPlaceIsLost runs Conns of all fates at one gate, stops and interrupts
// them at any time, and holds after each step that whoever begins holds a place
// or has held one for long enough, and nobody else.
//
// Guarantees: G-0027.1, G-0027.5
func TestNoPlaceIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, visitGate) })
}

func visitGate(t *rapid.T) {
	g := &Gate{Places: 2, Hold: time.Second}
	var patrons []*patron
	defer func() {
		for _, p := range patrons {
			p.Stop()
			<-p.ended
		}
		g.wantEmpty(t)
	}()
	for range 5 {
		p := &patron{fate: fate(rapid.IntRange(0, int(fates)-1).Draw(t, "fate")), ended: make(chan struct{})}
		p.Conn = New(p, Options{Gate: g, Handshake: p.fate.shake, Final: p.fate.final, InitTimeout: 3 * time.Second})
		close(p.ended)
		p.run()
		patrons = append(patrons, p)
	}
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		p := patrons[rapid.IntRange(0, len(patrons)-1).Draw(t, "who")]
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
		g.wantPatrons(t, patrons)
	}
}

// wantPatrons holds that exactly those are at the gate that should be.
func (g *Gate) wantPatrons(t *rapid.T, patrons []*patron) {
	begin, wait, recent := 0, 0, 0
	for _, p := range patrons {
		begins, waits, recently := p.begins(g.Hold)
		for count, is := range map[*int]bool{&begin: begins, &wait: waits, &recent: recently} {
			if is {
				*count++
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if held := g.held.Len(); held < recent || held > min(begin-wait, g.Places) || g.waiting.Len() != wait || wait > 0 && held < g.Places {
		t.Fatalf("%d hold a place and %d wait; %d begin, of whom %d wait and %d began lately", held, g.waiting.Len(), begin, wait, recent)
	}
}
