package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// A subscription records who wants the updates of one resource. The mutex of the restorer
// guards it. Requests about it take turns, so that a server gets them in the order in which
// the subscription changes.
type subscription struct {
	explicit bool                   // Session.Subscribe
	ended    int                    // how often Session.Unsubscribe was called
	watchers map[chan struct{}]bool // each has room for one token, which means: read again

	accepted bool          // by a server; the session asks each later one
	pending  int           // subscribers that have no answer yet
	asking   chan struct{} // closed when the present turn ends; nil if it is nobody's turn
}

func (s *subscription) isUnused() bool { return !s.hasUsers() && s.pending == 0 }

func (s *subscription) hasUsers() bool { return s.explicit || len(s.watchers) > 0 }

func (s *subscription) add(watcher chan struct{}) {
	if s.watchers == nil {
		s.watchers = make(map[chan struct{}]bool)
	}
	s.watchers[watcher] = true
}

func (s *subscription) wake() {
	for watcher := range s.watchers {
		select {
		case watcher <- struct{}{}:
		default: // it will look already
		}
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

// settle ends what join began. Add adds the subscriber, if there is one. Settle reports
// whether nobody wants the subscription any more.
func (r *restorer) settle(sub *subscription, add func()) (unused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sub.pending--
	add()
	return sub.isUnused()
}

// turn begins a turn, in which only the caller sends requests about a subscription, if it
// is needed. If it is the turn of another, it returns the channel that ends with that turn.
func (r *restorer) turn(sub *subscription, needed func() bool) (mine bool, other <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !needed():
		return false, nil
	case sub.asking != nil:
		return false, sub.asking
	}
	sub.asking, sub.accepted = make(chan struct{}), false
	return true, nil
}

func (r *restorer) endTurn(sub *subscription, accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(sub.asking)
	sub.asking, sub.accepted = nil, accepted
}

// endLastTurn is endTurn for a caller that has told the server that nobody wants the
// subscription any more. It removes the subscription, unless somebody has joined since.
func (r *restorer) endLastTurn(s *session, uri string, sub *subscription) {
	r.endTurn(sub, false)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !sub.isUnused() || r.resources[uri] != sub {
		return
	}
	delete(r.resources, uri)
	s.dialect.Subscribed(len(r.resources) > 0)
	if p := s.peer.Load(); p != nil && p.modern() {
		r.listen(s, true)
	}
}

// A turnKey is the key of a value of the contexts of all requests in a turn.
type turnKey struct{ *subscription }

func (s *subscription) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, turnKey{s}, true)
}

// takeTurn waits for turns of others while a turn is needed, and reports whether the caller
// now has one.
func (s *Session) takeTurn(ctx context.Context, method string, sub *subscription, needed func() bool) (mine bool, err error) {
	for {
		mine, other := s.restore.turn(sub, needed)
		if other == nil {
			return mine, nil
		}
		if err := s.awaitOther(ctx, method, sub, other); err != nil {
			return false, err
		}
	}
}

// errOwnTurn is the error of a caller that would wait for itself.
var errOwnTurn = errors.New("client: a request about the subscription of this resource cannot be made inside of another one")

// awaitOther waits for the end of another caller's turn.
func (s *Session) awaitOther(ctx context.Context, method string, sub *subscription, ended <-chan struct{}) error {
	if ctx.Value(turnKey{sub}) != nil {
		return refusedUnsent(method, errOwnTurn)
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return explain(&conn.CallError{Method: method, Cause: waitEnded(ctx), Delivery: conn.NotSent, Err: context.Cause(ctx)})
	}
}

// leave ends a subscription that nobody wants any more. It tells the present server, if
// that is a legacy one that has accepted the subscription.
func (s *Session) leave(ctx context.Context, uri string, sub *subscription) error {
	accepted := false
	mine, err := s.takeTurn(ctx, protocol.MethodUnsubscribe, sub, func() bool {
		accepted = sub.accepted
		return sub.isUnused()
	})
	if !mine {
		return err
	}
	defer s.restore.endLastTurn(s.session, uri, sub)
	p := s.peer.Load()
	if !accepted || p == nil || p.modern() || !p.isCurrent(s.conn.Status()) {
		return nil
	}
	_, _, err = unsubscribe.call(sub.within(ctx), s.boundTo(p), &protocol.UnsubscribeParams{URI: uri})
	return err
}

func restoreSubscriptions(ctx context.Context, s *Session, p *peer) (failures []error) {
	if p.modern() {
		return nil
	}
	r := &s.restore
	for _, uri := range r.uris() {
		r.mu.Lock()
		sub := r.resources[uri]
		r.mu.Unlock()
		if sub == nil {
			continue
		}
		if err := s.restoreSubscription(ctx, uri, sub); err != nil {
			failures = append(failures, fmt.Errorf("subscription to %.200q: %w", uri, err))
		}
	}
	return failures
}

// restoreSubscription asks a new server for a subscription. Pending subscribers ask it
// themselves.
func (s *Session) restoreSubscription(ctx context.Context, uri string, sub *subscription) (err error) {
	r := &s.restore
	mine, err := s.takeTurn(ctx, protocol.MethodSubscribe, sub, func() bool {
		return sub.asking != nil || sub.hasUsers() || sub.pending > 0 && sub.accepted
	})
	if !mine {
		return err
	}
	ended := false
	defer func() {
		r.endTurn(sub, ended && err == nil)
		_ = s.leave(ctx, uri, sub) // if Unsubscribe did not wait for this turn to end
	}()
	_, _, err = subscribe.call(sub.within(ctx), s, &protocol.SubscribeParams{URI: uri})
	ended = true
	return err
}

// uris returns the sorted URIs of all subscribed resources.
func (r *restorer) uris() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	uris := slices.Sorted(maps.Keys(r.resources))
	return slices.DeleteFunc(uris, func(uri string) bool { return r.resources[uri].isUnused() })
}

// used returns the sorted URIs of the resources whose subscribers have their answer.
// Pending subscribers get the error of a server themselves.
func (r *restorer) used() []string {
	uris := r.uris()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(uris, func(uri string) bool {
		sub := r.resources[uri]
		return sub == nil || !sub.hasUsers()
	})
}

// refused notes that a server reports no changes of some resources. It wakes the watchers,
// which then ask the server themselves and get its error. The caller holds the lock.
func (r *restorer) refused(uris []string) {
	for _, uri := range uris {
		if sub := r.resources[uri]; sub != nil {
			sub.accepted = false
			sub.wake()
		}
	}
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
