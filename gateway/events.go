package gateway

import (
	"context"
	"slices"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/protocol"
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

// subscribe lets a client subscribe to a resource. It is counted first: who ends the last other subscription at the same time must
// see that.
func (g *Gateway) subscribe(ctx context.Context, uri string) (failed error) {
	item, found := g.resource(ctx, uri)
	if !found {
		return server.ErrNotFound
	}
	u := g.upstream(item.Server)
	if u == nil {
		return removed(item.Server).fault()
	}
	done := u.count(ctx, protocol.MethodSubscribe, nil)
	defer func() { done(failed == nil) }()
	session, err := g.reach(ctx, u)
	if err != nil {
		return err.fault()
	}
	g.subscriptions.add(item.Server, uri)
	if err := session.Subscribe(ctx, &protocol.SubscribeParams{URI: uri}); err != nil {
		g.endSubscription(ctx, item.Server, uri)
		return g.failed(item.Server, err).fault()
	}
	return nil
}

// unsubscribe ends a subscription of a client.
func (g *Gateway) unsubscribe(ctx context.Context, uri string) {
	name, found := g.subscriptions.serverOf(uri)
	if !found {
		return
	}
	if u := g.upstream(name); u != nil {
		defer u.count(ctx, protocol.MethodUnsubscribe, nil)(true)
	}
	g.endSubscription(ctx, name, uri)
}

// endSubscription ends one subscription, and that at the server if it was the last one. If another client has subscribed meanwhile, the server
// may have been asked to end its subscription, too, and is asked again.
func (g *Gateway) endSubscription(ctx context.Context, name, uri string) {
	last := g.subscriptions.remove(name, uri)
	session, running := g.set.Session(name)
	if !last || !running {
		return
	}
	_ = session.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: uri}) // nobody is told of what still comes
	if slices.Contains(g.subscriptions.of(name), uri) {
		g.renewSubscription(context.WithoutCancel(ctx), session, uri)
	}
}

// renewSubscriptions makes a server tell of the resources to which clients have subscribed. A session renews its own when it has lost its
// server, but that of a server which was restarted is another one. What changed in between, nobody has told.
func (g *Gateway) renewSubscriptions(ctx context.Context, session *client.Session) {
	for _, uri := range g.subscriptions.of(session.Name()) {
		g.renewSubscription(ctx, session, uri)
		g.server.ResourceUpdated(uri)
	}
}

// renewSubscription makes no request if the server has the subscription.
func (g *Gateway) renewSubscription(ctx context.Context, session *client.Session, uri string) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := session.Subscribe(ctx, &protocol.SubscribeParams{URI: uri}); err != nil {
		g.log().Warn("bowline: a subscription could not be renewed", "server", session.Name(), "uri", uri, "error", err)
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
