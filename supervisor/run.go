package supervisor

import (
	"context"
	"errors"
	"runtime/debug"
)

// run is the child's one goroutine, for one Run. What it defers also sees a
// panic, and runtime.Goexit, which leaves err as it was. That is attend, written
// out: with its frames the stack, which is kept, would be larger.
func (c *Child) run(ctx context.Context) {
	err := ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
		c.supervisor.ended(c, err)
	}()
	if c.spec.Init != nil {
		if failed := askable(c.spec.Init(ctx)); failed != nil {
			err = failed
			return
		}
		c.supervisor.initialized(c)
	}
	err = askable(c.spec.Run(ctx))
}

// attend tells how what is done for a child has ended.
func attend(work func() error, tell func(error)) {
	err := ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
		tell(err)
	}()
	err = askable(work())
}

// askable returns an error that is asked a lot from here on. Should its methods
// panic, as those of a nil pointer do, it is now, which is the child's failure.
func askable(err error) error {
	if err != nil {
		_ = err.Error()
		errors.As(err, new(*StuckError)) // calls Is, As and Unwrap of all it wraps
		errors.Is(err, ErrStopped)
	}
	return err
}

func (s *Supervisor) initialized(c *Child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.asked {
		c.begin()
	}
	s.step(&message{kind: initialized, child: c.key})
}

// ended is the last act of a child's goroutine. Either another goroutine takes
// over, or the child is over, or its Drain has still to return.
func (s *Supervisor) ended(c *Child, err error) {
	msg := &message{kind: ended}
	if c.spec.what != nil {
		msg.final, msg.resumes = c.spec.what.outcome(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ends(err)
	if msg.child, msg.failed = c.key, c.failure != nil; c.goroutines > 0 {
		c.last = msg
		s.pulse.beat() // it may have failed
		return
	}
	s.step(msg)
}

// ends notes how a Run has ended. What only repeats that it was to stop is no
// failure.
func (c *Child) ends(err error) {
	if c.goroutines--; c.goroutines == 0 {
		c.cancel(nil) // whatever the child left running is told
	}
	if err == nil || c.asked && answersStop(err) {
		return
	}
	if c.failure == nil { // else what has failed is closed, and says so again
		c.fails(err)
	}
	c.failure, c.lastFailure = err, err
}

// fails counts a failure.
func (c *Child) fails(err error) {
	c.failures++
	c.lastFailure, c.failedAt = err, c.supervisor.now()
}

// drain is the goroutine that asks the child to finish.
func (c *Child) drain(ctx context.Context) {
	attend(func() error { return c.spec.Drain(ctx) }, func(err error) { c.supervisor.drained(c, err) })
}

func (s *Supervisor) drained(c *Child, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.undrain()
	c.undrain = nil
	if err != nil && !errors.Is(err, context.Canceled) {
		s.noteDrain(c, err)
	}
	msg := &message{kind: drained, child: c.key}
	if c.goroutines--; c.last != nil {
		msg, c.last = c.last, nil
		c.cancel(nil)
	}
	s.step(msg)
}

// dismiss is the goroutine that closes what a child has left that will not run
// again.
func (c *Child) dismiss() {
	attend(func() error { return c.spec.what.dismiss(c.failure) }, func(err error) { c.supervisor.ended(c, err) })
}
