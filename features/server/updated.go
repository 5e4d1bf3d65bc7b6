package server

import (
	"cmp"
	"context"

	"github.com/bowline-mcp/bowline/features/server/internal/changes"
)

// ResourceUpdatedFor does what ResourceUpdated does for those subscribers at this server alone for which may returns true. It is told
// the Identity of the Origin of each, the session of a legacy client, which is nil for a modern one, and the context of that session
// (Options.SessionContext, without which it is the background), or of the listening request. It must not block, nor use the Server.
func (s *Server) ResourceUpdatedFor(uri string, may func(ctx context.Context, identity string, session *Session) bool) {
	s.subscriptions.TellIf(changes.Resource(uri), func(of changes.Owner) bool {
		session, _ := of.Session.(*Session)
		ctx := of.Listening
		if session != nil {
			ctx = session.context()
		}
		return may(cmp.Or(ctx, context.Background()), of.Identity, session)
	})
}

// ListChangedFor does what ListChanged does for those clients at this server alone for which may returns true. It is told the context of the session of a legacy
// client (Options.SessionContext, without which it is the background), or that of the listening request of a modern one. It must not block, nor use the Server.
//
// Use it where clients see different parts of a list: to tell everybody costs each client a request, and tells those who do not see what has changed
// that there is something. A client that begins to listen meanwhile is not told, and reads the list after that.
func (s *Server) ListChangedFor(kind string, may func(context.Context) bool) {
	one := listOf(kind)
	// A legacy client has one listener as long as its session lives, which says itself whether the client is ready for notifications.
	for _, p := range s.sessions.all() {
		session := p.session.Load()
		if session == nil {
			continue
		}
		if may(session.context()) {
			p.changes.Tell(one)
		}
	}
	// The others have said in their request what they want to hear of. Legacy clients are among the owners, too, if they have subscribed to a resource.
	s.subscriptions.TellIf(one, func(of changes.Owner) bool { return of.Listening != nil && may(of.Listening) })
}
