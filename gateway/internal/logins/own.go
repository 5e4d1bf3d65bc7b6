package logins

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/nodename"
)

// An Owner is whose logins a page shows.
type Owner struct {
	User string // "": all who have not logged in at the gateway

	// At returns the servers where the owner is logged in, or may be. End ends the login at one of them.
	At  func(context.Context) []string
	End func(ctx context.Context, server string) error
}

// An OwnLink is a page where one user sees his logins, and ends those that he chooses. It is of the browser that ends the first one.
type OwnLink struct {
	URL string
	ID  string // names the link, and lets nobody in

	owner   Owner
	ends    time.Time
	expires *time.Timer
	browser *digest // of its cookie; nil: no browser has ended a login yet
}

// owned are the links to logins, by their secrets. The zero value has none, and is ready.
type owned struct {
	mu     sync.Mutex
	links  map[digest]*OwnLink
	closed bool
}

// open returns the link of a user, and ends one that he has had before, unless that is still as good as new. At is where the pages are, and node serves them.
func (a *owned) open(at, node string, of Owner) (*OwnLink, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	for secret, l := range a.links {
		switch {
		case l.owner.User != of.User:
		case l.browser == nil && time.Until(l.ends) > Life/2:
			return l, nil
		default:
			l.expires.Stop()
			delete(a.links, secret)
		}
	}
	if len(a.links) >= mostOfAll {
		return nil, ErrFull
	}
	return a.add(at, nodename.Join(node, newSecret()), of), nil
}

// add makes a link. The caller holds mu.
func (a *owned) add(at, secret string, of Owner) *OwnLink {
	l := &OwnLink{URL: at + "/" + secret, ID: rand.Text(), owner: of, ends: time.Now().Add(Life)}
	l.expires = time.AfterFunc(Life, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.links, digestOf(secret))
	})
	if a.links == nil {
		a.links = make(map[digest]*OwnLink)
	}
	a.links[digestOf(secret)] = l
	return l
}

// look returns a link, or nil, and whether the browser with this cookie may have it: one that no other browser has used. If it acts, it must have a cookie, and the link is its own from then on.
func (a *owned) look(secret, cookie string, acts bool) (l *OwnLink, may bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, given := a.links[digestOf(secret)], digestOf(cookie)
	switch {
	case l == nil:
		return nil, false
	case l.browser != nil:
		return l, subtle.ConstantTimeCompare(l.browser[:], given[:]) == 1
	case acts && cookie == "":
		return l, false
	case acts:
		l.browser = &given
	}
	return l, true
}

// close ends all links, and lets nobody have another one.
func (a *owned) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, l := range a.links {
		l.expires.Stop()
	}
	clear(a.links)
}
