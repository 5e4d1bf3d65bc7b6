package changes

import (
	"context"

	"github.com/bowline-mcp/bowline/internal/share"
)

// A session may go on in another process, or on another node. Its subscriptions are claimed when it is
// initialized there, and decided on when its client is ready. In between, and while the
// program decides, the session still has those that are left: a process that ends now must not lose them.

// Await claims the subscriptions of a session that is continued. Requests for them wait until Restore.
func (l *Listener) Await(uris []string) {
	if len(uris) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.subscriptions()
	s.awaiting = uris
	for _, uri := range uris {
		s.claimed[uri] = make(chan struct{})
	}
}

// Subscriptions returns at most so many resources that a session is subscribed to, first those that Restore
// has not decided on yet. It reports whether the session has ended: what it returns then is not all of them.
func (l *Listener) Subscriptions(most int) (uris []string, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subscribing != nil {
		uris = append(uris, l.subscribing.awaiting...)
	}
	for uri := range l.wanted.uris {
		if len(uris) >= most {
			break
		}
		uris = append(uris, uri)
	}
	return uris, l.ended
}

// Restored is what Restore has done.
//
// It has no error: a subscription that is refused is no reason to end a session, and the client finds out by reading.
type Restored struct {
	Done    bool     // everything is decided, and nobody had decided before
	Refused int      // how many subscriptions the client does not have any more
	Late    []string // subscriptions that were allowed after the session had ended, and that nobody else will end
}

// Restore decides on the subscriptions of Await, once: may runs code of the program. A subscription is
// refused as well if there is no room for it. The client is told that a refused resource has changed, so
// that it reads it again, and learns why. If ctx ends, nothing more is decided: the
// session may go on elsewhere.
func (h *Hub) Restore(ctx context.Context, l *Listener, of share.Client, may func(uri string) error) (r Restored) {
	uris, first := l.beginRestore()
	if !first {
		return r
	}
	for i, uri := range uris {
		err := h.take(l, of, uri)
		if err == nil {
			if err = may(uri); err != nil {
				h.give(l, uri)
			}
		}
		// Not a decision of the program: it was interrupted. Those that are left stay awaited, so a link that keeps
		// the state keeps them.
		if err != nil && ctx.Err() != nil {
			for _, left := range uris[i:] {
				l.unclaim(left)
			}
			return r
		}
		ended := l.decide(uri, uris[i+1:], err == nil)
		switch {
		case err != nil:
			r.Refused++
		case ended:
			r.Late = append(r.Late, uri)
		}
	}
	l.addAll()
	r.Done = true
	return r
}

// beginRestore returns what is awaited. It reports false if somebody else has begun.
func (l *Listener) beginRestore() (uris []string, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.subscriptions()
	first, s.restored = !s.restored, true
	return s.awaiting, first
}

// What follows of an awaited subscription is as of a new one: room is taken for the client that brought the session
// here, which may be another one than before, and the program decides by that client's identity.

// decide records whether a client has an awaited subscription, and which are left. In one step,
// so that Subscriptions misses none.
func (l *Listener) decide(uri string, left []string, has bool) (ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribing.awaiting = left
	switch {
	case !has:
		l.pending.add(Resource(uri))
	case !l.ended:
		l.wanted.add(Resource(uri))
	}
	// Requests for the resource go on now, and find it decided.
	close(l.subscribing.claimed[uri])
	delete(l.subscribing.claimed, uri)
	return l.ended
}
