package telemetry

import (
	"slices"
	"time"
)

// A Sample contains the measurements of one part of a program at one moment, as plain
// values. Exactly one of its pointers is set. Take samples to show present numbers; use
// Hooks to learn what happens in between.
//
// Numbers that the comments call counts never decrease while the part exists.
type Sample struct {
	Name string // the name of the part

	Conn       *ConnSample       // (*conn.Conn).Sample
	Server     *ServerSample     // (*server.Server).Samples
	Supervisor *SupervisorSample // (*supervisor.Supervisor).Samples
	Gate       *GateSample       // (*conn.Gate).Stats
	HTTP       *HTTPSample       // (*streamable.Handler).Stats
	Auth       *AuthSample       // (*auth.Authorizer).Samples
}

// A ConnSample contains the measurements of a connection. The counts of Settled and
// InFlight add up to Calls.
type ConnSample struct {
	Supervisor string // Options.Name of its supervisor; "" if there is none or it has no name

	State       string
	Kind        string // the reason for the state, as one of a few values
	Since       time.Time
	NextAttempt time.Time     // when the state is backoff; otherwise zero
	Epoch       uint64        // the incarnation
	Outage      time.Duration // a count: the time from each loss until ready again, including a present outage
	Stall       string        // why the connection does not read from its peer; "" when it does

	Calls     uint64    // a count: calls made
	Settled   []Settled // counts: calls that have ended; zeros are left out
	InFlight  uint64    // calls that have not ended
	Retries   uint64    // a count: attempts beyond the first of each call
	Late      uint64    // a count: replies to calls that had ended
	Unknown   uint64    // a count: replies to calls that were never made
	Malformed uint64    // a count: frames that were not valid messages
	Shed      uint64    // a count: notifications dropped because too many waited
	Stalls    uint64    // a count: times that the connection stopped reading for a while
	Dropped   uint64    // a count: events that reached no hook
	BytesIn   uint64    // a count: bytes of messages that came in, without framing and headers
	BytesOut  uint64    // a count: bytes of messages that the link has taken

	// Present sizes; 0 while the connection does not run.
	Pending, Tombstones, Queued, Serving, Waiting, Streams, Notifications, Mailbox int

	Credit int // frames that the link may deliver now; 0 while there is no link
}

// Settled counts the calls that ended in one way.
type Settled struct {
	Cause, Delivery string
	Count           uint64
}

// Add adds the counts and the sizes of another connection. It does not change states and
// times, which belong to one connection.
func (s *ConnSample) Add(o *ConnSample) {
	for _, settled := range o.Settled {
		i := slices.IndexFunc(s.Settled, func(have Settled) bool { return have.Cause == settled.Cause && have.Delivery == settled.Delivery })
		if i < 0 {
			s.Settled = append(s.Settled, settled)
		} else {
			s.Settled[i].Count += settled.Count
		}
	}
	s.Outage += o.Outage
	for _, n := range [...]struct{ sum, one *uint64 }{
		{&s.Calls, &o.Calls}, {&s.InFlight, &o.InFlight}, {&s.Retries, &o.Retries}, {&s.Late, &o.Late}, {&s.Unknown, &o.Unknown},
		{&s.Malformed, &o.Malformed}, {&s.Shed, &o.Shed}, {&s.Stalls, &o.Stalls}, {&s.Dropped, &o.Dropped},
		{&s.BytesIn, &o.BytesIn}, {&s.BytesOut, &o.BytesOut},
	} {
		*n.sum += *n.one
	}
	for _, n := range [...]struct{ sum, one *int }{
		{&s.Pending, &o.Pending}, {&s.Tombstones, &o.Tombstones}, {&s.Queued, &o.Queued}, {&s.Serving, &o.Serving}, {&s.Waiting, &o.Waiting},
		{&s.Streams, &o.Streams}, {&s.Notifications, &o.Notifications}, {&s.Mailbox, &o.Mailbox}, {&s.Credit, &o.Credit},
	} {
		*n.sum += *n.one
	}
}

// A ServerSample contains the measurements of a server. It combines all connections,
// because clients come and go.
type ServerSample struct {
	Conns []ConnsSample // the present connections, by state; zeros are left out
	Total ConnSample    // the counts of all connections, past and present, and the sizes of the present ones
}

// A ConnsSample counts the connections in one state.
type ConnsSample struct {
	State string
	Count int
}

// A SupervisorSample contains the measurements of a supervisor, without the supervisors
// below it.
type SupervisorSample struct {
	State    string
	Children []ChildrenSample // the children, by state; zeros are left out
	Restarts uint64           // a count: restarts of children
	GaveUp   uint64           // a count: times that the supervisor gave up
	Stuck    uint64           // a count: children that did not stop in time
}

// A ChildrenSample counts the children in one state.
type ChildrenSample struct {
	State string
	Count int
}

// A GateSample contains the measurements of a gate.
type GateSample struct {
	Holding int // connections that have a place and are connecting
	Waiting int // connections that wait for a place
}

// An HTTPSample contains the measurements of a handler for Streamable HTTP.
type HTTPSample struct {
	Sessions int           // present sessions of legacy clients
	Shared   int           // present links that modern requests share
	Ended    []EndedSample // counts: sessions that have ended
	Held     int           // present bytes of request bodies that are not delivered yet
	Refused  []Refused     // counts: requests that the handler itself refused
	Denied   []Refused     // counts: of these, requests whose sender may not do that, as HandlerOptions.Check, a Caller, or the checks of origin, host and session say
}

// An EndedSample counts the sessions that ended for one reason.
type EndedSample struct {
	Why   string // "closed", "evicted" or "expired"
	Count uint64
}

// Refused counts the requests that were refused with one status.
type Refused struct {
	Status int
	Count  uint64
}

// An AuthSample contains the measurements of the login to one server.
type AuthSample struct {
	Refreshes []AuthResult // counts: refresh tokens that were exchanged
	Logins    []AuthResult // counts: logins
	Denied    []Refused    // counts: requests that the server refused because a token or scopes were missing
	Expires   time.Time    // when the present token expires; zero if there is none, or that is unknown
}

// An AuthResult counts the refreshes or logins that ended in one way.
type AuthResult struct {
	// Result is "succeeded"; "refused" by the authorization server or by the person;
	// "nobody": the person did not log in in time; "impossible": the program has no way to
	// log in; or "failed" for another reason, such as the network. A refresh ends as
	// succeeded, refused or failed.
	Result string
	Count  uint64
}
