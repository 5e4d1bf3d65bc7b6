package server

import (
	"cmp"
	"context"
	"fmt"

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

	// ProtocolVersions are the revisions to speak. Default: all legacy ones.
	ProtocolVersions []string

	// PageSize bounds the pages of lists; 100.
	PageSize int
}

// A Server offers features to any number of peers. It is safe for concurrent
// use; tools may be added while it serves.
type Server struct {
	info    protocol.Implementation
	options Options
	tools   catalogue[*registeredTool]
}

// New returns a server that introduces itself as info.
func New(info protocol.Implementation, o Options) *Server {
	o.PageSize = cmp.Or(o.PageSize, 100)
	if len(o.ProtocolVersions) == 0 {
		o.ProtocolVersions = protocol.LegacyVersions()
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
	options.Dialect, options.Handler = &peer.dialect, peer
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
