package conn

import (
	"runtime/debug"

	"github.com/bowline-mcp/bowline/transport"
)

// Who has the loop
//
// One goroutine at a time has the loop: only that one may use its fields and its core. While
// mailbox.running is false, nobody has it. The next event then gives it to a goroutine: a lent
// one that brings the event with mailbox.lend, or the loop's own one, which mailbox.post wakes
// through resume. Whoever has the loop keeps it until mailbox.take returns no events, or until
// it passes the loop on. After that it must not touch the loop.
//
// "Own" is the loop's own goroutine, which may wait (ownWaits), work, or not exist. "Caller" is
// the goroutine that calls the function, and that it is lent from.
//
//	function      called by                          before    after
//	start         Start, Begin                       caller    nobody; own, if it is not done
//	run           own                                own       nobody (own waits or ends); ended
//	work          run                                own       nobody; own if it returns over
//	resume        whoever has the loop               caller    own, woken or new
//	lend          Call, Notify, workers              nobody    like turn; if somebody has it: they keep it
//	lendTick      timers                             nobody    own, if it waits; otherwise like turn
//	lendToEnd     Close                              nobody    like workLent; may end
//	turn          lend, lendTick, Open, complete     caller    like workLent
//	turnToServe   receiver.Serve                     caller    like workLent
//	workLent      the turns, lendToEnd, Work         caller    nobody; own, if there is more to do; may end
//	endOrResume   workLent, if there is more to do   caller    own; ended if mayEnd and nothing is left
//	bring         Open, complete                     nobody    caller, if it returns true
//	complete      run, runJob                        nobody    caller, if it returns true: it is own then
//	runJob        a new goroutine                    nobody    like complete, then run
//
// Each function may find that somebody else has the loop. It then only leaves its event in the
// mailbox.

// A runner is the loop's own goroutine. Between turns of the loop it does a job for
// the loop. So a single goroutine, whose stack grows only once, opens the link, runs
// the handshake and closes the link.
type runner struct {
	job *job // the next job; nil if there is none
}

// run is the loop's own goroutine. It works and waits for more work, until the loop parks or
// ends.
func (l *loop) run() {
	var r runner
	for {
		woken, over, err := l.work(&r)
		switch j := r.job; {
		case over:
			l.leave()
			l.over(err)
			return
		case j != nil: // another goroutine may get the loop meanwhile
			if r.job = nil; !l.complete(j) {
				return
			}
			continue
		case woken == nil:
			return // the loop has parked; another goroutine may already have the loop
		}
		<-woken
	}
}

// start begins the loop on the goroutine of the caller. Events of the link that an initiator
// opens wait for the loop's own goroutine.
func (l *loop) start() {
	rests := false
	defer func() {
		if value := recover(); value != nil {
			l.forEnd().panicked = &PanicError{Value: value, Stack: debug.Stack()}
		}
		if !rests {
			l.resume()
		}
	}()
	l.begin()
	if l.conn.role == initiator && l.tasks.n == 0 && l.mailbox.len() > 0 { // the gate already has a place for it; taking from an empty mailbox would give the loop to another goroutine
		l.stepAll(l.mailbox.take(l.buffers.forMailbox()))
	}
	if l.interruption() == nil && !l.finished {
		l.arm()
		flush := l.flush()
		rests = l.mailbox.rest()
		flush.flush(0)
	}
}

// resume gives the loop to its own goroutine, which it starts if there is none.
func (l *loop) resume() {
	if !l.ownWaits {
		go l.run()
		return
	}
	l.woken <- struct{}{} // the channel has room, because nobody else has the loop
}

