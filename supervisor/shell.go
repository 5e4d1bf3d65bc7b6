package supervisor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// The shell passes messages to the core and performs its effects. The goroutine that
// brings a message does both, while it holds the supervisor's mutex. No effect blocks.

// post passes one message to the core and performs the effects.
func (s *Supervisor) post(msg *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(msg)
}

// step is post for callers that hold the mutex.
func (s *Supervisor) step(msg *message) {
	before := s.core.state
	effects := s.core.step(s.now(), msg)
	for i := range effects {
		s.perform(&effects[i])
	}
	clear(effects) // they name children, which may be deleted before the next step
	if s.core.state != before {
		s.lifetime.since = time.Now()
	}
	s.arm()
	s.changes.notify()
}

// now returns the time on the supervisor's monotonic clock.
func (s *Supervisor) now() instant { return time.Since(s.born) }

// arm sets the timer to the core's deadline, if there is one. If it fires too early, the
// tick does nothing.
func (s *Supervisor) arm() {
	due := s.core.dueAt
	switch {
	case due == 0 && s.armed != 0:
		s.timer.Stop()
	case due == 0 || s.armed != 0 && s.armed <= due:
		return
	case s.timer == nil:
		s.timer = time.AfterFunc(due-s.now(), s.tick)
	default:
		s.timer.Reset(due - s.now())
	}
	s.armed = due
}

func (s *Supervisor) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = 0
	s.step(&message{kind: tick})
}

func (s *Supervisor) perform(fx *effect) {
	c := fx.handle
	switch fx.kind {
	case launch:
		s.launch(c)
	case drain:
		ctx, cancel := context.WithDeadline(context.Background(), s.born.Add(fx.due))
		c.goroutines, c.cancelDrain, c.drainDue = 2, cancel, fx.due
		go c.drain(ctx)
	case halt:
		s.recordDrainTimeout(c)
		c.halt(fx.rerun)
	case discard:
		c.goroutines = 1
		go c.discard()
	case stuck:
		c.overdue.Fire()
		s.emit(ChildStuck, c, &StuckError{s.options.Name, []string{c.spec.ID}})
	case retire:
		s.retire(c)
	case giveUp:
		s.lifetime.gaveUpOn = c
		s.lifetime.gaveUp = &IntensityError{s.options.Name, c.spec.ID, max(s.options.Intensity, 0), s.options.Period, c.failure}
		s.emit(GaveUp, c, s.lifetime.gaveUp)
	case ready:
		s.lifetime.ready.Fire()
	case conclude:
		if s.options.OnEvent == nil { // there is no hook to wait for
			s.lifetime.conclude(s, s.runningIDs())
		} else {
			go s.conclude(s.lifetime, s.core.keeps, s.runningIDs())
		}
	}
}

func (s *Supervisor) emit(kind EventKind, c *Child, err error) {
	s.counts.add(kind)
	s.events.add(Event{Kind: kind, Child: c.spec.ID, Restarts: c.restarts, Err: err, At: time.Now()})
}

// launch runs the child on a goroutine, or leaves that to Start.
func (s *Supervisor) launch(c *Child) {
	if c.ran {
		c.restarts++
		s.emit(ChildRestarted, c, c.failure)
	} else {
		s.emit(ChildStarted, c, nil)
	}
	if below := c.spec.Supervisor; below != nil {
		subtree{below}.setClosing(false)
	}
	c.ran, c.stopAsked, c.failure = true, false, nil
	if c.spec.Init == nil {
		c.setStarted()
	}
	c.cancel, c.begun, c.cancelledBy = nil, false, nil
	if c.overdue.HasFired() {
		c.overdue = wait.Signal{}
	}
	c.goroutines = 1
	ctx := context.Background()
	if c.spec.conn == nil || c.spec.Init != nil {
		ctx, c.cancel = context.WithCancelCause(ctx)
	} else if s.starting == c {
		c.startRuns = true
		return
	}
	go c.run(ctx, c.restarts)
}

// halt ends the present Run and its Drain.
func (c *Child) halt(rerun bool) {
	if c.stopAsked = true; c.cancelDrain != nil {
		c.cancelDrain()
	}
	cause := ErrRestarted
	if !rerun {
		cause = c.supervisor.stopped()
	}
	if c.cancel != nil {
		c.cancel(cause)
	}
	if c.cancelledBy = cause; c.begun {
		c.spec.conn.Control().Cancel(cause)
	}
}

// beginContext returns the context with which a Conn begins. It has ended if the Conn was
// cancelled before, so that a Conn that was stopped opens no link; otherwise halt cancels the
// Conn itself.
func (c *Child) beginContext() context.Context {
	c.supervisor.mu.Lock()
	defer c.supervisor.mu.Unlock()
	if c.cancelledBy == nil {
		return context.Background()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(c.cancelledBy)
	return ctx
}

// recordBegun notes that the Conn of a Run can be cancelled, and cancels it if that was
// asked for before.
func (c *Child) recordBegun(run int) {
	c.supervisor.mu.Lock()
	defer c.supervisor.mu.Unlock()
	if c.restarts != run {
		return // this Run has ended, and another was launched
	}
	if c.begun = true; c.cancelledBy != nil {
		c.spec.conn.Control().Cancel(c.cancelledBy)
	}
}

// run is the goroutine of one Run, or runs on that of Start if it only begins one. The
// number of the Run is that of the restarts before it. It recovers panics itself, because
// another function's frame would enlarge the stack of an idle child.
func (c *Child) run(ctx context.Context, run int) {
	var err error
	begun := false
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
		if !begun {
			c.supervisor.ended(c, err)
		}
	}()
	if c.spec.Init != nil {
		if err = c.spec.Init(ctx); err != nil {
			return
		}
		c.supervisor.initialized(c)
	}
	if c.spec.conn == nil {
		err = c.spec.Run(ctx)
		return
	}
	err = c.spec.conn.begin(c.beginContext(), c)
	if begun = err == nil; begun {
		c.recordBegun(run)
	}
}

