//bowline:pure

package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
)

// A Report is what a gateway knows of itself at one time. Texts in it come from servers and clients: they may hold anything.
type Report struct {
	At       time.Time      `json:"at"`
	Version  string         `json:"version"`
	File     string         `json:"file"`              // the file that was applied
	Applied  time.Time      `json:"applied,omitzero"`  // when it was applied last
	Endpoint string         `json:"endpoint"`          // the URL for clients
	Ready    bool           `json:"ready"`             // the file is applied, the doors are open, and the gateway does not drain
	Mistakes []string       `json:"mistakes,omitzero"` // of the last reload, if it has changed nothing
	Notices  []string       `json:"notices,omitzero"`  // what is wrong with the gateway itself, such as a catalogue that cannot be saved
	Refused  int64          `json:"refused,omitzero"`  // questions of servers that no client could be asked
	Servers  []ServerReport `json:"servers"`           // in file order
	Clients  []ClientReport `json:"clients"`
}

// A ServerReport is one entry of the file.
type ServerReport struct {
	Name        string    `json:"name"`
	State       State     `json:"state"`
	Mistake     string    `json:"mistake,omitempty"` // of its entry, with line and column: it was not started, or is as an earlier file said
	Reason      string    `json:"reason,omitempty"`  // why it is in that state, for people
	OnDemand    bool      `json:"onDemand,omitzero"` // it is Stopped until somebody uses it
	Since       time.Time `json:"since,omitzero"`
	NextAttempt time.Time `json:"nextAttempt,omitzero"` // in Backoff
	LastFailure string    `json:"lastFailure,omitempty"`
	Restarts    int       `json:"restarts"` // connections after the first one
	PID         int       `json:"pid,omitzero"`
	Calls       int       `json:"calls"` // in flight
	Tools       int       `json:"tools"` // that it has listed, also if it is away now
	Prompts     int       `json:"prompts"`
	Resources   int       `json:"resources"`
	Known       time.Time `json:"known,omitzero"`   // when it has listed its tools last
	Stderr      string    `json:"stderr,omitempty"` // the last line of its standard error
	Notices     []string  `json:"notices,omitzero"` // what of it is not offered as it is
}

// A ClientReport is a client that has a session with the gateway. Clients of the modern revisions have none.
type ClientReport struct {
	Program  string `json:"program"` // name and version, as it says itself
	Revision string `json:"revision"`
}

// A State is how a server is.
type State string

// The states.
const (
	Starting      State = "starting"
	Ready         State = "ready"
	Backoff       State = "backoff"       // it failed, and is tried again
	Stopped       State = "stopped"       // by an administrator, or until it is used: see OnDemand
	Misconfigured State = "misconfigured" // its entry has a mistake: it is not started
)

// Connection fills in what a connection knows of a server.
func (s *ServerReport) Connection(status conn.Status) {
	switch status.State {
	case conn.Ready:
		s.State = Ready
	case conn.Backoff:
		s.State = Backoff
	case conn.Closing:
		s.State = Stopped
	default:
		s.State = Starting
	}
	s.Reason, s.Since, s.NextAttempt = reasonText(status.Reason), status.Since, status.NextAttempt
	s.LastFailure = reasonText(status.LastFailure)
	s.Restarts = max(0, int(status.Epoch)-1)
}

// reasonText returns the kind of a reason, and what caused it unless that says the same.
func reasonText(r conn.Reason) string {
	if r.Err == nil || r.Err.Error() == string(r.Kind) {
		return string(r.Kind)
	}
	return string(r.Kind) + ": " + r.Err.Error()
}

// urgency sorts what needs a person before what does not.
func (s ServerReport) urgency() int {
	switch {
	case s.State == Misconfigured:
		return 0
	case s.State == Backoff:
		return 1
	case s.State == Starting:
		return 2
	case s.State == Ready && (s.Mistake != "" || len(s.Notices) > 0):
		return 3
	case s.State == Ready:
		return 4
	default:
		return 5
	}
}

// TroubleFirst returns the servers in the order in which a person wants to see them, and in file order among equals.
func (r Report) TroubleFirst() []ServerReport {
	servers := slices.Clone(r.Servers)
	slices.SortStableFunc(servers, func(a, b ServerReport) int { return cmp.Compare(a.urgency(), b.urgency()) })
	return servers
}

// Server returns a server by its name.
func (r Report) Server(name string) (ServerReport, bool) {
	i := slices.IndexFunc(r.Servers, func(s ServerReport) bool { return s.Name == name })
	if i < 0 {
		return ServerReport{}, false
	}
	return r.Servers[i], true
}

// public leaves out what a server has written, which may hold arguments and results. Of a reason only the kind is left: the
// end of a child's standard error is part of why it has exited.
func (r Report) public() Report {
	r.Servers = slices.Clone(r.Servers)
	for i := range r.Servers {
		s := &r.Servers[i]
		s.Reason, _, _ = strings.Cut(s.Reason, ": ")
		s.LastFailure, _, _ = strings.Cut(s.LastFailure, ": ")
		s.Stderr = ""
	}
	return r
}
