package server

import (
	"context"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// subscriptions serves the subscriptions of clients, and tells them of changes.
// A legacy client subscribes to one resource at a time, for as long as its session lives, and its subscriptions take
// room. A modern client says everything that it wants in one request, subscriptions/listen, which lasts as long as
// the subscription.
type subscriptions struct {
	*changes.Hub
	server *Server
}

// newSubscriptionRoom returns a pool of so many bytes.
func newSubscriptionRoom(bytes int) *share.Pool {
	// shared: what sessions are subscribed to | Options.MaxMemory/48 bytes | 64 KiB | resources/subscribe is refused with -32050 | `Options.Audit`
	return share.NewLasting(bytes, 64<<10)
}

// ResourceUpdated tells all subscribers of a resource that it has changed: the clients of this
// server, and with Options.Changes those of all other nodes, too. It never blocks. Updates
// within 10 ms are sent as one.
func (s *Server) ResourceUpdated(uri string) { s.subscriptions.Tell(changes.Resource(uri)) }

// claim claims a resource for a request by a method that changes its subscription. It waits for as long as a request may wait.
// A session waits for itself here: for its own request about the same resource, which the program has not decided on
// yet.
func (ss *subscriptions) claim(ctx context.Context, c *call, method, uri string) (release func(), err error) {
	if err := catalog.CheckURI(method, uri); err != nil {
		return nil, err
	}
	if due := c.in.StartBy(); !due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, due, errLate)
		defer cancel()
	}
	return c.peer.changes.Claim(ctx, uri)
}

