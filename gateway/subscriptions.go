package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// A subscriptions counts how many clients have subscribed to each resource of a server. Its zero value is ready.
type subscriptions struct {
	mu     sync.Mutex
	counts map[string]map[string]int // by server and URI
}

// add counts one more.
func (s *subscriptions) add(name, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = make(map[string]map[string]int)
	}
	if s.counts[name] == nil {
		s.counts[name] = make(map[string]int)
	}
	s.counts[name][uri]++
}

// remove counts one less, and reports whether that was the last one.
func (s *subscriptions) remove(name, uri string) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uris := s.counts[name]
	switch uris[uri] {
	case 0: // another one was quicker
		return false
	case 1:
	default:
		uris[uri]--
		return false
	}
	if delete(uris, uri); len(uris) == 0 {
		delete(s.counts, name)
	}
	return true
}

// serverOf returns a server at which somebody has subscribed to a URI. The catalogue may name another one by now, so it is not asked.
func (s *subscriptions) serverOf(uri string) (name string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, uris := range s.counts {
		if uris[uri] > 0 {
			return name, true
		}
	}
	return "", false
}

// of returns the URIs to which somebody has subscribed at a server.
func (s *subscriptions) of(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.counts[name]))
}

// subscribe lets a client subscribe to a resource. It is counted first: who ends the last other subscription at the same time must
// see that.
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
