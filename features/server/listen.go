package server

import (
	"context"
	"errors"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A subscription is a request that tells its client of changes for as long as
// it lasts.
type subscription struct {
	changed chan struct{} // capacity one: a token waits while there is a change to tell
}

// toolsChanged has the client told. Changes that come meanwhile are told as one.
func (s *subscription) toolsChanged() {
	select {
	case s.changed <- struct{}{}:
	default: // it will be told already
	}
}

// listen tells of what the client has asked for until either side ends it: the
// server in good order, with a result, when it is being closed (2026-07-28
// basic/patterns/subscriptions).
func (r *request) listen(ctx context.Context, params *protocol.ListenParams) (*protocol.ListenResult, error) {
	id := protocol.Meta{protocol.MetaSubscriptionID: r.ID().Append(nil)}
	granted := protocol.SubscriptionFilter{ToolsListChanged: params.Notifications.ToolsListChanged}
	mine := &subscription{changed: make(chan struct{}, 1)}
	if granted.ToolsListChanged {
		defer r.server.audience.add(mine)()
	}
	acknowledged := protocol.AcknowledgedParams{Notifications: granted}
	acknowledged.Meta = id
	// Also where the server is being closed already: the result is to follow.
	if err := r.notify(context.WithoutCancel(ctx), protocol.NotificationAcknowledged, acknowledged); err != nil {
		return nil, err
	}
	if err := r.tell(ctx, mine, id); !errors.Is(err, conn.ErrDraining) {
		return nil, err
	}
	return &protocol.ListenResult{Result: protocol.Result{Meta: id}}, nil
}

// tell tells of changes until that fails, or ctx ends.
func (r *request) tell(ctx context.Context, s *subscription, id protocol.Meta) error {
	for {
		select {
		case <-s.changed:
			err := r.notify(ctx, protocol.NotificationToolsListChanged, protocol.NotificationParams{Meta: id})
			switch {
			case errors.Is(err, transport.ErrBusy): // the Conn gives up a link that stays so
				s.toolsChanged()
			case err != nil:
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// notify tells the client something that belongs to its request.
func (r *request) notify(ctx context.Context, method string, params any) error {
	raw, err := protocol.Marshal(params)
	if err != nil {
		return err
	}
	return r.Notify(ctx, method, raw)
}
