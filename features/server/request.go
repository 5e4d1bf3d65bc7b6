package server

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Request is a request or a notification, as handlers and middleware see it.
// Treat it as read-only: a middleware that changes something passes a copy on.
type Request struct {
	Method string

	// Params points to the params of the method, such as *protocol.CallToolParams.
	// It is a json.RawMessage for a method that the server does not offer, and for
	// notifications of clients.
	Params any

	// Client describes the client, as it was for this request. It is never nil.
	Client *Client

	// Session is the legacy session that the request belongs to. It is nil in the
	// modern revisions.
	Session *Session

	// Origin says where the request came from. It is never nil. An outgoing message
	// has the Origin of the request that it belongs to.
	Origin *transport.Origin

	// Outgoing says that the server sends the message: a question or a notification.
	Outgoing bool

	// Notification says that nobody expects an answer.
	Notification bool

	// Answers holds the client's answers, by key, for a handler that returned
	// InputRequired. It is nil in the first round.
	Answers protocol.InputResponses

	call *call  // the call it belongs to; nil for a notification without a request
	peer *peer  // of an outgoing message
	sent *int64 // the id of a question; set when it was sent
}

// Target returns the name of the tool or prompt that serves the request. It is known
// after the handler has returned. For any other request, and for a name that the
// server does not know, it returns "".
func (r *Request) Target() string {
	if r.call == nil || r.Outgoing {
		return ""
	}
	return r.call.in.Target()
}

// ID returns the JSON-RPC id of the message. A request from a client has its id from the
// start. A question to a legacy client has one after the next Handler has returned, if the
// question was sent. Other messages have the zero ID.
func (r *Request) ID() jsonrpc.ID {
	switch {
	case r.sent != nil && *r.sent != 0:
		return jsonrpc.IntegerID(*r.sent)
	case r.call == nil || r.Outgoing:
		return jsonrpc.ID{}
	default:
		return r.call.in.ID()
	}
}

// Conn returns the connection that the message came on or goes out on.
func (r *Request) Conn() *conn.Conn { return r.peer.conn }

// A Client describes the client that made a request, as reported by the client
// itself: when it opened its session (legacy), or in the request (modern). It does
// not change.
type Client struct {
	ProtocolVersion string // the revision of this request
	Info            protocol.Implementation
	Capabilities    protocol.ClientCapabilities
}

// A call is a Request being served. It is also the context of its handler, and the body
// of its answer, so that a request needs only one allocation.
type call struct {
	context.Context
	Request

	in      *conn.Incoming
	size    int                          // of its params
	method  *method                      // nil: nobody offers it
	offered *protocol.ServerCapabilities // to this client
	modern  bool
	known   *knownClient      // who made the request; nil: the request was decoded in full
	rest    []byte            // its params after the _meta of that client; nil: unused
	result  any               // what was answered
	room    any               // memory for a copy of that; nil: none
	level   protocol.LogLevel // that this modern request asks for

	asked *asked     // nil until the client or the handler asks something
	token jsonrpc.ID // the progress token of the client
	task  *task      // set for the call that a task's handler sees; nil for the request itself

	mu      sync.Mutex
	over    bool      // it has been answered
	reports *progress // nil before the first
	logs    *logBudget
}

// asked contains the fields of a call that asks.
type asked struct {
	asker asker  // asks the handler's questions; nil: it must not ask
	state []byte // the handler's own, opened
	id    string // the result of CallID; empty until it is needed
}

// progress contains the reports of a call that are not sent yet.
type progress struct {
	unsent  []*protocol.ProgressParams // oldest first
	highest float64                    // so far
	sends   bool                       // a goroutine is sending the unsent reports
	sending sync.WaitGroup             // for that goroutine
}

// newCall returns the call for a request or notification. M is its row, or nil.
func (p *peer) newCall(ctx context.Context, in *conn.Incoming, m *method) *call {
	var c *call
	if m != nil {
		c = m.newCall()
	} else {
		c = new(call)
	}
	c.Context, c.in, c.size = ctx, in, len(in.Params)
	c.Method, c.Origin, c.call, c.peer = in.Method, in.Origin, c, p
	if c.Origin == nil {
		c.Origin = &p.server.nowhere
	}
	return c
}

type requestKey struct{}

// Value finds the request itself, then the values of the HTTP request that brought
// it, then those of the session.
func (c *call) Value(key any) any {
	if key == (requestKey{}) {
		return &c.Request
	}
	if value := c.Context.Value(key); value != nil {
		return value
	}
	if c.Session != nil && c.Session.ctx != nil {
		return c.Session.ctx.Value(key)
	}
	return nil
}

