package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
)

// reports are the changes that a session wants to hear of: the subscriptions, which a
// legacy server gets one by one, and the subscriptions/listen that asks a modern server for all
// of them.
type reports struct {
	mu        sync.Mutex
	resources map[string]*subscription // subscriptions by URI
	version   uint32                   // the version of the wanted subscriptions; grows with each change
	ending    uint32                   // how many replaced ones continue for a while
	listening *listening               // the newest subscriptions/listen; nil before the first
	replaced  *listening               // the previous one, until the newest is acknowledged
	changed   wait.Changes
}

// A subscription records who wants the updates of one resource. The mutex of the reports
// guards it. Requests about it take turns, so that a server gets them in the order in which
// the subscription changes.
type subscription struct {
	explicit bool                   // Restorer.Subscribe
	ended    int                    // how often Restorer.Unsubscribe was called
	watchers map[chan struct{}]bool // each has room for one token, which means: read again

	accepted bool          // by a server; the session asks each later one
	unknown  bool          // whether a server has accepted it: its answer did not come
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

// A turnKey is the key of a value of the contexts of all requests in a turn.
type turnKey struct{ *subscription }

func (s *subscription) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, turnKey{s}, true)
}

// subscribing is the capability of a server that reports changes of resources.
const subscribing = "resources.subscribe"

// requireReports returns the present server, if it offers subscriptions.
func requireReports(ctx context.Context, c Caller) (Server, error) {
	return c.Require(ctx, protocol.MethodSubscribe, subscribing)
}

// subscribe adds a subscriber of a resource: a watcher, or that of Subscribe if it is nil.
func (r *reports) subscribe(ctx context.Context, c Caller, p Server, uri string, watcher chan struct{}) (err error) {
	sub, ended := r.join(c.Session(), uri)
	// While it is pending, nobody removes the subscription, so that sub stays the one in the map.
	asked, accepted := false, false
	defer func() {
		again := false // a Watch is accepted what was refused to an earlier Subscribe, whose caller does not know
		unused := r.settle(sub, func() {
			switch {
			case !accepted:
			case r.refuses(p, uri): // since it was accepted: nobody else would say so
				err = c.Failed(ctx, protocol.MethodListen, conn.Unknown, notGranted(uri))
			case watcher != nil:
				sub.add(watcher)
				again = asked && sub.explicit
			default:
				sub.explicit = sub.explicit || sub.ended == ended // no Unsubscribe has come since
			}
		})
		if again {
			c.Session().Granted(&protocol.SubscriptionFilter{ResourceSubscriptions: []string{uri}})
		}
		if unused { // perhaps because Unsubscribe has left this to the last subscriber
			r.leaveUnused(ctx, c, uri, sub)
		}
	}()
	p, asked, err = r.obtain(ctx, c, p, uri, sub)
	accepted = err == nil
	return err
}

// obtain ensures that a server has accepted a subscription. The first subscriber asks the server p. Those that come meanwhile wait; if the
// first one fails, the next one asks. It returns the server, and whether it has asked.
func (r *reports) obtain(ctx context.Context, c Caller, p Server, uri string, sub *subscription) (_ Server, asked bool, err error) {
	for {
		// The server may have changed while another one had its turn, so p is asked anew after each wait.
		mine, other := r.turn(sub, func() bool { return !sub.accepted })
		switch {
		case mine:
			return p, true, r.askInTurn(ctx, c, p, uri, sub)
		case other == nil:
			return p, false, nil
		}
		if err = awaitOther(ctx, c, protocol.MethodSubscribe, sub, other); err != nil {
			return p, false, err
		}
		if p, err = requireReports(ctx, c); err != nil {
			return p, false, err
		}
	}
}

// askInTurn asks one server, and ends the turn of the caller. If the request panics, the turn ends, too, and the server counts as one that has
// not accepted.
func (r *reports) askInTurn(ctx context.Context, c Caller, p Server, uri string, sub *subscription) (err error) {
	accepted, unknown := false, false
	defer func() { r.endTurn(sub, accepted, unknown) }()
	err = r.ask(sub.within(ctx), c, p, uri)
	accepted, unknown = err == nil, isUnknown(err)
	return err
}

// leaveUnused ends a subscription as the end of a Watch does: it takes no longer than that may take, also if ctx has ended, and
// nobody hears of an error, because the subscription is of no use to anybody. A legacy server that has not heard of its end
// reports to nobody, until the connection breaks.
func (r *reports) leaveUnused(ctx context.Context, c Caller, uri string, sub *subscription) {
	leaving, cancel := c.Leaving(ctx)
	defer cancel()
	_ = r.leave(leaving, c, uri, sub)
}

