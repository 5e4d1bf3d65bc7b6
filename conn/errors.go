package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Cause says how a call ended. Each call has exactly one, and Stats counts
// calls by it.
type Cause uint8

const (
	_         Cause = iota
	Answered        // the peer sent a result
	PeerError       // the peer sent a JSON-RPC error, or an answer that is not valid
	Cancelled       // the caller's context was cancelled, or its OnProgress or OnAttempt panicked
	TimedOut        // the timeout, or the deadline of the caller's context, passed
	LinkLost        // the link, or the stream that would carry the answer, ended first
	Refused         // the Conn or the transport did not accept the request: wrong state, stale epoch, busy link, no route
	ShutDown        // the Conn was stopped or closed
	causes
)

var causeNames = [causes]string{"", "answered", "peer error", "cancelled", "timed out", "link lost", "refused", "shut down"}

func (c Cause) String() string { return causeNames[c] }

// MarshalText returns the text of String, so JSON contains a word instead of a number.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Causes lists every Cause in order.
func Causes() []Cause {
	return []Cause{Answered, PeerError, Cancelled, TimedOut, LinkLost, Refused, ShutDown}
}

// A Delivery says whether the peer can have executed a request.
type Delivery uint8

const (
	_ Delivery = iota

	// NotSent: the peer has certainly not executed it, because it was not sent, or the peer has
	// refused it as overloaded. The number of the error -32050 is one that JSON-RPC leaves to
	// servers, so if a peer sends it, this trusts that the peer means "overloaded" by it.
	NotSent

	Sent    // it was sent and answered
	Unknown // it may have been sent, and no answer came: the peer may have executed it
	deliveries
)

var deliveryNames = [deliveries]string{"", "not sent", "sent", "unknown"}

func (d Delivery) String() string { return deliveryNames[d] }

// MarshalText returns the text of String, so JSON contains a word instead of a number.
func (d Delivery) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText has written. Any other text is an error, and changes nothing.
func (d *Delivery) UnmarshalText(text []byte) error {
	i := slices.Index(deliveryNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("conn: a delivery is one of %q, and not %q", deliveryNames[1:], shorten(string(text)))
	}
	*d = Delivery(i)
	return nil
}

// Deliveries lists every Delivery in order.
func Deliveries() []Delivery { return []Delivery{NotSent, Sent, Unknown} }

var (
	// ErrTimedOut is wrapped by the error of a call whose timeout expired.
	ErrTimedOut = errors.New("conn: request timed out")

	// ErrDraining is wrapped by the error of a call on a Conn that is closing. It
	// is also the context cause of a Streaming handler when its Conn is closing.
	ErrDraining = errors.New("conn: closing: no new calls are accepted")

	// ErrStale is wrapped by the error of a call that was for an incarnation that
	// no longer exists; see Request.Epoch. Waiting does not help.
	ErrStale = errors.New("conn: the incarnation that this call was for no longer exists")

	// errIDInUse refuses a call under the id of another that has not ended. The
	// Conn draws the ids, so nobody sees this error.
	errIDInUse = errors.New("conn: the id is in use by another call")

	// ErrIncompatible is for a handshake to wrap, when the peer and the program have
	// no protocol revision in common. The Conn then reports Incompatible.
	ErrIncompatible = errors.New("conn: incompatible peer")

	// ErrPeerCancelled is the context cause of a handler whose request the peer
	// has cancelled. A Streaming call that the peer has cancelled wraps it too.
	ErrPeerCancelled = errors.New("conn: cancelled by the peer")

	// ErrNotRunning says that the Conn is not running: it has not started yet, it has
	// ended, or it was interrupted.
	ErrNotRunning = errors.New("conn: not running")

	// ErrInterrupted makes an initiator return from Run without closing for good, if
	// the cause of Run's context, or of Cancel, wraps it; see Run.
	ErrInterrupted = errors.New("conn: interrupted")

	// ErrRunning is returned by Run and Start when the Conn is running already.
	ErrRunning = errors.New("conn: already running")
)

// A CallError is the error of a failed Call or Notify. It unwraps to what caused it,
// depending on the Cause:
//
//   - PeerError: the peer's *jsonrpc.Error, or a *jsonrpc.DecodeError if the peer's answer
//     is not valid.
//   - Cancelled: the cause of the context's end.
//   - TimedOut: ErrTimedOut, or the cause of the context's end.
//   - LinkLost: a Reason, or the error of the link.
//   - Refused: a *StateError, ErrNotRunning, ErrStale, ErrDraining, transport.ErrBusy, an
//     error of the transport such as transport.ErrNoRoute or a *transport.StatusError, or
//     an error of MessageFor.
//   - ShutDown: a Reason, or ErrDraining.
type CallError struct {
	Method   string
	ID       int64     // the id of the last attempt; 0 for a notification
	Cause    Cause     // how the last attempt ended, or the wait for another attempt
	Delivery Delivery  // over all attempts: NotSent only if the peer certainly executed none of them
	Err      error     // what caused it
	Attempts []Attempt // earlier attempts, oldest first; with negative Retries, the newest 16

	retries int // how many earlier attempts there were
}

