package server

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/meta"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/internal/reports"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/tasks"
	"github.com/bowline-mcp/bowline/features/server/internal/typed"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A call is a Request being served. It is also the context of its handler, and the body
// of its answer, so that a request needs only one allocation.
// Its steps, in this order, and all on the goroutine of its request:
//
//	newCall     the row of the method is known, and nothing of the client
//	read        identify says who asks, and decodeParams what. What fails here, no middleware sees
//	handle      the middleware, and at its end the method; the handler may start goroutines that use the call
//	finish      all reports are sent, and none comes after that
//	AppendJSON  the Conn has room for the answer, and lets the call encode it
//
// The handler of a task, and one that waits between two rounds, outlive the request: such a handler gets another
// call, or that of each later round.
type call struct {
	context.Context
	Request

	in      *conn.Incoming
	size    int                          // what its request keeps in memory, in bytes
	method  *method                      // the row of its method; nil if the server does not have the method
	offered *protocol.ServerCapabilities // what the server offers to this client
	modern  bool
	cut     meta.Cut          // its _meta, if that need not be decoded
	result  any               // what was answered
	scratch any               // memory for a copy of that; nil: none
	level   protocol.LogLevel // that this modern request asks for

	asked *asked     // nil until the client or the handler asks something
	token jsonrpc.ID // the progress token of the client
	task  *inTask    // set for the call that a task's handler sees; nil for the request itself

	metaDeferred bool // decodeParams has left _meta out
	entered      bool // middleware and features have seen it
	noPlace      bool // there was no place for its handler

	// mu also guards asked while CallID and Joined change it.
	mu      sync.Mutex
	whole   bool             // addMeta has added that _meta
	over    bool             // the call has been answered
	reports *reports.Reports // the progress reports; nil before the first
	note    any              // what its handler has added to the record; see Note
	logs    *logBudget
}

// inTask is what a handler that may be a task shares with it.
type inTask struct {
	of    *tasks.Task
	first *call // the request that began it
}

// asked contains the fields of a call that asks.
type asked struct {
	questioner asking.Questioner // asks the questions of the handler; nil if the handler must not ask
	state      []byte            // the handler's own state, decrypted
	id         string            // the result of CallID; empty until it is needed
}

// newCall returns the call for a request or notification. M is its row, or nil.
// It decodes nothing, so it costs the same for each message.
func (p *peer) newCall(ctx context.Context, in *conn.Incoming, m *method) *call {
	var c *call
	if m != nil {
		c = m.newCall()
	} else {
		c = new(call)
	}
	c.Context, c.in, c.size = ctx, in, in.Size()
	c.Method, c.Origin, c.call, c.peer = in.Method, in.Origin, c, p
	if c.Origin == nil {
		c.Origin = &p.server.noOrigin
	}
	return c
}

// A sender is a client or, if nothing is known about it, its link.
type sender struct {
	client share.Client
	link   *peer
}

// callKey is the context key under which the server finds the call itself.
type callKey struct{}

// inTurn does a part of the server's own work for a call when it is the turn of its client. The cost is in
// bytes. If the context of the call ends before that, inTurn fails.
func (c *call) inTurn(cost int, work func()) error {
	if cost <= turn.Small {
		work()
		return nil
	}
	type scheduled interface { // an Exchange of the package that has decoded the request
		Turns() (*turn.Scheduler[share.Client], share.Client)
	}
	// Over HTTP the endpoint has decoded the message when it was the turn of its client, and what is left of the work
	// takes turns with that: one client never has one turn there and another one here.
	if of, ok := c.Origin.Exchange.(scheduled); ok {
		turns, client := of.Turns()
		return turns.Do(c, client, cost, c.in.Leave, work)
	}
	// Whoever cannot be told apart shares the turns of the link, and takes none of anybody else. To name the link as a client would allocate.
	from := sender{link: c.peer}
	if c.Origin.Identity != "" || c.Origin.RemoteAddr != "" {
		from = sender{client: c.client()}
	}
	return c.peer.server.turns.Do(c, from, cost, c.in.Leave, work)
}

// inTurn does what the method does, for reading what the call of a context contains.
func inTurn(ctx context.Context, work func()) error {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.inTurn(c.in.Size(), work)
	}
	work()
	return nil
}

// textDecoder is typed.TextDecoder for the arguments of a request: it decodes when it is the turn of the client.
func textDecoder[T any](s typed.Schema) func(context.Context, map[string]string) (T, error) {
	decode := typed.TextDecoder[T](s)
	return func(ctx context.Context, texts map[string]string) (value T, err error) {
		if late := inTurn(ctx, func() { value, err = decode(ctx, texts) }); late != nil {
			return value, late
		}
		return value, err
	}
}

