package client

import (
	"context"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// A Server is what a server has said of itself: for people and logs, but for
// the capabilities.
type Server struct {
	ProtocolVersion string // spoken with it
	Info            protocol.Implementation
	Capabilities    protocol.ServerCapabilities
	Instructions    string // how a model should use it; empty when it does not say
}

// A meeting is a handshake that has succeeded. There is one per incarnation
// that was ready.
type meeting struct {
	incarnation *conn.Incarnation
	server      Server
	members     protocol.Meta // what every request says in _meta; nil in the legacy revisions
}

// meet notes a handshake that has succeeded, unless its incarnation is over:
// a later one may have been noted already.
func (s *session) meet(ctx context.Context, m *meeting) error {
	for {
		before := s.latest.Load()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case before != nil && before.incarnation.Epoch() > m.incarnation.Epoch():
			return conn.ErrStale
		case s.latest.CompareAndSwap(before, m):
			return nil
		}
	}
}

func (m *meeting) modern() bool { return m.members != nil }

// final is conn.Options.Final. While a program waits in Connect for a server
// that has never been there and cannot be, for lack of an executable or of a
// common revision, that is not waited for; one that has been may be in the
// middle of an update.
func (s *session) final(why conn.Reason) bool {
	hopeless := why.Kind == conn.ExecutableMissing || why.Kind == conn.Incompatible
	switch own := s.client.options.Conn.Final; {
	case s.died(why):
		return false
	case s.client.options.FailFast:
		return true
	case hopeless && s.latest.Load() == nil && !s.patient:
		return true
	default:
		return own != nil && own(why)
	}
}
