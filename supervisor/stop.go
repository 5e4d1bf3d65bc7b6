package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"
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
//
// A supervisor that is a child has ended by this without an error. So its parent
// runs it again if it is Permanent, without the children it had, which counts as
// a restart, and not if it is Transient. Child.Stop stops it for good.
func (s *Supervisor) Stop(ctx context.Context) error {
	return s.finish(ctx, s.stop(false))
}

func (s *Supervisor) stop(keeps bool) *life {
	return s.askToEnd(&message{kind: stopAsked, keeps: keeps})
}

// askToEnd asks the core, and returns the life that ends. One that was over, with
// children kept for another, goes on until those are closed.
func (s *Supervisor) askToEnd(msg *message) *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.state == Stopped && s.core.keeps && !msg.keeps {
		s.life = s.life.prolong()
	}
	s.step(msg)
	return s.life
}

// Close has the children finish what they have begun, stops them, and waits
// until all are over, within one deadline: that of ctx, or else five seconds.
// It starts no child any more. Children that have a Drain, as Conns and
// supervisors do, drain at once where the Strategy is OneForOne, and else one
// after another like a stop; the others are stopped, in reverse order. What has
// not finished after nine tenths of the time is stopped, all at once; each level
// of supervisors below has one hundredth less. Close returns what Stop returns,
// and the errors of Drain. What Stop says of a supervisor that is a child holds
// here too. A second Close waits for the first, whose deadline holds.
//
// When ctx ends first, everything is stopped as by Stop, which goes on, and
// Close returns a *StuckError that names what still runs, and the cause.
func (s *Supervisor) Close(ctx context.Context) error {
	return s.drainFor(ctx, 0.9)
}

// drainBelow is the Drain of a supervisor. Whoever is above has already kept the
// time that a stop takes.
func (s *Supervisor) drainBelow(ctx context.Context) error {
	s.setClosing(true)
	return s.drainFor(ctx, 0.99)
}

// drainFor closes the supervisor. Its children drain for that part of the time.
func (s *Supervisor) drainFor(ctx context.Context, part float64) error {
	if _, ok := ctx.Deadline(); !ok {
		within, cancel := context.WithTimeout(ctx, defaultDrain)
		defer cancel()
		ctx = within
	}
	deadline, _ := ctx.Deadline()
	due := s.now() + time.Duration(part*float64(time.Until(deadline)))
	l := s.askToEnd(&message{kind: drainAsked, due: max(due, 1)})
	err := s.finish(ctx, l)
	if ctx.Err() != nil && !isClosed(l.done) {
		s.stop(false)
	}
	return err
}

const defaultDrain = 5 * time.Second

// Wait waits until the supervisor has stopped, because somebody called Stop or
// because it gave up, and returns what Stop returns. It returns the cause when
// ctx ends first.
func (s *Supervisor) Wait(ctx context.Context) error {
	verdict, over := s.present().await(ctx)
	if !over {
		return fmt.Errorf("%s: waiting for its end: %w", title(s.options.Name), context.Cause(ctx))
	}
	return verdict
}

// finish waits for the end of a life that is being ended.
func (s *Supervisor) finish(ctx context.Context, l *life) error {
	verdict, over := l.await(ctx)
	if over {
		return verdict
	}
	left := s.unfinished()
	if len(left) == 0 { // the verdict is all that is missing
		<-l.done
		return l.verdict
	}
	return fmt.Errorf("%w: %w", &StuckError{s.options.Name, left}, context.Cause(ctx))
}

// await waits until the life is over, or ctx ends.
func (l *life) await(ctx context.Context) (verdict error, over bool) {
	select {
	case <-l.done:
		return l.verdict, true
	case <-ctx.Done():
	}
	select {
	case <-l.done: // both came about, and this is what was waited for
		return l.verdict, true
	default:
		return nil, false
	}
}

// conclude makes the verdict on a life known, once the hook was told of it, which
// another life does not wait for.
func (s *Supervisor) conclude(l *life, another bool, stuck []string) {
	if !another && !s.news.settle(defaultShutdown) {
		stuck = append(stuck, hookName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(l.done)
	var parts []error
	if l.gaveUp != nil {
		parts = append(parts, l.gaveUp)
	}
	if len(stuck) > 0 {
		parts = append(parts, &StuckError{s.options.Name, stuck})
	}
	l.verdict = errors.Join(append(parts, l.failures...)...)
}

// unfinished names what a Stop that can wait no longer leaves behind.
func (s *Supervisor) unfinished() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.unstoppable()
	if len(left) == 0 && s.options.OnEvent != nil {
		return []string{hookName}
	}
	return left
}
