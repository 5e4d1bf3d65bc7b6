package client

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
)

// Options configure a Client. The zero value of each field means its default.
type Options struct {
	// Conn configures each session's connection: name, timeouts, backoff,
	// bounds, hooks. Its Dialect, Handler and Handshake are the client's own;
	// Final is kept unless FailFast is set.
	Conn conn.Options

	// Capabilities are what the client offers to servers.
	Capabilities protocol.ClientCapabilities

	// ProtocolVersion is the revision to ask for. Default: protocol.LatestLegacy.
	// Whichever legacy revision the server answers with is spoken.
	ProtocolVersion string

	// Supervisor runs the connections. Nil: each session has one of its own.
	Supervisor *supervisor.Supervisor

	// FailFast makes the first failure final: for commands that run once.
	FailFast bool
}

// A Client opens sessions. It holds no resources, and is safe for concurrent use.
type Client struct {
	info    protocol.Implementation
	options Options
}

// New returns a client that introduces itself as info.
func New(info protocol.Implementation, o Options) *Client {
	if o.ProtocolVersion == "" {
		o.ProtocolVersion = protocol.LatestLegacy
	}
	if o.FailFast {
		o.Conn.Final = func(conn.Reason) bool { return true }
	}
	return &Client{info: info, options: o}
}

// Connect starts a session over t and returns once it is ready. It fails at
// the end of ctx, with the last reason in the error, or when a reason is
// final; nothing is left running then. The context bounds connecting only.
func (c *Client) Connect(ctx context.Context, t transport.Transport) (*Session, error) {
	if !protocol.IsLegacy(c.options.ProtocolVersion) {
		return nil, fmt.Errorf("client: protocol version %q is not supported", c.options.ProtocolVersion)
	}
	s, err := c.start(t)
	if err != nil {
		return nil, err
	}
	if err := s.conn.AwaitReady(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("client: connect: %w", err)
	}
	return s, nil
}

func (c *Client) start(t transport.Transport) (*Session, error) {
	s := &session{client: c, supervisor: c.options.Supervisor}
	options := c.options.Conn
	options.Dialect, options.Handler, options.Handshake = &s.dialect, s, s.initialize
	s.conn = conn.New(t, options)
	if s.supervisor == nil {
		s.supervisor, s.own = supervisor.New(supervisor.Options{Name: options.Name}), true
	}
	child, err := s.supervisor.Connect(s.conn)
	if err != nil {
		return nil, fmt.Errorf("client: connect: %w", err)
	}
	s.child = child
	return &Session{session: s}, nil
}