// ask asks one server to report the changes of a resource.
func (r *reports) ask(ctx context.Context, c Caller, p Server, uri string) error {
	if !p.Modern() {
		return c.Subscribe(ctx, p, uri)
	}
	ctx, cancel := c.Limited(ctx)
	defer cancel()
	r.listenFor(c.Session(), p, uri)
	err := r.awaitGrant(ctx, c, p, uri)
	if err == nil || errors.As(err, new(*conn.CallError)) {
		return err
	}
	return c.Failed(ctx, protocol.MethodListen, conn.Unknown, err)
}

// unsubscribe removes a subscriber of a resource, and ends the subscription if it was
// the last one.
func (r *reports) unsubscribe(ctx context.Context, c Caller, uri string, remove func(*subscription)) error {
	r.mu.Lock()
	sub, known := r.resources[uri]
	if known {
		remove(sub)
	}
	r.mu.Unlock()
	if !known {
		return nil
	}
	return r.leave(ctx, c, uri, sub)
}

// leave ends a subscription that nobody wants any more. It tells the present server, if
// that is a legacy one that has accepted the subscription, or may have.
func (r *reports) leave(ctx context.Context, c Caller, uri string, sub *subscription) error {
	accepted := false
	mine, err := r.takeTurn(ctx, c, protocol.MethodUnsubscribe, sub, func() bool {
		accepted = sub.accepted || sub.unknown
		return sub.isUnused()
	})
	if !mine {
		return err
	}
	// The subscription stays in the map until the server has the request. Otherwise a new subscriber
	// could ask first, and the server would end what that one has.
	s := c.Session()
	defer r.endLastTurn(s, uri, sub)
	p := s.Present()
	if !accepted || p == nil || p.Modern() || !isCurrent(p, s.Conn().Status()) {
		return nil
	}
	return c.Unsubscribe(sub.within(ctx), p, uri)
}

// resubscribe asks a new legacy server for all subscriptions.
func (r *reports) resubscribe(ctx context.Context, c Caller, p Server) (failures []error) {
	if p.Modern() {
		return nil
	}
	for _, uri := range r.uris() {
		r.mu.Lock()
		sub := r.resources[uri]
		r.mu.Unlock()
		if sub == nil {
			continue
		}
		if err := r.resubscribeTo(ctx, c, p, uri, sub); err != nil {
			failures = append(failures, fmt.Errorf("subscription to %.200q: %w", uri, err))
		}
	}
	return failures
}

// resubscribeTo asks a new server for one subscription. Pending subscribers ask it
// themselves.
func (r *reports) resubscribeTo(ctx context.Context, c Caller, p Server, uri string, sub *subscription) error {
	mine, err := r.takeTurn(ctx, c, protocol.MethodSubscribe, sub, func() bool {
		return sub.asking != nil || sub.hasUsers() || sub.pending > 0 && sub.accepted
	})
	if !mine {
		return err
	}
	defer func() { _ = r.leave(ctx, c, uri, sub) }() // if Unsubscribe did not wait for this turn to end
	return r.askInTurn(ctx, c, p, uri, sub)
}

// join returns the subscription of a resource, with one more pending subscriber, and how
// often Unsubscribe was called for it.
func (r *reports) join(s Session, uri string) (sub *subscription, ended int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sub, known := r.resources[uri]
	// The version grows only here and when a subscription is removed, because a subscriptions/listen asks
	// for a resource once, however many want it.
	if !known {
		if r.resources == nil {
			r.resources = make(map[string]*subscription)
		}
		sub = new(subscription)
		r.resources[uri] = sub
		r.version++
		s.Subscribed(true)
	}
	sub.pending++
	return sub, sub.ended
}

// settle ends what join began. Add adds the subscriber, if there is one. Settle reports
// whether nobody wants the subscription any more.
func (r *reports) settle(sub *subscription, add func()) (unused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sub.pending--
	add()
	return sub.isUnused()
}

// takeTurn waits for turns of others while a turn is needed, and reports whether the caller
// now has one.
func (r *reports) takeTurn(ctx context.Context, c Caller, method string, sub *subscription, needed func() bool) (mine bool, err error) {
	for {
		mine, other := r.turn(sub, needed)
		if other == nil {
			return mine, nil
		}
		if err := awaitOther(ctx, c, method, sub, other); err != nil {
			return false, err
		}
	}
}

