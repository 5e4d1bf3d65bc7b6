package conn

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// A Cause is how a request ended. Every request ends with exactly one; the
// books of Stats balance on them.
type Cause uint8

const (
	_         Cause = iota
	Answered        // the peer's result
	PeerError       // the peer's JSON-RPC error
	Cancelled       // the caller's context was cancelled
	TimedOut        // the request's timeout or its context's deadline passed
	LinkLost        // the link, or the stream for its answer, ended first
	Refused         // never accepted: wrong state, busy link, stale epoch, no route, refused by the peer's transport
	ShutDown        // the Conn was stopped or closed
	causes
)

var causeNames = [causes]string{"", "answered", "peer error", "cancelled", "timed out", "link lost", "refused", "shut down"}

func (c Cause) String() string { return causeNames[c] }

// Causes lists every Cause in order.
func Causes() []Cause {
	return []Cause{Answered, PeerError, Cancelled, TimedOut, LinkLost, Refused, ShutDown}
}

// A Delivery is what is known of a request's way to the peer.
type Delivery uint8

const (
	_       Delivery = iota
	NotSent          // no byte of it was accepted by the operating system
	Sent             // it was sent, and answered
	Unknown          // it left, and no answer came: it may have been executed
	deliveries
)

var deliveryNames = [deliveries]string{"", "not sent", "sent", "unknown"}

func (d Delivery) String() string { return deliveryNames[d] }

// Deliveries lists every Delivery in order.
func Deliveries() []Delivery { return []Delivery{NotSent, Sent, Unknown} }

var (
	// ErrTimedOut is behind a call that ended by its timeout.
	ErrTimedOut = errors.New("conn: request timed out")

	// ErrDraining refuses calls on a Conn that is being closed.
	ErrDraining = errors.New("conn: draining: no new calls are taken")

	// ErrStale refuses a call for an incarnation that is over: see
	// Request.Epoch. No waiting helps, unlike with a *StateError alone.
	ErrStale = errors.New("conn: the incarnation this call was made for is over")

	// errIDInUse refuses a call under the id of another that has not ended. Ids
	// are drawn by the Conn, so that nobody meets it.
	errIDInUse = errors.New("conn: the id belongs to a call that has not ended")

	// ErrIncompatible is wrapped by handshake strategies that share no
	// protocol with the peer.
	ErrIncompatible = errors.New("conn: incompatible peer")

	// ErrPeerCancelled is the context cause of a handler whose request the
	// peer has cancelled, and behind a streaming call that the peer has ended.
	ErrPeerCancelled = errors.New("conn: cancelled by the peer")

	// ErrNotRunning refuses calls on a Conn whose Run is not running.
	ErrNotRunning = errors.New("conn: not running")

	// ErrInterrupted, as the cause of the end of Run's context, has an initiator
	// left and not stopped: see Run.
	ErrInterrupted = errors.New("conn: interrupted")

	// ErrRunning is returned by a second Run at the same time.
	ErrRunning = errors.New("conn: already running")
)

// A CallError is the one way a call fails. It unwraps to what is behind it:
// the peer's *jsonrpc.Error, the context's cause, a Reason, a *StateError.
type CallError struct {
	Method   string
	ID       int64    // of the last attempt, sent or not; 0 for a notification, and where none was drawn yet
	Cause    Cause    // of the last attempt, or of the end of the wait for another
	Delivery Delivery // of all attempts: NotSent only if none can have been executed
	Err      error
	Attempts []Attempt // those that did not end the call, oldest first; nil for none. Of a call without a bound, the newest 16

	retries int // how many did not end the call, where that is more than Attempts holds
}

func (e *CallError) Error() string {
	if e.Cause == PeerError {
		return fmt.Sprintf("%s: %v", e.Method, e.Err)
	}
	if n := max(len(e.Attempts), e.retries); n > 0 {
		return fmt.Sprintf("%s: %s (%s) with %d attempts failed before: %v", e.Method, e.Cause, e.Delivery, n, e.Err)
	}
	return fmt.Sprintf("%s: %s (%s): %v", e.Method, e.Cause, e.Delivery, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// Is lets a call that timed out match context.DeadlineExceeded, whichever
// clock ran out first.
func (e *CallError) Is(target error) bool {
	return e.Cause == TimedOut && target == context.DeadlineExceeded
}

// NotExecuted reports whether err is of a call that was surely not executed by
// the peer, so that making it again cannot do anything twice.
func NotExecuted(err error) bool {
	var call *CallError
	return errors.As(err, &call) && call.Delivery == NotSent
}

// A StateError refuses a call because of the state the Conn is in.
type StateError struct {
	State  State
	Reason Reason
}

func (e *StateError) Error() string {
	return fmt.Sprintf("conn: not ready: %s (%v)", e.State, e.Reason)
}

func (e *StateError) Unwrap() error { return e.Reason.Err }

// A StuckError names what ignored the end of its context: user code that Go
// cannot stop. Everything of the Conn's own is gone.
type StuckError struct {
	Tasks []string // for instance "tools/call"
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("conn: still running after their context ended: %s", strings.Join(e.Tasks, ", "))
}

// A PanicError is a panic in the Conn's own loop, or in code that it was given,
// or the end of its goroutine there.
type PanicError struct {
	Value any    // an error that says so, for runtime.Goexit
	Stack []byte // of the goroutine that panicked; not part of the text
}

func (e *PanicError) Error() string { return fmt.Sprintf("conn: panic: %v", e.Value) }

// guard runs code that was handed in, and turns its panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return f()
}
