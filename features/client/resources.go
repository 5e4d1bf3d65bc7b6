package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// ReadResource reads a resource. The error matches ErrNotFound if the server has no
// such resource.
func (s *Session) ReadResource(ctx context.Context, params *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error) {
	return resultOf(readResource.call(ctx, s, params))
}

// GetPrompt gets the messages of a prompt.
func (s *Session) GetPrompt(ctx context.Context, params *protocol.GetPromptParams) (*protocol.GetPromptResult, error) {
	return resultOf(getPrompt.call(ctx, s, params))
}

// Complete asks for completions of an argument of a prompt or a resource template. If
// Ref.Type is empty, it means a resource if Ref has a URI, and otherwise a prompt.
func (s *Session) Complete(ctx context.Context, params *protocol.CompleteParams) (*protocol.CompleteResult, error) {
	typed := copyOf(params)
	switch {
	case typed.Ref.Type != "":
	case typed.Ref.URI != "":
		typed.Ref.Type = protocol.ReferenceResource
	default:
		typed.Ref.Type = protocol.ReferencePrompt
	}
	return resultOf(complete.call(ctx, s, typed))
}

// Subscribe asks the server to report changes of a resource, which arrive as
// *ResourceUpdated events. The session also asks every later server, until
// Unsubscribe. It works in every revision: by resources/subscribe in the legacy ones,
// and by subscriptions/listen in the modern ones. An Unsubscribe during Subscribe counts
// as one after it. Middleware that handles a request about a resource cannot subscribe
// to that resource; it gets an error.
func (s *Session) Subscribe(ctx context.Context, params *protocol.SubscribeParams) error {
	uri := copyOf(params).URI
	return s.subscribeTo(ctx, uri, func(sub *subscription, ended int) {
		sub.explicit = sub.explicit || sub.ended == ended
	})
}

// subscribeTo adds a subscriber of a resource. The first one asks the server. Those that
// come meanwhile wait; if the first one fails, the next one asks. Add gets the number of
// Unsubscribes before the subscriber came.
func (s *Session) subscribeTo(ctx context.Context, uri string, add func(sub *subscription, ended int)) error {
	p, err := s.subscribable(ctx)
	if err != nil {
		return err
	}
	r := &s.restore
	r.watch(s.session, p, false)
	sub, ended := r.join(s.session, uri)
	accepted := false
	defer func() {
		unused := r.settle(sub, func() {
			if accepted {
				add(sub, ended)
			}
		})
		if unused { // perhaps because Unsubscribe has left this to the last subscriber
			leaving, cancel := s.leaving(ctx)
			defer cancel()
			_ = s.leave(leaving, uri, sub) // as when a Watch ends
		}
	}()
	for {
		mine, other := r.turn(sub, func() bool { return !sub.accepted })
		if mine {
			defer func() { r.endTurn(sub, accepted) }()
			err := s.askFor(sub.within(ctx), p, uri)
			accepted = err == nil
			return err
		}
		if other == nil {
			accepted = true
			return nil
		}
		if err := s.awaitOther(ctx, protocol.MethodSubscribe, sub, other); err != nil {
			return err
		}
		if p, err = s.subscribable(ctx); err != nil {
			return err
		}
	}
}

// subscribable returns the present server, if it offers subscriptions.
func (s *Session) subscribable(ctx context.Context) (*peer, error) {
	if err := s.await(ctx, protocol.MethodSubscribe); err != nil {
		return nil, err
	}
	p := s.peer.Load()
	if now := s.conn.Status(); p == nil || now.State != conn.Ready || s.isGone(now) {
		return nil, s.unavailable(protocol.MethodSubscribe)
	}
	if !p.server.Capabilities.Has("resources.subscribe") {
		return nil, refusedUnsent(protocol.MethodSubscribe, &CapabilityError{Capability: "resources.subscribe"})
	}
	return p, nil
}

