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
		if isChangeOfList(e) && !u.excess.pace(ctx) {
			return
		}
		u.use.Hold()
		defer u.use.Release(false)
	}
	switch e := e.(type) {
	case *client.Lost:
		g.known.Forget(of) // why that process has not said what it has
	case *client.Restored:
		g.back(ctx, of, session)
	case *client.ToolsChanged:
		g.refresh(ctx, of, session, catalogue.Tools)
	case *client.PromptsChanged:
		g.refresh(ctx, of, session, catalogue.Prompts)
	case *client.ResourcesChanged:
		g.refresh(ctx, of, session, catalogue.Resources, catalogue.Templates)
	case *client.ResourceUpdated:
		g.updated(new(connection), e.URI)
	default:
		g.onOther(ctx, session, e)
	}
}

// back asks a server that is there, for the first time or again, for all that it offers.
func (g *Gateway) back(ctx context.Context, of catalogue.Server, session *client.Session) {
	g.known.Forget(of)
	if u := g.upstream(of.Name); u != nil {
		u.ring.Store(false)
	}
	g.refresh(ctx, of, session, catalogue.Kinds()...)
	g.restored(ctx, new(connection), session)
}

// onOwnEvent handles what the session of an owner learns. What a server offers is learned from the shared session alone: the catalogue is one for all.
func (g *Gateway) onOwnEvent(ctx context.Context, c *connection, session *client.Session, e client.Event) {
	switch e := e.(type) {
	case *client.Restored:
		g.restored(ctx, c, session)
	case *client.ResourceUpdated:
		g.updated(c, e.URI)
	default:
		g.onOther(ctx, session, e)
	}
}

// restored makes up for what was lost with the last connection: tasks of a child have ended with it, and the next one has no subscriptions.
func (g *Gateway) restored(ctx context.Context, c *connection, session *client.Session) {
	g.endLostTasks(ctx)
	g.renewSubscriptions(ctx, c, session)
}

// onOther handles what concerns one client, which the gateway knows: the end of a question on a page, and the status of a task. Of other notifications
// nothing is passed on, since no client has asked for them.
func (g *Gateway) onOther(ctx context.Context, session *client.Session, e client.Event) {
	switch e := e.(type) {
	case *client.ElicitationComplete:
		g.finished(ctx, openedPage{session.Name(), e.ID})
	case *client.Notification:
		if e.Method == protocol.NotificationTaskStatus {
			g.onTaskStatus(ctx, session, e.Params)
		}
	}
}

// updated tells those clients of a change who may know of it: by whose connection it came over, and by the policy that is in force now. Who has subscribed to
// what he may not see any more hears of it again when he may.
func (g *Gateway) updated(c *connection, uri string) {
	if c.place == nil && g.sight.policy.Load() == nil {
		g.server.ResourceUpdated(uri)
		return
	}
	g.server.ResourceUpdatedFor(uri, func(ctx context.Context, identity string, s *server.Session) bool {
		return c.serves(identity, s) && g.sight.hears(ctx, uri)
	})
}

func isChangeOfList(e client.Event) bool {
	switch e.(type) {
	case *client.ToolsChanged, *client.PromptsChanged, *client.ResourcesChanged:
		return true
	default:
		return false
	}
}

// finished tells a client that its user has finished on a page.
func (g *Gateway) finished(ctx context.Context, page openedPage) {
	if s := g.opened.take(page); s != nil {
		_ = s.ElicitationComplete(ctx, page.id) // it has left, or cannot be told
	}
}

// subscribe lets a client subscribe to a resource.
func (g *Gateway) subscribe(ctx context.Context, uri string) (failed error) {
	item, found := g.resource(ctx, uri)
	if !found {
		return server.ErrNotFound
	}
	if of, _ := ctx.Value(memberKey{}).(*member); of != nil {
		who := whoIn(ctx)
		of.subscriber.Store(&who)
	}
	u := g.upstream(item.Server)
	if u == nil {
		return removed(item.Server).fault()
	}
	done := u.count(ctx, protocol.MethodSubscribe, nil)
	defer func() { done(failed == nil) }()
	c, err := g.lifecycle.connect(ctx, u)
	if err != nil {
		return crowded(u, err).fault()
	}
	defer g.lifecycle.leave(u, c)
	return g.subscribeOver(ctx, u, c, uri)
}

