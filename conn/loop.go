package conn

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/internal/actor"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// lingering is how long a loop keeps its goroutine and its buffers after the last event.
// Otherwise each event of a conversation would need a new goroutine and new buffers,
// which cost as much as a call.
const lingering = 100 * time.Millisecond

// A loop is the shell around the core, from Start to the end of that run. It takes
// events from the mailbox, steps the core, performs the effects, and arms one
// timer. It never blocks. One goroutine at a time runs the loop and may use its fields:
// the loop's own goroutine, or the goroutine that brought an event, and lent itself, while the loop had
// nothing to do (ADR-0048). When the loop has been idle for a while, its own goroutine
// ends, and the loop is parked. An event for a parked loop starts another goroutine if
// necessary.
type loop struct {
	*record
	core        *core
	served      *servedContext // the context of Start, without its end; contexts of handlers derive from it
	onEnd       func(error)    // the argument of Start; called at the end
	unwatch     func() bool    // stops watching the context of Start; nil if nothing watches it
	ended       wait.Signal    // the end of the loop
	serving     atomic.Int32   // handlers that run on goroutines of the link, which count themselves
	begun       bool           // the core was started
	endsInClose bool           // the loop was started with Begin: it may end on a lent goroutine

	mailbox mailbox
	busyAt  instant           // when the last event came that was not a tick
	opening *openingCaller    // opens the first link; nil: the loop starts a goroutine for that
	job     *job              // the next job of its own goroutine; nil if there is none
	flusher transport.Flusher // the present link; nil unless it postpones work

	incarnation *Incarnation // the present incarnation; nil before the first
	tasks       tasks
	hooks       atomic.Pointer[hookQueue] // nil before the first event for a hook

	timer     *time.Timer             // posts a tick; nil before the first deadline
	armed     instant                 // when the timer fires; 0 if it does not run
	probeAt   instant                 // when the wheel posts a tick for liveness; 0 if it does not
	probeSlot int64                   // the slot of the wheel for that tick
	parkAt    instant                 // when the wheel posts a tick for parking; 0 if it does not
	parkSlot  int64                   // the wheel's slot for that
	place     *gatePlace              // the place at the gate that it asked for; nil if there is none
	describer transport.LinkDescriber // the present link; nil unless it records when bytes come in
	readAt    instant                 // when bytes last came in, as describer says

	buffers *buffers // nil while the loop is parked

	// These two do not exclude each other.
	awake    bool // an event other than a tick came a short time ago; if not, the loop parks
	finished bool // the core has no more work; the loop ends when its tasks have ended

	wantsLogin  bool // the missing login was logged
	stuckLogged bool // a stuck handler was logged
	moved       bool // the link has accepted a frame since it was last busy
	crowded     bool // many notifications have begun to wait in this step
	overdue     bool // taskTimer has fired
	doesJobs    bool // its own goroutine has it, and does the next job as soon as no event waits

	lastly *loopEnd // nil while there is nothing to remember for the end
}

// unpark gives the loop buffers.
func (l *loop) unpark() {
	if l.buffers == nil {
		l.options.Wheel.workers.busy()
		l.buffers = l.mailbox.unpark()
		l.core.unpark(&l.buffers.scratch)
	}
}

// sharedMachines are created when the first Conn runs, and never changed.
var sharedMachines = sync.OnceValue(newMachines)

// newLoop returns a loop for a Conn. It must not change the record: another loop may still run.
func newLoop(r *record, ctx context.Context) *loop {
	l := &loop{record: r, served: newServedContext(ctx, r), mailbox: mailbox{pools: r.pools()}}
	if r.leaves.Load() {
		l.opening = new(openingCaller)
	}
	l.core = newCore(r.role, sharedMachines(), r.options, guarded{l})
	l.core.audits = r.auditor() != nil
	if r.role == initiator {
		l.core.final = l.isFinal
	}
	return l
}

// continueConn makes the loop continue where the Conn's last loop has ended. No other loop
// runs.
func (l *loop) continueConn() {
	if !l.leaves.Swap(false) { // another loop has used leaves since newLoop, and has ended
		l.opening.takeLast(true)
	}
	l.core.epoch, l.core.reason = l.epoch, l.status.read().Reason
	l.core.lastID = l.lastID.Load()
	l.core.heard = l.heard.Load()
	if l.isProcess {
		l.core.allowInstalling()
	}
}

// watch stops or interrupts the loop when ctx ends.
func (l *loop) watch(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	l.unwatch = context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })
}

// isFinal calls Options.Final.
func (l *loop) isFinal(why Reason) (final bool) {
	l.reportPanic("Options.Final", guard(func() error { final = l.own.final(why); return nil }))
	return final
}

