package supervisor

import (
	"context"
	"errors"
	"fmt"
)

// A subtree is a supervisor that is the child of another one. Its children run on their
// own goroutines; the goroutine of the child waits for the end of the lifetime.
type subtree struct{ *Supervisor }

// init begins a lifetime: it starts the children that were kept, in order. It returns
// immediately if the supervisor is running, or if its Drain was called.
func (s subtree) init(ctx context.Context) error {
	for {
		l, began := s.begin()
		select {
		case <-l.ready.Wait():
			return nil
		case <-ctx.Done():
			return s.end(ctx)
		case <-l.done.Wait():
			if began && l.result != nil || s.isClosing() {
				return l.result
			}
		}
	}
}

// begin begins a lifetime if the last one has ended, and otherwise returns the
// present one.
func (s subtree) begin() (l *lifetime, began bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began = s.lifetime.done.HasFired() && !s.closing; began {
		s.lifetime = newLifetime()
		s.events.reopen()
		s.step(&message{kind: begun})
	}
	return s.lifetime, began
}

// run waits for the end of the lifetime, and ends it when ctx ends.
func (s subtree) run(ctx context.Context) error {
	l := s.currentLifetime()
	select {
	case <-l.done.Wait():
		return l.result
	case <-ctx.Done():
		return s.end(ctx)
	}
}

// end stops the supervisor because its parent stops it. It keeps the children if the
// parent will run it again.
func (s subtree) end(ctx context.Context) error {
	l := s.stop(errors.Is(context.Cause(ctx), ErrRestarted))
	<-l.done.Wait()
	return l.result
}

// drain closes the supervisor. The root has already reserved the time for a stop.
func (s subtree) drain(ctx context.Context) error {
	s.setClosing(true)
	return s.drainFor(ctx, 0.99)
}

func (s subtree) setClosing(closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = closing
}

func (s subtree) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// outcome implements resource. A supervisor can always run again, and must be
// discarded if it has kept children.
func (s subtree) outcome(error) (final, resumes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return false, s.core.keeps
}

// discard implements resource: it terminates the children that were kept.
func (s subtree) discard(error) error {
	l := s.stop(false)
	<-l.done.Wait()
	return l.result
}

// nest adds the supervisor that a child runs to the tree, and reports whether it was
// outside. It claims the supervisor before it checks for a cycle. So if two claims would
// make a cycle together, the later one sees the earlier one.
func (c *Child) nest() (changed bool, err error) {
	below := subtree{c.spec.Supervisor}
	switch below.Supervisor {
	case nil:
		return false, nil
	case c.supervisor:
		return false, fmt.Errorf("%w: it would contain itself", ErrNested)
	}
	if changed, err = below.claim(c); !changed {
		return false, err
	}
	for up := c.supervisor; up != nil; up = (subtree{up}).above() {
		if up == below.Supervisor {
			c.unnest()
			return false, fmt.Errorf("%w: it contains %s", ErrNested, nameOf(c.supervisor))
		}
	}
	below.join(c.supervisor)
	return true, nil
}

// unnest removes the supervisor that a child runs, if any, from the tree.
func (c *Child) unnest() {
	s := c.spec.Supervisor
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parent == c {
		s.parent, s.core.nested = nil, false
		s.changes.forwardTo(nil)
	}
}

func (s subtree) claim(by *Child) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.parent {
	case nil:
		s.parent = by
		return true, nil
	case by:
		return false, nil
	default:
		return false, fmt.Errorf("%w: it is already a child of %s", ErrNested, nameOf(s.parent.supervisor))
	}
}

// join completes a claim. After that, the supervisor may begin again.
func (s subtree) join(parent *Supervisor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.nested = true
	s.changes.forwardTo(&parent.changes)
}

// belongsTo reports whether that child runs the supervisor as a part of the tree.
func (s subtree) belongsTo(parent *Child) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parent == parent && s.core.nested
}

func (s subtree) above() *Supervisor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parent == nil {
		return nil
	}
	return s.parent.supervisor
}

// nameOf returns the name of a supervisor for the errors of another one.
func nameOf(s *Supervisor) string {
	if s.options.Name == "" {
		return "an unnamed supervisor"
	}
	return title(s.options.Name)
}