// RequestFrom returns the request that is being served. It returns nil if ctx is
// not that of a handler or a middleware.
func RequestFrom(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// Poll closes the connection on which the client waits for the answer, and makes the
// client reconnect after the delay. So a long call needs no open connection. What the
// handler sends in the meantime is kept for the client. Poll returns false, and does
// nothing, if that is not possible: it needs Streamable HTTP of 2025-11-25, and a
// client that is connected.
func Poll(ctx context.Context, after time.Duration) bool {
	x := exchangeFrom(ctx)
	return x != nil && x.Poll(after)
}

// Stream starts the response now, as a stream of events. Otherwise the response
// starts with the first message that the handler sends, and is plain JSON if that
// message is the answer. Stream returns false if the transport does not offer this
// choice.
func Stream(ctx context.Context) bool {
	x := exchangeFrom(ctx)
	return x != nil && x.Events()
}

func exchangeFrom(ctx context.Context) transport.Exchange {
	r := RequestFrom(ctx)
	if r == nil || r.Origin == nil {
		return nil
	}
	return r.Origin.Exchange
}

// A Number is any type of number.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Progress reports the progress of the request, if the client asked for it. Done must
// grow from call to call; other values are dropped. Total is 0 if it is unknown.
// Progress never blocks. While the connection is busy, up to 16 reports wait; after
// that the newest replaces the one before it. All reports are sent before the answer.
// In a task, progress becomes the status message. Outside of a request Progress does
// nothing.
func Progress[N Number](ctx context.Context, done, total N, message string) {
	r := RequestFrom(ctx)
	if r == nil || r.call == nil {
		return
	}
	c := r.call
	if c.task != nil {
		if c.task.progress(float64(done), float64(total), message) {
			return
		}
		c = c.task.first
	}
	if !c.token.IsZero() {
		c.progress(float64(done), float64(total), message)
	}
}

func (c *call) progress(done, total float64, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reports == nil {
		c.reports = new(progress)
	}
	p := c.reports
	if c.over || done <= p.highest {
		return
	}
	p.highest = done
	if len(p.unsent) == mostUnsent {
		p.unsent = p.unsent[:mostUnsent-1]
	}
	p.unsent = append(p.unsent, &protocol.ProgressParams{ProgressToken: c.token, Progress: done, Total: total, Message: message})
	if !p.sends {
		p.sends = true
		p.sending.Go(c.sendProgress)
	}
}

// mostUnsent limits the progress reports that wait.
const mostUnsent = 16

// sendProgress sends reports until none waits.
func (c *call) sendProgress() {
	for {
		c.mu.Lock()
		if len(c.reports.unsent) == 0 {
			c.reports.sends = false
			c.mu.Unlock()
			return
		}
		oldest := c.reports.unsent[0]
		c.reports.unsent = c.reports.unsent[1:]
		c.mu.Unlock()
		_ = c.peer.guarded(protocol.NotificationProgress, func() error {
			return c.tell(c, protocol.NotificationProgress, oldest)
		}) // if this fails, the client is gone, or the report is lost
	}
}

// finish sends everything that belongs to a call, before its answer.
func (c *call) finish() {
	c.mu.Lock()
	c.over = true
	reports := c.reports
	c.mu.Unlock()
	if reports != nil {
		reports.sending.Wait()
	}
}

// readProgressToken reads the client's progress token. Null counts as absent.
func (c *call) readProgressToken(meta protocol.Meta) error {
	raw, asked := meta[protocol.MetaProgressToken]
	if !asked {
		return nil
	}
	if err := c.token.UnmarshalJSON(raw); err != nil {
		return refuse(jsonrpc.CodeInvalidParams, "the progress token is neither a string nor an integer")
	}
	return nil
}

// tell sends a notification that belongs to the call, on the stream that will carry its
// answer. After the call has become a task, there is no such stream.
func (c *call) tell(ctx context.Context, method string, params any) error {
	if c.task != nil && c.task.hasBegun() {
		return nil
	}
	_, err := c.peer.server.handle(ctx, &Request{
		Method: method, Params: params, Client: c.Client, Session: c.Session, Origin: c.Origin,
		Outgoing: true, Notification: true, call: c, peer: c.peer,
	})
	return err
}

// tell sends a notification that belongs to no request.
func (p *peer) tell(ctx context.Context, method string, params any) error {
	session := p.session.Load()
	_, err := p.server.handle(ctx, &Request{
		Method: method, Params: params, Client: &session.client, Session: session, Origin: &p.server.nowhere,
		Outgoing: true, Notification: true, peer: p,
	})
	return err
}

// send is the innermost handler of an outgoing notification.
func (r *Request) send(ctx context.Context) error {
	var raw json.RawMessage
	if r.Params != nil {
		var err error
		if raw, err = protocol.Marshal(r.Params); err != nil {
			return err
		}
	}
	if len(r.peer.server.options.Middleware) > 0 {
		raw = tracing.Inject(ctx, raw)
	}
	if r.call != nil {
		return r.call.in.Notify(ctx, r.Method, raw)
	}
	return r.peer.conn.Notify(ctx, r.Method, raw)
}
