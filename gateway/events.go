package gateway

import (
	"context"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
)

// onEvent handles what a session learns without asking. It runs on the goroutine for the events of that session, so a slow server delays
// only itself.
func (g *Gateway) onEvent(ctx context.Context, of catalogue.Server, session *client.Session, e client.Event) {
	if u := g.upstream(of.Name); u != nil { // it is asked for its lists
		u.use.Hold()
		defer u.use.Release(false)
	}
	switch e := e.(type) {
	case *client.Restored:
		if u := g.upstream(of.Name); u != nil {
			u.ring.Store(false)
		}
		g.refresh(ctx, of, session, catalogue.Kinds()...)
		g.renewSubscriptions(ctx, session)
	case *client.ToolsChanged:
		g.refresh(ctx, of, session, catalogue.Tools)
	case *client.PromptsChanged:
		g.refresh(ctx, of, session, catalogue.Prompts)
	case *client.ResourcesChanged:
		g.refresh(ctx, of, session, catalogue.Resources, catalogue.Templates)
	case *client.ResourceUpdated:
		g.server.ResourceUpdated(e.URI)
	case *client.ElicitationComplete:
		g.finished(ctx, openedPage{session.Name(), e.ID})
	}
}

// finished tells a client that its user has finished on a page.
func (g *Gateway) finished(ctx context.Context, page openedPage) {
	if s := g.opened.take(page); s != nil {
		_ = s.ElicitationComplete(ctx, page.id) // it has left, or cannot be told
	}
}

// isKept reports whether a server must run although no call is under way: somebody has subscribed to a resource of it, or nothing is known yet
// of what it offers.
func (g *Gateway) isKept(name string) bool {
	return len(g.subscriptions.of(name)) > 0 || len(g.known.Snapshot().Ages(name)) == 0
}

// isKnown reports whether a server has said all that it offers, now or in an earlier run.
func (g *Gateway) isKnown(name string) bool {
	return len(g.known.Snapshot().Ages(name)) == len(catalogue.Kinds())
}
