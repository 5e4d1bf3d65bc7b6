package telemetry

import (
	"fmt"
	"strconv"
	"time"
)

// Transition is a change of a connection's state.
type Transition struct {
	Conn        string // the connection's name
	Epoch       uint64 // the incarnation
	From, To    string // states
	Kind        string // the reason, as one of a few values, for counting
	Reason      error  // the reason in full
	At          time.Time
	Lasted      time.Duration // how long the state that it has left has lasted
	NextAttempt time.Time     // when To is backoff: the time of the next attempt
	Dropped     uint64        // how many events no hook has seen so far, because hooks were slow or panicked

	// Version, Endpoint and HTTP are about the connection that ends, and empty unless From
	// is ready.
	Version  string // the revision of the protocol that was spoken (conn.Versioned); "" if unknown
	Endpoint string // where the peer is (transport.Traits); "" if unknown
	HTTP     string // the version of HTTP of the link (transport.LinkTraits), such as "1.1"; "" if it is not HTTP
}

// Gap is the time between the loss of a ready connection and the moment when it
// is ready again. It is reported at that moment.
type Gap struct {
	Conn     string
	Lost     uint64        // the incarnation that was lost
	Epoch    uint64        // the incarnation that is ready now
	Kind     string        // the reason of the loss, as one of a few values, for counting
	Reason   error         // the reason in full
	Calls    int           // how many calls ended with the loss
	Duration time.Duration // the time from the loss until ready
}

// String says how long the gap was, and how many attempts it took, as in "back after 2.1 s,
// 3 attempts".
func (g Gap) String() string {
	attempts := "1 attempt"
	if n := g.Epoch - g.Lost; n != 1 {
		attempts = fmt.Sprintf("%d attempts", n)
	}
	return "back after " + inSeconds(g.Duration) + ", " + attempts
}

// inSeconds is a duration as people write it, to two digits or so.
func inSeconds(d time.Duration) string {
	switch d = d.Round(time.Millisecond); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d.Round(100*time.Millisecond) < time.Minute:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	default:
		return d.Round(time.Second).String()
	}
}

// RequestStarted is the beginning of a call.
type RequestStarted struct {
	Conn   string
	Method string
	Target string // conn.Request.Target: the tool or prompt, or ""
	ID     int64  // the id of the first attempt
	At     time.Time

	// Correlation is a random number that is the same in all events of the call. The ids
	// differ between its attempts, and are those of other connections, too.
	Correlation uint64
}

// Retried is one failed attempt of a call. The call will be retried, with another id,
// when the connection is ready.
type Retried struct {
	Conn     string
	Method   string
	Target   string // see RequestStarted
	ID       int64  // the id of the failed attempt
	Epoch    uint64 // the incarnation in which it failed
	Attempt  int    // 1 for the first attempt of the call
	Cause    string // how the attempt ended
	Delivery string // whether the peer may have executed it
	Duration time.Duration
	Err      error

	Correlation uint64 // see RequestStarted; 0 if there is no hook for that
}

// RequestStopped is the end of a call.
type RequestStopped struct {
	Conn     string
	Method   string
	Target   string        // see RequestStarted
	ID       int64         // the id of the last attempt
	Attempts int           // how many attempts there were
	Cause    string        // how the call ended
	Delivery string        // whether the peer may have executed it
	Duration time.Duration // until the connection had the answer, or gave up
	Last     time.Duration // the duration of the last attempt alone
	Err      error         // nil if the call was answered

	Correlation uint64 // see RequestStarted; 0 if there is no hook for that
}

// ServeStopped is the end of a request from the peer: its handler has returned. It is
// not reported for probes, and for requests that were refused without a handler.
type ServeStopped struct {
	Conn     string
	Epoch    uint64
	Method   string
	Target   string        // conn.Incoming.SetTarget: the tool or prompt, or ""
	Outcome  Outcome       // how the request ended
	Code     int64         // the code of the error sent to the peer; 0 for none
	Queued   time.Duration // from the arrival of the request to the start of the handler
	Duration time.Duration // how long the handler ran
	Err      error         // the error of the handler
}

