package conn

import (
	"cmp"
	"container/list"
	"context"
	"math/rand/v2"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A loop is the shell around the core: the one owner of a Conn. It takes
// events from the mailbox, arms one timer, and performs effects. It never
// blocks: with nothing to take it ends its turns, and whoever posts the next
// event has them go on, on one goroutine at a time.
type loop struct {
	conn  *Conn
	core  *core
	ctx   context.Context // what handlers' contexts carry
	tasks tasks
	inc   *running // the present incarnation; nil before the first

	events *serial // on their way to the hooks; nil before the first

	timer    *time.Timer       // posts a tick; nil before the first deadline
	armed    instant           // when it does; 0 when it does not
	slotted  instant           // when the wheel does; 0 when it does not
	slot     int64             // the wheel's
	visit    *list.Element     // the gate's
	hearing  transport.Hearing // the present link; nil unless it says how much it has heard
	heard    uint64            // bytes, when it was last asked
	patience *time.Timer       // runs once the core is finished
	begun    bool
	late     error               // set: its context had ended before it began, and it is to stop
	next     func() (first bool) // what the goroutine of this turn goes on with
	stay     *stay               // nil if it was started
	ends     func(error)         // follows the last turn, on the goroutine that had it
	finished bool                // the core has nothing left to do
	overdue  bool                // and tasks were waited for long enough

	spare       []event  // for the mailbox to fill
	batch       []event  // taken from the mailbox, not stepped yet
	present     *event   // being stepped; nil between steps
	unperformed []effect // of the present step
	returned    []event  // what the link did not take, for the core
	moved       bool     // the link has taken something since it was last busy
	crowded     bool     // notifications that wait have become many in this step

	interruption error // set: the loop is to end, and the Conn to stay

	remains error // what the last link to close has left behind
}

func newLoop(c *Conn) *loop {
	l := &loop{conn: c}
	l.core = newCore(c.role, &c.options, guarded{c.options.Dialect, l.reportPanic})
	l.core.epoch, l.core.reason = c.epoch, c.Status().Reason
	l.core.pending.lastID = c.lastID.Load()
	l.core.final = l.isFinal
	return l
}

// maxHookEvents is how many events wait for slow hooks.
const maxHookEvents = 1024

// random is the shell's one source of chance.
func random() float64 { return rand.Float64() }

// attach makes the mailbox this loop's until the end of its turns.
func (l *loop) attach(ctx context.Context, wake, turn func()) (detach func()) {
	l.ctx = context.WithValue(context.WithoutCancel(ctx), servedBy{}, l.conn)
	l.conn.mailbox.begin(wake, turn)
	return func() {
		l.conn.options.Gate.leave(l)
		l.conn.options.Wheel.unset(l)
		stop(l.timer)
		l.stay.end()
		stop(l.patience)
	}
}

func stop(timer *time.Timer) {
	if timer != nil {
		timer.Stop()
	}
}

// runWhileBusy has turns on a goroutine that is there for nothing else, and then
// does what comes next, which may be followed by more turns.
func (l *loop) runWhileBusy() {
	for {
		over, next, err := l.turns()
		if over {
			l.ends(err)
			return
		}
		if next == nil || !next() {
			return
		}
	}
}

// turns goes on until there is nothing to do for now, or for good. What comes
// next is left to the goroutine, which has the turns no more.
func (l *loop) turns() (over bool, next func() (first bool), err error) {
	over, err = true, errExited // unless it returns
	defer l.recoverPanic(&err)
	return l.turnWhileBusy()
}

// turnWhileBusy is over when the core is finished and every task is over or
// overdue, or after an interruption.
func (l *loop) turnWhileBusy() (over bool, next func() (first bool), err error) {
	if !l.begun {
		l.begun = true
		l.begin()
	}
	for !l.finished || l.tasks.count() > 0 && !l.overdue {
		if next, more := l.turn(); !more {
			return false, next, nil
		}
		if l.interruption != nil {
			return true, nil, l.breakOff(Reason{Interrupted, l.interruption})
		}
	}
	return true, nil, l.close()
}

// turn steps through what the mailbox holds. When it reports that there was
// nothing, another goroutine may have the next turn already.
func (l *loop) turn() (next func() (first bool), more bool) {
	l.arm()
	next, l.next = l.next, nil
	linger := l.stay.next()
	taken := l.conn.mailbox.take(l.spare)
	if len(taken) == 0 && next == nil {
		return linger, false
	}
	if len(taken) == 0 {
		return next, false
	}
	if next != nil {
		go l.workAlone(next) // this goroutine is needed here
	}
	for l.batch = taken; len(l.batch) > 0; {
		ev := &l.batch[0]
		l.batch = l.batch[1:]
		if l.step(ev); l.interruption != nil {
			return nil, true // what is left of the batch is not stepped
		}
	}
	clear(taken)
	l.conn.counters.depths.measure(l.core)
	l.spare = taken
	if l.stay.resting() {
		l.rest()
	}
	return nil, true
}

// begin starts the core. A Conn that was stopped before opens no link, nor does
// one whose Run has a context that has ended.
func (l *loop) begin() {
	stopping := l.conn.stopping.Load() || l.late != nil
	if l.conn.role == acceptor || !stopping {
		l.step(&event{kind: started, link: l.conn.link})
	}
	if stopping {
		l.step(&event{kind: stopAsked, err: l.late})
	}
}

// arm sets the timer to the core's deadline. A timer that would fire too early
// is left alone: that costs one idle tick, not a reset per call. What every
// peer is watched by is left to the wheel.
func (l *loop) arm() {
	if due := l.core.liveness.dueAt; due != l.slotted {
		l.conn.options.Wheel.unset(l)
		if l.slotted = due; due != 0 {
			l.conn.options.Wheel.set(l, l.until(due))
		}
	}
	deadline := l.core.deadline()
	if deadline == 0 || l.armed != 0 && l.armed <= deadline {
		return
	}
	l.armed = deadline
	if l.timer == nil {
		l.timer = time.AfterFunc(l.until(deadline), func() { l.conn.mailbox.post(event{kind: tick}) })
		return
	}
	l.timer.Reset(l.until(deadline))
}

// until is how long it is to a deadline.
func (l *loop) until(deadline instant) time.Duration { return max(deadline-l.conn.now(), 0) }

// step feeds the core one event and performs what it says. What the link did
// not take goes back to the core at once, in the order it was offered.
func (l *loop) step(ev *event) {
	if ev.task != nil {
		l.tasks.remove(ev.task)
		l.reportPanic(ev.task.name, cmp.Or(ev.reason.Err, ev.err))
	}
	switch ev.kind {
	case linkLost:
		l.reportPanic("Link", ev.reason.Err)
	case overdue:
		l.overdue = true
		return
	case interrupted:
		if !l.isLast() && !l.core.draining {
			l.interruption = ev.err
			return
		}
		ev.kind = stopAsked
	case quiet:
		l.stay.onQuiet(l.conn.now())
		return
	case linkGone:
		l.remains = ev.err
	case tick:
		l.armed = 0
		if passed(l.conn.now(), l.core.liveness.dueAt) {
			ev.id = l.conn.nextID() // for a probe
		}
		ev.random, ev.moved, ev.heard = random(), l.moved, l.hears()
	case eased:
		if l.conn.notices.many() {
			return // again, and the core knows
		}
	}
	if ev.frames > 0 {
		l.hears() // the frame says so itself
	}
	l.feed(ev)
	if l.crowded {
		l.crowded = false
		l.feed(&event{kind: crowded})
	}
	for len(l.returned) > 0 {
		ev := &l.returned[0]
		l.returned = l.returned[1:]
		l.feed(ev)
	}
	l.returned = nil // so that no frame is held
}

// hears reports whether bytes have come in since it was last asked.
func (l *loop) hears() bool {
	if l.hearing == nil {
		return false
	}
	before := l.heard
	l.heard, _ = l.hearing.Heard()
	return l.heard != before
}

func (l *loop) feed(ev *event) {
	l.present = ev
	now := l.conn.now()
	if ev.kind != tick {
		l.note(now)
	}
	effects := l.core.step(now, ev)
	l.present = nil
	l.perform(effects)
}
