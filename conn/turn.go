package conn

import (
	"runtime/debug"

	"github.com/bowline-mcp/bowline/transport"
)

// A runner is the loop's own goroutine. Between its turns it does the job that the
// loop has for it: opening a link, the handshake and closing the link so take one
// goroutine, whose stack has grown once.
type runner struct {
	job *job // nil if there is none
}

// run works on the loop's own goroutine, and waits for more work, until the loop
// parks or ends.
func (l *loop) run() {
	var r runner
	for {
		woken, over, err := l.work(&r)
		switch j := r.job; {
		case over:
			l.leave()
			l.over(err)
			return
		case j != nil: // another goroutine may have the loop meanwhile
			if r.job = nil; !l.complete(j) {
				return
			}
			continue
		case woken == nil:
			return // parked; another goroutine may have the loop already
		}
		<-woken
	}
}

// start begins the loop on a goroutine that is lent to it. What may come of the link
// that an initiator opens waits for the loop's own goroutine.
func (l *loop) start() {
	rests := false
	defer func() {
		if value := recover(); value != nil {
			l.panicked = &PanicError{Value: value, Stack: debug.Stack()}
		}
		if !rests {
			l.resume()
		}
	}()
	l.begin()
	if l.conn.role == initiator && l.tasks.n == 0 && l.mailbox.len() > 0 { // the gate has a place already; an empty take would give the loop away
		l.stepAll(l.mailbox.take(l.forMailbox()))
	}
	if l.interruption == nil && !l.finished {
		l.arm()
		flush := l.flush
		rests = l.mailbox.rest()
		flush.flush(0)
	}
}

// resume has the loop's own goroutine go on. Who calls it has the loop, and gives it
// away.
func (l *loop) resume() {
	if !l.waiting {
		go l.run()
		return
	}
	l.woken <- struct{}{} // it has room: nobody else has the loop
}

// work steps through the mailbox until that is empty or the loop is over. If the
// mailbox is empty, another goroutine may have the loop when work returns, so the
// caller must not touch it. It may only do the runner's job, or else wait for next,
// which is nil if the loop is parked. The runner is nil if the caller does no job.
func (l *loop) work(r *runner) (next <-chan struct{}, over bool, err error) {
	over = true // after a panic
	defer func() {
		if value := recover(); value != nil {
			l.runner = r
			err = l.afterPanic(&PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	switch l.waiting = false; { // how a turn on another goroutine has ended
	case l.panicked != nil:
		return nil, true, l.afterPanic(l.panicked)
	case l.interruption != nil:
		return nil, true, l.breakOff(Reason{Interrupted, l.interruption})
	}
	before := l.busyAt
	l.runner = r
	if !l.begun {
		l.begin()
	}
	for !l.finished || l.tasks.n > 0 && !l.overdue {
		l.arm()
		l.runner = nil
		next, flush := l.rest(l.busyAt > before && (r == nil || r.job == nil)), l.flush
		events := l.mailbox.take(l.forMailbox())
		flush.flush(0)
		if len(events) == 0 {
			return next, false, nil
		}
		l.waiting, l.runner = false, r
		l.handOver(r)
		l.unpark()
		if l.stepAll(events); l.interruption != nil {
			return nil, true, l.breakOff(Reason{Interrupted, l.interruption})
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

// rest says that the loop's own goroutine is about to wait, and for what. If the loop
// parks, or that goroutine had nothing to do but a tick, it is about to end.
func (l *loop) rest(worked bool) (woken <-chan struct{}) {
	l.waiting = l.awake && worked
	switch {
	case !l.waiting:
		l.woken = nil
	case l.woken == nil:
		l.woken = make(chan struct{}, 1)
	}
	return l.woken
}

// lentBatches is how many batches of events a loop steps through on a goroutine that
// is lent to it. It bounds what the events of others can cost that goroutine. A call
// over HTTP takes two: the link opens a stream for it.
const lentBatches = 3

// turn works on a goroutine that is lent to the loop, and that has it. If there is
// much to do, or the loop is about to end, turn gives the loop to the loop's own
// goroutine. The depth is that of the receiver's Work, or 0.
func (l *loop) turn(depth int) {
	flush, _ := l.workLent(0, false)
	flush.flush(depth)
}

// turnToServe is a turn for Work(1). It returns one of the requests that have come in,
// to be served on this goroutine, unless handlers take longer than that. The loop
// serves the others.
func (l *loop) turnToServe(longest pace) (kept served) {
	flush, kept := l.workLent(longest, false)
	flush.flush(1)
	return kept
}

func (l *loop) workLent(keepUpTo pace, mayEnd bool) (flush flush, kept served) {
	rests := false
	defer func() {
		if value := recover(); value != nil {
			l.panicked = &PanicError{Value: value, Stack: debug.Stack()}
		}
		if !rests {
			flush = l.flush
			kept = l.takeKept(kept)
			l.endOrResume(mayEnd)
		}
	}()
	for range lentBatches {
		l.arm()
		flush = l.flush
		events := l.mailbox.take(l.forMailbox())
		if rests = len(events) == 0; rests {
			return flush, kept
		}
		l.unpark()
		if kept.Incoming == nil {
			l.keepUpTo = keepUpTo
		}
		l.stepAll(events)
		kept = l.takeKept(kept)
		if l.interruption != nil || l.finished || !l.awake && l.waiting {
			return flush, kept
		}
	}
	return flush, kept
}

// lendToEnd is lend for Close, which waits for the end of the loop. If nothing is left to
// wait for, the loop ends on its goroutine.
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
		return kept // it has parked, so nothing was kept
	}
	if l.kept.Incoming != nil {
		kept = l.kept
	}
	l.kept, l.keepUpTo = served{}, 0
	return kept
}

// A flush is what a link has left to its Flush, if it has one. Whoever calls it need
// not have the loop.
type flush struct {
	conn *Conn
	link transport.Flusher
}

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