// subscribeOver subscribes over a connection. It is counted first: who ends the last other subscription at the same time must see that.
func (g *Gateway) subscribeOver(ctx context.Context, u *upstream, c *connection, uri string) error {
	session, away := g.reach(ctx, u, c)
	if away != nil {
		return away.fault()
	}
	g.subscriptions.add(c.as, uri)
	if c.place != nil { // which may not end as long as somebody waits for changes
		u.pool.Hold(c.place)
	}
	if err := session.Subscribe(ctx, &protocol.SubscribeParams{URI: uri}); err != nil {
		g.endSubscription(ctx, u, c, uri)
		return g.failed(u, c, err).fault()
	}
	return nil
}

// unsubscribe ends a subscription of a client.
func (g *Gateway) unsubscribe(ctx context.Context, uri string) {
	u, c, absent := g.subscribed(ctx, uri)
	if u == nil {
		g.subscriptions.remove(absent, uri)
		return
	}
	defer u.count(ctx, protocol.MethodUnsubscribe, nil)(true)
	g.endSubscription(ctx, u, c, uri)
}

// subscribed returns over which connection a client has subscribed to a resource: its own, or the shared one, also if that was another one's
// then. The catalogue may name another server by now, so it is not asked. If the file does not have the server any more, its name is absent.
func (g *Gateway) subscribed(ctx context.Context, uri string) (u *upstream, c *connection, absent string) {
	shared, servers := g.subscriptions.at(uri), g.upstreams()
	owner, of := ownerIn(ctx, shareClient)
	for _, u := range servers {
		for _, c := range u.ofOwners() {
			i := slices.Index(shared, c.as)
			switch {
			case i < 0:
			case c.serves(owner.User, of.of()):
				return u, c, ""
			default: // another owner's
				shared = slices.Delete(shared, i, i+1)
			}
		}
	}
	for _, name := range shared {
		if u := servers[name]; u != nil {
			return u, &u.shared, ""
		}
		absent = name
	}
	return nil, nil, absent
}

// endSubscription ends one subscription, and that at the server if it was the last one. If another client has subscribed meanwhile, the server
// may have been asked to end its subscription, too, and is asked again.
func (g *Gateway) endSubscription(ctx context.Context, u *upstream, c *connection, uri string) {
	counted, last := g.subscriptions.remove(c.as, uri)
	if counted && c.place != nil {
		defer g.lifecycle.leave(u, c)
	}
	session, running := g.lifecycle.session(u, c)
	if !last || !running {
		return
	}
	_ = session.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: uri}) // nobody is told of what still comes
	if slices.Contains(g.subscriptions.of(c.as), uri) {
		g.renewSubscription(context.WithoutCancel(ctx), session, uri)
	}
}

// renewSubscriptions makes a server tell of the resources to which clients have subscribed. A session renews its own when it has lost its
// server, but that of a server which was restarted is another one. What changed in between, nobody has told.
func (g *Gateway) renewSubscriptions(ctx context.Context, c *connection, session *client.Session) {
	for _, uri := range g.subscriptions.of(session.Name()) {
		g.renewSubscription(ctx, session, uri)
		g.updated(c, uri)
	}
}

// resume starts the connections again over which an owner waits for changes, after they were ended with their server. The others are started by
// their next call.
func (g *Gateway) resume(ctx context.Context, servers ...*upstream) {
	for _, u := range servers {
		for _, c := range u.ofOwners() {
			if len(g.subscriptions.of(c.as)) == 0 {
				continue
			}
			if err := g.lifecycle.start(ctx, u, c); err != nil {
				g.log().Warn("bowline: a connection whose client has subscribed was not started again", "server", u.Name, "error", err)
			}
		}
	}
	g.lifecycle.Check() // the rules of those that run may have changed
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
