package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// Options configure a Server. The zero value of each field means its default.
type Options struct {
	// Conn configures each peer's connection: bounds, timeouts, hooks. Its
	// Dialect and Handler are the server's own.
	Conn conn.Options

	// Instructions tell a model how to use the server.
	Instructions string

	// ProtocolVersions are the revisions to speak, of those that initialize can
	// negotiate. Default: all of protocol.LegacyVersions.
	ProtocolVersions []string

	// PageSize bounds the pages of lists. Default, also below 1: 100. At most
	// protocol.MaxPageTools.
	PageSize int
}

// A Server offers features to any number of peers. It is safe for concurrent
// use. Tools may be added while it serves; a peer that initialized its session
// before the first one was added was offered none, and its tools/list and
// tools/call are answered with -32601.
type Server struct {
	info    protocol.Implementation
	options Options
	tools   catalogue[*registeredTool]
}

// New returns a server that introduces itself as info. It panics on a revision
// that initialize cannot negotiate: options are the program's own.
func New(info protocol.Implementation, o Options) *Server {
	if o.PageSize < 1 {
		o.PageSize = 100
	}
	o.PageSize = min(o.PageSize, protocol.MaxPageTools)
	o.ProtocolVersions = slices.Clone(o.ProtocolVersions)
	if len(o.ProtocolVersions) == 0 {
		o.ProtocolVersions = protocol.LegacyVersions()
	}
	for _, version := range o.ProtocolVersions {
		if !protocol.IsLegacy(version) {
			panic(fmt.Sprintf("server: ProtocolVersions: initialize cannot negotiate %q", version))
		}
	}
	return &Server{info: info, options: o}
}

// Serve opens the transport and serves the one peer behind it. It returns when
// the peer has gone (nil after it left in good order) or ctx has ended; what is
// being served then is cancelled.
func (s *Server) Serve(ctx context.Context, t transport.Transport) error {
	link, err := t.Open(ctx)
	if err != nil {
		return fmt.Errorf("server: open: %w", err)
	}
	return s.ServeLink(ctx, link)
}

// ServeLink is Serve for a link that a listener was handed. It takes the link over.
func (s *Server) ServeLink(ctx context.Context, link transport.Link) error {
	peer := &Session{server: s}
	options := s.options.Conn
	options.Dialect, options.Handler = &peer.dialect, handler{peer}
	peer.conn = conn.Accept(link, options)
	if err := peer.conn.Run(ctx); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

func (s *Server) capabilities() protocol.ServerCapabilities {
	var c protocol.ServerCapabilities
	if s.tools.len() > 0 {
		c.Tools = &protocol.ListCapability{}
	}
	return c
}
