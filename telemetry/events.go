package telemetry

import "time"

// Transition is a change of state.
type Transition struct {
	Conn        string
	Epoch       uint64 // the incarnation it belongs to
	From, To    string
	Kind        string    // the reason, as a name to count by
	Reason      error     // the reason in full
	At          time.Time // when it happened
	NextAttempt time.Time // entering backoff: when the next attempt is due
	Dropped     uint64    // events dropped so far because hooks were slow
}

// Gap is the time a connection was not ready between two incarnations that
// were. It is told when the second one is ready.
type Gap struct {
	Conn     string
	Lost     uint64        // the incarnation that was lost
	Epoch    uint64        // the one that is ready now
	Kind     string        // the reason of the loss, as a name to count by
	Reason   error         // the reason in full
	Calls    int           // that ended with the loss
	Duration time.Duration // from the loss to ready
}

// RequestStarted is a call that begins.
type RequestStarted struct {
	Conn   string
	Method string
	ID     int64 // of the first attempt
	At     time.Time
}

// Retried is an attempt of a call that has ended and did not end the call: it
// is to be made again, under another id, once the connection is ready.
type Retried struct {
	Conn     string
	Method   string
	ID       int64
	Epoch    uint64 // the incarnation the attempt was made for
	Attempt  int    // 1 for the first of its call
	Cause    string
	Delivery string
	Err      error
}

// RequestStopped is the end of a call.
type RequestStopped struct {
	Conn     string
	Method   string
	ID       int64 // of the last attempt
	Attempts int   // how many were made, the last one included
	Cause    string
	Delivery string
	Duration time.Duration // of the whole call, waits included
	Err      error         // nil when it was answered
}

// NotificationReceived is a notification of the peer's on its way to the
// handler. Progress and cancellations are the connection's own business and
// not among them.
type NotificationReceived struct {
	Conn   string
	Epoch  uint64
	Method string
	Size   int // bytes of its params
}

// Shed is a notification dropped for want of room.
type Shed struct {
	Conn   string
	Method string
}

// Stalled is inbound credit that is withheld, so that the peer has to wait. It
// is told when that begins, and again when it is over.
type Stalled struct {
	Conn     string
	Epoch    uint64
	Why      string // what is waited for
	Since    time.Time
	Over     bool          // the peer may send again
	Duration time.Duration // how long it took; 0 unless Over
}

// BusyRetry is a frame that the link had no room for, and that is offered again.
type BusyRetry struct {
	Conn     string
	Epoch    uint64
	ID       int64 // of our request; 0 for any other frame
	Attempts int   // how often the link has refused it
}

// Missed is a liveness probe that was not answered in time.
type Missed struct {
	Conn  string
	Epoch uint64
	InRow int // how many since the peer was heard last, this one included
}

// Reply is an answer nobody waits for.
type Reply struct {
	Conn  string
	Epoch uint64
	ID    int64  // 0 when it is no id of ours
	Cause string // how its request had ended; "" when that is forgotten, or there was none
}

// Violation is a message that breaks the protocol's rules.
type Violation struct {
	Conn  string
	Epoch uint64
	Err   error
}

// Panic is a panic in code that was handed in. The connection lives on, but for
// one that has ended Run, which returns it.
type Panic struct {
	Conn  string
	Where string // the method being served, or what else ran, such as "Dialect.Classify", "handshake" or "Run"
	Value any
	Stack []byte
}