// askFor asks one server to report the changes of a resource.
func (s *Session) askFor(ctx context.Context, p *peer, uri string) error {
	if !p.modern() {
		_, _, err := subscribe.call(ctx, s.boundTo(p), &protocol.SubscribeParams{URI: uri})
		return err
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	s.restore.mu.Lock()
	s.restore.listen(s.session, false)
	s.restore.mu.Unlock()
	err := s.restore.awaitGrant(ctx, s, p, uri)
	var failed *conn.CallError
	if err == nil || errors.As(err, &failed) {
		return err
	}
	cause := conn.Answered
	switch {
	case errors.Is(err, ErrTimedOut):
		cause = conn.TimedOut
	case ctx.Err() != nil:
		cause = waitEnded(ctx)
	case errors.Is(err, ErrStale):
		cause = conn.LinkLost
	}
	return explain(&conn.CallError{Method: protocol.MethodListen, Cause: cause, Delivery: conn.Unknown, Err: err})
}

// defaultTimeout is the default of conn.Options.RequestTimeout.
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

// limited returns a context with the time limit of a request, for a wait.
func (s *Session) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if limit := s.timeout(); limit > 0 {
		return context.WithTimeoutCause(ctx, limit, ErrTimedOut)
	}
	return context.WithCancel(ctx)
}

// Unsubscribe ends a subscription made by Subscribe. A Watch of the resource
// continues. If there is no server at present, Unsubscribe returns nil, and the
// session does not subscribe at the next server.
func (s *Session) Unsubscribe(ctx context.Context, params *protocol.UnsubscribeParams) error {
	uri := copyOf(params).URI
	return s.unsubscribeFrom(ctx, uri, func(sub *subscription) {
		sub.explicit = false
		sub.ended++
	})
}

// unsubscribeFrom removes a subscriber of a resource, and ends the subscription if it was
// the last one.
func (s *Session) unsubscribeFrom(ctx context.Context, uri string, remove func(*subscription)) error {
	r := &s.restore
	r.mu.Lock()
	sub, known := r.resources[uri]
	if known {
		remove(sub)
	}
	r.mu.Unlock()
	if !known {
		return nil
	}
	return s.leave(ctx, uri, sub)
}

// Watch keeps a resource current. It subscribes to the resource and yields its
// contents: immediately, after each update, and again after each reconnection. While
// there is no server, Watch waits. Updates that arrive while the program still works
// on earlier contents count as one.
//
// Watch yields an error and ends if waiting would not help: the server, or a later one,
// does not offer subscriptions, refuses this one, or cannot read the resource. It does
// the same when ctx ends. Leaving the loop ends the subscription, unless something else in
// the program needs it.
func (s *Session) Watch(ctx context.Context, uri string) iter.Seq2[*protocol.ReadResourceResult, error] {
	return func(yield func(*protocol.ReadResourceResult, error) bool) {
		view := s.With(s.options)
		view.options.WaitForReady, view.options.Retries = true, -1
		view.options.Fresh, view.options.MaxStale = true, 0
		changed := make(chan struct{}, 1)
		if err := view.subscribeWatcher(ctx, uri, changed); err != nil {
			yield(nil, err)
			return
		}
		defer func() {
			leaving, cancel := s.leaving(ctx)
			defer cancel()
			_ = s.unsubscribeFrom(leaving, uri, func(sub *subscription) { delete(sub.watchers, changed) })
		}()
		for {
			contents, err := view.ReadResource(ctx, &protocol.ReadResourceParams{URI: uri})
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(contents, nil) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			case <-s.conn.Done():
				yield(nil, ErrClosed)
				return
			}
			if err := view.subscribeWatcher(ctx, uri, changed); err != nil { // a later server may refuse
				yield(nil, err)
				return
			}
		}
	}
}

// subscribeWatcher adds a watcher of a resource. If the server is lost meanwhile, it asks
// the next one when that is ready.
func (s *Session) subscribeWatcher(ctx context.Context, uri string, watcher chan struct{}) error {
	for {
		err := s.subscribeTo(ctx, uri, func(sub *subscription, _ int) { sub.add(watcher) })
		if !errors.Is(err, ErrStale) && !errors.Is(err, ErrUnavailable) || s.options.Epoch != 0 {
			return err
		}
	}
}