// Error returns the method, the cause, and whether the peer may have executed the request.
func (e *CallError) Error() string {
	if e.Cause == PeerError {
		return fmt.Sprintf("%s: %v", e.Method, e.Err)
	}
	text := e.Method + ": " + e.what()
	switch e.Delivery {
	case NotSent:
		text += "; not executed"
	case Unknown:
		text += "; it may have been executed"
	}
	if n := max(len(e.Attempts), e.retries); n > 0 {
		text += fmt.Sprintf(" (%d attempts)", n+1)
	}
	return text
}

// what says in words why the call ended.
func (e *CallError) what() string {
	switch e.Cause {
	case LinkLost:
		return lossInWords(e.Err)
	case TimedOut:
		return withDetail("timed out", e.Err, ErrTimedOut)
	case Cancelled:
		return withDetail("cancelled", e.Err, context.Canceled)
	case ShutDown:
		return withDetail("the connection is closed", e.Err, ErrDraining, Reason{Kind: Stopped}, Reason{Kind: Drained})
	default:
		return inWords(e.Err)
	}
}

// withDetail adds the text of an error to words, unless it is one of those that say the same.
func withDetail(words string, err error, same ...error) string {
	if err == nil || slices.ContainsFunc(same, func(s error) bool { return s.Error() == err.Error() }) {
		return words
	}
	return words + ": " + inWords(err)
}

// lossInWords says why a connection, or one stream of it, was lost.
func lossInWords(err error) string {
	var why Reason
	switch {
	case !errors.As(err, &why) || why.Kind == StreamLost || why.unreachable() != nil:
		return inWords(err)
	case err.Error() != why.Error(): // what was under way says more
		return "connection lost: " + inWords(err)
	case why.Kind == LinkBroken && why.Err != nil:
		return "connection lost: " + inWords(why.Err)
	default:
		return "connection lost: " + why.Error()
	}
}

// inWords is the text of an error without the name of this package.
func inWords(err error) string { return strings.TrimPrefix(textOf(err), "conn: ") }

func (e *CallError) Unwrap() error { return e.Err }

// MarshalJSON writes the error's text, and its fields in words.
func (e *CallError) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Error    string    `json:"error"`
		Method   string    `json:"method"`
		ID       int64     `json:"id,omitzero"`
		Cause    Cause     `json:"cause"`
		Delivery Delivery  `json:"delivery"`
		Attempts []Attempt `json:"attempts,omitempty"`
	}{e.Error(), e.Method, e.ID, e.Cause, e.Delivery, e.Attempts})
}

// Is makes a call that ended as TimedOut match context.DeadlineExceeded, whether
// its timeout or its context's deadline passed.
func (e *CallError) Is(target error) bool {
	return e.Cause == TimedOut && target == context.DeadlineExceeded
}

// NotExecuted reports whether err is the error of a call that the peer certainly has not
// executed (NotSent). You can make such a call again without doing anything twice.
func NotExecuted(err error) bool {
	var call *CallError
	return errors.As(err, &call) && call.Delivery == NotSent
}

// asFault returns the error to send to the peer for the error of a handler. It does
// not reveal the text of a panic.
func asFault(err error) *jsonrpc.Error {
	fault, own := FaultOf(err)
	switch {
	case fault != nil && (own || fault.Code != jsonrpc.CodeOverloaded): // the peer would repeat a request that was executed
		return fault
	case errors.As(err, new(*PanicError)):
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
	default:
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprint(err)}
	}
}

// FaultOf returns the error response that the error of a handler contains, or nil, and whether it
// is the handler's own. Otherwise another peer has answered it to a call of the handler, and its
// code says nothing about the request that is being served. A Conn passes such a response on to
// its peer, except jsonrpc.CodeOverloaded: that becomes an internal error.
func FaultOf(err error) (fault *jsonrpc.Error, own bool) {
	if !errors.As(err, &fault) {
		return nil, false
	}
	return fault, !answersCall(err, fault)
}

// answersCall reports whether a call in the tree of err failed with the response. There may be
// several calls, since a handler may join their errors.
func answersCall(err error, fault *jsonrpc.Error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself, as errors.As does
	case *CallError:
		var its *jsonrpc.Error
		return errors.As(e.Err, &its) && its == fault
	case interface{ Unwrap() error }:
		return answersCall(e.Unwrap(), fault)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return answersCall(err, fault) })
	default:
		return false
	}
}

