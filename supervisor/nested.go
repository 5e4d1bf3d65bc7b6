package supervisor

import (
	"context"
	"errors"
	"fmt"
)

// nest makes the supervisor that a child runs part of the tree, and reports
// whether it was not. It is claimed before it is known that this is no circle, so
// that of two that would be one if both were let, the later sees the other.
func (c *Child) nest() (changed bool, err error) {
	below := c.spec.Supervisor
	switch below {
	case nil:
		return false, nil
	case c.supervisor:
		return false, fmt.Errorf("%w: it would be its own", ErrNested)
	}
	if changed, err = below.claim(c); !changed {
		return false, err
	}
	for up := c.supervisor; up != nil; up = up.above() {
		if up == below {
			c.unnest()
			return false, fmt.Errorf("%w: %s is below it", ErrNested, c.supervisor.called())
		}
	}
	below.join(c.supervisor)
	return true, nil
}

func (s *Supervisor) claim(by *Child) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.parent {
	case nil:
		s.parent = by
		return true, nil
	case by:
		return false, nil
	default:
		return false, fmt.Errorf("%w: it is one of %s", ErrNested, s.parent.supervisor.called())
	}
}

// called is how errors speak of a supervisor that is not theirs.
func (s *Supervisor) called() string {
	if s.options.Name == "" {
		return "an unnamed supervisor"
	}
	return title(s.options.Name)
}

// has reports whether a child runs the supervisor, as part of the tree.
func (s *Supervisor) has(parent *Child) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parent == parent && s.core.nested
}

// join ends a claim: from here on the supervisor may begin again.
func (s *Supervisor) join(parent *Supervisor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.nested = true
	s.pulse.feed(&parent.pulse)
}

// unnest takes the supervisor of a child, if that runs one, out of the tree.
func (c *Child) unnest() {
	s := c.spec.Supervisor
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parent == c {
		s.parent, s.core.nested = nil, false
		s.pulse.feed(nil)
	}
}

func (s *Supervisor) above() *Supervisor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parent == nil {
		return nil
	}
	return s.parent.supervisor
}

// begin is the Init of a supervisor: it starts the children that it has kept,
// in order. One that runs already has nothing to begin, nor has one whose Drain
// was called already.
func (s *Supervisor) begin(ctx context.Context) error {
	for {
		l, began := s.beginLife()
		select {
		case <-l.ready:
			return nil
		case <-ctx.Done():
			return s.end(ctx)
		case <-l.done:
			if began && l.verdict != nil || s.isClosing() {
				return l.verdict
			}
		}
	}
}

// beginLife begins another life if the last is over, and else finds the
// present one.
func (s *Supervisor) beginLife() (l *life, began bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began = isClosed(s.life.done) && !s.closing; began {
		s.life = newLife()
		s.news.resume()
		s.step(&message{kind: begun})
	}
	return s.life, began
}

// setClosing notes whether the parent has had this Run finish.
func (s *Supervisor) setClosing(closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = closing
}

func (s *Supervisor) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// run is the Run of a supervisor: its children run by themselves.
func (s *Supervisor) run(ctx context.Context) error {
	l := s.present()
	select {
	case <-l.done:
		return l.verdict
	case <-ctx.Done():
		return s.end(ctx)
	}
}

// end stops the supervisor because its parent says so. If it is to begin again
// it keeps its children.
func (s *Supervisor) end(ctx context.Context) error {
	l := s.stop(errors.Is(context.Cause(ctx), ErrRestarted))
	<-l.done
	return l.verdict
}

func (s *Supervisor) present() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// outcome reports whether there are children that would go on with another
// life. There can always be one.
func (s *Supervisor) outcome(error) (final, resumes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return false, s.core.keeps
}

// dismiss closes what the children that were kept have left: there will be no
// other life.
func (s *Supervisor) dismiss(error) error {
	l := s.stop(false)
	<-l.done
	return l.verdict
}