// random and randomNumber are the only sources of random numbers in this package.
func random() float64 { return rand.Float64() }

// randomNumber returns a number that is not zero.
func randomNumber() uint64 { return rand.Uint64N(1<<64-1) + 1 }

func stop(timer *time.Timer) {
	if timer != nil {
		timer.Stop()
	}
}

// begin starts the core. It opens no link if the Conn was stopped before, or if the context had
// already ended. But if the context had ended with ErrInterrupted, the interruption comes when
// the link is being opened. It runs on the goroutine that has the loop, so everything that it
// begins sees a loop that is complete.
func (l *loop) begin() {
	l.begun = true
	l.unpark()
	stopping := l.stopping.Load() || l.atEnd().cancelled != nil
	if l.role == acceptor || !stopping {
		ev := event{kind: started}
		if l.role == acceptor {
			ev.eventExtra = &eventExtra{link: l.link}
			_, ev.detaches = transport.As[transport.Detacher](l.link)
		}
		l.stepOne(ev)
	}
	if stopping {
		l.stepOne(event{kind: stopAsked, err: l.atEnd().cancelled})
	}
}

// stepOne steps through an event that has not been in the mailbox.
func (l *loop) stepOne(ev event) {
	events := append(l.buffers.events[1], ev)
	l.buffers.events[1] = nil
	l.step(&events[0])
	clear(events)
	l.buffers.events[1] = events[:0]
}

// stepAll steps through a batch of events, or up to an interruption. Those behind an interruption
// stay in the batch, where breakOff finds their callers.
func (l *loop) stepAll(events []event) {
	for l.buffers.batch = events; len(l.buffers.batch) > 0; {
		ev := &l.buffers.batch[0]
		l.buffers.batch = l.buffers.batch[1:]
		if l.step(ev); l.interruption() != nil {
			return
		}
	}
	clear(events)
	l.buffers.spare = events
	l.counters.measure(l.core)
	if l.core.heard && !l.heard.Load() {
		l.heard.Store(true)
	}
	if l.buffers.kept.Incoming != nil {
		l.awake = true // even if a late tick has set it to false: a request was kept, and is about to be served
	}
	if !l.awake {
		l.park()
	}
}

// park gives up the memory that only a busy loop needs, for use by other Conns. The loop must
// have no buffers after it, or an idle Conn would keep some hundred bytes.
func (l *loop) park() {
	if l.core.deadline() == 0 {
		stop(l.timer)
		l.timer, l.armed = nil, 0
	}
	wheel := l.options.Wheel
	if l.parkAt != 0 {
		wheel.parking.Remove(l, l.parkSlot)
		l.parkAt = 0
	}
	l.giveUpBuffers()
}

// giveUpBuffers gives the memory of a busy loop to others.
func (l *loop) giveUpBuffers() {
	spare, wheel := l.buffers.spare, l.options.Wheel
	*l.buffers = buffers{scratch: l.core.park()}
	if given := l.mailbox.park(spare); given != nil {
		wheel.pools.buffers.Put(given)
	}
	l.buffers = nil
	wheel.workers.parked()
}

// arm sets the timer to the core's deadline. If the timer is set to an earlier time, arm does
// not change it: one unnecessary tick costs less than a reset at each call. The wheel posts
// the ticks for liveness and for parking, which come before the deadlines of most calls.
func (l *loop) arm() {
	if due := l.core.liveness.dueAt; due != l.probeAt {
		l.unsetProbe()
		if l.probeAt = due; due != 0 {
			l.probeSlot, _ = l.options.Wheel.probing.Add(l, l.until(due), probeSlotLength, tickToProbe)
		}
	}
	deadline := l.core.deadline()
	if l.awake && l.parkAt == 0 {
		now := l.now() // the time is read before the wheel reads it, so parkAt is not later than the wheel's tick
		var wait time.Duration
		l.parkSlot, wait = l.options.Wheel.parking.Add(l, l.until(l.busyAt+lingering), parkSlotLength, tickToPark)
		l.parkAt = now + wait
	}
	if deadline == 0 || l.awake && l.parkAt <= deadline || l.armed != 0 && l.armed <= deadline {
		return
	}
	l.armed = deadline
	if l.timer == nil {
		l.timer = time.AfterFunc(l.until(deadline), l.tick)
		return
	}
	l.timer.Reset(l.until(deadline))
}

// unsetProbe takes the loop out of its slot for liveness, if it is in one.
func (l *loop) unsetProbe() { l.options.Wheel.probing.Remove(l, l.probeSlot) }

// tick is the function of the timer.
func (l *loop) tick() { l.lendTick(tick, 0) }

