package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// A ChildSpec describes a child: OTP's child specification. Either Run or
// Supervisor must be set.
type ChildSpec struct {
	// ID names the child. It must be unique among the children of the supervisor
	// that have not terminated. Default: a generated ID such as "child-7".
	ID string

	// Init runs before every Run, on the same goroutine. Start waits for it, and
	// so do the children started after this one. When Init fails, the child has
	// failed. Default: none.
	Init func(context.Context) error

	// Run is the child's work; the package comment states its contract. The
	// context is the one that Init had. It ends when the child must stop, with
	// the cause ErrStopped, or ErrRestarted if the child runs again afterwards.
	Run func(context.Context) error

	// Drain makes the child finish its work and Run return nil, as
	// http.Server.Shutdown does. Supervisor.Close calls it, Stop never does. It
	// runs on its own goroutine after Init has returned, and must return when its
	// context ends. Drain and Run may return in any order. If Run is still
	// running when Drain has returned, the child is stopped. Default: none;
	// Close stops the child immediately.
	Drain func(context.Context) error

	// Supervisor makes another supervisor the child, in place of Init, Run and
	// Drain. Init then starts its children, Run fails when it gives up, and Drain
	// is its Close.
	Supervisor *Supervisor

	// Restart says whether the child runs again after Run has returned.
	// Default: Permanent.
	Restart Restart

	// Shutdown is how long a stop waits for the child. After that the child is
	// reported as stuck, and the stop continues without it. Default: 5 s; for a
	// Supervisor, no limit. Negative: no limit.
	Shutdown time.Duration

	resource resource    // what Run continues with; nil if the child is a function
	conn     *connection // in place of Run: a Conn, for which no goroutine has to wait; nil for other children
}

// A resource outlives the Runs of its child: a connection or a supervisor. Each
// Run continues with it.
type resource interface {
	// outcome says what it means that a Run has ended with this error. Final: the child
	// cannot run again. Resumes: another Run would continue with the resource; if none
	// follows, discard must be called.
	outcome(err error) (final, resumes bool)

	// drain makes the resource finish its work, like ChildSpec.Drain.
	drain(context.Context) error

	// discard closes the resource for good.
	discard(err error) error
}

func (spec ChildSpec) withDefaults() ChildSpec {
	if s := spec.Supervisor; s != nil {
		below := subtree{s}
		spec.Init, spec.Run = below.init, below.run
		spec.resource, spec.Shutdown = below, cmp.Or(spec.Shutdown, -1)
	}
	spec.Shutdown = cmp.Or(spec.Shutdown, defaultShutdown)
	return spec
}

func (spec *ChildSpec) traits() traits {
	return traits{spec.Restart, spec.Shutdown, spec.Init != nil, spec.Drain != nil || spec.resource != nil, spec.Supervisor != nil}
}

// A Child is a handle to a child of a supervisor. It stays valid when the child
// is restarted. Its methods may be called from any goroutine.
type Child struct {
	supervisor *Supervisor
	spec       ChildSpec

	// The supervisor's mutex guards all fields below.
	key          uint64      // grows with each start
	started      wait.Signal // fires when Init has returned
	hasStarted   bool        // the child has started at least once
	done         wait.Signal // fires when the child has terminated
	err          error       // why it has terminated; set before done
	terminatedAt instant
	hidden       bool // deleted: not listed after it has terminated

	startRuns bool // launch has left the first Run, which only begins a Conn, to the goroutine of Start

	// These belong to the present Run.
	cancel      context.CancelCauseFunc // ends the context of Init and Run; nil if the child has no such context
	begun       bool                    // the Conn has begun, and can be cancelled
	cancelledBy error                   // the cause with which to cancel the Conn as soon as it has begun; nil: do not cancel it
	cancelDrain context.CancelFunc      // nil unless Drain is running
	drainDue    instant                 // when Drain must have returned; 0: its failure is recorded already
	goroutines  int                     // how many goroutines of Run and Drain are running
	pendingEnd  message                 // the message that Run has ended; it waits until Drain has returned, too
	stopAsked   bool                    // the child was told to stop
	overdue     wait.Signal             // fires when the child still runs after its Shutdown
	failure     error                   // how the child failed

	// These belong to all Runs.
	ran         bool
	restarts    int
	failures    int
	lastFailure error
	failedAt    instant
}

func newChild(s *Supervisor, spec ChildSpec) *Child {
	if spec.conn == nil && (spec.Run == nil) == (spec.Supervisor == nil) || spec.Supervisor != nil && (spec.Init != nil || spec.Drain != nil) {
		panic("supervisor: a ChildSpec needs either Run or Supervisor; Init and Drain go with Run")
	}
	if spec.Restart > Temporary {
		panic(fmt.Sprintf("supervisor: ChildSpec.Restart: unknown %s", spec.Restart))
	}
	return &Child{supervisor: s, spec: spec.withDefaults()}
}

// ID returns the child's ID.
func (c *Child) ID() string { return c.spec.ID }

