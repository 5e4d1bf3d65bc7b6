package gateway

import (
	"context"

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
		for _, uri := range g.subscriptionsOf(of.Name) { // it may have changed while the server was away
			g.server.ResourceUpdated(uri)
		}
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

// subscribe lets a client subscribe to a resource. The first one makes the gateway subscribe at the server.
func (g *Gateway) subscribe(ctx context.Context, uri string) (failed error) {
	item, found := g.resource(ctx, uri)
	if !found {
		return server.ErrNotFound
	}
	if u := g.upstream(item.Server); u != nil {
		done := u.count(ctx, protocol.MethodSubscribe, nil)
		defer func() { done(failed == nil) }()
	}
	session, err := g.reach(ctx, item.Server)
	if err != nil {
		return err.fault()
	}
	if err := session.Subscribe(ctx, &protocol.SubscribeParams{URI: uri}); err != nil {
		return g.failed(item.Server, err).fault()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.subscriptions[item.Server] == nil {
		g.subscriptions[item.Server] = make(map[string]int)
	}
	g.subscriptions[item.Server][uri]++
	return nil
}

// unsubscribe ends a subscription of a client. The last one ends that at the server.
func (g *Gateway) unsubscribe(ctx context.Context, uri string) {
	for _, name := range g.forget(uri) {
		if u := g.upstream(name); u != nil {
			defer u.count(ctx, protocol.MethodUnsubscribe, nil)(true)
		}
		if session, running := g.set.Session(name); running {
			_ = session.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: uri}) // nobody is told of what still comes
		}
	}
}

// forget counts one subscription less, and returns the server if that was the last one. The catalogue may name another server by
// now, so it is not asked.
func (g *Gateway) forget(uri string) (last []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, uris := range g.subscriptions {
		switch uris[uri] {
		case 0:
			continue
		case 1:
			delete(uris, uri)
			last = append(last, name)
		default:
			uris[uri]--
		}
		break
	}
	return last
}

func (g *Gateway) subscriptionsOf(name string) (uris []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for uri := range g.subscriptions[name] {
		uris = append(uris, uri)
	}
	return uris
}

// isKept reports whether a server must run although no call is under way: somebody has subscribed to a resource of it, or nothing is known yet
// of what it offers.
func (g *Gateway) isKept(name string) bool {
	return len(g.subscriptionsOf(name)) > 0 || len(g.known.Snapshot().Ages(name)) == 0
}

// isKnown reports whether a server has said all that it offers, now or in an earlier run.
func (g *Gateway) isKnown(name string) bool {
	return len(g.known.Snapshot().Ages(name)) == len(catalogue.Kinds())
}
