package supervisor

import (
	"slices"
	"time"
)

// ended is the last act of a child's goroutine. Either another goroutine takes
// over, or the child is over.
func (s *Supervisor) ended(c *Child, err error) {
	next := s.decide(c, err)
	if next == goesOn {
		return
	}
	if c.spec.last != nil {
		err = c.spec.last(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.retire(c, err, now)
	if next == isTooMuch {
		s.giveUp(c, err, now)
	}
}

// A decision is what follows the end of a Run.
type decision uint8

const (
	isOver    decision = iota // the child is over
	goesOn                    // another goroutine runs it
	isTooMuch                 // it is over, and the supervisor gives up
)

func (s *Supervisor) decide(c *Child, err error) decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.cancel(nil) // whatever the child left running is told
	now := time.Now()
	switch {
	case s.stopping || c.state == Stopping || !c.spec.restarts(err):
		return isOver
	case !s.affords(now):
		return isTooMuch
	}
	s.restart(c, err, now)
	return goesOn
}

// affords spends one restart, and reports whether there was one left.
func (s *Supervisor) affords(now time.Time) bool {
	recent, within := spend(s.restarts, now, s.options.Intensity, s.options.Period)
	s.restarts = recent
	return within
}

func (s *Supervisor) restart(c *Child, err error, now time.Time) {
	c.restarts++
	c.since = now
	if err != nil {
		c.lastFailure = err
	}
	s.news.tell(Event{Kind: ChildRestarted, Child: c.spec.ID, Restarts: c.restarts, Err: err, At: now})
	c.launch()
}

// retire ends a child for good. It stays listed until its id is started again
// or too many others are over.
func (s *Supervisor) retire(c *Child, err error, now time.Time) {
	if c.state == Stopping && answersStop(err) {
		err = nil
	}
	if err != nil {
		c.lastFailure = err
	}
	c.err, c.since = err, now
	kind := ChildStopped
	if c.state = Stopped; err != nil {
		c.state, kind = Failed, ChildFailed
	}
	c.spec.Run, c.spec.final, c.spec.last = nil, nil, nil // a child that is listed holds on to nothing
	delete(s.children, c.spec.ID)
	if s.over = append(s.over, c); len(s.over) > keptOver {
		s.over = slices.Delete(s.over, 0, 1)
	}
	s.news.tell(Event{Kind: kind, Child: c.spec.ID, Restarts: c.restarts, Err: err, At: now})
	close(c.done)
}

func (s *Supervisor) giveUp(c *Child, err error, now time.Time) {
	if s.stopping {
		return
	}
	s.gaveUp = &IntensityError{s.options.Name, c.spec.ID, max(s.options.Intensity, 0), s.options.Period, err}
	s.news.tell(Event{Kind: GaveUp, Child: c.spec.ID, Restarts: c.restarts, Err: s.gaveUp, At: now})
	s.beginStop()
}
