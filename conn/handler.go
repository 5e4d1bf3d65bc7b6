package conn

import (
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

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
