package conn

import "time"

// A Status is where a Conn is, and why, at one moment.
type Status struct {
	State       State
	Reason      Reason    // of the last transition; behind a Gate, what has become of the start since
	Since       time.Time // of the last transition
	Epoch       uint64    // the incarnation; how many there have been so far
	NextAttempt time.Time // in backoff: when it ends by itself
	LastFailure Reason    // of the last incarnation that was lost; zero if none

	lost    uint64        // the last incarnation that was lost; 0 if none
	changed chan struct{} // closed when the next status is published
}

// Status returns the present status. It may be outdated when it arrives.
func (c *Conn) Status() Status { return *c.status.Load() }

// State returns the present state.
func (c *Conn) State() State { return c.status.Load().State }

// Changed returns a channel that is closed when the status after s is
// published. States that pass quickly may be missed: look at Status again.
func (s Status) Changed() <-chan struct{} { return s.changed }

// publish makes a new status visible and wakes who waits for one.
func (c *Conn) publish(s Status) {
	s.changed = make(chan struct{})
	close(c.status.Swap(&s).changed)
}
