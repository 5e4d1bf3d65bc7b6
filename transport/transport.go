package transport

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Transport opens links to one peer. Implementations must be safe for concurrent
// use, and must allow another Open after a link is lost.
type Transport interface {
	// Open returns a live link. The link delivers frames only after Link.Bind. The
	// context limits only Open itself, never the life of the link. ConnectionName
	// tells whose link it is. A failed Open leaves nothing behind, and its error has
	// a type if the cause is known, for instance *StartError.
	Open(ctx context.Context) (Link, error)
}

// ConnectionName returns the name of the connection (conn.Tuning.Name) for which a context
// of Open asks for a link, or "" if it has none. One Transport may serve many connections.
func ConnectionName(ctx context.Context) string {
	name, _ := ctx.Value(connectionKey{}).(string)
	return name
}

// WithConnectionName returns a context for Open. A connection calls it.
func WithConnectionName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, connectionKey{}, name)
}

type connectionKey struct{}

// A Waker is what asks a Transport for links: a Conn. Its methods do not block, and may be called
// from any goroutine.
type Waker interface {
	// Wake ends its wait before it asks again. At other times it has no effect.
	Wake()

	// Done returns a channel that is closed when it will not ask again.
	Done() <-chan struct{}
}

// WakerOf returns who asks for a link with a context of Open, or nil if that is unknown. A
// Transport whose Open has failed, and that learns that it would succeed now, may wake it.
func WakerOf(ctx context.Context) Waker {
	waker, _ := ctx.Value(wakerKey{}).(Waker)
	return waker
}

// WithWaker returns a context for Open. A connection calls it.
func WithWaker(ctx context.Context, waker Waker) context.Context {
	return context.WithValue(ctx, wakerKey{}, waker)
}

type wakerKey struct{}

// A Link is one live connection to a peer: a process, a socket, a pair of
// queues, an HTTP session. It carries frames, one JSON-RPC message each, on one
// stream or on many. Nothing in a link retries or reconnects.
//
// Send, Grant, Resume and End may be called from one goroutine at a time, Close
// from any.
type Link interface {
	// Bind sets the receiver. Call it once, before any other method but Close. The
	// link delivers nothing before Bind.
	Bind(Receiver)

	// Send queues the frame, in order within its stream, and never blocks. It returns
	// nil once the frame is queued. It returns ErrBusy if the bounded queue of Main
	// is full; the frame then still belongs to the caller, and the link calls
	// Receiver.Writable when there is room. It returns *OversizedError for a frame
	// above the limit, ErrNoRoom if a limit for all that peers have not read leaves no room
	// for the frame, which then still belongs to the caller, ErrNoRoute if the frame's stream has no peer, and ErrClosed
	// after Close or loss. Only Main is ever busy. If the queue of another stream is
	// full, that stream is lost, so that a slow peer cannot delay the others.
	Send(Outbound) error

	// Grant permits a stream to deliver that many more frames. A stream without
	// credit does not read beyond its stated read-ahead. Grant has no effect on a
	// stream that has ended or never existed.
	Grant(stream Stream, frames int)

	// Resume resumes a lost stream that is resumable. The link reports the result by
	// Receive or StreamLost. Resume never blocks.
	Resume(stream Stream)

	// End ends a stream from this side. The link sends what is queued on the stream,
	// discards what still arrives, and reports nothing more for it. End never blocks,
	// and has no effect on Main or on a stream that has ended.
	End(stream Stream)

	// Close ends the link and everything it owns, and returns when all of it is gone.
	// It first sends what is queued. If the peer has not ended by itself, Close asks
	// it to after 30 % of the grace, and forces it after 70 %. Close may be called
	// again: later calls wait for the first, and a shorter grace shortens it. Close
	// returns an error only if something was left behind.
	Close(grace time.Duration) error
}

// An Acceptor serves the links that a transport's server side opens for clients. A
// *server.Server is one.
type Acceptor interface {
	// Accept serves a link. It binds the link, and returns without waiting for its end.
	// If Accept closes the link instead, or does not bind it, the client is refused: over
	// HTTP the response to the request that opened the link is 503. When the link is
	// lost, the acceptor closes it.
	Accept(link Link)

	// Close lets running calls finish until ctx ends, then ends everything that the
	// acceptor serves, and returns when that is done. It closes links that it accepts
	// later immediately. Serve and Shutdown of streamable.Handler, and Shutdown of
	// sse.Handler, call Close; their own Close does not.
	Close(ctx context.Context) error
}

