package transport

import (
	"context"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Transport opens links to one peer. Implementations are safe for
// concurrent use and may be opened again after a link is lost.
type Transport interface {
	// Open returns a live link, not yet delivering: delivery starts with
	// Link.Bind. The context bounds the opening only, never the life of the
	// link. A failed Open leaves nothing behind; its error is typed where the
	// cause is known (for instance *StartError).
	Open(ctx context.Context) (Link, error)
}

// Checked is a Transport that knows, before it is opened, that it never can be
// as it was made: it lacks a command, or its URL is none.
type Checked interface {
	// Check reports what is wrong, as the error that Open would return. It does
	// no I/O.
	Check() error
}

// Named is a Transport that can name its peer in a word, for people and for logs: by
// its command, or its host. The name reveals no credentials, and need not be unique.
type Named interface {
	// Name returns the name, or "" if there is none.
	Name() string
}

// Located is a Transport that knows where its peer is. Those with the same endpoint
// lose their peer together and have it back together: a Client makes use of that.
type Located interface {
	// Endpoint returns the place, for instance "https://mcp.example.com", or "" if it
	// is not known, or no other transport can have it. It reveals no credentials.
	Endpoint() string
}

// A Mirror is a Transport whose links mirror Route.Arguments.
type Mirror interface {
	// MirrorsArguments reports whether they do.
	MirrorsArguments() bool
}

// A Link is one live connection to a peer: a process, a socket, a pair of
// queues, an HTTP session. It carries frames, one JSON-RPC message each, on one
// stream or on many. Nothing in a link retries or reconnects.
//
// Send, Grant, Resume and End may be called from one goroutine at a time, Close
// from any.
type Link interface {
	// Bind names who receives, and is called once, before any other method
	// but Close. Nothing is delivered before it.
	Bind(Receiver)

	// Send takes the frame over, in order within its stream, and never
	// blocks. It returns nil once the frame is queued, ErrBusy when the
	// bounded queue of Main is full (Receiver.Writable follows when it is not
	// any more; the frame stays the caller's), *OversizedError for a frame
	// above the limit, ErrNoRoute when the frame's stream leads to nobody, and
	// ErrClosed after Close or loss. Another stream is never busy, since its
	// peer would hold up all others: one whose queue is full is lost.
	Send(Outbound) error

	// Grant lets a stream deliver that many more frames. A stream without
	// credit does not read beyond its stated read-ahead. Credit for a stream
	// that is over, or never was, is void.
	Grant(stream Stream, frames int)

	// Resume takes up a stream that was lost and can be resumed. What comes of
	// it is told as Receive or StreamLost. It never blocks.
	Resume(stream Stream)

	// End ends a stream from this side: what was sent on it is flushed, and
	// what would still come is discarded. Nothing is reported for it any more.
	// It never blocks, and does nothing for Main or a stream that is over.
	End(stream Stream)

	// Close ends the link and everything it owns, and returns when all of it
	// is gone. What is queued is flushed first; a peer that has not gone by
	// itself is asked after 30 % of the grace and forced after 70 %. Close is
	// idempotent: later calls wait for the first, and a shorter grace shortens
	// it. It returns an error only when something was left behind.
	Close(grace time.Duration) error
}

// Hearing is a Link that says when bytes came in, so that a peer that takes long
// over a large frame is not mistaken for one that is gone. The peer of a
// link that does not say is asked for a sign of life only if the program wants
// that (ADR-0025). Who uses the link may call Heard from any goroutine, at any
// time.
type Hearing interface {
	// Heard is when bytes have come in last, on any stream: the zero time if none
	// have. The link does not know where ok is false, as on one that wraps another.
	Heard() (last time.Time, ok bool)
}

// Requesting is a Link on which each message is a request of its own to the server,
// as over HTTP. Its peer is asked for a sign of life while something waits for it, and
// else once a minute at most (ADR-0025).
type Requesting interface {
	// Requests reports whether that is so. It does not change.
	Requests() bool
}

// Flushing is a Link that leaves to Flush what can wait until whoever uses it has done
// all that is to be done at the moment (ADR-0048).
type Flushing interface {
	// Flush does what Send and Grant have left to it. Whoever calls it once, right
	// after Bind, has to call it after each Send and Grant, or after a few of them:
	// soon, and before it waits for anything. A link whose Flush is never called
	// leaves nothing to it. Flush never blocks, and may be called from any goroutine,
	// also after the link is lost. The depth is that of the Work which calls it, and 0
	// elsewhere.
	Flush(depth int)
}

// A Worker is a Receiver that can do on the goroutine of the link what a frame gives
// it to do. That saves the change to a goroutine of its own (ADR-0048).
type Worker interface {
	Receiver

	// Work does what the calls of Receive before it have given the Worker to do, if
	// Inbound.Work has promised it. The link calls it while it holds nothing that
	// Send, Grant or Flush need. Work does not block, but takes longer than other
	// methods. It may be called from any goroutine, at the same time as the other
	// methods, without cause, and after Lost.
	//
	// The depth is 1, or, within Flush, one more than Flush has been given. A Worker
	// whose depth is more than 1 leaves the work to a goroutine of its own: two of
	// them could call each other for ever.
	Work(depth int)
}

// A StreamWorker is a Worker that also works on the streams that the peer begins
// (ADR-0050).
type StreamWorker interface {
	Worker

	// StreamBegun is StreamOpened for a stream that the peer has begun. It promises
	// that Work is called soon, as Inbound.Work does. The frame that has begun the
	// stream may follow at once, for the credit that Work is going to grant.
	StreamBegun(stream Stream)
}

// A Receiver is told what happens on a link. Its methods never block and never
// call back into the link. Calls for one stream come one at a time; nothing is
// called after Lost, and Lost is called exactly once, at the latest before
// Close returns.
type Receiver interface {
	// Receive takes one frame over, for one credit of its stream.
	Receive(Inbound)

	// StreamOpened says that a stream other than Main has begun, before
	// anything else is said of it. It waits for credit. What answers the
	// message of that tag comes on it, or on Main if the link turns out to have
	// no other stream; with tag zero the peer has begun it.
	StreamOpened(stream Stream, tag Tag)

	// StreamLost says that a stream is over, or broken off, while the link
	// lives on. A stream that was ended by Inbound.Last, Outbound.Last, End or
	// the failure of the message that opened it is not reported.
	StreamLost(StreamLoss)

	// Writable follows a Send that said ErrBusy: there is room again.
	Writable()

	// Failed says that one message did not go out although Send accepted it,
	// and that the link lives on.
	Failed(Failure)

	// Ended says that the peer will send nothing more, while what is sent to
	// it may still arrive: the end of a server's standard input.
	Ended()

	// Lost says that the link is over, and why.
	Lost(Loss)
}

// A Stream is an ordered lane within a link; credit, order and loss are per
// stream. A byte-stream transport has one: Main. On HTTP each exchange is one.
// Numbers are not used twice on a link.
type Stream uint64

// Main is the stream of what belongs to no other. It lasts as long as the link.
const Main Stream = 0

// A Tag is the sender's name for an outbound message, given back when that
// message fails. Zero is for messages nobody asks after.
type Tag int64

// Outbound is a frame on its way out.
type Outbound struct {
	Stream Stream
	Tag    Tag
	Last   bool   // it ends its stream, unless that is Main
	Frame  []byte // one JSON-RPC message without framing; the link's from Send on
	Route  Route  // what the frame says, so that no link has to parse it
}

// A Route describes an outbound message to the link that carries it. Whoever
// makes the message fills it in: a link never looks into a frame. Links that
// carry all messages alike, such as pipes, ignore it.
type Route struct {
	Kind jsonrpc.Kind

	// Method is the method of a request or notification; empty for a response.
	Method string

	// ID is the id of a request, of the request that a response answers, or of
	// the request that a cancellation ends. It is the zero ID for other
	// notifications.
	ID jsonrpc.ID

	// Name says what a request is about: the tool, the prompt or the resource. MCP
	// mirrors it in the Mcp-Name header.
	Name string

	// Arguments holds arguments of a request by the name under which the link
	// mirrors them: MCP over HTTP in Mcp-Param-* headers. It is nil for none.
	Arguments *Arguments

	// Version is the protocol revision that the message itself states. It is
	// empty in protocols, and revisions, that agree on one beforehand.
	Version string

	// Code is the error code of a response of kind jsonrpc.KindError.
	Code int64
}

// Arguments are arguments of a request that travel beside it, by name.
type Arguments map[string]string

// Inbound is a frame that has come in. Exactly one of Frame and Err is set.
type Inbound struct {
	Stream Stream
	Last   bool   // the peer sends nothing more on this stream; its answer may still be sent
	Frame  []byte // one JSON-RPC message without framing; the receiver's
	Err    error  // why a frame was refused and skipped, for instance *OversizedError

	// Work promises that Worker.Work is called soon, on the goroutine that calls
	// Receive. Only links that are bound to a Worker set it.
	Work bool

	// Message is the decoded frame, where the link had to look into it anyway. The
	// receiver then decodes nothing. Nil: the receiver decodes Frame.
	Message *jsonrpc.Message

	// Origin says who sent the frame, where the link knows. It is nil on links
	// that have one peer and no more to say about it, such as pipes.
	Origin *Origin
}

// An Origin says where an inbound message came from. A link makes one for each
// message, or exchange, and does not change it afterwards.
type Origin struct {
	// RemoteAddr is the network address of the sender, as in http.Request.
	RemoteAddr string

	// Headers are the headers of the HTTP request that brought the message, under
	// their canonical names. Treat them as read-only.
	Headers map[string][]string

	// TLS is the *tls.ConnectionState of the connection; nil without TLS. Its type
	// is any so that programs which use no TLS do not link crypto/tls.
	TLS any

	// Identity is the key of who sent the message, as established by the program's
	// own authentication; empty when nobody was authenticated.
	Identity string

	// Principal is what that authentication found out about the sender; nil for
	// nothing.
	Principal any

	// Value looks up a value of the context of the HTTP request that brought the
	// message, as context.Context does. The handler of the message sees these
	// values in its own context. Nil: there are none.
	Value func(key any) any

	// Exchange is the HTTP exchange that brought the request. It is nil for other
	// messages, and on other links.
	Exchange Exchange
}

// An Exchange is what a server can ask of the response to a request. Its methods do
// not block, and may be called from any goroutine until the request was answered.
type Exchange interface {
	// Events has the response begin now, as a stream of events. Otherwise it begins
	// with the first message, and is JSON if that is the answer. Events returns false
	// if it cannot be a stream of events.
	Events() bool

	// Poll ends the connection on which the client waits. The client comes back for
	// the answer after the delay. What is sent meanwhile is kept. Poll returns false,
	// and does nothing, if the revision of the client does not have that, or if the
	// client is away already.
	Poll(after time.Duration) bool
}

// Header returns the first value of a header, or "" if there is none. Case does
// not matter. A nil Origin has no headers.
func (o *Origin) Header(name string) string {
	if o == nil {
		return ""
	}
	if values, ok := o.Headers[name]; ok && len(values) > 0 {
		return values[0]
	}
	for key, values := range o.Headers {
		if len(values) > 0 && strings.EqualFold(key, name) {
			return values[0]
		}
	}
	return ""
}

// A StreamLoss is the end of one stream of a link that lives on.
type StreamLoss struct {
	Stream Stream
	Reason error // ErrPeerClosed when the peer ended it in good order

	// Resumable says that Link.Resume may take it up where it was, not before
	// the delay that the peer has asked for, if it has.
	Resumable bool
	Delay     time.Duration

	// Advanced says that the stream has brought something since it was opened or
	// last resumed, even if that was no frame: resuming it works.
	Advanced bool
}

// A Failure is one outbound message that did not go out, or was refused. A
// stream that the message has opened is over with it.
type Failure struct {
	Tag    Tag
	Err    error
	Unsent bool // no byte of it was accepted by the operating system, or the peer has surely not executed it
}

// A Loss is the end of a link.
type Loss struct {
	Reason error // typed where the cause is known: *ExitError, *OversizedError, ErrClosed
	Unsent []Tag // accepted by Send, and unsent as a Failure is
}