// lendTick lends this goroutine to the loop for a tick of the timer, or of a slot of the wheel. If the loop's own goroutine is
// waiting, that one continues instead, and ends if it has been idle for long enough.
func (l *loop) lendTick(kind eventKind, slot int64) {
	if _, held := l.mailbox.lend(&event{kind: kind, id: slot}, actor.Tick); held.OK() {
		l.turn(held, 0)
	}
}

// until returns the time until a deadline.
func (l *loop) until(deadline instant) time.Duration { return max(deadline-l.now(), 0) }

// step passes one event to the core and performs the effects. Frames that the link did
// not accept go back to the core immediately, in the order in which they were offered.
func (l *loop) step(ev *event) {
	l.endTask(ev)
	switch ev.kind {
	case linkLost:
		l.reportPanic("Link", ev.reason.Err)
	case overdue:
		l.overdue = true
		return
	case interrupted:
		if !l.isLast() && !l.core.draining {
			l.forEnd().interruption = ev.err
			return
		}
		ev.kind = stopAsked
	case linkGone:
		l.linkClosed(ev.err)
	case tick, parkDue:
		if !l.prepareTick(ev) {
			return
		}
	case handshakeDone:
		if l.core.liveness.doubted {
			ev.id = l.nextID()
		}
	case eased:
		if l.notifications.Load().Many() {
			return // they have become many again, and the core knows
		}
	case quiet:
		if !l.notifications.Load().AwaitQuiet() {
			return // another one has come, and quiet comes again
		}
	}
	if ev.frames > 0 {
		l.lastRead() // this event already tells the core
	}
	l.feed(ev)
	if l.crowded {
		l.crowded = false
		l.feed(&event{kind: crowded})
	}
	for {
		switch {
		case len(l.buffers.returned) > 0:
			ev := &l.buffers.returned[0]
			l.buffers.returned = l.buffers.returned[1:]
			l.feed(ev)
		case len(l.buffers.following) > 0:
			ev := &l.buffers.following[0]
			l.buffers.following = l.buffers.following[1:]
			l.feed(ev)
		default:
			l.buffers.clearStep()
			return
		}
	}
}

// prepareTick lets the loop park if it has been idle for long enough. It reports whether
// the core needs the tick.
func (l *loop) prepareTick(ev *event) bool {
	now := l.now()
	if ev.kind == parkDue && ev.id == l.parkSlot {
		l.parkAt = 0 // the wheel has removed the loop from its slot
	}
	l.armed, ev.kind, ev.id = 0, tick, 0
	if now >= l.busyAt+lingering {
		l.awake = false
	}
	watching := passed(now, l.core.liveness.dueAt)
	if !watching && !passed(now, l.core.deadline()) {
		return false
	}
	if watching {
		ev.id = l.nextID() // the core may need the id for a probe
	}
	ev.random, ev.moved, ev.readAt = random(), l.moved, l.lastRead()
	if watching && l.core.detaches {
		l.lookForPeer(ev)
	}
	return true
}

// lookForPeer tells the core whether the peer listens, and since when: it has been there then.
func (l *loop) lookForPeer(ev *event) {
	d, ok := transport.As[transport.Detacher](l.incarnation.link)
	if !ok {
		return
	}
	since := d.ListensSince()
	if ev.away = since.IsZero(); !ev.away {
		ev.readAt = max(ev.readAt, since.Sub(l.born))
	}
}

// endTask removes the task whose last event this is. Nothing may use the task after this: the
// loop may end when it has none.
func (l *loop) endTask(ev *event) {
	if ev.task == nil {
		return
	}
	l.tasks.remove(ev.task)
	l.reportPanic(ev.task.name, ev.failure())
	if ev.kind == handled {
		l.buffers.pace.note(ev.incoming.took)
		if ev.incoming.worker != nil {
			l.options.Wheel.workers.add(ev.incoming.worker)
		}
	}
}

// lastRead returns when bytes last came in, or 0 if none have come in since the last
// call of lastRead.
func (l *loop) lastRead() instant {
	if l.describer == nil {
		return 0
	}
	last := l.describer.LinkTraits().LastRead
	at := last.Sub(l.born)
	if at <= l.readAt {
		return 0
	}
	l.readAt = at
	return at
}

// feed steps the core once. The event stays the present one until the core has made its effects:
// if it panics, settleCallers must find the callers in it.
func (l *loop) feed(ev *event) {
	now := l.now()
	if ev.kind != tick {
		l.busyAt, l.awake = now, true
	}
	l.buffers.current, l.buffers.at = ev, now
	effects := l.core.step(now, ev)
	l.buffers.current = nil
	l.perform(effects)
}
