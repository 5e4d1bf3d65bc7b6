package server

import (
	"context"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// unsubscribed tells the program that subscriptions of the peer have ended.
// It runs on the goroutine of the caller, one resource after the other, and a panic of one does not keep the others
// from being told.
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
		ctx, cancel := p.server.afterwards(ctx)
		defer cancel()
		p.unsubscribed(ctx, uris...)
	}
	if !p.changes.Hold() {
		tell() // the handler has not returned in time, and nothing waits for the peer
		return
	}
	go func() {
		defer p.changes.Release()
		tell()
	}()
}

// storeInterval is the delay before a task is loaded again after its store has failed.
const storeInterval = time.Second

// sendChanges notifies a legacy client. If there is no stream to the client, the change
// is lost, and the client sees it when it lists again.
// It runs on the goroutine of the timer of the listener, one call at a time. A change that has to wait for a store or
// for the link does not hold up the others.
func (p *peer) sendChanges(all []changes.Change) (unsent []changes.Change, wait time.Duration) {
	wait = changes.Interval
	for _, one := range all {
		method, params := one.Method(), one.Params(nil)
		if task := one.TaskID(); task != "" {
			status, err := p.server.taskStatus(context.Background(), p, task)
			switch {
			case errors.Is(err, ErrNotFound):
				continue
			case err != nil:
				unsent, wait = append(unsent, one), storeInterval
				continue
			}
			method, params = protocol.NotificationTaskStatus, status
		}
		err := p.guarded(method, func() error { return p.tell(context.Background(), method, params) })
		if errors.Is(err, transport.ErrBusy) {
			unsent = append(unsent, one) // the Conn gives up a link that stays busy
		}
	}
	return unsent, wait
}

// wantOffered notifies a legacy client of the lists whose changes it was offered.
// It is called once, by initialize. A capability that the server gets later was not offered, and such a client need
// not know of its list.
func (p *peer) wantOffered(o *protocol.ServerCapabilities) {
	wantLists(&p.changes, o.Has("tools.listChanged"), o.Has("prompts.listChanged"), o.Has("resources.listChanged"))
}

func wantLists(l *changes.Listener, tools, prompts, resources bool) {
	if tools {
		l.Want(changes.Tools())
	}
	if prompts {
		l.Want(changes.Prompts())
	}
	if resources {
		l.Want(changes.Resources())
	}
}
