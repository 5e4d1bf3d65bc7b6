package supervisor

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A Report is a snapshot of a supervisor and everything below it. Its String
// method prints the tree.
type Report struct {
	At             time.Time     `json:"at"`   // when the snapshot was taken
	Name           string        `json:"name"` // Options.Name
	Strategy       Strategy      `json:"strategy"`
	State          State         `json:"state"`          // Running, Draining, Stopping or Stopped
	Since          time.Time     `json:"since"`          // when the supervisor entered that state
	RecentRestarts int           `json:"recentRestarts"` // restarts within the last Period
	Intensity      int           `json:"intensity"`      // how many of them are allowed
	Period         time.Duration `json:"-"`
	GaveUp         error         `json:"-"` // an *IntensityError if the supervisor gave up; else nil

	// Children, in start order: all that have not terminated, and the last 128
	// that have.
	Children []ChildReport `json:"children"`
	changed  <-chan struct{}
}

// A ChildReport is a snapshot of one child.
type ChildReport struct {
	ID            string    `json:"id"`
	Restart       Restart   `json:"restart"`
	State         State     `json:"state"`
	StopRequested bool      `json:"stopRequested"`     // it was told to stop
	Stuck         bool      `json:"stuck"`             // it still runs although its Shutdown has passed since it was told to stop
	WillRestart   bool      `json:"willRestart"`       // in the state Stopping: it runs again when it has returned
	Since         time.Time `json:"since"`             // when it entered the state
	Restarts      int       `json:"restarts"`          // how often it was restarted, whichever child had failed
	Failures      int       `json:"failures"`          // how often its Init, Run or Drain has failed
	LastFailure   error     `json:"-"`                 // nil if it has never failed
	FailedAt      time.Time `json:"failedAt,omitzero"` // when it failed last

	Connection *conn.Status `json:"connection,omitempty"` // the status of a child that is a Conn; otherwise nil
	Supervisor *Report      `json:"supervisor,omitempty"` // the report of a child that is a supervisor; otherwise nil
}

// MarshalJSON writes the fields in words, and the error as its text.
func (r Report) MarshalJSON() ([]byte, error) {
	type fields Report
	return json.Marshal(struct {
		fields
		Period string `json:"period"`
		GaveUp string `json:"gaveUp,omitempty"`
	}{fields(r), r.Period.String(), textOf(r.GaveUp)})
}

// MarshalJSON writes the fields in words, and the error as its text.
func (r ChildReport) MarshalJSON() ([]byte, error) {
	type fields ChildReport
	return json.Marshal(struct {
		fields
		LastFailure string `json:"lastFailure,omitempty"`
	}{fields(r), textOf(r.LastFailure)})
}

// textOf returns the text of an error, or "" if there is none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Changed returns a channel that is closed at the next change in the tree after
// the snapshot. The state of a Conn is not part of that: use
// conn.Status.Changed for that.
func (r Report) Changed() <-chan struct{} { return r.changed }

// Report takes a snapshot of the supervisor and everything below it. It takes
// time in proportion to the number of children. The snapshot of one supervisor
// is consistent; those below it are taken a little later.
func (s *Supervisor) Report() Report {
	changed := s.changes.next() // read this first, so that no change is missed
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
		r.Children[i].describeBelow(c)
	}
	return r
}

// describe reports on the supervisor without its children. The caller holds the mutex.
func (s *Supervisor) describe() Report {
	r := Report{
		At: time.Now(), Name: s.options.Name, Strategy: s.options.Strategy, State: s.core.state, Since: s.lifetime.since,
		RecentRestarts: s.core.recentRestarts(s.now()),
		Intensity:      max(s.options.Intensity, 0), Period: s.options.Period,
	}
	if s.lifetime.gaveUp != nil {
		r.GaveUp = s.lifetime.gaveUp
	}
	return r
}

// describe reports on the child without what is below it. The caller holds the mutex.
func (c *Child) describe() ChildReport {
	r := ChildReport{
		ID: c.spec.ID, Restart: c.spec.Restart, StopRequested: c.stopAsked,
		Restarts: c.restarts, Failures: c.failures, LastFailure: c.lastFailure,
	}
	since := c.terminatedAt
	if m, ok := c.supervisor.core.members.byKey[c.key]; ok {
		r.State, r.Stuck, r.WillRestart, since = m.state, m.stuck, m.state == Stopping && m.rerun, m.since
	} else if r.State = Stopped; c.err != nil {
		r.State = Failed
	}
	r.Since = c.supervisor.born.Add(since)
	if c.lastFailure != nil {
		r.FailedAt = c.supervisor.born.Add(c.failedAt)
	}
	return r
}

// describeBelow adds the Conn or the supervisor that the child runs.
func (r *ChildReport) describeBelow(c *Child) {
	switch resource := c.spec.resource.(type) {
	case *connection:
		status := resource.Status()
		r.Connection = &status
	case subtree:
		below := resource.Report()
		r.Supervisor = &below
	}
}

// A notifier announces the next change in a tree. Its mutex is always locked last.
type notifier struct {
	mu      sync.Mutex
	changed wait.Changes
	parent  *notifier // the notifier of the supervisor above
}

// forwardTo makes every change here also a change of the parent.
func (n *notifier) forwardTo(parent *notifier) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.parent = parent
}

// next returns a channel that is closed at the next change.
func (n *notifier) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed.Next()
}

func (n *notifier) notify() {
	for ; n != nil; n = n.notifyOne() {
	}
}

func (n *notifier) notifyOne() (parent *notifier) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed.Announce()
	return n.parent
}