// drain is the goroutine of Drain.
func (c *Child) drain(ctx context.Context) {
	work := c.spec.Drain
	if c.spec.resource != nil {
		work = c.spec.resource.drain
	}
	c.supervisor.drained(c, recovered(func() error { return work(ctx) }))
}

// discard is the goroutine that closes what the child's last Run left open.
func (c *Child) discard() {
	c.supervisor.ended(c, recovered(func() error { return c.spec.resource.discard(c.failure) }))
}

// recovered returns what work returns, or its panic as a *PanicError.
func recovered(work func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
	}()
	return work()
}

func (s *Supervisor) initialized(c *Child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.stopAsked {
		c.setStarted()
	}
	s.step(&message{kind: initialized, child: c.key})
}

// ended is the last call on a child's goroutine. If its Drain has not returned, the core
// gets the end of the child when it has.
func (s *Supervisor) ended(c *Child, err error) {
	msg := &message{kind: ended}
	if c.spec.resource != nil {
		msg.final, msg.resumes = c.spec.resource.outcome(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.goroutines--; c.goroutines == 0 {
		c.endContext()
	}
	c.recordEnd(err)
	if msg.child, msg.failed = c.key, c.failure != nil; c.goroutines > 0 {
		c.pendingEnd = *msg
		s.changes.notify()
		return
	}
	s.step(msg)
}

func (s *Supervisor) drained(c *Child, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.cancelDrain()
	c.cancelDrain = nil
	if err != nil && !errors.Is(err, context.Canceled) {
		s.recordDrainFailure(c, err)
	}
	msg := message{kind: drained, child: c.key}
	if c.goroutines--; c.pendingEnd.kind == ended {
		msg, c.pendingEnd = c.pendingEnd, message{}
		c.endContext()
	}
	s.step(&msg)
}

// endContext ends the context for goroutines that the child has left running.
func (c *Child) endContext() {
	if c.cancel != nil {
		c.cancel(nil)
	}
}

// recordEnd records how a Run has ended. An error that only repeats the request to stop
// is not a failure.
func (c *Child) recordEnd(err error) {
	if err == nil || c.stopAsked && answersStop(err) {
		return
	}
	if c.failure == nil { // otherwise this is the end of discard, which repeats the failure
		c.countFailure(err)
	}
	c.failure, c.lastFailure = err, err
}

func (c *Child) countFailure(err error) {
	c.failures++
	c.lastFailure, c.failedAt = err, c.supervisor.now()
}

// recordDrainTimeout adds an error to the result which says that the child has not
// finished in time.
func (s *Supervisor) recordDrainTimeout(c *Child) {
	if c.cancelDrain != nil && c.drainDue <= s.now() {
		s.recordDrainFailure(c, context.DeadlineExceeded)
	}
}

// recordDrainFailure adds the failure of a Drain to the result, once. A nested
// supervisor reports its own failure when its Run ends. A failed Drain does not make the
// child a failed one; only its Run does.
func (s *Supervisor) recordDrainFailure(c *Child, err error) {
	if c.drainDue != 0 && c.spec.Supervisor == nil {
		c.countFailure(fmt.Errorf("draining: %w", err))
		s.lifetime.failures = append(s.lifetime.failures, fmt.Errorf("%s: draining child %q: %w", title(s.options.Name), c.spec.ID, err))
	}
	c.drainDue = 0
}

// retire terminates a child. It stays listed, unless it never started or was
// deleted.
func (s *Supervisor) retire(c *Child) {
	kind := ChildStopped
	if c.failure != nil {
		kind = ChildFailed
		s.recordStopFailure(c)
	}
	if s.emit(kind, c, c.failure); c.hasStarted && !c.hidden {
		s.list(c)
	} else {
		delete(s.byID, c.spec.ID)
		c.unnest()
	}
	c.err, c.terminatedAt = c.failure, s.now()
	c.done.Fire()
}

// recordStopFailure adds a child's failure to the result if the supervisor is stopping.
// The result already contains the child that made it give up.
func (s *Supervisor) recordStopFailure(c *Child) {
	if l := s.lifetime; s.core.state != Running && l.gaveUpOn != c {
		l.failures = append(l.failures, fmt.Errorf("%s: stopping child %q: %w", title(s.options.Name), c.spec.ID, c.failure))
	}
}

// list keeps a terminated child in the reports until its ID is used again, or too many
// other children have terminated.
func (s *Supervisor) list(c *Child) {
	if s.terminated = append(s.terminated, c); len(s.terminated) > maxTerminated {
		s.forget(s.terminated[0])
	}
}

// forget removes a terminated child from the list. If the child ran a supervisor, that
// may become the child of another one.
func (s *Supervisor) forget(c *Child) {
	if s.unlist(c) {
		c.unnest()
	}
}

func (s *Supervisor) unlist(c *Child) (listed bool) {
	i := slices.Index(s.terminated, c)
	if i < 0 {
		return false
	}
	s.terminated = slices.Delete(s.terminated, i, i+1)
	delete(s.byID, c.spec.ID)
	return true
}

// runningIDs returns the IDs of the children that still run, in the order of their stop.
func (s *Supervisor) runningIDs() (ids []string) {
	for m := range s.core.members.backward() {
		if m.state != Waiting {
			ids = append(ids, m.handle.spec.ID)
		}
	}
	return ids
}