// errOwnTurn is the error of a caller that would wait for itself.
var errOwnTurn = errors.New("client: a request about the subscription of this resource cannot be made inside of another one")

// awaitOther waits for the end of another caller's turn.
func awaitOther(ctx context.Context, c Caller, method string, sub *subscription, ended <-chan struct{}) error {
	// Middleware runs inside of the turn whose request it handles. It would wait for its own end.
	if ctx.Value(turnKey{sub}) != nil {
		return &conn.CallError{Method: method, Cause: conn.Refused, Delivery: conn.NotSent, Err: errOwnTurn}
	}
	ctx, cancel := c.Limited(ctx)
	defer cancel()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return c.Failed(ctx, method, conn.NotSent, context.Cause(ctx))
	}
}

// turn begins a turn, in which only the caller sends requests about a subscription, if it
// is needed. If it is the turn of another, it returns the channel that ends with that turn.
func (r *reports) turn(sub *subscription, needed func() bool) (mine bool, other <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !needed():
		return false, nil
	case sub.asking != nil:
		return false, sub.asking
	}
	sub.asking, sub.accepted, sub.unknown = make(chan struct{}), false, false
	return true, nil
}

// endTurn ends a turn. Until then nobody knows whether the server accepts the subscription, and after it, if the
// answer did not come.
func (r *reports) endTurn(sub *subscription, accepted, unknown bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(sub.asking)
	sub.asking, sub.accepted, sub.unknown = nil, accepted, unknown
}

// isUnknown reports whether a server may have executed a request that has failed.
func isUnknown(err error) bool {
	var failed *conn.CallError
	return errors.As(err, &failed) && failed.Delivery == conn.Unknown
}

// endLastTurn is endTurn for a caller that has told the server that nobody wants the
// subscription any more. It removes the subscription, unless somebody has joined since.
func (r *reports) endLastTurn(s Session, uri string, sub *subscription) {
	r.endTurn(sub, false, false)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !sub.isUnused() || r.resources[uri] != sub {
		return
	}
	delete(r.resources, uri)
	s.Subscribed(len(r.resources) > 0)
	if p := s.Present(); p != nil && p.Modern() {
		r.listenLocked(s, true)
	}
}

// uris returns the sorted URIs of all subscribed resources.
func (r *reports) uris() []string {
	return r.those(func(sub *subscription) bool { return !sub.isUnused() })
}

// used returns the sorted URIs of the resources whose subscribers have their answer.
// Pending subscribers get the error of a server themselves.
func (r *reports) used() []string { return r.those((*subscription).hasUsers) }

func (r *reports) those(match func(*subscription) bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.resources)), func(uri string) bool { return !match(r.resources[uri]) })
}

// refused notes that a server reports no changes of some resources. It wakes the watchers,
// which then ask the server themselves and get its error. It returns the resources that Subscribe has asked for and that were
// reported before. The caller holds the lock.
func (r *reports) refused(uris []string) (before []string) {
	for _, uri := range uris {
		sub := r.resources[uri]
		if sub == nil {
			continue
		}
		if sub.accepted && sub.explicit {
			before = append(before, uri)
		}
		sub.accepted = false
		sub.wake()
	}
	return before
}

// unanswered notes that the present server has not accepted what an earlier one had. Restored says so. Whoever asks for a resource from
// then on waits for the answer.
func (r *reports) unanswered() {
	uris := r.used()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listening.granted == nil { // it may have come just now
		r.refused(uris)
	}
}

// accepted notes that a server reports changes of some resources. It returns those that Subscribe has asked for and that were
// refused before. If it is the turn of somebody, that one notes the answer. The caller holds the lock.
func (r *reports) accepted(uris []string) (again []string) {
	for _, uri := range uris {
		sub := r.resources[uri]
		if sub == nil || sub.asking != nil {
			continue
		}
		if !sub.accepted && sub.explicit {
			again = append(again, uri)
		}
		sub.accepted = true
	}
	return again
}

// updated wakes the watchers of a resource and of those that contain it.
func (r *reports) updated(uri string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for watched, sub := range r.resources {
		if strings.HasPrefix(uri, watched) {
			sub.wake()
		}
	}
}

func (r *reports) updatedAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sub := range r.resources {
		sub.wake()
	}
}
