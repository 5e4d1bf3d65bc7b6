//bowline:pure

package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
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
	Servers  []ServerReport `json:"servers"`           // in file order
	Clients  []ClientReport `json:"clients"`

	Node  string       `json:"node,omitempty"` // the name of this gateway in its cluster
	Nodes []NodeReport `json:"nodes,omitzero"` // the other gateways of the cluster

	Questions []Question `json:"questions,omitzero"` // that wait for the answer of a client, the oldest first

	Refused map[string]int64 `json:"refused,omitzero"` // questions of servers that no client could be asked, by one of RefusalReasons

	Called     []ToolCalls `json:"called,omitzero"`     // how calls of tools have ended, since their server is in the file as it is
	NotOffered uint64      `json:"notOffered,omitzero"` // requests for tools that their clients are not offered, whether there are such tools or not

	Unclaimed int64 `json:"unclaimedLogs,omitzero"` // log messages of servers that no client got

	AuditFile   string `json:"auditFile,omitempty"`  // the path of the audit trail
	AuditKey    string `json:"auditKey,omitempty"`   // the path of its key
	AuditLost   uint64 `json:"auditLost,omitzero"`   // records of the audit trail that could not be written, since the gateway has started
	AuditUnsent uint64 `json:"auditUnsent,omitzero"` // records that are in the file, and could not be sent where they should be, too

	NotEnriched int64 `json:"notEnriched,omitzero"` // results that are as their servers have sent them, since what was to be added could not be

	Denied map[int]uint64 `json:"denied,omitzero"` // requests of clients over HTTP whose sender may not make them, such as those without a valid token, by the status of the answer

	StatesRefused uint64 `json:"statesRefused,omitzero"` // requests whose requestState the gateway has refused; the audit trail says why

	PagesRefused int64 `json:"loginPagesRefused,omitzero"` // requests of browsers at the pages for logins of users
}

// These say why no client could be asked a question of a server.
const (
	RefusedSeveral = "several clients" // have calls in flight, and the connection does not say whose question it is
	RefusedNoCall  = "no call"         // in flight that it could belong to
	RefusedUnable  = "client unable"   // to be asked, or to be asked that
)

// RefusalReasons are all reasons for which questions are refused.
func RefusalReasons() []string { return []string{RefusedSeveral, RefusedNoCall, RefusedUnable} }

// Refusals returns how many questions of servers no client could be asked.
func (r Report) Refusals() (all int64) {
	for _, n := range r.Refused {
		all += n
	}
	return all
}

// Denials says how many requests were denied, and how; "": none was.
func (r Report) Denials() string {
	var all []string
	for _, status := range slices.Sorted(maps.Keys(r.Denied)) {
		all = append(all, fmt.Sprintf("%d with status %d", r.Denied[status], status))
	}
	if r.StatesRefused > 0 {
		all = append(all, fmt.Sprintf("%d whose requestState does not hold", r.StatesRefused))
	}
	if r.PagesRefused > 0 {
		all = append(all, fmt.Sprintf("%d at the pages for logins", r.PagesRefused))
	}
	if len(all) == 0 {
		return ""
	}
	return "requests denied: " + strings.Join(all, ", ")
}

// A NodeReport is what another gateway of the cluster has said of its servers.
type NodeReport struct {
	Name   string    `json:"name"`
	State  string    `json:"state"`           // of its membership: ready, degraded, isolated or draining
	At     time.Time `json:"at,omitzero"`     // when it has said so
	Silent bool      `json:"silent,omitzero"` // it has not answered when it was asked last

	NodeServers
}

