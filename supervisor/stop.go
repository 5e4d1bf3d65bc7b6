package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Stop stops the children in reverse order of their start, each within its
// Shutdown, and waits until all are over. It returns nil when they all ended
// well. Otherwise it joins:
//
//   - an *IntensityError when the supervisor gave up,
//   - a *StuckError that names the children that still run,
//   - the errors of children that failed while they were being stopped.
//
// When ctx ends first, Stop returns a *StuckError that names what still runs,
// and the cause; the stopping goes on, and a later Stop or Wait waits for it.
// Stop is idempotent and may be called from several goroutines: all get the
// same verdict. A child that calls it waits for itself; Start fails from here
// on with ErrStopped.
func (s *Supervisor) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.beginStop()
	s.mu.Unlock()
	if err := await(ctx, s.done); err != nil {
		return fmt.Errorf("%w: %w", s.unfinished(), err)
	}
	return s.verdict
}

// Wait waits until the supervisor has stopped, because somebody called Stop or
// because it gave up, and returns what Stop returns. It returns the cause when
// ctx ends first.
func (s *Supervisor) Wait(ctx context.Context) error {
	if err := await(ctx, s.done); err != nil {
		return fmt.Errorf("%s: waiting for its end: %w", title(s.options.Name), err)
	}
	return s.verdict
}

// beginStop starts the one goroutine that stops the children. Stop and Wait
// wait for it. The caller holds the mutex.
func (s *Supervisor) beginStop() {
	if s.stopping {
		return
	}
	s.stopping = true
	go s.stop(s.running())
}

func (s *Supervisor) stop(children []*Child) {
	var stuck []string
	var failures []error
	for _, c := range slices.Backward(children) {
		c.ask()
		if c.await(context.Background()) != nil {
			stuck = append(stuck, c.ID())
		} else if err := c.Err(); err != nil {
			failures = append(failures, fmt.Errorf("%s: stopping child %q: %w", title(s.options.Name), c.ID(), err))
		}
	}
	if !s.news.settle(defaultShutdown) {
		stuck = append(stuck, hookName)
	}
	s.conclude(stuck, failures)
}

// conclude makes the verdict known.
func (s *Supervisor) conclude(stuck []string, failures []error) {
	defer close(s.done)
	var parts []error
	if s.gaveUp != nil {
		parts = append(parts, s.gaveUp)
	}
	if len(stuck) > 0 {
		parts = append(parts, &StuckError{s.options.Name, stuck})
	}
	s.verdict = errors.Join(append(parts, failures...)...)
}

// unfinished names what a Stop that can wait no longer leaves behind.
func (s *Supervisor) unfinished() *StuckError {
	s.mu.Lock()
	defer s.mu.Unlock()
	unfinished := &StuckError{Supervisor: s.options.Name}
	for _, c := range slices.Backward(s.running()) {
		unfinished.Children = append(unfinished.Children, c.ID())
	}
	if len(unfinished.Children) == 0 {
		unfinished.Children = []string{hookName}
	}
	return unfinished
}