// An Attempt records one failed try of a call that was then retried.
type Attempt struct {
	ID       int64    // the id of the request; each attempt has its own id
	Epoch    uint64   // the incarnation that the attempt was for
	Cause    Cause    // how the attempt ended
	Delivery Delivery // whether the peer may have executed the request
	Err      error    // why the attempt failed; nil if it was answered
}

// MarshalJSON writes the fields in words.
func (a Attempt) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID       int64    `json:"id"`
		Epoch    uint64   `json:"epoch"`
		Cause    Cause    `json:"cause"`
		Delivery Delivery `json:"delivery"`
		Error    string   `json:"error,omitempty"`
	}{a.ID, a.Epoch, a.Cause, a.Delivery, textOf(a.Err)})
}

func (r Reason) Error() string {
	switch {
	case r.Kind == "" && r.Err == nil:
		return "not started"
	case r.Kind == Drained:
		return withDetail("closed", r.Err)
	case r.unreachable() != nil:
		return r.unreachable().Error()
	case r.Err == nil || r.kindSaysAll():
		return string(r.Kind)
	case r.Kind == CrashLooping || r.saysItsKind():
		return r.Err.Error()
	case r.Kind == HandshakeFailed || r.Kind == OpenFailed || r.Kind == AuthRequired || r.Kind == Incompatible:
		return string(r.Kind) + ": " + handshakeInWords(r.Err)
	default:
		return string(r.Kind) + ": " + r.Err.Error()
	}
}

// kindSaysAll reports whether the error that caused the Reason says no more than the Kind.
func (r Reason) kindSaysAll() bool {
	return r.Kind == SessionExpired && errors.Is(r.Err, transport.ErrSessionExpired) || slices.Contains([]error{transport.ErrPeerClosed, transport.ErrClosed}, r.Err)
}

// saysItsKind reports whether the text of the error that caused the Reason contains what the
// Kind says.
func (r Reason) saysItsKind() bool {
	switch r.Kind {
	case Exited:
		return errors.As(r.Err, new(*transport.ExitError))
	case ExecutableMissing:
		return errors.As(r.Err, new(*transport.StartError))
	case Oversized:
		return errors.As(r.Err, new(*transport.OversizedError))
	default:
		return r.Kind == InitTimedOut || r.Kind == LivenessLost || r.Kind == PeerNotReading || r.Kind == Malformed // the core's own words
	}
}

// unreachable returns the failure to connect that caused the Reason, or nil.
func (r Reason) unreachable() (failed *transport.UnreachableError) {
	errors.As(r.Err, &failed)
	return failed
}

// handshakeInWords is the text of an error of a handshake. That its request was not executed
// does not matter to anybody.
func handshakeInWords(err error) string {
	var call *CallError
	if errors.As(err, &call) && call == err && call.Cause != PeerError {
		return call.Method + ": " + call.what()
	}
	return inWords(err)
}

// A StateError says that a call failed because the Conn was not ready.
type StateError struct {
	State  State
	Reason Reason
}

func (e *StateError) Error() string {
	switch {
	case e.State == Closing:
		return withDetail("the connection is closed", e.Reason, Reason{Kind: Stopped}, Reason{Kind: Drained})
	case e.State != Backoff:
		return "not connected yet"
	case e.Reason.unreachable() != nil:
		return e.Reason.Error()
	default:
		return "not connected: " + e.Reason.Error()
	}
}

func (e *StateError) Unwrap() error { return e.Reason.Err }

// MarshalText returns the text of Error, so JSON contains that.
func (e *StateError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// A StuckError names the program's own code, such as handlers, that is still running
// although its context has ended. Go cannot stop that code. No goroutine of the Conn
// itself is left.
type StuckError struct {
	// Tasks describe the code: the method of a request, with its target
	// (Incoming.SetTarget); "notification" and its method; a name given to Control.Go;
	// or a text such as "a telemetry hook".
	Tasks []string
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("conn: still running after their context ended: %s", strings.Join(e.Tasks, ", "))
}

// A PanicError is a panic on the Conn's own goroutine, or in a callback that the
// program gave to the Conn.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the stack of the goroutine that panicked; not part of the error's text
}

func (e *PanicError) Error() string { return fmt.Sprintf("conn: panic: %v", e.Value) }

// MarshalText returns the text of Error, so JSON contains that.
func (e *PanicError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// guard runs code of the program, and turns its panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return f()
}

// shorten cuts a text that may come from a peer.
func shorten(text string) string {
	const most = 1024
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
