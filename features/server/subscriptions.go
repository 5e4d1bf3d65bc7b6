package server

import (
	"context"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// subscriptions serves the subscriptions of clients, and tells them of changes.
type subscriptions struct {
	listeners
	server *Server
	room   *share.Pool // of what legacy sessions are subscribed to; a listening request holds the room of its link
}

// newSubscriptionRoom returns a pool of so many bytes.
func newSubscriptionRoom(bytes int) *share.Pool {
	// shared: what sessions are subscribed to | Options.MaxMemory/48 bytes | 64 KiB | resources/subscribe is refused with -32050 | `Options.Audit`
	return share.NewLasting(bytes, 64<<10)
}

// uriCost is what a URI takes in a set, in addition to its bytes.
const uriCost = 64

// A subscribedRoom is what a session has taken for what it is subscribed to, as the client that subscribed first.
type subscribedRoom struct {
	of    share.Client
	bytes int
}

// take takes room for a resource, unless the session has ended.
func (ss *subscriptions) take(c *changes, of share.Client, uri string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	if c.room == nil {
		c.room = &subscribedRoom{of: of}
	}
	n := len(uri) + uriCost
	if !ss.room.Take(c.room.of, n) {
		return refuse(jsonrpc.CodeOverloaded, "overloaded: sessions are subscribed to resources of %d bytes, and %s", ss.room.Held(), ss.room.Refused(n))
	}
	c.room.bytes += n
	return nil
}

// give gives back what was taken for a resource.
func (ss *subscriptions) give(c *changes, uri string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(uri) + uriCost; c.room != nil {
		ss.room.Give(c.room.of, n)
		c.room.bytes -= n
	}
}

// giveAll gives back what a session has taken, which has ended.
func (ss *subscriptions) giveAll(c *changes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room != nil {
		ss.room.Give(c.room.of, c.room.bytes)
		c.room = nil
	}
}

// changed tells the clients of this server of a change, and those of other nodes.
func (ss *subscriptions) changed(c change) {
	ss.listeners.changed(c)
	ss.server.nodes.publish(c)
}

// subscribe subscribes a legacy client to updates of a resource.
func (ss *subscriptions) subscribe(ctx context.Context, c *call, params *protocol.SubscribeParams) (*protocol.EmptyResult, error) {
	if err := checkURI(protocol.MethodSubscribe, params.URI); err != nil {
		return nil, err
	}
	changes := &c.peer.changes
	release, err := changes.claim(ctx, c.in, params.URI)
	if err != nil {
		return nil, err
	}
	defer release()
	changes.mu.Lock()
	known := changes.wanted.has(updated(params.URI))
	full := len(changes.wanted.uris)+len(changes.claimed) > protocol.MaxResourceURIs
	changes.mu.Unlock()
	switch {
	case known:
		return &protocol.EmptyResult{}, nil
	case full:
		return nil, refuse(jsonrpc.CodeInvalidParams, "resources/subscribe: there are %d subscriptions", protocol.MaxResourceURIs)
	}
	if err := ss.take(changes, c.client(), params.URI); err != nil {
		return nil, err
	}
	added := false
	defer func() {
		if !added {
			ss.give(changes, params.URI)
		}
	}()
	if err := ss.maySubscribe(ctx, params.URI); err != nil {
		return nil, c.resourceFault(params.URI, err)
	}
	changes.mu.Lock()
	ended := changes.ended
	if added = !ended; added {
		changes.wanted.add(updated(params.URI))
	}
	changes.mu.Unlock()
	if ended {
		c.peer.unsubscribedLater(ctx, params.URI)
	} else {
		c.peer.keep()
	}
	return &protocol.EmptyResult{}, nil
}

// maySubscribe returns nil if the client of a request may subscribe to a resource. If the
// program does not decide, that is whatever the client may read.
func (ss *subscriptions) maySubscribe(ctx context.Context, uri string) error {
	if hook := ss.server.options.OnSubscribe; hook != nil {
		return hook(ctx, uri)
	}
	_, _, err := ss.server.resources.find(ctx, uri)
	return err
}

// unsubscribe ends the subscription of a legacy client to a resource.
func (ss *subscriptions) unsubscribe(ctx context.Context, c *call, params *protocol.UnsubscribeParams) (*protocol.EmptyResult, error) {
	if err := checkURI(protocol.MethodUnsubscribe, params.URI); err != nil {
		return nil, err
	}
	changes := &c.peer.changes
	release, err := changes.claim(ctx, c.in, params.URI)
	if err != nil {
		return nil, err
	}
	defer release()
	changes.mu.Lock()
	known := changes.wanted.has(updated(params.URI))
	delete(changes.wanted.uris, params.URI)
	delete(changes.pending.uris, params.URI)
	changes.mu.Unlock()
	if known {
		ss.give(changes, params.URI)
		c.peer.keep()
		c.peer.unsubscribed(ctx, params.URI)
	}
	if err := changes.awaitFired(ctx); err != nil { // no update may follow the answer
		return nil, err
	}
	return &protocol.EmptyResult{}, nil
}

// unsubscribed tells the program that subscriptions of the peer have ended.
func (p *peer) unsubscribed(ctx context.Context, uris ...string) {
	hook := p.server.options.OnUnsubscribe
	if hook == nil {
		return
	}
	for _, uri := range uris {
		_ = p.guarded("OnUnsubscribe", func() error { hook(ctx, uri); return nil }) // a panic is reported
	}
}

// unsubscribedLater does what unsubscribed does when the request of ctx is over, so that
// it may take longer than a handler whose context has ended. The end of the peer waits for it.
func (p *peer) unsubscribedLater(ctx context.Context, uris ...string) {
	if p.server.options.OnUnsubscribe == nil || len(uris) == 0 {
		return
	}
	tell := func() {
		ctx, cancel := p.server.sessions.afterwards(ctx)
		defer cancel()
		p.unsubscribed(ctx, uris...)
	}
	if !p.changes.hold() {
		tell() // the handler has not returned in time, and nothing waits for the peer
		return
	}
	go func() {
		defer p.changes.release()
		tell()
	}()
}

// listen notifies a modern client of what it asked for, until either side ends the
// subscription. When the server closes, it ends the subscription properly, with a result
// (2026-07-28 basic/patterns/subscriptions).
func (ss *subscriptions) listen(ctx context.Context, c *call, params *protocol.ListenParams) (*protocol.ListenResult, error) {
	tasks := &ss.server.tasks
	if err := tasks.allowed(c); len(params.Notifications.TaskIDs) > 0 && tasks.on && err != nil {
		return nil, err
	}
	for _, uri := range params.Notifications.ResourceSubscriptions {
		if uri == "" {
			continue // it is not granted
		}
		if err := checkURI(protocol.MethodListen, uri); err != nil {
			return nil, err
		}
	}
	id := protocol.Meta{protocol.MetaSubscriptionID: c.in.ID().Append(nil)}
	mine := new(changes)
	defer func() { c.peer.unsubscribedLater(ctx, mine.end()...) }()
	granted := ss.grant(ctx, c, mine, &params.Notifications)
	broken := make(chan error, 1) // the first failure to send; later ones have the same cause
	mine.send = func(all []change) ([]change, time.Duration) { return ss.send(ctx, c, all, id, broken) }
	if len(ss.server.options.Middleware) == 0 {
		params.Meta = nil // nobody else needs it while the subscription stays open
	}
	ss.add(mine)
	defer ss.remove(mine)
	for _, id := range granted.TaskIDs {
		ss.watch(mine, id)
	}

	acknowledged := protocol.AcknowledgedParams{Notifications: granted}
	acknowledged.Meta = id
	// The acknowledgement is also sent while the server closes, because the result must
	// follow it.
	if err := c.tell(context.WithoutCancel(ctx), protocol.NotificationAcknowledged, &acknowledged); err != nil {
		return nil, err
	}
	mine.begin()
	select {
	case err := <-broken:
		return nil, err
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, conn.ErrDraining) {
			return nil, err
		}
		return &protocol.ListenResult{Result: protocol.Result{Meta: id}}, nil
	}
}

