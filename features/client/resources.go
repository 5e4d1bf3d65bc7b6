package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// ReadResource reads a resource. The error matches ErrNotFound if the server has no
// such resource.
func (s *Session) ReadResource(ctx context.Context, params *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error) {
	return readResource.call(ctx, s, params)
}

// GetPrompt gets the messages of a prompt.
func (s *Session) GetPrompt(ctx context.Context, params *protocol.GetPromptParams) (*protocol.GetPromptResult, error) {
	return getPrompt.call(ctx, s, params)
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
	return complete.call(ctx, s, typed)
}

// A subscription records who wants the updates of one resource.
type subscription struct {
	explicit bool                   // Session.Subscribe
	ended    int                    // how often Session.Unsubscribe was called
	watchers map[chan struct{}]bool // each has room for one token, which means: read again

	accepted bool          // by a server; the session asks each later one
	pending  int           // subscribers that have no answer yet
	asking   chan struct{} // closed when the request of one of them ends; nil if there is none
}

func (s *subscription) isUnused() bool {
	return !s.explicit && len(s.watchers) == 0 && s.pending == 0
}

// Subscribe asks the server to report changes of a resource, which arrive as
// *ResourceUpdated events. The session also asks every later server, until
// Unsubscribe. It works in every revision: by resources/subscribe in the legacy ones,
// and by subscriptions/listen in the modern ones. An Unsubscribe during Subscribe counts
// as one after it.
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
		last := r.settle(s.session, uri, sub, func() {
			if accepted {
				add(sub, ended)
			}
		})
		if last { // Unsubscribe has left this to the last subscriber
			leaving, cancel := s.leaving(ctx)
			defer cancel()
			_ = s.tellUnsubscribed(leaving, uri) // as when a Watch ends
		}
	}()
	for {
		var asking <-chan struct{}
		if accepted, asking = r.takeTurn(s.session, p, sub); accepted {
			return nil
		}
		if asking == nil {
			defer func() { r.endTurn(sub, accepted) }()
			err := s.askFor(ctx, p, uri)
			accepted = err == nil
			return err
		}
		if err := s.awaitOther(ctx, asking); err != nil {
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
	if p == nil || s.conn.State() != conn.Ready {
		return nil, s.unavailable(protocol.MethodSubscribe)
	}
	if !p.server.Capabilities.Has("resources.subscribe") {
		return nil, refusedUnsent(protocol.MethodSubscribe, &CapabilityError{Capability: "resources.subscribe"})
	}
	return p, nil
}

// awaitOther waits for the end of another subscriber's request.
func (s *Session) awaitOther(ctx context.Context, ended <-chan struct{}) error {
	if limit := s.timeout(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrTimedOut)
		defer cancel()
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return explain(&conn.CallError{Method: protocol.MethodSubscribe, Cause: waitEnded(ctx), Delivery: conn.NotSent, Err: context.Cause(ctx)})
	}
}

// join returns the subscription of a resource, with one more pending subscriber, and how
// often Unsubscribe was called for it.
func (r *restorer) join(s *session, uri string) (sub *subscription, ended int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sub, known := r.resources[uri]
	if !known {
		if r.resources == nil {
			r.resources = make(map[string]*subscription)
		}
		sub = new(subscription)
		r.resources[uri] = sub
		r.version++
		s.dialect.Subscribed(true)
	}
	sub.pending++
	return sub, sub.ended
}

// takeTurn reports whether a server has accepted the subscription. Otherwise it returns
// the request of another subscriber to wait for, or nil if the caller must ask.
func (r *restorer) takeTurn(s *session, p *peer, sub *subscription) (accepted bool, asking <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sub.accepted || sub.asking != nil {
		return sub.accepted, sub.asking
	}
	sub.asking = make(chan struct{})
	if p.modern() {
		r.listen(s, false)
	}
	return false, nil
}

// endTurn ends what takeTurn began for a caller that had to ask.
func (r *restorer) endTurn(sub *subscription, accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(sub.asking)
	sub.asking, sub.accepted = nil, accepted
}

// settle ends what join began. Add adds the subscriber, if there is one. Settle reports
// whether a server has accepted a subscription that nobody wants any more.
func (r *restorer) settle(s *session, uri string, sub *subscription, add func()) (last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sub.pending--
	add()
	return r.removeUnused(s, uri, sub) && sub.accepted
}

