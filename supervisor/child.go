package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// A ChildSpec describes a child, in OTP's words.
type ChildSpec struct {
	// ID names the child among those that run. Empty: one is given, for
	// instance "child-7".
	ID string

	// Run is the child; see the package comment for its contract. Each Run has
	// a context of its own, which ends when the child is to stop, with the
	// cause ErrStopped, and when Run has returned.
	Run func(context.Context) error

	Restart  Restart       // which ends are followed by another Run; Permanent
	Shutdown time.Duration // how long a stop waits for the child; 5 s

	final func(error) bool  // reports ends that no restart follows; nil: none
	last  func(error) error // run on the child's goroutine when no restart follows; nil: nothing
}

func (spec ChildSpec) withDefaults() ChildSpec {
	spec.Shutdown = cmp.Or(spec.Shutdown, defaultShutdown)
	return spec
}

// restarts reports whether another Run follows one that returned err.
func (spec ChildSpec) restarts(err error) bool {
	if spec.final != nil && spec.final(err) {
		return false
	}
	return spec.Restart.again(err != nil)
}

// A Child is a handle to what a supervisor runs. It stays valid over restarts.
// Its methods may be called from any goroutine.
type Child struct {
	supervisor *Supervisor
	spec       ChildSpec
	order      uint64        // of its start
	done       chan struct{} // closed when the child is over for good
	err        error         // set before done is closed

	// Under the supervisor's mutex.
	state       State
	cancel      context.CancelCauseFunc // of the present Run
	restarts    int
	lastFailure error
	since       time.Time
	stuck       bool // OnEvent was told
}

func newChild(s *Supervisor, spec ChildSpec, order uint64) *Child {
	return &Child{
		supervisor: s, spec: spec, order: order,
		done: make(chan struct{}), state: Running, since: time.Now(),
	}
}

// launch starts the child's goroutine. The caller holds the mutex.
func (c *Child) launch() {
	ctx, cancel := context.WithCancelCause(context.Background())
	c.cancel = cancel
	go c.run(ctx)
}

// run is the child's one goroutine, for one Run. What it defers also sees a
// panic, and runtime.Goexit, which leaves err as it was.
func (c *Child) run(ctx context.Context) {
	err := ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
		c.supervisor.ended(c, err)
	}()
	err = c.spec.Run(ctx)
}

// ID is the child's name.
func (c *Child) ID() string { return c.spec.ID }

// Done is closed when the child is over and will not run again.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err is nil until Done is closed. Then it is how the child failed for good,
// or nil when it returned without an error or was stopped.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stop ends the child's context, waits until the child is over, and returns
// Err. The child is not restarted. When it still runs after its Shutdown, or
// at the end of ctx, Stop returns a *StuckError that names it; at the end of
// ctx it wraps the cause as well. Stop is idempotent. A child that calls its
// own Stop waits for itself in vain; to end it returns.
func (c *Child) Stop(ctx context.Context) error {
	c.ask()
	if err := c.await(ctx); err != nil {
		return err
	}
	return c.Err()
}

// ask tells the child to stop.
func (c *Child) ask() {
	c.supervisor.mu.Lock()
	defer c.supervisor.mu.Unlock()
	if c.state == Running {
		c.state, c.since = Stopping, time.Now()
		c.cancel(ErrStopped)
	}
}

// await waits for a child that was asked to stop.
func (c *Child) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.spec.Shutdown, errOverdue)
	defer cancel()
	err := await(ctx, c.done)
	if err == nil {
		return nil
	}
	stuck := &StuckError{c.supervisor.options.Name, []string{c.spec.ID}}
	if !errors.Is(err, errOverdue) {
		return fmt.Errorf("%w: %w", stuck, err)
	}
	c.supervisor.tellStuck(c, stuck)
	return stuck
}

// await waits until done is closed, or returns the cause when ctx ends first.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done: // both came about, and this is what was waited for
		return nil
	default:
		return context.Cause(ctx)
	}
}