// grant returns the parts of a filter that the server supports, and subscribes the
// client to them.
func (ss *subscriptions) grant(ctx context.Context, c *call, mine *changes, asked *protocol.SubscriptionFilter) (granted protocol.SubscriptionFilter) {
	granted.ToolsListChanged = asked.ToolsListChanged && c.offered.Has("tools.listChanged")
	granted.PromptsListChanged = asked.PromptsListChanged && c.offered.Has("prompts.listChanged")
	granted.ResourcesListChanged = asked.ResourcesListChanged && c.offered.Has("resources.listChanged")
	for _, one := range []struct {
		granted bool
		change
	}{{granted.ToolsListChanged, toolsChanged}, {granted.PromptsListChanged, promptsChanged}, {granted.ResourcesListChanged, resourcesChanged}} {
		if one.granted {
			mine.wanted.add(one.change)
		}
	}
	ids := asked.TaskIDs // there cannot be more running tasks than this
	if most := ss.server.tasks.options.MaxRunning; len(ids) > most {
		ids = ids[:most]
	}
	for _, id := range ids {
		one := change{task: id}
		if _, _, err := ss.server.tasks.find(ctx, c, id); err == nil && !mine.wanted.has(one) {
			mine.wanted.add(one)
			granted.TaskIDs = append(granted.TaskIDs, id)
		}
	}
	if !c.offered.Has("resources.subscribe") {
		return granted
	}
	for _, uri := range asked.ResourceSubscriptions {
		if mine.wanted.has(updated(uri)) || uri == "" || ss.maySubscribe(ctx, uri) != nil {
			continue // the acknowledgement tells the client what it was granted
		}
		mine.wanted.add(updated(uri))
		granted.ResourceSubscriptions = append(granted.ResourceSubscriptions, uri)
	}
	return granted
}

// send sends changes to a modern client, and returns those that could not be sent yet. A
// failure that ends the subscription goes to broken.
func (ss *subscriptions) send(ctx context.Context, c *call, all []change, id protocol.Meta, broken chan<- error) (unsent []change, wait time.Duration) {
	wait = changeInterval
	for _, one := range all {
		params := one.params(id)
		if one.task != "" {
			r, _, err := ss.server.tasks.look(ctx, c.peer, one.task) // the owner was checked when the subscription began
			switch {
			case errors.Is(err, ErrNotFound):
				continue // the task has expired
			case err != nil:
				unsent, wait = append(unsent, one), storeInterval
				continue
			}
			params = &protocol.TaskParams{NotificationParams: protocol.NotificationParams{Meta: id}, DetailedTask: r.Task}
		}
		err := c.peer.guarded(one.method(), func() error { return c.tell(ctx, one.method(), params) })
		switch {
		case isPanic(err): // this notification is lost
		case errors.Is(err, transport.ErrBusy):
			unsent = append(unsent, one)
		case err != nil:
			select {
			case broken <- err:
			default: // an earlier failure is already ending the subscription
			}
			return nil, 0
		}
	}
	return unsent, wait
}