// subscribe subscribes a legacy client to updates of a resource.
func (ss *subscriptions) subscribe(ctx context.Context, c *call, params *protocol.SubscribeParams) (*protocol.EmptyResult, error) {
	release, err := ss.claim(ctx, c, protocol.MethodSubscribe, params.URI)
	if err != nil {
		return nil, err
	}
	defer release()
	ss.SetOwner(&c.peer.changes, changes.Owner{Identity: c.Origin.Identity, Session: c.Session})
	added, ended, err := ss.Subscribe(&c.peer.changes, c.client(), params.URI, func() error { return ss.maySubscribe(ctx, params.URI) })
	switch {
	case err != nil:
		return nil, c.resourceFault(params.URI, err)
	// The session has ended while the program decided. It said yes, so it must hear of the end, and nobody else knows
	// of this subscription.
	case ended:
		c.peer.unsubscribedLater(ctx, params.URI)
	case added:
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
	release, err := ss.claim(ctx, c, protocol.MethodUnsubscribe, params.URI)
	if err != nil {
		return nil, err
	}
	defer release()
	// Before the program is told: it may take long, and what the link keeps must not have the subscription any more
	// if the process ends.
	if ss.Unsubscribe(&c.peer.changes, params.URI) {
		c.peer.keep()
		c.peer.unsubscribed(ctx, params.URI)
	}
	if err := c.peer.changes.AwaitSent(ctx); err != nil { // no update may follow the answer
		return nil, err
	}
	return &protocol.EmptyResult{}, nil
}

// listen notifies a modern client of what it asked for, until either side ends the
// subscription. When the server closes, it ends the subscription properly, with a result
// (2026-07-28 basic/patterns/subscriptions).
func (ss *subscriptions) listen(ctx context.Context, c *call, params *protocol.ListenParams) (*protocol.ListenResult, error) {
	of := &ss.server.tasks
	if err := of.allowed(c); len(params.Notifications.TaskIDs) > 0 && of.Tasks != nil && err != nil {
		return nil, err
	}
	if err := checkURIs(params.Notifications.ResourceSubscriptions); err != nil {
		return nil, err
	}
	id := protocol.Meta{protocol.MetaSubscriptionID: c.in.ID().Append(nil)}
	mine := new(changes.Listener)
	// Deferred functions run from below: first the hub forgets the listener, then End waits for a notification that
	// is being sent. So nothing follows the answer. The program hears that each resource has ended on another
	// goroutine, with a context that has not.
	defer func() { c.peer.unsubscribedLater(ctx, mine.End()...) }()
	// Before the hub knows the listener, because the program decides. A change in between is not missed: the client
	// reads when it has the acknowledgement.
	granted := ss.grant(ctx, c, mine, &params.Notifications)
	broken := make(chan error, 1) // the first failure to send; later ones have the same cause
	mine.Use(func(all []changes.Change) ([]changes.Change, time.Duration) { return ss.send(ctx, c, all, id, broken) })
	if len(ss.server.options.Middleware) == 0 {
		params.Meta = nil // nobody else needs it while the subscription stays open
	}
	// From now on changes become pending. None is sent before Begin, so the acknowledgement is the first message.
	ss.Add(mine)
	defer ss.Remove(mine)
	ss.SetOwner(mine, changes.Owner{Identity: c.Origin.Identity, Listening: ctx})
	for _, id := range granted.TaskIDs {
		ss.Watch(mine, id)
	}

	acknowledged := protocol.AcknowledgedParams{Notifications: granted}
	acknowledged.Meta = id
	// The acknowledgement is also sent while the server closes, because the result must
	// follow it.
	if err := c.tell(context.WithoutCancel(ctx), protocol.NotificationAcknowledged, &acknowledged); err != nil {
		return nil, err
	}
	mine.Begin()
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

// checkURIs refuses a filter with a URI that is too long. An empty one is no error: it is not
// granted.
func checkURIs(uris []string) error {
	for _, uri := range uris {
		if uri == "" {
			continue
		}
		if err := catalog.CheckURI(protocol.MethodListen, uri); err != nil {
			return err
		}
	}
	return nil
}

// grant returns the parts of a filter that the server supports, and subscribes the
// client to them.
func (ss *subscriptions) grant(ctx context.Context, c *call, mine *changes.Listener, asked *protocol.SubscriptionFilter) (granted protocol.SubscriptionFilter) {
	granted.ToolsListChanged = asked.ToolsListChanged && c.offered.Has("tools.listChanged")
	granted.PromptsListChanged = asked.PromptsListChanged && c.offered.Has("prompts.listChanged")
	granted.ResourcesListChanged = asked.ResourcesListChanged && c.offered.Has("resources.listChanged")
	wantLists(mine, granted.ToolsListChanged, granted.PromptsListChanged, granted.ResourcesListChanged)
	granted.TaskIDs = ss.grantTasks(ctx, c, mine, asked.TaskIDs)
	if !c.offered.Has("resources.subscribe") {
		return granted
	}
	for _, uri := range asked.ResourceSubscriptions {
		if mine.Wants(changes.Resource(uri)) || uri == "" || ss.maySubscribe(ctx, uri) != nil {
			continue // the acknowledgement tells the client what it was granted
		}
		mine.Want(changes.Resource(uri))
		granted.ResourceSubscriptions = append(granted.ResourceSubscriptions, uri)
	}
	return granted
}

// grantTasks subscribes the client to those tasks that it may see. It looks at no more than may
// run: each look may take a store, and nobody has more.
func (ss *subscriptions) grantTasks(ctx context.Context, c *call, mine *changes.Listener, ids []string) (granted []string) {
	if most := ss.server.tasks.options.MaxRunning; len(ids) > most {
		ids = ids[:most]
	}
	for _, id := range ids {
		one := changes.Task(id)
		if err := ss.server.tasks.find(ctx, c, id); err == nil && !mine.Wants(one) {
			mine.Want(one)
			granted = append(granted, id)
		}
	}
	return granted
}

// send sends changes to a modern client, and returns those that could not be sent yet. A
// failure that ends the subscription goes to broken.
func (ss *subscriptions) send(ctx context.Context, c *call, all []changes.Change, id protocol.Meta, broken chan<- error) (unsent []changes.Change, wait time.Duration) {
	wait = changes.Interval
	for _, one := range all {
		params, err := ss.paramsOf(ctx, c, one, id)
		switch {
		case errors.Is(err, ErrNotFound):
			continue // the task has expired
		case err != nil:
			unsent, wait = append(unsent, one), storeInterval
			continue
		}
		err = c.peer.guarded(one.Method(), func() error { return c.tell(ctx, one.Method(), params) })
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

// paramsOf returns what a notification says of a change. That of a task has its present state,
// which is read only now: of several changes, the client needs the last.
func (ss *subscriptions) paramsOf(ctx context.Context, c *call, one changes.Change, id protocol.Meta) (any, error) {
	task := one.TaskID()
	if task == "" {
		return one.Params(id), nil
	}
	r, err := ss.server.tasks.look(ctx, c.peer, task) // the owner was checked when the subscription began
	if err != nil {
		return nil, err
	}
	return &protocol.TaskParams{NotificationParams: protocol.NotificationParams{Meta: id}, DetailedTask: r.Task}, nil
}
