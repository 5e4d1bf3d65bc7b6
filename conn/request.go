package conn

import (
	"context"
	"encoding/json"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A Request describes one call to the peer. Only Method is required.
type Request struct {
	Method string
	Params json.RawMessage // an object or array; nil for none

	// Name and Version tell the transport how to route the request; see
	// transport.Route. The peer does not see them on a byte stream.
	Name    string
	Version string

	// Target names what the request is about, such as a tool, for hooks and metrics.
	// Metrics count by it, so use only a small set of names. The peer does not see
	// it.
	Target string

	// MessageFor builds the message of one attempt, if that depends on the id of the
	// request or on the incarnation that it is for. Call runs it, and then
	// Message.Body, on the calling goroutine before each attempt, while the Conn is
	// ready or its handshake runs. Its context is the one that Hooks.RequestStarted
	// returned, or the caller's if there is no such hook. An error or a panic ends
	// the call as Refused and NotSent. If the message has no method, Method is used.
	// Nil: every attempt sends Method, Params, Name and Version.
	MessageFor MessageMaker

	// Epoch binds the call to one incarnation. If another is present, the call
	// fails with ErrStale and is not sent. Zero: the call is for whichever
	// incarnation is present.
	Epoch uint64

	// Timeout bounds each attempt. If it expires, the call ends as TimedOut. It
	// starts when an attempt has a send slot, and again on each retry. Before that
	// it bounds, separately, how long the attempt waits for a slot and for room on
	// the link. Waiting for the Conn to be ready or between attempts does not
	// count; only ctx bounds that. Zero: Options.RequestTimeout. Negative: no
	// timeout.
	Timeout time.Duration

	// ProgressRestarts restarts the timeout with each progress notification for
	// this request, up to MaxTimeout.
	ProgressRestarts bool

	// MaxTimeout bounds an attempt whose timeout is extended, either by progress
	// or because the peer waits for this side to answer a request that it made
	// for this call. A value below the timeout extends nothing. Zero: ten times
	// the timeout.
	MaxTimeout time.Duration

	// WaitForReady makes Call wait until the Conn is ready, or ctx ends. Without it,
	// a call on a Conn that is not ready fails immediately with a *StateError.
	WaitForReady bool

	// Retries is how often Call may retry the request. Call retries after an attempt
	// that failed because the link or its stream was lost, because the Conn was not
	// ready, or because the peer reported that it was overloaded: by its HTTP status
	// (transport.StatusError.Overloaded), or by a JSON-RPC error with the code
	// jsonrpc.CodeOverloaded. Each attempt has a new id. A request that
	// the peer may have executed is sent again only if it is Repeatable. Zero: Call
	// sends the request once. Above 1,000: 1,000. Negative: there is no limit.
	//
	// Before each retry, Call waits until the Conn is ready. If the link is still
	// the same, Call first waits for the delay that the peer has asked for, or else
	// for one between Options.BackoffMin and BackoffMax, which grows with each
	// retry. After a Streaming attempt that lasted for Options.ProvenAfter, the
	// delays begin at BackoffMin again. Only ctx bounds these waits.
	//
	// Any other end of an attempt ends the call, with one exception: a request that is
	// Streaming and Repeatable and has negative Retries is kept open. Call then also
	// sends it again after an answer, an error from the peer or a refusal. It gives
	// up only when ctx ends, the Conn closes, MessageFor fails, or the peer says that
	// the request itself is wrong (method not found, invalid params, invalid
	// request).
	Retries int

	// Repeatable declares that the peer may execute the request twice without
	// harm. Set it for reads only, or where the peer promises idempotence.
	Repeatable bool

	// OnAttempt receives each failed attempt that will be retried. Call runs it on
	// the calling goroutine, before it waits for the next attempt. If it panics, the
	// panic reaches the caller of Call, and the call ends as if ctx had been cancelled.
	OnAttempt func(Attempt)

	// OnProgress receives the params of each progress notification for this request.
	// Call runs it on the calling goroutine, and not after Call has returned. If
	// notifications arrive while OnProgress runs, Call keeps only the newest. A panic
	// has the same effect as that of OnAttempt.
	OnProgress func(params json.RawMessage)

	// Silent keeps the Conn from sending a cancellation notification when the
	// call ends early.
	Silent bool

	// Streaming marks a request that stays open until either side ends it. It has no
	// timeout; only ctx limits it. Close ends it before anything else.
	Streaming bool
}

// A MessageMaker builds the message of one attempt; see Request.MessageFor.
type MessageMaker interface {
	MakeMessage(ctx context.Context, id int64, epoch uint64) (Message, error)
}

// A MessageFunc is a function that implements MessageMaker.
type MessageFunc func(ctx context.Context, id int64, epoch uint64) (Message, error)

// MakeMessage calls the function.
func (f MessageFunc) MakeMessage(ctx context.Context, id int64, epoch uint64) (Message, error) {
	return f(ctx, id, epoch)
}

// A sender says who sends a message, and with what it belongs together. The zero value is the
// program.
type sender struct {
	from   origin
	epoch  uint64           // the incarnation of the handshake or the handler
	stream transport.Stream // of the request that a handler serves; otherwise transport.Main
}

// An origin is a kind of sender.
type origin uint8

const (
	program origin = iota
	handshaking
	handler
)

// A handle is the Conn as what is below it may use it: its loops, and the handlers and
// handshakes that run for them. It is an interface so that none of them can reach the rest of
// the Conn, and the files of the loop can be read without those of the Conn.
type handle interface {
	call(ctx context.Context, r Request, by sender) (json.RawMessage, error)
	notify(ctx context.Context, method string, params json.RawMessage, by sender, once bool) error

	// post hands an event to the loop that runs now, which may be a later one than the loop
	// of the incarnation that brought the event. It reports false when no loop takes the event.
	post(ev event) bool

	// left is called once by a loop that has ended. After it another loop may begin, so the old
	// one must not touch the record any more.
	left()

	transport.Waker
}

// A caller is what a handler or a handshake may use of its Conn: it makes calls, and knows when
// the Conn's clock began.
type caller struct {
	conn handle
	born time.Time
}