// An Auditor is an Acceptor that learns what the listener in front of it refuses. A
// *server.Server is one.
type Auditor interface {
	// Audits reports whether Refused wants to be called.
	Audits() bool

	// Refused is called exactly once for each message, or HTTP request without a message
	// that could be read, that the listener has refused. It is called before the response
	// is sent. What reaches a link is never refused in this sense.
	Refused(Refusal)
}

// A Refusal says what a listener has refused, and why. No part of it was executed.
type Refusal struct {
	Message *jsonrpc.Message // nil if the request brought none, or it was not read
	Origin  *Origin          // never nil; Identity and Principal are zero if the sender was not established
	Denied  bool             // the sender may not do this, as opposed to: nobody could
	Status  int              // of the HTTP response
	Code    int64            // of the JSON-RPC error in that; 0: there is none
	Err     error            // the reason; its text was sent to the client
	Since   time.Time        // when the request came in
}

// A Receiver receives the frames and events of a link. Its methods must not block and
// must not call the link. The link makes the calls for one stream one at a time. It
// calls Lost exactly once, at the latest before Close returns, and nothing after
// that.
type Receiver interface {
	// Receive delivers one frame, and uses up one credit of its stream.
	Receive(Inbound)

	// StreamOpened says that a stream other than Main has begun. It comes before any
	// other call for that stream, and the stream waits for credit. The stream will
	// carry the answer to the message with that tag, unless the link has only Main
	// after all. If the tag is zero, the peer began the stream.
	StreamOpened(stream Stream, tag Tag)

	// StreamLost says that a stream has ended or broken off while the link lives on.
	// It is not called for a stream that ended by Inbound.Last, Outbound.Last or End,
	// or because the message that opened it failed.
	StreamLost(StreamLoss)

	// Writable says that the queue has room again after Send returned ErrBusy.
	Writable()

	// Failed says that one message was not sent although Send accepted it. The link
	// lives on.
	Failed(Failure)

	// Ended says that the peer will send nothing more, for instance at the end of a
	// server's standard input. Frames that are sent to the peer may still arrive.
	Ended()

	// Lost says that the link has ended, and why.
	Lost(Loss)
}

// A Stream is the number of an ordered sequence of frames within a link, with its own
// credit and end. A byte stream has only Main. Over HTTP each exchange is a stream. A
// link never uses a number twice.
type Stream uint64

// Main is the stream for all frames that belong to no other stream. It lasts as long
// as the link.
const Main Stream = 0

// A Tag identifies an outbound message to its sender. The link returns it if the
// message fails. Use zero if you do not need to know.
type Tag int64

// Outbound is a frame to send.
type Outbound struct {
	Stream Stream
	Tag    Tag
	Last   bool   // this frame ends its stream, unless that is Main
	Frame  []byte // one JSON-RPC message without framing; it belongs to the link once Send is called
	Route  Route  // describes the frame, so that no link has to parse it
}

// A Route describes an outbound message to the link that carries it. The sender fills
// it in, so that a link never has to look into a frame. Links that treat all messages
// alike, such as pipes, ignore it.
type Route struct {
	Kind jsonrpc.Kind

	// Method is the method of a request or notification; empty for a response.
	Method string

	// ID is the id of a request, of the request that a response answers, or of
	// the request that a cancellation ends. It is the zero ID for other
	// notifications.
	ID jsonrpc.ID

	// Name says what a request is about: the tool, the prompt or the resource. MCP
	// over HTTP repeats it in the Mcp-Name header.
	Name string

	// Arguments maps the names of the arguments that a link repeats outside of the
	// message (over HTTP in Mcp-Param-* headers) to their values. It is nil if there
	// are none.
	Arguments *Arguments

	// Version is the protocol revision that the message itself states. It is empty if
	// the revision was negotiated beforehand.
	Version string

	// Code is the error code of a response of kind jsonrpc.KindError.
	Code int64
}

// Arguments maps the names of arguments to their values; see Route.Arguments.
type Arguments map[string]string

