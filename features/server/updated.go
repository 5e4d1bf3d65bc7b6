package server

import "github.com/bowline-mcp/bowline/features/server/internal/changes"

// ResourceUpdatedFor does what ResourceUpdated does for those subscribers at this server alone for which may returns true. It is told
// the Identity of the Origin of each, and the session of a legacy client; that of a modern one is nil. It must not block, nor use the Server.
func (s *Server) ResourceUpdatedFor(uri string, may func(identity string, session *Session) bool) {
	s.subscriptions.TellIf(changes.Resource(uri), func(of changes.Owner) bool {
		session, _ := of.Session.(*Session)
		return may(of.Identity, session)
	})
}
