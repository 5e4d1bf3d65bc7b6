package conn

import (
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Dialect says what the protocol above JSON-RPC means by a message. Its
// methods are pure functions and safe for concurrent use.
type Dialect interface {
	// Classify says what a request or notification is to the Conn itself. It
	// runs in the link's reading goroutine.
	Classify(*jsonrpc.Message) Class

	// Cancel returns the notification that tells the peer that our request id was
	// abandoned for the given reason. A Message without a method means that there
	// is no such notification.
	Cancel(id int64, why error) Message

	// Probe returns a request that asks for a sign of life and nothing else. A
	// Message without a method means that there is no such request.
	Probe() Message

	// Batches reports whether the peer may send batches at present.
	Batches() bool
}

// A Class is what a message is to the Conn itself.
type Class struct {
	Kind    ClassKind
	Request jsonrpc.ID      // Progress: our request. Cancellation: the peer's
	Answer  json.RawMessage // Probe: the result to answer with

	// Key tells the notifications that a newer one makes superfluous: of those
	// with the same key only the newest is kept when too many wait. Empty: all
	// are kept.
	Key string

	// Droppable is a notification that may be dropped when too many wait, the
	// oldest first.
	Droppable bool
}

// A ClassKind tells messages apart that the Conn handles by itself.
type ClassKind uint8

const (
	Ordinary     ClassKind = iota // the handler's
	Progress                      // a notification of progress of one of our requests
	Cancellation                  // a notification that the peer has abandoned one of its own
	Probe                         // a request that asks for a sign of life
	Exclusive                     // a request that those behind it wait for
	Streaming                     // a request that stays until either side ends it
	Nested                        // a request that the peer makes in order to answer one of ours
)

// guarded keeps a panic of a Dialect's from whoever asked it: the loop, or the
// goroutine that reads the link, which may even be the peer's.
type guarded struct {
	dialect Dialect
	report  func(where string, err error)
}

// Classify takes what the dialect cannot classify for an ordinary message.
func (g guarded) Classify(m *jsonrpc.Message) (class Class) {
	g.report("Dialect.Classify", guard(func() error { class = g.dialect.Classify(m); return nil }))
	return class
}

func (g guarded) Cancel(id int64, why error) (m Message) {
	g.report("Dialect.Cancel", guard(func() error { m = g.dialect.Cancel(id, why); return nil }))
	return m
}

func (g guarded) Probe() (m Message) {
	g.report("Dialect.Probe", guard(func() error { m = g.dialect.Probe(); return nil }))
	return m
}

func (g guarded) Batches() (may bool) {
	g.report("Dialect.Batches", guard(func() error { may = g.dialect.Batches(); return nil }))
	return may
}

// plain is JSON-RPC with nothing above it.
type plain struct{}

func (plain) Classify(*jsonrpc.Message) Class { return Class{} }
func (plain) Cancel(int64, error) Message     { return Message{} }
func (plain) Probe() Message                  { return Message{} }
func (plain) Batches() bool                   { return false }

// A Handler serves what the peer asks and tells.
type Handler interface {
	// ServeRequest answers a request, in a goroutine of its own. Its context
	// ends, with a cause, when the peer cancels the request, the incarnation
	// is over or the Conn stops; that of a Streaming request also, with the
	// cause ErrDraining, when the Conn is being closed, and its answer is sent.
	// A *jsonrpc.Error in the error's chain goes to the peer as it is; any
	// other error, and a panic, as an internal error.
	ServeRequest(context.Context, *Incoming) (json.RawMessage, error)

	// ServeNotification takes a notification. Notifications come one at a
	// time, in the order of their arrival, off the Conn's goroutine.
	ServeNotification(context.Context, *Incoming)
}

// Incoming is a request or notification of the peer's.
type Incoming struct {
	Method string
	Params json.RawMessage // the handler's; nil when absent
	Epoch  uint64          // the incarnation it came in

	// Origin says who sent it, where the link knows: over HTTP. Nil: it does not.
	Origin *transport.Origin

	size      int  // bytes it holds: of its frame, or of what was copied of a batch
	exclusive bool // requests behind it wait until it has been answered
	streaming bool // it stays until either side ends it
	nested    bool // a call of ours waits for what it is answered
	droppable bool // a notification that may be dropped when too many wait

	coalescing string // Class.Key

	key     incomingKey
	conn    *Conn
	reply   transport.Route // of the response
	task    *task           // set by the shell while it is being served
	serving task            // what task points to then
	worker  *worker         // whose handler serves it
}

// ID is the request's id; the zero ID for a notification.
func (in *Incoming) ID() jsonrpc.ID { return in.key.id }

// Notify is Conn.Notify for what belongs to this request: it goes out on the
// stream that will carry the answer, and ahead of it. It is for the handler,
// while it runs.
func (in *Incoming) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return in.conn.notify(ctx, method, params, origin{serving: in})
}

// Call makes a request of the peer on behalf of this request, on the stream that
// will carry the answer to it. It is for the handler, while it runs. The call is
// for the incarnation that this request came in: it is never retried, and ends
// as LinkLost when the stream does.
func (in *Incoming) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	return in.conn.call(ctx, r, origin{serving: in})
}

// refuser is the handler of a Conn that serves nothing.
type refuser struct{}

func (refuser) ServeRequest(_ context.Context, in *Incoming) (json.RawMessage, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + in.Method}
}

func (refuser) ServeNotification(context.Context, *Incoming) {}
