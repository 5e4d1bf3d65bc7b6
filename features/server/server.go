package server

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// Options configure a Server. The zero value of each field means its default.
type Options struct {
	// Conn configures each peer's connection: bounds, timeouts, hooks. Its
	// Dialect and Handler are the server's own.
	Conn conn.Options

	// Instructions tell a model how to use the server.
	Instructions string

	// ProtocolVersions are the revisions to speak. Default: protocol.Versions.
	ProtocolVersions []string

	// PageSize bounds the pages of lists. Default, also below 1: 100. At most
	// protocol.MaxPageTools.
	PageSize int
}

// A Server offers features to any number of clients, of every revision, over
// any number of links. It is safe for concurrent use. Tools may be added while
// it serves, and clients that want to know are told. A legacy client that
// initialized its session before the first one was added was offered none: its
// tools/list and tools/call are answered with -32601.
type Server struct {
	info     protocol.Implementation
	rawInfo  json.RawMessage // the same, encoded
	options  Options
	tools    catalogue[*registeredTool]
	audience audience
	sessions sessions
}

// New returns a server that introduces itself as info. It panics on a revision
// that is not known here: options are the program's own.
func New(info protocol.Implementation, o Options) *Server {
	if o.PageSize < 1 {
		o.PageSize = 100
	}
	o.PageSize = min(o.PageSize, protocol.MaxPageTools)
	o.ProtocolVersions = slices.Clone(o.ProtocolVersions)
	if len(o.ProtocolVersions) == 0 {
		o.ProtocolVersions = protocol.Versions()
	}
	for _, version := range o.ProtocolVersions {
		if !slices.Contains(protocol.Versions(), version) {
			panic(fmt.Sprintf("server: ProtocolVersions: %q is not known", version))
		}
	}
	if o.Conn.Wheel == nil {
		o.Conn.Wheel = new(conn.Wheel)
	}
	raw, err := protocol.Marshal(info)
	if err != nil { // text and lists of text can be encoded
		panic(fmt.Sprintf("server: %v", err))
	}
	return &Server{info: info, rawInfo: raw, options: o}
}

// modernCapabilities hold for one request alone, and clients keep them for a
// while all the same: tools may be added meanwhile, so there is a list of them.
func (s *Server) modernCapabilities() protocol.ServerCapabilities {
	return protocol.ServerCapabilities{Tools: &protocol.ListCapability{ListChanged: true}}
}

// legacyCapabilities hold for a whole session.
func (s *Server) legacyCapabilities() protocol.ServerCapabilities {
	var c protocol.ServerCapabilities
	if s.tools.len() > 0 {
		c.Tools = &protocol.ListCapability{ListChanged: true}
	}
	return c
}
