package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A CallError is the error of a failed call. It says how the call ended and whether
// the server may have executed it.
type CallError = conn.CallError

// NotExecuted reports whether err belongs to a call that the server certainly did not
// execute. A retry of such a call cannot do anything twice. It is of no use if the call
// itself is wrong: check ErrInvalid and ErrUnsupported first.
func NotExecuted(err error) bool { return conn.NotExecuted(err) }

// Errors to compare with errors.Is. All of them match through a CallError;
// ErrUnavailable, ErrDenied, ErrIncompatible and ErrTimedOut match a ConnectError too.
var (
	ErrUnavailable = errors.New("client: there is no server at present")        // the call was not sent; to wait for a server, set CallOptions.WaitForReady
	ErrLost        = errors.New("client: the connection was lost")              // the connection was lost before the answer came
	ErrDenied      = errors.New("client: the server denies access")             // the server answered with HTTP status 401 or 403, or needs a login (*auth.LoginError)
	ErrClosed      = errors.New("client: the session is closed")                // the session is closed or closing
	ErrInvalid     = errors.New("client: the call itself is wrong")             // it cannot be encoded, or the server answered its first request with "invalid params", for instance for an unknown tool: repeating it unchanged fails again
	ErrUnsupported = errors.New("client: the server does not offer this")       // a *CapabilityError, or the server's "method not found"
	ErrNotFound    = errors.New("client: the server has no such resource")      // ReadResource and Watch fail with this error
	ErrTooMany     = errors.New("client: the server asked for input too often") // more often than Options.MaxRounds
	ErrDropped     = errors.New("client: the server has dropped the answer")    // it executed the call, and found no room for the answer: this client has left too many unread, or the store of its task is full
	ErrNoTask      = errors.New("client: the server has no such task")          // the server does not have the task, or no longer has it
	ErrTimedOut    = conn.ErrTimedOut                                           // CallOptions.Timeout has passed
	ErrStale       = conn.ErrStale                                              // the server session that the call was bound to is over

	// ErrIncompatible says that the server speaks none of the revisions wanted.
	ErrIncompatible = conn.ErrIncompatible

	// ErrTaskCancelled is the outcome of a task that somebody has cancelled.
	ErrTaskCancelled = errors.New("client: the task was cancelled")

	// ErrRepeatedCursor ends a list if the server returns the cursor that was just
	// used: the list would never end.
	ErrRepeatedCursor = errors.New("client: the next cursor is the one just used")

	// ErrStaleCursor ends a list if its server session ended between two pages: the
	// cursor is not valid in a new session (2025-11-25
	// server/utilities/pagination).
	ErrStaleCursor = errors.New("client: the cursor belongs to a server session that is over")
)

// A ResultError says that an answer cannot be decoded, or does not fit the schema of
// the tool. The server executed the request.
type ResultError struct{ Err error }

func (e *ResultError) Error() string {
	return fmt.Sprintf("client: the result cannot be read: %v", e.Err)
}