// Value finds the request itself, then the values of the HTTP request that brought
// it, then those of the session.
func (c *call) Value(key any) any {
	switch key {
	// These two come first: no values of an HTTP request or a session may hide who is calling.
	case callKey{}:
		return c
	case requestKey{}:
		// Whoever has the request may look at its params.
		c.addMeta()
		return &c.Request
	}
	if value := c.Context.Value(key); value != nil {
		return value
	}
	if c.Session != nil {
		return c.Session.context().Value(key)
	}
	return nil
}

// progress may be called by any goroutine of the handler, also when the call is over: then it does nothing.
func (c *call) progress(ctx context.Context, done, total float64, message string) {
	c.mu.Lock()
	if c.reports == nil && !c.over {
		c.reports = reports.New(c, c.token, c.sendProgress)
	}
	all := c.reports
	c.mu.Unlock()
	if all != nil {
		all.Add(ctx, done, total, message)
	}
}

func (c *call) sendProgress(ctx context.Context, params *protocol.ProgressParams) {
	_ = c.peer.guarded(protocol.NotificationProgress, func() error {
		return c.tell(ctx, protocol.NotificationProgress, params)
	}) // if this fails, the client is gone, or the report is lost
}

// finish sends everything that belongs to a call, before its answer.
// It is called also if the handler has returned an error, which no report may follow either.
func (c *call) finish() {
	c.mu.Lock()
	c.over = true
	all := c.reports
	c.mu.Unlock()
	if all != nil {
		all.End()
	}
}

// readProgressToken reads the client's progress token. Null counts as absent. A _meta that was
// left out has none.
func (c *call) readProgressToken(params *protocol.RequestParams) error {
	if c.metaDeferred {
		return nil
	}
	raw, asked := params.Meta[protocol.MetaProgressToken]
	if !asked {
		return nil
	}
	if err := c.token.UnmarshalJSON(raw); err != nil {
		return refusal.New(jsonrpc.CodeInvalidParams, "the progress token is neither a string nor an integer")
	}
	return nil
}

// tell sends a notification that belongs to the call, on the stream that will carry its
// answer. After the call has become a task, there is no such stream.
func (c *call) tell(ctx context.Context, method string, params any) error {
	if c.task != nil && c.task.of.HasBegun() {
		return nil
	}
	_, err := c.peer.server.handle(ctx, &Request{
		Method: method, Params: params, Client: c.Client, Session: c.Session, Origin: c.Origin,
		Outgoing: true, Notification: true, call: c, peer: c.peer,
	})
	return err
}

// AppendJSON appends the result of a call to the frame of its answer.
// The Conn calls it once, after the handler has returned and only if the client has room for so much as SizeJSON
// says. If it fails, the client gets an error as if the handler had failed.
func (c *call) AppendJSON(dst []byte) (frame []byte, err error) {
	if late := c.inTurn(protocol.SizeOf(c.result), func() { frame, err = c.encode(dst) }); late != nil {
		return nil, late
	}
	return frame, err
}

func (c *call) encode(dst []byte) ([]byte, error) {
	if c.method == nil {
		return encode(c, dst, c.result)
	}
	return c.method.encode(c, dst, c.result)
}

// SizeJSON estimates how long that is.
// It may be less than the truth: so much is reserved and allocated at first.
func (c *call) SizeJSON() int {
	if !c.modern {
		return protocol.SizeOf(c.result)
	}
	const stamped = 32 // room for what Stamp adds, in bytes
	return protocol.SizeOf(c.result) + len(c.peer.server.rawMeta) + stamped
}

// fault converts the error of a handler to the error response of the client's revision.
// An error without such a response becomes an internal error.
// The legacy revisions have a code for neither a missing capability nor an answer that does not fit: there these are
// errors like any other.
func (c *call) fault(err error) error {
	var unsupported *UnsupportedError
	if c.modern && errors.As(err, &unsupported) {
		fault := refusal.New(protocol.CodeMissingCapability, "%v", err)
		fault.Data, _ = protocol.Marshal(protocol.MissingCapabilityData{RequiredCapabilities: unsupported.required})
		return fault
	}
	var answer *AnswerError
	if c.modern && errors.As(err, &answer) {
		return refusal.New(jsonrpc.CodeInvalidParams, "%v", err)
	}
	if fault, own := conn.FaultOf(err); fault != nil && !own {
		return errors.New(err.Error()) // its code would say something about this call
	}
	return err
}

// resourceFault does what fault does, for an error of a resource.
func (c *call) resourceFault(uri string, err error) error {
	if !errors.Is(err, ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	code := int64(protocol.CodeResourceNotFound)
	if c.modern {
		code = jsonrpc.CodeInvalidParams
	}
	fault := refusal.New(code, "resource not found: %s", refusal.Shorten(uri, refusal.LongestName))
	fault.Data, _ = protocol.Marshal(protocol.ResourceNotFoundData{URI: uri})
	return fault
}
