package changes

import (
	"context"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A legacy session subscribes to one resource at a time, by requests that may come at once. The
// program decides on each, which may take long. So a request first claims the resource; the next
// one for it waits. What a session has taken room for is what it wants, or what it has claimed and will
// want or give back. A listening request subscribes to everything when it begins, and claims nothing.

// uriCost is what a URI takes in a set, in addition to its bytes.
const uriCost = 64

// subscribing is what a session has for its subscriptions. It is guarded by the mutex of its
// listener.
//
// Of a resource, a session holds room from the moment at which a request has claimed it and asks the program, until it
// unsubscribes or ends. GiveAll may come at any time in between; what gives room back later finds none.
type subscribing struct {
	claimed map[string]chan struct{} // resources whose subscription a request is changing
	of      share.Client             // who has taken the room: the client that subscribed first
	taken   bool                     // of is set
	bytes   int                      // how much room that is

	awaiting []string // subscriptions of an earlier process that are not decided yet
	restored bool     // somebody has begun to decide on them
}

// subscriptions returns what a session has for them. The caller holds the mutex.
func (l *Listener) subscriptions() *subscribing {
	if l.subscribing == nil {
		l.subscribing = &subscribing{claimed: make(map[string]chan struct{})}
	}
	return l.subscribing
}

// Claim waits until no other request changes the subscription of a resource. The next one waits for
// release, which must be called. Requests take effect in no fixed order, as JSON-RPC has none, but one after the
// other: else one that unsubscribes could pass the program's decision on one that subscribes.
func (l *Listener) Claim(ctx context.Context, uri string) (release func(), err error) {
	for {
		l.mu.Lock()
		s := l.subscriptions()
		other := s.claimed[uri]
		if other == nil {
			s.claimed[uri] = make(chan struct{})
			l.mu.Unlock()
			return func() { l.unclaim(uri) }, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (l *Listener) unclaim(uri string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.subscribing.claimed[uri])
	delete(l.subscribing.claimed, uri)
}

// isFull reports whether a session has as many subscriptions as it may have, together with those that are
// being decided. The caller holds the mutex.
func (l *Listener) isFull() bool {
	return len(l.wanted.uris)+len(l.subscribing.claimed) > protocol.MaxItems
}

// Subscribe makes a listener want a resource that the caller has claimed for it, if may, which
// runs code of the program, returns nil. It takes room first, so that many requests cannot wait in may
// together for more than there is. It reports what has changed: the listener may have ended meanwhile,
// and then nobody else will end the subscription.
func (h *Hub) Subscribe(l *Listener, of share.Client, uri string, may func() error) (added, ended bool, err error) {
	l.mu.Lock()
	known, full := l.wanted.has(Resource(uri)), l.isFull()
	l.mu.Unlock()
	switch {
	case known:
		return false, false, nil
	case full:
		return false, false, refusal.New(jsonrpc.CodeInvalidParams, "resources/subscribe: there are %d subscriptions", protocol.MaxItems)
	}
	if err := h.take(l, of, uri); err != nil {
		return false, false, err
	}
	defer func() {
		if !added { // also if may has panicked
			h.give(l, uri)
		}
	}()
	if err := may(); err != nil {
		return false, false, err
	}
	added = l.Want(Resource(uri))
	return added, !added, nil
}

// Unsubscribe ends a subscription whose resource the caller has claimed. It reports whether there was one.
func (h *Hub) Unsubscribe(l *Listener, uri string) bool {
	known := l.Unwant(Resource(uri))
	if known {
		h.give(l, uri)
	}
	return known
}

// take takes room for a resource, unless the session has ended.
func (h *Hub) take(l *Listener, of share.Client, uri string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// GiveAll has run, or is about to: nobody would give back what is taken now.
	if l.ended {
		return nil
	}
	s := l.subscriptions()
	if !s.taken {
		s.of, s.taken = of, true
	}
	n := len(uri) + uriCost
	if !h.room.Take(s.of, n) {
		return refusal.New(jsonrpc.CodeOverloaded, "overloaded: sessions are subscribed to resources of %d bytes, and %s", h.room.Held(), h.room.Refused(n))
	}
	s.bytes += n
	return nil
}

// give gives back what was taken for a resource, as the client that took it: the share of another
// one must not shrink. If GiveAll was called meanwhile, nothing is left to give.
func (h *Hub) give(l *Listener, uri string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.subscribing; s != nil && s.taken {
		n := len(uri) + uriCost
		h.room.Give(s.of, n)
		s.bytes -= n
	}
}

// GiveAll gives back what a session has taken, which has ended.
// It is called once, after End, by whoever ends the session: no request takes room after that.
func (h *Hub) GiveAll(l *Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.subscribing; s != nil && s.taken {
		h.room.Give(s.of, s.bytes)
		s.taken, s.bytes = false, 0
	}
}