func (e *ResultError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error, so JSON contains that.
func (e *ResultError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// A CapabilityError says that a request was not sent because it needs a capability
// that the server does not have. It matches ErrUnsupported.
type CapabilityError struct{ Capability string }

func (e *CapabilityError) Error() string {
	return fmt.Sprintf("client: the server does not offer %q", e.Capability)
}

// Is reports whether target is ErrUnsupported.
func (e *CapabilityError) Is(target error) bool { return target == ErrUnsupported }

// A ToolError says that a tool ran and failed, or rejected its arguments. Only Call
// returns it; CallTool returns the result.
type ToolError struct {
	Tool   string
	Result *protocol.CallToolResult // with IsError set
}

// Error returns the text that the tool wrote for the model.
func (e *ToolError) Error() string {
	return fmt.Sprintf("client: tool %q failed: %s", e.Tool, e.Result.Content.Text())
}

// An InputError reports that the program's handler for a question of the server
// failed. The question was not answered, and the call ended.
type InputError struct {
	Key    string // the key of the question
	Method string
	Err    error
}

func (e *InputError) Error() string {
	return fmt.Sprintf("client: no answer to %s %.100q: %v", e.Method, e.Key, e.Err)
}

func (e *InputError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error, so JSON contains that.
func (e *InputError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// explain makes the error of a call match the errors of this package. The CallError
// stays the outermost error.
func explain(err error) error {
	if err == nil {
		return nil
	}
	var failed *conn.CallError
	if !errors.As(err, &failed) || failed != err {
		return err
	}
	if kinds := kindsOf(failed); len(kinds) > 0 {
		failed.Err = &kindError{cmp.Or(failed.Err, kinds[0]), kinds}
	}
	return err
}

// begun changes the error of a call that needed several requests. Even if the last
// request was not sent, the call may have been executed, because the server answered an
// earlier request. For that reason the call itself is not wrong, either.
func begun(err error) error {
	if err == nil {
		return nil
	}
	var failed *conn.CallError
	if !errors.As(err, &failed) {
		return err
	}
	if failed.Delivery == conn.NotSent {
		failed.Delivery = conn.Unknown
	}
	if kind, ok := failed.Err.(*kindError); ok { //nolint:errorlint // explain and invalid make it the outermost
		kind.kinds = slices.DeleteFunc(kind.kinds, func(kind error) bool { return kind == ErrInvalid })
	}
	return err
}

// answered returns the error of a call whose answer cannot be used.
func answered(method string, id int64, err error) error {
	return &conn.CallError{Method: method, ID: id, Cause: conn.Answered, Delivery: conn.Sent, Err: err}
}

// refusedUnsent returns the error of a call that this client refuses to send.
func refusedUnsent(method string, err error) error {
	return &conn.CallError{Method: method, Cause: conn.Refused, Delivery: conn.NotSent, Err: err}
}

// kindsOf returns the errors of this package that match a failed call.
func kindsOf(failed *conn.CallError) (kinds []error) {
	var state *conn.StateError
	switch {
	case failed.Cause == conn.LinkLost:
		kinds = append(kinds, ErrLost)
	case failed.Cause == conn.ShutDown, errors.Is(failed, conn.ErrDraining):
		kinds = append(kinds, ErrClosed)
	case failed.Cause == conn.TimedOut && !errors.Is(failed.Err, ErrTimedOut):
		kinds = append(kinds, ErrTimedOut)
	case failed.Cause != conn.Refused:
	case errors.As(failed, &state) && state.State == conn.Closing:
		kinds = append(kinds, ErrClosed)
	case state != nil, errors.Is(failed, conn.ErrNotRunning):
		kinds = append(kinds, ErrUnavailable)
	}
	if transport.IsDenied(failed.Err) {
		kinds = append(kinds, ErrDenied)
	}
	var fault *jsonrpc.Error
	switch {
	case !errors.As(failed.Err, &fault):
	case fault.Code == jsonrpc.CodeMethodNotFound:
		kinds = append(kinds, ErrUnsupported)
	case fault.Code == jsonrpc.CodeAnswerDropped:
		kinds = append(kinds, ErrDropped)
	case fault.Code == jsonrpc.CodeInvalidParams && failed.Method == protocol.MethodGetTask:
		kinds = append(kinds, ErrNoTask)
	case failed.Method == protocol.MethodReadResource && isNotFound(fault):
		kinds = append(kinds, ErrNotFound)
	case fault.Code == jsonrpc.CodeInvalidParams && !protocol.IsInvalidParams(fault, protocol.ReasonRequestState):
		kinds = append(kinds, ErrInvalid)
	}
	return kinds
}

// isNotFound distinguishes "resource not found" from other invalid params. Since
// 2026-07-28 both have the same code, and only the former names the resource.
func isNotFound(fault *jsonrpc.Error) bool {
	var data struct {
		URI string `json:"uri"`
	}
	return fault.Code == protocol.CodeResourceNotFound ||
		fault.Code == jsonrpc.CodeInvalidParams && protocol.Unmarshal(fault.Data, &data) == nil && data.URI != ""
}

// A kindError is an error that also matches some errors of this package.
type kindError struct {
	error
	kinds []error
}

// invalid makes an error match ErrInvalid.
func invalid(err error) error { return &kindError{err, []error{ErrInvalid}} }

func (e *kindError) Unwrap() error { return e.error }

func (e *kindError) Is(target error) bool { return slices.Contains(e.kinds, target) }

// A Reason says why a connection is in its state, or why it was lost.
type Reason = conn.Reason

// A ReasonKind is the kind of a Reason, for a switch.
type ReasonKind = conn.ReasonKind

// A ConnectError reports that Connect found no server. It matches ErrUnavailable, and
// unwraps to Err and to Last: errors.Is and errors.As find a *transport.ExitError, for
// instance, or exec.ErrNotFound.
type ConnectError struct {
	Name     string    // the name of the session
	Attempts int       // how many times the session tried to connect
	Since    time.Time // when the session began to connect
	Last     Reason    // why the last attempt failed; zero if none has failed yet
	Err      error     // why Connect gave up: Last, or the cause of the context's end
}

func (e *ConnectError) Error() string {
	attempts := fmt.Sprintf("%d attempts since %s", e.Attempts, e.Since.Format(time.TimeOnly))
	if e.Attempts == 1 {
		attempts = "1 attempt since " + e.Since.Format(time.TimeOnly)
	}
	last := "the server has not answered"
	if e.Last.Kind != "" {
		last = e.Last.Error()
	}
	switch final := errors.As(e.Err, new(Reason)); {
	case final && e.Attempts == 1:
		return "client: connect: " + last
	case final:
		return fmt.Sprintf("client: connect: %s, after %s", last, attempts)
	default:
		return fmt.Sprintf("client: connect: %s; gave up after %s: %v", last, attempts, e.Err)
	}
}

// Unwrap returns Err and Last.
func (e *ConnectError) Unwrap() []error { return []error{e.Err, e.Last} }

// MarshalJSON writes the error's text, and its fields in words.
func (e *ConnectError) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Error    string    `json:"error"`
		Name     string    `json:"name,omitempty"`
		Attempts int       `json:"attempts"`
		Since    time.Time `json:"since"`
		Last     Reason    `json:"last,omitzero"`
	}{e.Error(), e.Name, e.Attempts, e.Since, e.Last})
}

// Is reports whether target is ErrUnavailable; ErrDenied, if the server denied
// access or needs a login; or ErrTimedOut, if Connect ran out of time.
func (e *ConnectError) Is(target error) bool {
	switch target {
	case ErrUnavailable:
		return true
	case ErrDenied:
		return transport.IsDenied(e.Last)
	case ErrTimedOut:
		return errors.Is(e.Err, context.DeadlineExceeded)
	default:
		return false
	}
}

func invalidParams(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// errNoAnswer is the error of a handler that returns neither an answer nor an error.
var errNoAnswer = errors.New("client: the handler returned no answer")

// methodNotFound returns the answer to a question for which the client has no handler.
func methodNotFound(method string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + method}
}