// Inbound is a frame that has come in. Exactly one of Frame and Err is set.
type Inbound struct {
	Stream Stream
	Last   bool // the peer sends nothing more on this stream; its answer may still be sent

	// Implied says that the link sends the message in the name of the peer, which has not
	// sent it itself. Handlers that observe what a peer does ignore such messages.
	Implied bool

	// Held is how long the link has had the whole message. A receiver that limits how long a
	// request waits counts it.
	Held time.Duration

	Frame []byte // one JSON-RPC message without framing; it belongs to the receiver
	Err   error  // why the link refused and skipped a frame, for instance *OversizedError

	// Work promises that Runner.Work or Runner.Serve of the receiver is called soon, most often
	// on the goroutine that calls Receive. Only links whose receiver is a Runner set it.
	Work bool

	// Message is the decoded frame, if the link had to decode it anyway. Nil: the
	// receiver decodes Frame.
	Message *jsonrpc.Message

	// Origin says who sent the frame, if the link knows. It is nil on links with a
	// single peer, such as pipes.
	Origin *Origin

	// Room is what the frame takes of the link's memory. The receiver releases it once it needs
	// nothing of the frame any more, which for a request is when its handler has returned, even if that is
	// long after the request was cancelled or the link was lost. Nil: the link counts nothing for it.
	Room Room
}

// A Room is memory that a link has counted for one frame, and that others wait for.
type Room interface {
	// Release gives it back. Further calls do nothing. It does not block, and may be called from any
	// goroutine, during a call of the receiver, too.
	Release()
}

// An Origin says where an inbound message came from. A link creates one for each
// message or exchange, and does not change it afterwards.
type Origin struct {
	// RemoteAddr is the network address of the sender, as in http.Request.
	RemoteAddr string

	// Client is the address of the client, without a port, if the sender is a trusted proxy that has told it
	// (HandlerOptions.TrustedProxies); otherwise "".
	Client string

	// Headers are the headers of the HTTP request that carried the message, under
	// their canonical names. Treat them as read-only.
	Headers map[string][]string

	// HTTP is the version of HTTP that the request was made in, such as "1.1" or "2"; ""
	// on links that are not HTTP.
	HTTP string

	// TLS is the *tls.ConnectionState of the connection; nil without TLS. Its type
	// is any so that programs which use no TLS do not link crypto/tls.
	TLS any

	// Identity identifies the sender, as established by the program's own
	// authentication. It is empty if nobody was authenticated.
	Identity string

	// Principal is what that authentication knows about the sender; it may be nil.
	Principal any

	// Value returns a value from the context of the HTTP request that carried the
	// message, as context.Context does. The handler of the message sees these values
	// in its own context. Nil: there are none.
	Value func(key any) any

	// Exchange is the HTTP exchange that carried the request. It is nil for other
	// messages, and on other links.
	Exchange Exchange
}

// Address returns the address of the client: Client or, if no trusted proxy has told it, RemoteAddr.
func (o *Origin) Address() string { return cmp.Or(o.Client, o.RemoteAddr) }

// An Exchange controls the HTTP response to one request. Its methods do not block,
// and may be called from any goroutine until the request has been answered.
type Exchange interface {
	// Events makes the server send the response as a stream of events, starting now.
	// Otherwise the response starts with the first message, and is plain JSON if that
	// message is the answer. Events returns false if the request has been answered, the
	// client has disconnected, or the ResponseWriter cannot flush.
	Events() bool

	// Poll closes the connection on which the client waits. The client reconnects
	// after the delay to get the answer. Messages that are sent in the meantime are
	// kept. Poll returns false, and does nothing, if the revision of the client does
	// not support it, or if the client has already disconnected.
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

// A StreamLoss says that one stream of a link ended while the link lives on.
type StreamLoss struct {
	Stream Stream
	Reason error // ErrPeerClosed if the peer ended it properly

	// Resumable says that Link.Resume can continue the stream where it broke off.
	// Call Resume only after Delay, which the peer asked for; it is 0 if it did not.
	Resumable bool
	Delay     time.Duration

	// Waiting says that nobody can get the answers any more, but that only those requests of the
	// peer end which are not being served yet.
	Waiting bool
}

// A Failure says that one outbound message was not sent, or that the peer refused it.
// If the message opened a stream, that stream has ended too.
type Failure struct {
	Tag    Tag
	Err    error
	Unsent bool // the operating system accepted no byte of it, or the peer certainly has not executed it
}

// A Loss says that a link ended, and why.
type Loss struct {
	Reason error // typed where the cause is known: *ExitError, *OversizedError, ErrClosed
	Unsent []Tag // frames that Send accepted and that are unsent in the sense of Failure.Unsent
	Work   bool  // as in Inbound
}
