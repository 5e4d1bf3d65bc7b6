package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// A ChildSpec describes a child, in OTP's words.
type ChildSpec struct {
	// ID names the child among those that are not over. Empty: one is given, for
	// instance "child-7".
	ID string

	// Init, if set, comes before every Run, on the same goroutine. Start waits
	// for it, and so do the children that are started after this one. When it
	// fails, the child has failed to start.
	Init func(context.Context) error

	// Run is the child; see the package comment for its contract. It has the
	// context of its Init, which ends when the child is to stop, with the cause
	// ErrStopped, or ErrRestarted when it is to run again, and when Run has
	// returned.
	Run func(context.Context) error

	// Drain, if set, is called by Supervisor.Close, and never by a Stop, on a
	// goroutine of its own, once Init has returned: it has the child finish what
	// it has begun and Run return nil, until its context ends, as
	// http.Server.Shutdown does. Either may return first: the child is over, and
	// the context of Run ends, when both have; one whose Drain has returned is
	// told to stop. Nil: the child has nothing to finish.
	Drain func(context.Context) error

	// Supervisor, in place of the three above, makes a supervisor the child of
	// this one. Its Init has started its children, its Run fails when it gives
	// up, and its Drain is its Close.
	Supervisor *Supervisor

	Restart  Restart       // which ends are followed by another Run; Permanent
	Shutdown time.Duration // how long a stop waits for the child; 5 s; negative, and for a supervisor: for ever

	what resumable // that Run runs; nil for a worker
}

// A resumable is what another Run goes on with: a connection or a supervisor.
type resumable interface {
	// outcome says what follows a Run that has ended with this error. Final: no
	// other goes on from there. Resumes: another would, and if there is to be
	// none, what it would go on with has to be dismissed.
	outcome(error) (final, resumes bool)

	// dismiss closes that.
	dismiss(error) error
}

func (spec ChildSpec) withDefaults() ChildSpec {
	if s := spec.Supervisor; s != nil {
		spec.Init, spec.Run, spec.Drain = s.begin, s.run, s.drainBelow
		spec.what, spec.Shutdown = s, cmp.Or(spec.Shutdown, -1)
	}
	spec.Shutdown = cmp.Or(spec.Shutdown, defaultShutdown)
	return spec
}

func (spec *ChildSpec) traits() traits {
	return traits{spec.Restart, spec.Shutdown, spec.Init != nil, spec.Drain != nil, spec.Supervisor != nil}
}

// A Child is a handle to what a supervisor runs. It stays valid over restarts.
// Its methods may be called from any goroutine.
type Child struct {
	supervisor *Supervisor
	spec       ChildSpec

	// Under the supervisor's mutex.
	key    uint64 // orders children by their start
	begun  moment // it has been started: its Init has returned
	proven bool   // it has been started before
	done   moment // it is over
	err    error  // how, set before
	overAt instant
	hidden bool // it is not listed once it is over

	// Of the present Run.
	cancel     context.CancelCauseFunc
	undrain    context.CancelFunc // of its Drain; nil unless that runs
	drainDue   instant            // when that is to have returned; 0 once it was said that it has not
	goroutines int                // of Run and Drain
	last       *message           // that Run has ended, while Drain has not returned
	asked      bool               // to stop
	overdue    moment             // it has ignored that
	failure    error              // how it ended

	ran         bool
	restarts    int
	failures    int
	lastFailure error
	failedAt    instant
}

func newChild(s *Supervisor, spec ChildSpec) *Child {
	if (spec.Run == nil) == (spec.Supervisor == nil) || spec.Supervisor != nil && (spec.Init != nil || spec.Drain != nil) {
		panic("supervisor: a ChildSpec needs either Run, with Init and Drain at will, or Supervisor")
	}
	if spec.Restart > Temporary {
		panic(fmt.Sprintf("supervisor: ChildSpec.Restart: there is no %s", spec.Restart))
	}
	return &Child{supervisor: s, spec: spec.withDefaults()}
}

// ID is the child's name.
func (c *Child) ID() string { return c.spec.ID }

// Done is closed when the child is over: it does not run, and the supervisor
// will not run it again. When somebody else does, by Restart, there is another
// Done.
func (c *Child) Done() <-chan struct{} {
	c.supervisor.mu.Lock()
	defer c.supervisor.mu.Unlock()
	return c.done.wait()
}

// Err is nil until Done is closed. Then it is how the child failed for good,
// or nil when it returned without an error or was stopped.
func (c *Child) Err() error {
	c.supervisor.mu.Lock()
	defer c.supervisor.mu.Unlock()
	return c.err
}

