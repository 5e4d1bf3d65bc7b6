package supervisor

import (
	"fmt"
	"strings"
	"time"
)

// A State is where a child is in its life.
type State string

const (
	Running  State = "running"
	Stopping State = "stopping" // it was told to stop and still runs
	Stopped  State = "stopped"  // over: it was stopped, or returned without an error
	Failed   State = "failed"   // over: it failed and was not restarted
)

// A Status is where a child is, and what became of it before.
type Status struct {
	ID          string
	State       State
	Restarts    int
	LastFailure error     // how it failed last; nil if it never did
	Since       time.Time // of the state; while running, of the last restart
}

// String is one line for people.
func (s Status) String() string {
	text := fmt.Sprintf("%s: %s since %s", s.ID, s.State, s.Since.Format(time.TimeOnly))
	if s.Restarts == 1 {
		text += ", 1 restart"
	} else if s.Restarts > 1 {
		text += fmt.Sprintf(", %d restarts", s.Restarts)
	}
	if s.LastFailure != nil {
		text += ", last failure: " + firstLine(s.LastFailure)
	}
	return text
}

// status describes the child. The caller holds the supervisor's mutex.
func (c *Child) status() Status {
	return Status{c.spec.ID, c.state, c.restarts, c.lastFailure, c.since}
}

// firstLine leaves out the stack that some errors print.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
