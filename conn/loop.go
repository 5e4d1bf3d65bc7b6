package conn

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// A loop is the shell around the core: the one goroutine that owns a Conn. It
// waits for events, watches one timer, and performs effects. It never blocks.
type loop struct {
	conn  *Conn
	core  *core
	ctx   context.Context // what handlers' contexts carry
	tasks tasks
	inc   *running // the present incarnation; nil before the first

	notices *serial // notifications on their way to the handler
	events  *serial // events on their way to the hooks

	timer    *time.Timer
	armed    instant     // when the timer fires; 0 when it does not
	overdue  *time.Timer // runs once the core is finished: how long tasks are waited for
	finished bool        // the core has nothing left to do

	batch       []event  // taken from the mailbox, not stepped yet
	present     event    // being stepped
	unperformed []effect // of the present step
	returned    []event  // what the link did not take, for the core
	moved       bool     // the link has taken something since it was last busy

	remains error // what the last link to close has left behind
}

func newLoop(c *Conn) *loop {
	l := &loop{conn: c, tasks: newTasks(), core: newCore(c.role, c.options, c.options.Dialect)}
	l.core.epoch = c.epoch
	l.core.pending.lastID = c.lastID.Load()
	l.notices = newSerial(c.options.MaxNotices, c.options.MaxHeld)
	l.events = newSerial(maxHookEvents, 0)
	l.timer = stoppedTimer()
	l.overdue = stoppedTimer()
	return l
}

func stoppedTimer() *time.Timer {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}

// maxHookEvents is how many events wait for slow hooks.
const maxHookEvents = 1024

// random is the shell's one source of chance.
func random() float64 { return rand.Float64() }

// run is the loop. It ends when the core is finished and every task is over
// or overdue, or by a panic.
func (l *loop) run(ctx context.Context) (err error) {
	defer l.timer.Stop()
	defer l.overdue.Stop()
	defer l.recoverPanic(&err)
	l.ctx = context.WithValue(context.WithoutCancel(ctx), servedBy{}, l.conn)
	l.conn.mailbox.setOpen(true)
	l.begin()
	var spare []event
	for leaving := ctx.Done(); !l.finished || l.tasks.count() > 0; {
		l.arm()
		select {
		case <-l.conn.mailbox.wake:
			taken := l.conn.mailbox.take(spare)
			for l.batch = taken; len(l.batch) > 0; {
				ev := l.batch[0]
				l.batch = l.batch[1:]
				l.step(ev)
			}
			clear(taken)
			spare = taken
		case <-l.timer.C:
			l.armed = 0
			l.step(event{kind: tick, random: random(), moved: l.moved})
		case <-leaving:
			leaving = nil
			l.step(event{kind: stopAsked, err: context.Cause(ctx)})
		case <-l.overdue.C:
			return l.close()
		}
	}
	return l.close()
}

// begin starts the core. A Conn that was stopped before opens no link.
func (l *loop) begin() {
	stopping := l.conn.stopping.Load()
	if l.conn.role == acceptor || !stopping {
		l.step(event{kind: started, link: l.conn.link})
	}
	if stopping {
		l.step(event{kind: stopAsked})
	}
}

// arm sets the timer to the core's deadline. A timer that would fire too early
// is left alone: that costs one idle tick, not a reset per call.
func (l *loop) arm() {
	deadline := l.core.deadline()
	if deadline == 0 || l.armed != 0 && l.armed <= deadline {
		return
	}
	l.armed = deadline
	l.timer.Reset(max(deadline-l.conn.now(), 0))
}

// step feeds the core one event and performs what it says. What the link did
// not take goes back to the core at once, in the order it was offered.
func (l *loop) step(ev event) {
	if ev.task != nil {
		l.tasks.remove(ev.task)
	}
	if ev.kind == linkGone {
		l.remains = ev.err
	}
	l.feed(ev)
	for len(l.returned) > 0 {
		ev := l.returned[0]
		l.returned = l.returned[1:]
		l.feed(ev)
	}
}

func (l *loop) feed(ev event) {
	l.present = ev
	effects := l.core.step(l.conn.now(), &l.present)
	l.present = event{}
	l.perform(effects)
}

// close is the regular end of a Conn.
func (l *loop) close() error {
	l.conn.mailbox.setOpen(false)
	for _, ev := range l.conn.mailbox.take(nil) {
		if ev.kind == linkOpened {
			closeUnwanted(ev.link)
			continue
		}
		l.step(ev) // the core is closing: callers are told so
	}
	stuck := l.stuck()
	close(l.conn.done)
	return l.verdict(stuck)
}

// verdict is what Run returns.
func (l *loop) verdict(stuck error) error {
	var err error
	switch reason := l.core.reason; reason.Kind {
	case Stopped, Drained, PeerEnded:
	default:
		err = reason
	}
	if stuck == nil && l.remains == nil {
		return err
	}
	return errors.Join(err, stuck, l.remains)
}

// stuck gives notifications and hooks the time to finish, and names what is
// running still.
func (l *loop) stuck() error {
	names := l.tasks.names()
	if !l.notices.settle(l.conn.options.StopGrace) {
		names = append(names, "a notification handler")
	}
	if !l.events.settle(l.conn.options.StopGrace) {
		names = append(names, "a telemetry hook")
	}
	if len(names) == 0 {
		return nil
	}
	return &StuckError{Tasks: names}
}