// removeUnused removes a subscription that nobody wants any more, and reports whether it
// did. The caller holds the lock.
func (r *restorer) removeUnused(s *session, uri string, sub *subscription) bool {
	if !sub.isUnused() {
		return false
	}
	delete(r.resources, uri)
	s.dialect.Subscribed(len(r.resources) > 0)
	if p := s.peer.Load(); p != nil && p.modern() {
		r.listen(s, true)
	}
	return true
}

// askFor asks one server to report the changes of a resource.
func (s *Session) askFor(ctx context.Context, p *peer, uri string) error {
	if !p.modern() {
		_, err := subscribe.call(ctx, s.boundTo(p), &protocol.SubscribeParams{URI: uri})
		return err
	}
	if limit := s.timeout(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrTimedOut)
		defer cancel()
	}
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

// unsubscribeFrom removes a subscriber of a resource, and tells the server if it was the
// last one.
func (s *Session) unsubscribeFrom(ctx context.Context, uri string, remove func(*subscription)) error {
	r := &s.restore
	r.mu.Lock()
	sub, known := r.resources[uri]
	last := false
	if known {
		remove(sub)
		last = r.removeUnused(s.session, uri, sub)
	}
	r.mu.Unlock()
	if !last {
		return nil
	}
	return s.tellUnsubscribed(ctx, uri)
}

// tellUnsubscribed tells the present server, if it is a legacy one, that nobody wants the
// updates of a resource any more.
func (s *Session) tellUnsubscribed(ctx context.Context, uri string) error {
	p := s.peer.Load()
	if p == nil || p.modern() || !p.isCurrent(s.conn.Status()) {
		return nil
	}
	_, err := unsubscribe.call(ctx, s.boundTo(p), &protocol.UnsubscribeParams{URI: uri})
	return err
}

// Watch keeps a resource current. It subscribes to the resource and yields its
// contents: immediately, after each update, and again after each reconnection. While
// there is no server, Watch waits. Updates that arrive while the program still works
// on earlier contents count as one.
//
// Watch yields an error and ends if waiting would not help: the server does not offer
// subscriptions, refuses this one, or cannot read the resource. It does the same when
// ctx ends. Leaving the loop ends the subscription, unless something else in the
// program needs it.
func (s *Session) Watch(ctx context.Context, uri string) iter.Seq2[*protocol.ReadResourceResult, error] {
	return func(yield func(*protocol.ReadResourceResult, error) bool) {
		view := s.With(s.options)
		view.options.WaitForReady, view.options.Retries = true, -1
		view.options.Fresh, view.options.MaxStale = true, 0
		changed := make(chan struct{}, 1)
		for {
			err := view.subscribeTo(ctx, uri, func(sub *subscription, _ int) { sub.add(changed) })
			if err == nil {
				break
			}
			if !errors.Is(err, ErrStale) && !errors.Is(err, ErrUnavailable) || s.options.Epoch != 0 {
				yield(nil, err)
				return
			} // otherwise the next server is asked when it is ready
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
		}
	}
}

func (s *subscription) add(watcher chan struct{}) {
	if s.watchers == nil {
		s.watchers = make(map[chan struct{}]bool)
	}
	s.watchers[watcher] = true
}

func restoreSubscriptions(ctx context.Context, s *Session, p *peer) (failures []error) {
	if p.modern() {
		return nil
	}
	for _, uri := range s.restore.uris() {
		if _, err := subscribe.call(ctx, s, &protocol.SubscribeParams{URI: uri}); err != nil {
			failures = append(failures, fmt.Errorf("subscription to %.200q: %w", uri, err))
		}
	}
	return failures
}

// uris returns the sorted URIs of all subscribed resources.
func (r *restorer) uris() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.resources))
}

// updated wakes the watchers of a resource and of those that contain it.
func (r *restorer) updated(uri string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for watched, sub := range r.resources {
		if strings.HasPrefix(uri, watched) {
			sub.wake()
		}
	}
}

func (r *restorer) updatedAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sub := range r.resources {
		sub.wake()
	}
}

func (s *subscription) wake() {
	for watcher := range s.watchers {
		select {
		case watcher <- struct{}{}:
		default: // it will look already
		}
	}
}
