package conn

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Handler serves the peer's requests and notifications.
type Handler interface {
	// ServeRequest returns the result of a request, or an error. A *jsonrpc.Error
	// in the error's chain is sent to the peer unchanged. Any other error, and a
	// panic, is sent as an internal error. To return a result that encodes itself, use
	// Incoming.SetResult instead.
	//
	// Requests are served concurrently, up to Options.MaxServing, unless they have waited
	// for longer than Options.Patience. The context ends,
	// with a cause, when the peer cancels the request (ErrPeerCancelled), its incarnation
	// ends, or the Conn stops. The context of a Streaming request also ends when
	// the Conn is closed (ErrDraining); its result is still sent then.
	ServeRequest(context.Context, *Incoming) (json.RawMessage, error)

	// ServeNotification takes a notification. Notifications are served one at a
	// time, in the order in which they arrived. The context ends with the
	// incarnation. Over HTTP, the contexts of requests and notifications have the
	// values of the HTTP request that brought the message.
	ServeNotification(context.Context, *Incoming)
}

// Incoming is a request or notification from the peer.
type Incoming struct {
	Method string
	Params json.RawMessage // belongs to the handler; nil if there were none
	Epoch  uint64          // the incarnation in which it came in

	// Origin describes the sender, if the link can tell senders apart, as over HTTP.
	// Otherwise it is nil.
	Origin *transport.Origin

	// Implied says that the peer has not sent the message itself; see transport.Inbound.
	Implied bool

	exclusive bool   // requests behind it wait until it has been answered
	streaming bool   // it stays open until either side ends it
	nested    bool   // the peer needs its answer in order to answer one of our calls
	droppable bool   // a notification that may be dropped when too many wait
	immediate bool   // the loop itself runs the handler
	failed    bool   // its answer is an error
	stuck     bool   // the hooks were told that its handler is stuck; only the shell uses this
	size      uint32 // what Size returns
	marks     atomic.Uint32
	belongs   int64 // what For returns; the core sets it before the message is served

	room     transport.Room // of its link; nil after letGo, and if there is none
	label    string         // for a notification: Class.Key; for a request: its target
	received instant        // when it came in; zero unless Conn.timesRequests

	batch   *batch // the batch that it came in, or nil
	key     incomingKey
	caller  *caller
	result  jsonrpc.Value // the argument of SetResult, or nil
	failure int64         // the code of the error that it is answered with, or 0
	serving task          // the shell sets it while the request is being served
	worker  *worker       // the worker that serves it; nil if the goroutine of the link does
	startBy instant       // when its handler must have started; 0: never
	took    time.Duration // how long its handler ran
	leave   func()        // lets another goroutine read the link; nil on a worker
}

// The bits of Incoming.marks.
const (
	isNamed   = 1 << iota // SetTarget was called
	hasLeft               // leave was called
	isAudited             // the Auditor knows how it ended
)

// mark sets a mark, and reports whether it was set before.
func (in *Incoming) mark(one uint32) (before bool) { return in.marks.Or(one)&one != 0 }

// letGo gives back the room of a request whose handler has returned, or will not be called. Nobody else uses
// the request then.
func (in *Incoming) letGo() {
	if room := in.room; room != nil {
		in.room = nil
		room.Release()
	}
}

// StartBy returns the end of Options.Patience for the request. A handler that has to wait before it can begin its
// work refuses the request at that time, with jsonrpc.CodeOverloaded. Zero: there is no limit.
func (in *Incoming) StartBy() time.Time {
	if in.startBy == 0 {
		return time.Time{}
	}
	return in.caller.born.Add(in.startBy)
}

// Size estimates how many bytes the message takes in memory when its values are decoded.
func (in *Incoming) Size() int { return int(in.size) }

// ID returns the id of the request, or the zero ID for a notification.
func (in *Incoming) ID() jsonrpc.ID { return in.key.id }

// For returns the id of the request of this side on whose stream the message of the peer came: the peer sends it because of that
// one. It returns 0 if the link does not tell its requests apart, as pipes do not, and if the stream is for no
// request.
func (in *Incoming) For() int64 { return in.belongs }

