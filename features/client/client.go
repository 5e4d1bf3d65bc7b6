package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
)

// Options configure a Client. The zero value of each field means its default.
type Options struct {
	// Conn configures each session's connection: timeouts, backoff, bounds,
	// hooks. Its Dialect, Handler, Handshake and Owner are the client's own, and
	// its Final is asked as well, see Connect.
	//
	// Its Name is what Connect calls a session; one that another session of the
	// same Supervisor has at the time gets a suffix: "search", "search-2". Start
	// is given a name for each.
	//
	// Sessions of one Client share a Wheel and a Gate: what Conn does not bring
	// of these is made for the Client, with their defaults.
	Conn conn.Options

	// ProtocolVersion is the revision to ask for. A legacy one opens a session
	// by initialize, in whichever legacy revision the server answers with; a
	// modern one is spoken with a server that knows it, and no other.
	//
	// Default: protocol.Latest with a server that answers server/discover, and
	// a legacy session with any other. A server that is silent about it costs
	// five seconds, or half of Options.Conn.InitTimeout if that is less, once.
	ProtocolVersion string

	// OnToolsChanged is told that the server's tools may have changed: because
	// the server says so, was replaced, or has only begun to tell, as a modern
	// one does some time after Connect. It runs on a goroutine of the session's
	// own, one call at a time, and what changes meanwhile is told as one. It may
	// call the server, but not close the session, which waits for it, as its
	// Supervisor does, for at most Options.Conn.StopGrace: a *conn.StuckError names
	// it then. Its context ends with the session. A panic costs the call that
	// panics, and is told to Options.Conn.Hooks.Panic. Nil: nobody is told, nor a
	// modern server asked to tell.
	OnToolsChanged func(context.Context, *Session)

	// ToolModes says of tools, by name, whether their calls depend on earlier
	// ones of the session. One that is not named here is what its server says in
	// _meta as protocol.MetaToolMode, when it listed the tool last, and else
	// protocol.Stateless. See Session.CallTool.
	ToolModes map[string]protocol.ToolMode

	// TrustAnnotations takes the server at its word: a tool that it has listed
	// with readOnlyHint or idempotentHint is one that may be called twice, see
	// CallOptions.Retries. Without it annotations count for nothing, as the
	// specification asks.
	TrustAnnotations bool

	// OnNotification is told everything that the server tells, but for progress,
	// which goes to the call it is of (CallOptions.OnProgress): one notification
	// at a time, in order. It may take its time, and call the server: ADR-0006
	// says what is shed when too many wait for it. Its context ends with the
	// connection that the notification came on. It may run before Connect has
	// returned, when Server is still empty, and must not close the session, which
	// waits for it. Nil: nobody is.
	OnNotification func(context.Context, *Session, Notification)

	// Supervisor runs the connections. Nil: each session has one of its own.
	Supervisor *supervisor.Supervisor

	// FailFast makes the first failure final: for commands that run once.
	FailFast bool
}

// A Notification is what a server tells without being asked.
type Notification struct {
	Method string
	Params json.RawMessage // as they came; nil when absent
}

// A Client opens sessions. It holds no resources, and is safe for concurrent use.
type Client struct {
	info    protocol.Implementation
	context protocol.RequestContext // what every modern request says
	options Options

	suffix atomic.Int64 // the last that was given to a name
}

// New returns a client that introduces itself as info.
func New(info protocol.Implementation, o Options) *Client {
	version := protocol.Latest
	if protocol.IsModern(o.ProtocolVersion) {
		version = o.ProtocolVersion
	}
	if o.Conn.Wheel == nil {
		o.Conn.Wheel = new(conn.Wheel)
	}
	if o.Conn.Gate == nil {
		o.Conn.Gate = new(conn.Gate)
	}
	said := protocol.RequestContext{ProtocolVersion: version, ClientInfo: &info}
	return &Client{info: info, context: said, options: o}
}

// Connect starts a session over t and returns once it is ready. It fails at
// the end of ctx, with the last reason in the error, or when a reason is
// final; nothing is left running then, but what a registry.Store does that
// ignores its context. The context bounds connecting only. What the transport
// knows to be wrong with it (transport.Checked) is found before anything is
// tried. A nil transport is a panic.
//
// Until the session has been ready once, conn.ExecutableMissing and
// conn.Incompatible are final: waiting does not help. After that the session
// outlives them. What Options.Conn.Final says is final is so at any time.
func (c *Client) Connect(ctx context.Context, t transport.Transport) (*Session, error) {
	s, err := c.begin(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("client: connect: %w", err)
	}
	if err := s.conn.AwaitReady(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("client: connect: %w", err)
	}
	s.watchTools(s.latest.Load())
	s.given.Store(true)
	return s, nil
}

// Start has a session over t run under a name of its own, and does not wait for
// its server, which may not be there yet: while it is not, calls are refused, or
// wait with CallOptions.WaitForReady; Session.Conn().AwaitReady does only that.
// Nothing ends the session but Close, its Supervisor, what Options.Conn.Final
// says, and FailFast. OnToolsChanged is also told when the server is there for
// the first time.
//
// Start fails with a *supervisor.DuplicateError when another session of the
// Supervisor has the name, with what its Registry says against it, and with what
// the transport knows to be wrong with it (transport.Checked). The context bounds
// the wait for the Registry and, where the Supervisor's Strategy has children
// depend on each other, for those that begin. A nil transport is a panic.
func (c *Client) Start(ctx context.Context, name string, t transport.Transport) (*Session, error) {
	s, err := c.run(ctx, name, t, true)
	if err != nil {
		return nil, fmt.Errorf("client: start: %w", err)
	}
	s.watchTools(nil)
	s.given.Store(true)
	return s, nil
}

// run has the supervisor run a connection. One that is patient is not ended for
// lack of a server that was never there.
func (c *Client) run(ctx context.Context, name string, t transport.Transport, patient bool) (*Session, error) {
	if asked := c.options.ProtocolVersion; asked != "" && !slices.Contains(protocol.Versions(), asked) {
		return nil, fmt.Errorf("protocol version %q is not supported", asked)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if checked, ok := t.(transport.Checked); ok {
		if err := checked.Check(); err != nil {
			return nil, err
		}
	}
	s := &session{client: c, supervisor: c.options.Supervisor, patient: patient}
	if c.options.OnToolsChanged != nil {
		s.changes = make(chan struct{}, 1)
	}
	if s.supervisor == nil {
		s.supervisor, s.own = supervisor.New(supervisor.Options{Name: name}), true
	}
	o := c.options.Conn
	o.Name, o.Dialect, o.Handler = name, &s.dialect, handler{s}
	o.Handshake, o.Final, o.Owner = s.shake, s.final, s
	s.conn = conn.New(t, o)
	var err error
	if s.child, err = s.supervisor.Connect(ctx, s.conn); err != nil {
		return nil, err
	}
	return &Session{session: s}, nil
}