// isOver reports whether Done is closed. The mutex is held.
func (c *Child) isOver() bool { return c.done.come }

// begin notes that the child has been started. The mutex is held.
func (c *Child) begin() {
	c.proven = true
	c.begun.arrive()
}

// Stop ends the child's context, waits until the child is over, and returns
// Err. The child is not restarted. When it still runs after its Shutdown, or
// at the end of ctx, Stop returns a *StuckError that names it; at the end of
// ctx it wraps the cause as well. Stop is idempotent. A child that calls its
// own Stop waits for itself in vain; to end it returns.
func (c *Child) Stop(ctx context.Context) error {
	s := c.supervisor
	s.mu.Lock()
	s.step(&message{kind: haltAsked, child: c.key})
	done, overdue := c.done.wait(), c.overdue.wait()
	s.mu.Unlock()
	select {
	case <-done:
	case <-overdue:
	case <-ctx.Done():
	}
	switch { // several may have come about
	case isClosed(done):
		return c.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", c.isStuck(), context.Cause(ctx))
	default:
		return c.isStuck()
	}
}

// Restart has the child run again: it stops it first if it runs, and brings it
// back if it is over. It returns when the child has been started, like
// Supervisor.Start, and fails like Stop and Start. It restarts nobody else, and
// does not count for the intensity. A child that was over comes last in the
// order of the start. One that is being stopped is stopped: that is ErrStopped
// until its Done is closed, and so it is when a Stop comes before the child has
// begun. A Conn that has closed for good cannot run again: that is ErrFinal.
func (c *Child) Restart(ctx context.Context) error {
	if err := c.runAgain(); err != nil {
		return c.refused("restarting", err)
	}
	if err := c.awaitBegin(ctx); err != nil {
		return c.refused("restarting", err)
	}
	return nil
}

// runAgain asks for another Run.
func (c *Child) runAgain() error {
	for {
		nested, err := c.nest() // should it have been forgotten
		if err != nil {
			return err
		}
		err = c.askAgain()
		if errors.Is(err, errForgotten) {
			continue
		}
		if err != nil && nested {
			c.unnest()
		}
		return err
	}
}

// errForgotten is a child's that was forgotten in the middle of its Restart.
var errForgotten = errors.New("supervisor: forgotten")

func (c *Child) askAgain() error {
	s := c.supervisor
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.isOver() {
		if _, closed := c.spec.what.(*connection); closed {
			return ErrFinal
		}
		return s.enlist(c)
	}
	if s.core.state != Running {
		return s.stopped()
	}
	if m := s.core.members.byKey[c.key]; m.state == Stopping && !m.again {
		return errStopping
	}
	if c.begun.come {
		c.begun = moment{}
	}
	s.step(&message{kind: restartAsked, child: c.key})
	return nil
}

func (c *Child) refused(doing string, err error) error {
	child := "a child"
	if c.spec.ID != "" {
		child = fmt.Sprintf("child %q", c.spec.ID)
	}
	return fmt.Errorf("%s: %s %s: %w", title(c.supervisor.options.Name), doing, child, err)
}

// awaitBegin waits until the child has been started.
func (c *Child) awaitBegin(ctx context.Context) error {
	c.supervisor.mu.Lock()
	if c.begun.come {
		c.supervisor.mu.Unlock()
		return nil
	}
	begun, done, overdue := c.begun.wait(), c.done.wait(), c.overdue.wait()
	c.supervisor.mu.Unlock()
	select {
	case <-begun:
	case <-done:
	case <-overdue:
	case <-ctx.Done():
	}
	switch { // several may have come about; the first of these tells most
	case isClosed(begun):
		return nil
	case isClosed(done):
		return c.whyOver()
	case isClosed(overdue):
		return c.isStuck()
	default:
		return context.Cause(ctx)
	}
}

// whyOver is why a child that is over was not started.
func (c *Child) whyOver() error {
	c.supervisor.mu.Lock()
	defer c.supervisor.mu.Unlock()
	return cmp.Or(c.err, c.supervisor.stopped())
}

func (c *Child) isStuck() *StuckError {
	return &StuckError{c.supervisor.options.Name, []string{c.spec.ID}}
}

// Delete stops the child, and has it listed no more once it is over, even if
// that is after Delete has returned. A Restart brings it back all the same.
func (c *Child) Delete(ctx context.Context) error {
	c.hide()
	return c.Stop(ctx)
}

func (c *Child) hide() {
	s := c.supervisor
	s.mu.Lock()
	defer s.mu.Unlock()
	c.hidden = true
	s.forget(c)
	s.pulse.beat()
}