// NodeServers are the servers of a gateway as it tells them the others: those first that are in trouble, and no more than fit.
type NodeServers struct {
	Servers []ServerReport `json:"servers"`
	More    int            `json:"more,omitzero"` // that did not fit
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
	Restarts    int       `json:"restarts"` // connections after the first one since it was last started, as by Restart or on demand
	PID         int       `json:"pid,omitzero"`
	Calls       int       `json:"calls"`          // in flight
	P50         float64   `json:"p50Ms,omitzero"` // of the last 256 answered requests, in milliseconds, as clients have waited
	P99         float64   `json:"p99Ms,omitzero"`
	Answered    uint64    `json:"answered"`         // requests, since the gateway has started
	Unanswered  uint64    `json:"unanswered"`       // requests that it has not answered: it was away, or lost, or the client has given up
	Limited     int64     `json:"limited,omitzero"` // requests that were refused since they were beyond a limit of the file
	Queued      int       `json:"queued,omitzero"`  // requests that wait for a place at it, of which the file gives it so many
	Waited      float64   `json:"waitedS,omitzero"` // seconds that clients have waited for all answers together
	Tools       int       `json:"tools"`            // that it has listed, also if it is away now
	Prompts     int       `json:"prompts"`
	Resources   int       `json:"resources"`
	Known       time.Time `json:"known,omitzero"`       // when it has listed its tools last
	Connections int       `json:"connections,omitzero"` // of single users or clients, beside the one that this is about
	Users       []string  `json:"users,omitzero"`       // whose connections these are, each once: the name, if the login has one, and the identity
	Stderr      string    `json:"stderr,omitempty"`     // the last line of its standard error
	Notices     []string  `json:"notices,omitzero"`     // what of it is not offered as it is
}

// ToolCalls says how many calls of a tool have ended in one way.
type ToolCalls struct {
	Server   string `json:"server"`
	Tool     string `json:"tool,omitempty"` // as the server calls it; OtherTools: those beyond the first 128 of it that were called
	Outcome  string `json:"outcome"`        // answered, tool error, failed, not answered or cancelled: see audit.Record
	Delivery string `json:"delivery"`       // whether the server has it: sent, not sent or unknown
	Count    uint64 `json:"count"`
}

// OtherTools stands for tools of a server that are not counted each for itself.
const OtherTools = "(other)"

// A ClientReport is a client that has a session with the gateway. Clients of the modern revisions have none.
type ClientReport struct {
	Program  string `json:"program"` // name and version, as it says itself
	Revision string `json:"revision"`
	User     string `json:"user,omitempty"` // who has logged in: the name, if the login has one, and the principal
	Calls    int    `json:"calls"`          // in flight
}

// A Question is one of a server, or of the call of a server, that a client is being asked.
type Question struct {
	Server  string    `json:"server"`
	Method  string    `json:"method"`           // of the question, such as elicitation/create
	Target  string    `json:"target,omitempty"` // what the call that it belongs to is about, such as the name of a tool
	Program string    `json:"program"`          // the client
	Since   time.Time `json:"since"`
}

// A Detail is what a Report does not have of a server.
type Detail struct {
	Changes []Change  // of its state, the newest first: the last 128
	Running []Request // in flight, the oldest first
	Tools   []Tool    // that it offers, in the order of their names

	Connections []Connection // of single users or clients, the oldest first
	Pins        []Pin        // tools that are not as they were approved
}

// A Pin is a tool that is not as it was approved.
type Pin struct {
	Server  string      `json:"server"`
	Tool    string      `json:"tool"`          // as the server calls it
	Held    bool        `json:"held,omitzero"` // clients do not see it
	Changes []PinChange `json:"changes"`
	Version string      `json:"version"` // of what it is now
}

// A PinChange is a member of a tool that has changed, as JSON. "": it was not there, or is not any more, or nobody knows what it was.
type PinChange struct {
	Member string `json:"member"`
	Was    string `json:"was"`
	Is     string `json:"is"`
}

// A Connection is one with a server that not all clients share.
type Connection struct {
	User    string // the identity of who has logged in; "": nobody has
	Name    string // by which people know the user; "": the login has none
	Program string // of the client whose session it is for; "": it is for all of the user
	State   State
	Reason  string // why it is not Ready
	Since   time.Time
	Calls   int  // requests and subscriptions
	Login   bool // the user logs in at the server: see Gateway.Logout
}

// ConnectionOf describes a connection; nil: its next request starts it.
func ConnectionOf(user, program string, since time.Time, calls int, status *conn.Status) Connection {
	c := Connection{User: user, Program: program, State: Stopped, Since: since, Calls: calls}
	if status != nil {
		if c.State = stateOf(status.State); c.State != Ready {
			c.Reason = reasonText(status.LastFailure)
		}
	}
	return c
}

// A Change is a change of the state of a server.
type Change struct {
	At          time.Time
	State       State
	Reason      string
	NextAttempt time.Time // in Backoff
}

