package conn

import (
	"runtime/debug"

	"github.com/bowline-mcp/bowline/internal/actor"
	"github.com/bowline-mcp/bowline/transport"
)

// One goroutine at a time has the loop: only that one may use its fields and its core. Its
// token, an actor.Held, comes from the mailbox, and goes with the call that gives the loop up. Which
// goroutine gets the loop next is decided in package internal/actor alone (docs/design/TURNS.md).

// runOwn starts the loop's own goroutine.
func (l *loop) runOwn(held actor.Held) { go l.run(held) }

// run is the loop's own goroutine. It works and waits for more work, until the loop parks or
// ends. Between turns of the loop it does a job for the loop. So a single goroutine, whose stack
// grows only once, opens the link, runs the handshake and closes the link.
func (l *loop) run(held actor.Held) {
	for {
		woken, j, over, err := l.work(held)
		switch {
		case over:
			l.leave()
			l.onEnd(err)
			return
		case j != nil: // another goroutine may get the loop meanwhile
			if held = l.complete(j); !held.OK() {
				return
			}
			continue
		case woken == nil:
			return // the loop has parked; another goroutine may already have the loop
		}
		held = <-woken
	}
}

// start begins the loop on the goroutine of the caller. Events of the link that an initiator
// opens wait for the loop's own goroutine.
func (l *loop) start(held actor.Held) {
	rests := false
	defer func() {
		if value := recover(); value != nil {
			l.forEnd().panicked = &PanicError{Value: value, Stack: debug.Stack()}
		}
		if !rests {
			l.mailbox.resume(held)
		}
	}()
	l.begin()
	if l.role == initiator && l.tasks.n == 0 && l.mailbox.len() > 0 { // the gate already has a place for it; taking from an empty mailbox would give the loop to another goroutine
		l.stepAll(l.mailbox.take(held, l.buffers.forMailbox()))
	}
	if l.interruption() == nil && !l.finished {
		l.arm()
		flush := l.flush()
		rests = l.mailbox.rest(held)
		flush.flush(0)
	}
}

