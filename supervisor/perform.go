package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// post feeds the core one message and performs what it says. Nothing of that
// blocks: whoever brings the message does the work, under the mutex.
func (s *Supervisor) post(msg *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step(msg)
}

// step is post for who holds the mutex.
func (s *Supervisor) step(msg *message) {
	before := s.core.state
	for _, fx := range s.core.step(s.now(), msg) {
		s.perform(&fx)
	}
	if s.core.state != before {
		s.life.since = time.Now()
	}
	s.arm()
	s.pulse.beat()
}

// now is the time on the supervisor's monotonic clock.
func (s *Supervisor) now() instant { return time.Since(s.born) }

// arm sets the timer to the core's deadline, if there is one. A timer that fires
// too early costs an idle tick.
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

// perform does one thing that the core says, without blocking.
func (s *Supervisor) perform(fx *effect) {
	c := s.children[fx.child]
	switch fx.kind {
	case launch:
		s.launch(c)
	case drain:
		s.drain(c, fx.due)
	case halt:
		s.blameDrain(c)
		c.halt(fx.again)
	case dismiss:
		c.goroutines = 1
		go c.dismiss()
	case stuck:
		c.overdue.arrive()
		s.tell(ChildStuck, c, &StuckError{s.options.Name, []string{c.spec.ID}})
	case retire:
		s.retire(c)
	case giveUp:
		s.life.culprit = c
		s.life.gaveUp = &IntensityError{s.options.Name, c.spec.ID, max(s.options.Intensity, 0), s.options.Period, c.failure}
		s.tell(GaveUp, c, s.life.gaveUp)
	case ready:
		close(s.life.ready)
	case conclude:
		go s.conclude(s.life, s.core.keeps, s.unstoppable())
	}
}

func (s *Supervisor) tell(kind EventKind, c *Child, err error) {
	s.news.tell(Event{Kind: kind, Child: c.spec.ID, Restarts: c.restarts, Err: err, At: time.Now()})
}

// launch has a goroutine run the child.
func (s *Supervisor) launch(c *Child) {
	if c.ran {
		c.restarts++
		s.tell(ChildRestarted, c, c.failure)
	} else {
		s.tell(ChildStarted, c, nil)
	}
	if below := c.spec.Supervisor; below != nil {
		below.setClosing(false)
	}
	c.ran, c.asked, c.failure = true, false, nil
	if c.spec.Init == nil {
		c.begin()
	}
	var ctx context.Context
	ctx, c.cancel = context.WithCancelCause(context.Background())
	if c.overdue.come {
		c.overdue = moment{}
	}
	c.goroutines = 1
	go c.run(ctx)
}

// halt ends the contexts of the child.
func (c *Child) halt(again bool) {
	if c.asked = true; c.undrain != nil {
		c.undrain()
	}
	if again {
		c.cancel(ErrRestarted)
	} else {
		c.cancel(c.supervisor.stopped())
	}
}

// drain has a goroutine ask the child to finish.
func (s *Supervisor) drain(c *Child, due instant) {
	ctx, cancel := context.WithDeadline(context.Background(), s.born.Add(due))
	c.goroutines, c.undrain, c.drainDue = 2, cancel, due
	go c.drain(ctx)
}

// retire ends a child. It stays listed until its id is started again or too
// many others are over. One that was never started, or is to be deleted, is
// forgotten.
func (s *Supervisor) retire(c *Child) {
	kind := ChildStopped
	if c.failure != nil {
		kind = ChildFailed
		s.blame(c)
	}
	delete(s.children, c.key)
	if s.tell(kind, c, c.failure); c.proven && !c.hidden {
		s.list(c)
	} else {
		delete(s.byID, c.spec.ID)
		c.unnest()
	}
	c.err, c.overAt = c.failure, s.now()
	c.done.arrive()
}

// blame puts a child into the verdict that has failed while the supervisor was
// stopping. The one that made it stop is there already.
func (s *Supervisor) blame(c *Child) {
	if l := s.life; s.core.state != Running && l.culprit != c {
		l.failures = append(l.failures, fmt.Errorf("%s: stopping child %q: %w", title(s.options.Name), c.spec.ID, c.failure))
	}
}

// blameDrain puts a child into the verdict that has not finished in time.
func (s *Supervisor) blameDrain(c *Child) {
	if c.undrain != nil && c.drainDue <= s.now() {
		s.noteDrain(c, context.DeadlineExceeded)
	}
}

// noteDrain counts the failure of a Drain, and puts it into the verdict, once.
// The end of Run says whether the child has failed.
func (s *Supervisor) noteDrain(c *Child, err error) {
	if c.drainDue != 0 && c.spec.Supervisor == nil { // which says so itself, as its Run ends
		c.fails(fmt.Errorf("draining: %w", err))
		s.life.failures = append(s.life.failures, fmt.Errorf("%s: draining child %q: %w", title(s.options.Name), c.spec.ID, err))
	}
	c.drainDue = 0
}

// list keeps a child that is over in the reports.
func (s *Supervisor) list(c *Child) {
	if s.over = append(s.over, c); len(s.over) > keptOver {
		s.forget(s.over[0])
	}
}

// forget takes a child that is over off the list. A supervisor can be the child
// of another then.
func (s *Supervisor) forget(c *Child) {
	if s.unlist(c) {
		c.unnest()
	}
}

func (s *Supervisor) unlist(c *Child) (listed bool) {
	i := slices.Index(s.over, c)
	if i < 0 {
		return false
	}
	s.over = slices.Delete(s.over, i, i+1)
	delete(s.byID, c.spec.ID)
	return true
}

// unstoppable names the children that are left, in the order of their stop.
func (s *Supervisor) unstoppable() (ids []string) {
	for m := range s.core.members.backward() {
		if m.state != Waiting {
			ids = append(ids, s.children[m.key].spec.ID)
		}
	}
	return ids
}