// A Request is one of a client that a server has not answered yet.
type Request struct {
	Method, Target, Program string
	Began                   time.Time
}

// A Tool is one that clients can call.
type Tool struct {
	Name, Title, Description string
	Schema                   json.RawMessage // of its arguments, as the server has written it
}

// ChangeOf returns what an event of a connection says.
func ChangeOf(t telemetry.Transition) Change {
	var why conn.Reason
	errors.As(t.Reason, &why)
	return Change{t.At, stateOf(conn.State(t.To)), reasonText(why), t.NextAttempt}
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
	s.State = stateOf(status.State)
	s.Reason, s.Since, s.NextAttempt = reasonText(status.Reason), status.Since, status.NextAttempt
	s.LastFailure = reasonText(status.LastFailure)
	s.Restarts = max(0, int(status.Epoch)-1)
}

func stateOf(s conn.State) State {
	switch s {
	case conn.Ready:
		return Ready
	case conn.Backoff:
		return Backoff
	case conn.Closing:
		return Stopped
	default:
		return Starting
	}
}

const maxReason = 4 << 10 // bytes

// reasonText returns the kind of a reason, and its text unless that says the same. A server may have written it, as much as a message can
// have, and is refused again and again.
func reasonText(r conn.Reason) string {
	kind, text := string(r.Kind), r.Error()
	if r.Err == nil || r.Err.Error() == kind || text == kind {
		return kind
	}
	text = kind + ": " + strings.TrimPrefix(text, kind+": ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…" // which does not keep the whole
	}
	return text
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

// withToken stands for what others must not see.
const withToken = "shown with the token only"

// public leaves out who has logged in, what a server has written, and what a request is about: they may hold arguments and results.
func (r Report) public() Report {
	r.Servers, r.Questions, r.Clients = slices.Clone(r.Servers), slices.Clone(r.Questions), slices.Clone(r.Clients)
	for i := range r.Servers {
		r.Servers[i].hide()
	}
	for i := range r.Questions {
		r.Questions[i].Target = ""
	}
	for i := range r.Clients {
		r.Clients[i].User = ""
	}
	r.Nodes, r.Called = publicNodes(r.Nodes), publicCalls(r.Called)
	return r
}

// publicCalls adds up what differs only by the tool: the names are those that servers have written.
func publicCalls(calls []ToolCalls) (all []ToolCalls) {
	places := make(map[ToolCalls]int)
	for _, c := range calls {
		count := c.Count
		c.Tool, c.Count = "", 0
		if _, known := places[c]; !known {
			places[c], all = len(all), append(all, c)
		}
		all[places[c]].Count += count
	}
	return all
}

// publicNodes leaves out what servers have written.
func publicNodes(nodes []NodeReport) []NodeReport {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		nodes[i].Servers = slices.Clone(nodes[i].Servers)
		for j := range nodes[i].Servers {
			nodes[i].Servers[j].hide()
		}
	}
	return nodes
}

// hide leaves only the kind of a reason: the end of a child's standard error is part of why it has exited. What was wrong with a server that
// sleeps has no kind, and a notice may name tools.
func (s *ServerReport) hide() {
	s.Reason, _, _ = strings.Cut(s.Reason, ": ")
	s.LastFailure, _, _ = strings.Cut(s.LastFailure, ": ")
	s.Users = nil
	if s.Stderr = ""; s.OnDemand && s.LastFailure != "" {
		s.LastFailure = withToken
	}
	if len(s.Notices) > 0 {
		s.Notices = []string{withToken}
	}
}

// public leaves out what a server has written, what a request is about, and who has logged in.
func (d Detail) public() Detail {
	d.Tools, d.Pins, d.Changes, d.Running = nil, nil, slices.Clone(d.Changes), slices.Clone(d.Running)
	for i := range d.Running {
		d.Running[i].Target = ""
	}
	d.Connections = slices.Clone(d.Connections)
	for i := range d.Connections {
		d.Connections[i].User, d.Connections[i].Name, d.Connections[i].Reason = "", "", ""
	}
	for i := range d.Changes {
		d.Changes[i].Reason, _, _ = strings.Cut(d.Changes[i].Reason, ": ")
	}
	return d
}