// work steps through the mailbox until it is empty or the loop is over. If it is empty,
// another goroutine may have the loop when work returns. The caller may then only do the
// job, or else wait for next, which is nil if it should not wait.
func (l *loop) work(held actor.Held) (next <-chan actor.Held, j *job, over bool, err error) {
	over = true // after a panic
	defer func() {
		if value := recover(); value != nil {
			err = l.afterPanic(&PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	switch { // a turn on another goroutine may have panicked or interrupted the loop
	case l.atEnd().panicked != nil:
		return nil, nil, true, l.afterPanic(l.atEnd().panicked)
	case l.interruption() != nil:
		return nil, nil, true, l.breakOff(Reason{Interrupted, l.interruption()})
	}
	before := l.busyAt
	if l.doesJobs = held.Own(); !l.begun {
		l.begin()
	}
	for !l.finished || l.tasks.n > 0 && !l.overdue {
		l.arm()
		j := l.keptJob()
		waits := l.awake && l.busyAt > before && j == nil // not after a mere tick
		flush := l.flush()
		events, next := l.mailbox.takeOrWait(held, l.buffers.forMailbox(), waits)
		flush.flush(0)
		if len(events) == 0 {
			return next, j, false, nil
		}
		if l.doesJobs = held.Own(); j != nil {
			go l.runJob(j) // this goroutine has other work
		}
		l.unpark()
		if l.stepAll(events); l.interruption() != nil {
			return nil, nil, true, l.breakOff(Reason{Interrupted, l.interruption()})
		}
	}
	return nil, nil, true, l.close()
}

// keptJob returns the job that was kept for the loop's own goroutine, or nil. It keeps no further one,
// because another goroutine may have the loop next.
func (l *loop) keptJob() (kept *job) {
	kept, l.job, l.doesJobs = l.job, nil, false
	return kept
}

// detachJob gives the kept job to a new goroutine, because the loop's own goroutine is about to
// wait. Later jobs get goroutines of their own, too.
func (l *loop) detachJob() {
	if kept := l.keptJob(); kept != nil {
		go l.runJob(kept)
	}
}

// lentBatches is how many batches of events a loop steps through on a goroutine that is lent
// to it. It limits how long that goroutine works for others. A call over HTTP takes two,
// because the link opens a stream for it.
const lentBatches = 3

// turn works on a goroutine that is lent to the loop. If there is much to do, or the loop is
// about to end, turn gives the loop to its own goroutine. The depth is that of the receiver's
// Work, or 0.
func (l *loop) turn(held actor.Held, depth int) {
	flush, _ := l.workLent(held, 0, false)
	flush.flush(depth)
}

// turnToServe is a turn for the goroutine of a link that may run a handler. It returns one of
// the requests that have come in, for this goroutine to serve, unless handlers take longer
// than longest on average. Workers serve the others.
func (l *loop) turnToServe(held actor.Held, longest pace) (kept served) {
	flush, kept := l.workLent(held, longest, false)
	flush.flush(1)
	return kept
}

// workLent steps through up to lentBatches batches of events. It returns what the link has left
// to its Flush, and the request that is kept for this goroutine, if any. If mayEnd is set, the
// loop may end here.
func (l *loop) workLent(held actor.Held, keepUpTo pace, mayEnd bool) (flush flush, kept served) {
	rests := false
	defer func() {
		if value := recover(); value != nil {
			l.forEnd().panicked = &PanicError{Value: value, Stack: debug.Stack()}
		}
		if !rests {
			flush = l.flush()
			kept = l.takeKept(kept)
			l.endOrResume(held, mayEnd)
		}
	}()
	for range lentBatches {
		l.arm()
		flush = l.flush()
		events := l.mailbox.take(held, l.buffers.forMailbox())
		if rests = len(events) == 0; rests {
			return flush, kept
		}
		l.unpark()
		if kept.Incoming == nil {
			l.buffers.keepUpTo = keepUpTo
		}
		l.stepAll(events)
		kept = l.takeKept(kept)
		if l.interruption() != nil || l.finished || !l.awake && held.Beside() {
			return flush, kept
		}
	}
	return flush, kept
}

// lendToEnd is lend for Close, which waits for the end of the loop. If the loop was started
// with Begin and has nothing left to wait for, it ends on this goroutine.
func (l *loop) lendToEnd(ev *event) (posted bool) {
	posted, held := l.mailbox.lend(ev, actor.Lend)
	if held.OK() {
		flush, _ := l.workLent(held, 0, l.endsInClose)
		flush.flush(0)
	}
	return posted
}

// takeKept returns the request that was kept in this batch of events, or else the one that
// was kept before. It lets the loop keep no further one.
func (l *loop) takeKept(before served) (kept served) {
	kept = before
	if l.buffers == nil {
		return kept // the loop has parked, so no request was kept
	}
	if l.buffers.kept.Incoming != nil {
		kept = l.buffers.kept
	}
	l.buffers.kept, l.buffers.keepUpTo = served{}, 0
	return kept
}

// A flush calls the Flush of a link, if it has one. The goroutine that calls it need not have
// the loop.
type flush struct {
	record *record
	link   transport.Flusher
}

// flush returns the Flush of the present link.
func (l *loop) flush() flush { return flush{l.record, l.flusher} }

func (f flush) flush(depth int) {
	if f.link != nil {
		f.record.reportPanic("Link.Flush", guard(func() error { f.link.Flush(depth); return nil }))
	}
}

// lend brings an event, and works for the loop if nobody has it. The goroutines of Call and Notify call
// it, and those of handlers that have returned. Others lend themselves elsewhere: that of Close in
// lendToEnd, timers in lendTick, jobs and Control.Open in bring, and links in receiver.post.
func (l *loop) lend(ev *event) bool {
	posted, held := l.mailbox.lend(ev, actor.Lend)
	if held.OK() {
		l.turn(held, 0)
	}
	return posted
}