// work steps through the mailbox until it is empty or the loop is over. If it is empty,
// another goroutine may have the loop when work returns. The caller may then only do the
// runner's job, or else wait for next, which is nil if the loop has parked. The runner is nil
// if the caller does no jobs.
func (l *loop) work(r *runner) (next <-chan struct{}, over bool, err error) {
	over = true // after a panic
	defer func() {
		if value := recover(); value != nil {
			l.runner = r
			err = l.afterPanic(&PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	switch l.ownWaits = false; { // a turn on another goroutine may have panicked or interrupted the loop
	case l.atEnd().panicked != nil:
		return nil, true, l.afterPanic(l.atEnd().panicked)
	case l.interruption() != nil:
		return nil, true, l.breakOff(Reason{Interrupted, l.interruption()})
	}
	before := l.busyAt
	l.runner = r
	if !l.begun {
		l.begin()
	}
	for !l.finished || l.tasks.n > 0 && !l.overdue {
		l.arm()
		l.runner = nil
		next, flush := l.rest(l.busyAt > before && (r == nil || r.job == nil)), l.flush()
		events := l.mailbox.take(l.buffers.forMailbox())
		flush.flush(0)
		if len(events) == 0 {
			return next, false, nil
		}
		l.ownWaits, l.runner = false, r
		l.handOver(r)
		l.unpark()
		if l.stepAll(events); l.interruption() != nil {
			return nil, true, l.breakOff(Reason{Interrupted, l.interruption()})
		}
	}
	return nil, true, l.close()
}

// handOver gives a job to a new goroutine, since its own has other work.
func (l *loop) handOver(r *runner) {
	if r != nil && r.job != nil {
		go l.runJob(r.job)
		r.job = nil
	}
}

// releaseRunner gives the runner's job to a new goroutine, because the loop's own goroutine
// is about to wait. Later jobs get goroutines of their own, too.
func (l *loop) releaseRunner() {
	l.handOver(l.runner)
	l.runner = nil
}

// rest notes that the loop's own goroutine is about to wait, and returns the channel that
// wakes it. It returns nil if that goroutine should not wait: it has a job, it has only done a
// tick, or the loop has parked.
func (l *loop) rest(worked bool) (woken <-chan struct{}) {
	l.ownWaits = l.awake && worked
	switch {
	case !l.ownWaits:
		l.woken = nil
	case l.woken == nil:
		l.woken = make(chan struct{}, 1)
	}
	return l.woken
}

// lentBatches is how many batches of events a loop steps through on a goroutine that is lent
// to it. It limits how long that goroutine works for others. A call over HTTP takes two,
// because the link opens a stream for it.
const lentBatches = 3

// turn works on a goroutine that is lent to the loop. If there is much to do, or the loop is
// about to end, turn gives the loop to its own goroutine. The depth is that of the receiver's
// Work, or 0.
func (l *loop) turn(depth int) {
	flush, _ := l.workLent(0, false)
	flush.flush(depth)
}

// turnToServe is a turn for the goroutine of a link that may run a handler. It returns one of
// the requests that have come in, for this goroutine to serve, unless handlers take longer
// than longest on average. Workers serve the others.
func (l *loop) turnToServe(longest pace) (kept served) {
	flush, kept := l.workLent(longest, false)
	flush.flush(1)
	return kept
}

// workLent steps through up to lentBatches batches of events. It returns what the link has left
// to its Flush, and the request that is kept for this goroutine, if any. If mayEnd is set, the
// loop may end here.
func (l *loop) workLent(keepUpTo pace, mayEnd bool) (flush flush, kept served) {
	rests := false
	defer func() {
		if value := recover(); value != nil {
			l.forEnd().panicked = &PanicError{Value: value, Stack: debug.Stack()}
		}
		if !rests {
			flush = l.flush()
			kept = l.takeKept(kept)
			l.endOrResume(mayEnd)
		}
	}()
	for range lentBatches {
		l.arm()
		flush = l.flush()
		events := l.mailbox.take(l.buffers.forMailbox())
		if rests = len(events) == 0; rests {
			return flush, kept
		}
		l.unpark()
		if kept.Incoming == nil {
			l.buffers.keepUpTo = keepUpTo
		}
		l.stepAll(events)
		kept = l.takeKept(kept)
		if l.interruption() != nil || l.finished || !l.awake && l.ownWaits {
			return flush, kept
		}
	}
	return flush, kept
}

// lendToEnd is lend for Close, which waits for the end of the loop. If the loop was started
// with Begin and has nothing left to wait for, it ends on this goroutine.
func (l *loop) lendToEnd(ev *event) (posted bool) {
	posted, taken := l.mailbox.lend(ev)
	if taken {
		flush, _ := l.workLent(0, l.endsInClose)
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
	conn *Conn
	link transport.Flusher
}

// flush returns the Flush of the present link.
func (l *loop) flush() flush { return flush{l.conn, l.flusher} }

func (f flush) flush(depth int) {
	if f.link != nil {
		f.conn.reportPanic("Link.Flush", guard(func() error { f.link.Flush(depth); return nil }))
	}
}

// lend posts an event, and lends this goroutine to the loop if that has nothing to
// do. It reports false when no loop will take the event.
func (c *Conn) lend(ev *event) bool {
	l := c.running.Load()
	return l != nil && l.lend(ev)
}

func (l *loop) lend(ev *event) bool {
	posted, taken := l.mailbox.lend(ev)
	if taken {
		l.turn(0)
	}
	return posted
}