// An Outcome says how a request from the peer ended.
type Outcome string

const (
	ServeAnswered  Outcome = "answered"  // the request was answered with a result
	ServeFailed    Outcome = "failed"    // the request was answered with an error
	ServePanicked  Outcome = "panicked"  // the handler panicked, so the request was answered with an internal error
	ServeCancelled Outcome = "cancelled" // the context had ended before the handler returned

	// Only a conn.Auditor gets these: no handler was called.
	ServeRefused   Outcome = "refused"   // the request was refused, for instance because too many wait
	ServeMalformed Outcome = "malformed" // the frame was no message
)

// NotificationReceived is a notification from the peer, before its handler runs.
// It is not reported for progress and cancellations, which the connection handles
// itself.
type NotificationReceived struct {
	Conn   string
	Epoch  uint64
	Method string
	Size   int // the size of the params, in bytes
}

// Shed is a notification from the peer that was dropped because too many were
// waiting.
type Shed struct {
	Conn   string
	Method string
}

// Stalled says that the connection has stopped reading from its peer, so the peer must
// wait. It is reported again, with Over set, when the connection continues to read.
type Stalled struct {
	Conn     string
	Epoch    uint64
	Why      string // what the connection waits for
	Since    time.Time
	Over     bool          // the connection reads again
	Duration time.Duration // how long the stall lasted; 0 unless Over
}

// BusyRetry is an outbound frame for which the link had no room. The connection
// tries again.
type BusyRetry struct {
	Conn     string
	Epoch    uint64
	ID       int64 // the id of our request; 0 for other frames
	Attempts int   // how often the link has refused the frame
}

// Missed is a liveness probe that the peer did not answer in time.
type Missed struct {
	Conn  string
	Epoch uint64
	InRow int // how many probes in a row, this one included
}

// Stuck is a handler that keeps running although its context has ended. It is reported
// when conn.Tuning.CancelGrace has passed after its request was cancelled; the handler
// then no longer counts for MaxServing. It is also reported when the connection ends.
type Stuck struct {
	Conn   string
	Epoch  uint64 // the epoch of the request
	Method string
	Name   string // what the request is about, such as the name of the tool; "" if unknown
}

// Reply is a response from the peer that no call waits for.
type Reply struct {
	Conn  string
	Epoch uint64
	ID    int64  // the id of the request; 0 if it cannot be one of ours
	Cause string // how the request ended; "" if that is forgotten, or there was no such request
}

// Violation is a frame from the peer that is no valid message.
type Violation struct {
	Conn   string
	Epoch  uint64
	Reason ViolationReason // why, as one of a few values, for counting
	Shape  string          // what it seems to be: "request", "notification", "result", "error" or "unknown"
	Size   int             // of the frame, in bytes; at most 16 MiB are counted, and none for a part of a batch
	Err    error           // why, in full
}

// A ViolationReason says why a frame is no valid message.
type ViolationReason string

const (
	ViolationNotJSON   ViolationReason = "not JSON"        // the text is not JSON, or not UTF-8
	ViolationNoMessage ViolationReason = "no message"      // its members make no message of JSON-RPC
	ViolationBatch     ViolationReason = "batch"           // the protocol allows no batch here
	ViolationOversized ViolationReason = "oversized"       // it is larger than the limit of the link
	ViolationTooDeep   ViolationReason = "too deep"        // it is nested too deeply
	ViolationTooMany   ViolationReason = "too many values" // it holds too many values
)

// Panic is a panic in a function of the program, such as a handler. The connection
// continues, unless Where is "Run": then Run returns the panic.
type Panic struct {
	Conn  string
	Where string // the method of the handler, or for example "Dialect.Classify", "handshake" or "Run"
	Value any
	Stack []byte
}