// Done returns a channel that is closed when the child has terminated: it does
// not run, and the supervisor will not restart it. If Child.Restart brings it
// back, Done returns a new channel.
func (c *Child) Done() <-chan struct{} {
	c.supervisor.mu.Lock()
	defer c.supervisor.mu.Unlock()
	return c.done.Wait()
}

// Err returns nil until Done is closed. Then it returns the failure that
// terminated the child, or nil if the child was stopped or returned without an
// error.
func (c *Child) Err() error {
	c.supervisor.mu.Lock()
	defer c.supervisor.mu.Unlock()
	return c.err
}

// Stop stops the child, waits until it has terminated, and returns Err. The
// child is not restarted. If the child still runs after its Shutdown, or when
// ctx ends, Stop returns a *StuckError; in the latter case joined with the cause
// of ctx. Stop may be called again. A child must not call its own Stop, because
// Stop would wait for it; a child ends itself by returning.
func (c *Child) Stop(ctx context.Context) error {
	s := c.supervisor
	s.mu.Lock()
	s.step(&message{kind: haltAsked, child: c.key})
	done, overdue := c.done.Wait(), c.overdue.Wait()
	s.mu.Unlock()
	select {
	case <-done:
	case <-overdue:
	case <-ctx.Done():
	}
	switch { // several cases may apply
	case wait.IsClosed(done):
		return c.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", c.stuckError(), context.Cause(ctx))
	default:
		return c.stuckError()
	}
}

// Restart runs the child again, after stopping it if it runs. It also brings
// back a child that has terminated; that one then comes last in the start order.
// Restart returns when the child has started, restarts no other child, and does
// not count towards Options.Intensity.
//
// It fails as Stop and Supervisor.Start do, and with
//
//   - ErrStopped when the child is being stopped, until its Done is closed, or
//     when the child is stopped before it has started,
//   - ErrFinal for a Conn that has closed for good.
func (c *Child) Restart(ctx context.Context) error {
	if err := c.restart(); err != nil {
		return c.refused("restarting", err)
	}
	if err := c.awaitStart(ctx); err != nil {
		return c.refused("restarting", err)
	}
	return nil
}

// errForgotten says that the child was removed from the list during its Restart.
var errForgotten = errors.New("supervisor: forgotten")

func (c *Child) restart() error {
	for {
		nested, err := c.nest() // if the child was forgotten, it is outside of the tree
		if err != nil {
			return err
		}
		err = c.askToRestart()
		if errors.Is(err, errForgotten) {
			continue
		}
		if err != nil && nested {
			c.unnest()
		}
		return err
	}
}

func (c *Child) askToRestart() error {
	s := c.supervisor
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.done.HasFired() {
		if of, ok := c.spec.resource.(*connection); ok && of.isClosed() {
			return ErrFinal
		}
		return s.enlist(c)
	}
	if s.core.state != Running {
		return s.stopped()
	}
	if m := s.core.members.byKey[c.key]; m.state == Stopping && !m.rerun {
		return errStopping
	}
	if c.started.HasFired() {
		c.started = wait.Signal{}
	}
	s.step(&message{kind: restartAsked, child: c.key})
	return nil
}

// Delete stops the child like Stop, and removes it from the list of children
// when it has terminated, even if that is after Delete has returned. Restart can
// bring it back.
func (c *Child) Delete(ctx context.Context) error {
	c.hide()
	return c.Stop(ctx) // which says that there is a newer Report, too
}

func (c *Child) hide() {
	s := c.supervisor
	s.mu.Lock()
	defer s.mu.Unlock()
	c.hidden = true
	s.forget(c)
}

// refused wraps the reason why the child was not started.
func (c *Child) refused(doing string, err error) error {
	child := "a child"
	if c.spec.ID != "" {
		child = fmt.Sprintf("child %q", c.spec.ID)
	}
	return fmt.Errorf("%s: %s %s: %w", title(c.supervisor.options.Name), doing, child, err)
}

// setStarted records that the child has started. The caller holds the mutex.
func (c *Child) setStarted() {
	c.hasStarted = true
	c.started.Fire()
}

// awaitStart waits until the child has started.
func (c *Child) awaitStart(ctx context.Context) error {
	c.supervisor.mu.Lock()
	if c.started.HasFired() {
		c.supervisor.mu.Unlock()
		return nil
	}
	started, done, overdue := c.started.Wait(), c.done.Wait(), c.overdue.Wait()
	c.supervisor.mu.Unlock()
	select {
	case <-started:
	case <-done:
	case <-overdue:
	case <-ctx.Done():
	}
	switch { // several cases may apply; the first one says most
	case wait.IsClosed(started):
		return nil
	case wait.IsClosed(done):
		return c.startError()
	case wait.IsClosed(overdue):
		return c.stuckError()
	default:
		return context.Cause(ctx)
	}
}

// startError returns why a child terminated before it had started.
func (c *Child) startError() error {
	c.supervisor.mu.Lock()
	defer c.supervisor.mu.Unlock()
	return cmp.Or(c.err, c.supervisor.stopped())
}

func (c *Child) stuckError() *StuckError {
	return &StuckError{c.supervisor.options.Name, []string{c.spec.ID}}
}
