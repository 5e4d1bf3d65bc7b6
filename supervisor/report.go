package supervisor

import (
	"cmp"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/conn"
)

// A Report is a supervisor and all below it at one moment: what runs, since
// when, and what became of it before. Its String is the tree, for people.
type Report struct {
	At        time.Time // that moment
	Name      string    // Options.Name
	Strategy  Strategy
	State     State     // Running, Draining, Stopping or Stopped
	Since     time.Time // of that State: when it changed last
	Spent     int       // restarts within the last Period
	Intensity int       // how many of them are allowed
	Period    time.Duration
	GaveUp    error // an *IntensityError, if the supervisor did

	// Children, in the order of their start: those that are not over, and the
	// last 128 that are.
	Children []ChildReport

	changed <-chan struct{}
}

// A ChildReport is one child at one moment.
type ChildReport struct {
	ID          string
	Restart     Restart
	State       State
	Asked       bool      // stopping, or over: it was told to stop
	Stuck       bool      // stopping: it has ignored that
	Again       bool      // stopping: it is run again once it is gone
	Since       time.Time // of the state
	Restarts    int       // how often it was run again, whoever's failure that was for
	Failures    int       // how often its Init, Run or Drain has failed
	LastFailure error     // how it did last; nil if it never has
	FailedAt    time.Time

	Connection *conn.Status // of a Conn; else nil
	Supervisor *Report      // of a supervisor; else nil
}

// Changed is closed when something has changed in the tree since the report
// was made: a child, not the state of a Conn, which has a Changed of its own.
func (r Report) Changed() <-chan struct{} { return r.changed }

// Report describes the tree from here downwards. It takes time in proportion
// to the number of children; each supervisor is seen at one moment, and those
// below it a little later.
func (s *Supervisor) Report() Report {
	changed := s.pulse.next() // first, so that nothing is missed
	s.mu.Lock()
	r := s.describe()
	listed := make([]*Child, 0, len(s.byID))
	for _, c := range s.byID {
		listed = append(listed, c)
	}
	slices.SortFunc(listed, func(a, b *Child) int { return cmp.Compare(a.key, b.key) })
	r.Children = make([]ChildReport, len(listed))
	for i, c := range listed {
		r.Children[i] = c.describe()
	}
	s.mu.Unlock()
	r.changed = changed
	for i, c := range listed {
		r.Children[i].look(c)
	}
	return r
}

// describe is the report without the children. The mutex is held.
func (s *Supervisor) describe() Report {
	r := Report{
		At: time.Now(), Name: s.options.Name, Strategy: s.options.Strategy, State: s.core.state, Since: s.life.since,
		Spent:     s.core.recent(s.now()),
		Intensity: max(s.options.Intensity, 0), Period: s.options.Period,
	}
	if s.life.gaveUp != nil {
		r.GaveUp = s.life.gaveUp
	}
	return r
}

// describe is the report without what is below. The mutex is held.
func (c *Child) describe() ChildReport {
	r := ChildReport{
		ID: c.spec.ID, Restart: c.spec.Restart, Asked: c.asked,
		Restarts: c.restarts, Failures: c.failures, LastFailure: c.lastFailure,
	}
	since := c.overAt
	if m, ok := c.supervisor.core.members.byKey[c.key]; ok {
		r.State, r.Stuck, r.Again, since = m.state, m.stuck, m.state == Stopping && m.again, m.since
	} else if r.State = Stopped; c.err != nil {
		r.State = Failed
	}
	r.Since = c.supervisor.born.Add(since)
	if c.lastFailure != nil {
		r.FailedAt = c.supervisor.born.Add(c.failedAt)
	}
	return r
}

// look adds what is below a child.
func (r *ChildReport) look(c *Child) {
	switch what := c.spec.what.(type) {
	case *connection:
		status := what.Status()
		r.Connection = &status
	case *Supervisor:
		below := what.Report()
		r.Supervisor = &below
	}
}
