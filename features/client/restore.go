package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client/internal/restore"
	"github.com/bowline-mcp/bowline/protocol"
)

// SetLogLevel asks this server, and every later server of the session, for log
// messages of a level and above. They arrive as *LogMessage events. In the modern
// revisions every request carries the level, and a server sends log messages only
// while it serves a request.
func (s *Session) SetLogLevel(ctx context.Context, level protocol.LogLevel) error {
	if level.Severity() < 0 {
		return refusedUnsent(protocol.MethodSetLogLevel, fmt.Errorf("client: unknown log level %.100q", string(level)))
	}
	return s.restore.SetLogLevel(ctx, caller{s}, level)
}

// A host is what the restorer sees of a session.
type host struct{ *session }

var _ restore.Session = host{}

// Conn implements restore.Session.
func (h host) Conn() *conn.Conn { return h.conn }

// Present implements restore.Session.
func (h host) Present() restore.Server { return serverOf(h.peer.Load()) }

// serverOf returns a server as the restorer sees it; nil for none.
func serverOf(p *peer) restore.Server {
	if p == nil {
		return nil
	}
	return p
}

// Caller implements restore.Session.
func (h host) Caller(epoch uint64) restore.Caller {
	return caller{h.view().With(CallOptions{Epoch: epoch})}
}

// WantsEvents implements restore.Session.
func (h host) WantsEvents() bool { return h.events.wanted() }

// Subscribed implements restore.Session.
func (h host) Subscribed(some bool) { h.dialect.Subscribed(some) }

// Explain implements restore.Session.
func (h host) Explain(err error) error { return explain(err) }

// Lacks implements restore.Session.
func (h host) Lacks(capability string) error { return &CapabilityError{Capability: capability} }

// StartsAway implements restore.Session.
func (h host) StartsAway() { h.events.begin() }

// Lost implements restore.Session.
func (h host) Lost(epoch uint64, why Reason, next time.Time) { h.events.pushLost(epoch, why, next) }

// Restored implements restore.Session.
func (h host) Restored(failures []error) { h.events.pushRestored(failures) }

// Refused implements restore.Session.
func (h host) Refused(uri string, why error) {
	h.events.push(&SubscriptionRefused{URI: uri, Err: why}, false)
}

// Granted implements restore.Session. Everything granted counts as changed.
func (h host) Granted(granted *protocol.SubscriptionFilter) {
	h.cache.Granted(granted)
	for _, list := range []struct {
		granted bool
		event   Event
	}{
		{granted.ToolsListChanged, &ToolsChanged{}},
		{granted.PromptsListChanged, &PromptsChanged{}},
		{granted.ResourcesListChanged, &ResourcesChanged{}},
	} {
		if list.granted {
			h.events.push(list.event, false)
		}
	}
	for _, uri := range granted.ResourceSubscriptions {
		h.events.push(&ResourceUpdated{URI: uri}, false)
	}
}

// A caller makes the requests of the restorer with the options of a view.
type caller struct{ view *Session }

var _ restore.Caller = caller{}

// Session implements restore.Caller.
func (c caller) Session() restore.Session { return host{c.view.session} }

// Require implements restore.Caller.
func (c caller) Require(ctx context.Context, method, capability string) (restore.Server, error) {
	s := c.view
	if err := s.await(ctx, method); err != nil {
		return nil, err
	}
	p := s.peer.Load()
	if now := s.conn.Status(); p == nil || now.State != conn.Ready || s.isGone(now) {
		return nil, s.unavailable(method)
	}
	if !p.server.Capabilities.Has(capability) {
		return nil, refusedUnsent(method, &CapabilityError{Capability: capability})
	}
	return p, nil
}

// SetLogLevel implements restore.Caller.
func (c caller) SetLogLevel(ctx context.Context, on restore.Server, level protocol.LogLevel) error {
	_, _, err := setLogLevel.call(ctx, c.view.boundTo(on.Epoch()), &protocol.SetLogLevelParams{Level: level})
	return err
}

// Subscribe implements restore.Caller.
func (c caller) Subscribe(ctx context.Context, on restore.Server, uri string) error {
	_, _, err := subscribe.call(ctx, c.view.boundTo(on.Epoch()), &protocol.SubscribeParams{URI: uri})
	return err
}

// Unsubscribe implements restore.Caller.
func (c caller) Unsubscribe(ctx context.Context, on restore.Server, uri string) error {
	_, _, err := unsubscribe.call(ctx, c.view.boundTo(on.Epoch()), &protocol.UnsubscribeParams{URI: uri})
	return err
}

// defaultTimeout is the default of conn.Tuning.RequestTimeout.
const defaultTimeout = 30 * time.Second

// timeout returns the time limit of a request; negative: only its context limits it.
func (s *Session) timeout() time.Duration {
	switch own := s.client.options.Conn.RequestTimeout; {
	case s.options.Timeout != 0:
		return s.options.Timeout
	case own > 0:
		return own
	default:
		return defaultTimeout
	}
}

// Limited implements restore.Caller.
func (c caller) Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if limit := c.view.timeout(); limit > 0 {
		return context.WithTimeoutCause(ctx, limit, ErrTimedOut)
	}
	return ctx, func() {}
}

// Leaving implements restore.Caller.
func (c caller) Leaving(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := c.view.timeout()
	if limit <= 0 { // the end of ctx does not limit the new context
		limit = defaultTimeout
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// Failed implements restore.Caller.
func (c caller) Failed(ctx context.Context, method string, d conn.Delivery, err error) error {
	cause := conn.Answered
	switch {
	case errors.Is(err, ErrTimedOut):
		cause = conn.TimedOut
	case ctx.Err() != nil:
		cause = waitEnded(ctx)
	case errors.Is(err, ErrStale):
		cause = conn.LinkLost
	}
	return explain(&conn.CallError{Method: method, Cause: cause, Delivery: d, Err: err})
}