// SetTarget names what the request is about, such as a tool. Hooks.ServeStopped gets
// the name, and so do Hooks.Stuck and a StuckError if the handler does not return.
// Metrics count by this name, so use only a small set of names. Call SetTarget once,
// from the handler, before it returns.
func (in *Incoming) SetTarget(name string) {
	in.label = name
	in.mark(isNamed)
}

// SetResult sets a result that encodes itself into the frame of the answer. The Conn then
// ignores the result that ServeRequest returns, but not its error. If the result's
// AppendJSON fails or panics, the peer gets the same error as if the handler had failed.
// The handler must call SetResult before it returns.
func (in *Incoming) SetResult(result jsonrpc.Value) { in.result = result }

// Target returns what SetTarget was given.
func (in *Incoming) Target() string {
	if in.marks.Load()&isNamed == 0 {
		return ""
	}
	return in.label
}

// title is the method, and what the request is about.
func (in *Incoming) title() string {
	if target := in.Target(); target != "" {
		return in.Method + " " + shorten(target)
	}
	return in.Method
}

// Notify sends a notification that belongs to the request being served: on the stream
// that will carry the answer, and before the answer. The handler must call it before
// it returns. Its errors are those of Conn.Notify.
func (in *Incoming) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return in.caller.conn.notify(ctx, method, params, in.sender(), false)
}

// TryNotify does what Notify does, but never waits. Its errors are those of
// Conn.TryNotify.
func (in *Incoming) TryNotify(ctx context.Context, method string, params json.RawMessage) error {
	return in.caller.conn.notify(ctx, method, params, in.sender(), true)
}

// Leave lets another goroutine read the link, if this one does. A handler calls it before it waits for
// anything. Call does so itself.
func (in *Incoming) Leave() {
	if in.leave != nil && !in.mark(hasLeft) {
		in.leave()
	}
}

// sender is the handler of the request, as the sender of a message.
func (in *Incoming) sender() sender { return sender{handler, in.Epoch, in.key.stream} }

// Call sends a request to the peer that belongs to the request being served: it goes
// out on the stream that will carry the answer. The handler must make the call before
// it returns. The call is never retried, and ends as LinkLost when that stream ends.
// A link may keep a stream whose peer has disconnected, so limit the call with ctx.
// Otherwise it behaves like Conn.Call.
func (in *Incoming) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	in.Leave() // the answer to the call comes over the link
	return in.caller.conn.call(ctx, r, in.sender())
}

// refusingHandler is the Handler of a Conn that has none.
type refusingHandler struct{}

func (refusingHandler) ServeRequest(_ context.Context, in *Incoming) (json.RawMessage, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + in.Method}
}

func (refusingHandler) ServeNotification(context.Context, *Incoming) {}

// An Incarnation is one link of a Conn, with its handshake and the handlers that
// run for it. Options.Handshake receives it, to talk to the peer before the Conn
// is ready. Its methods fail once the incarnation has ended.
type Incarnation struct {
	caller *caller
	epoch  uint64
	ctx    context.Context // see contextOf; nil before something has needed it
	cancel context.CancelCauseFunc
	link   transport.Link // nil until a link is attached; only the loop uses it
}

// Epoch returns the number of the incarnation: 1 for the first of a Conn.
func (i *Incarnation) Epoch() uint64 { return i.epoch }

// Network returns what the link knows about the way to the peer (transport.LinkTraits),
// also after the incarnation has ended.
func (i *Incarnation) Network() transport.Network {
	return transport.LinkTraitsOf(i.link).Network
}

// Call is Conn.Call for the handshake: it works before the Conn is ready.
func (i *Incarnation) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	return i.caller.conn.call(ctx, r, sender{from: handshaking, epoch: i.epoch})
}

// Notify is Conn.Notify for the handshake: it works before the Conn is ready.
func (i *Incarnation) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return i.caller.conn.notify(ctx, method, params, sender{from: handshaking, epoch: i.epoch}, false)
}
