// Package pool says which connection with a server is whose, if its clients do not all share one. It knows nothing of sessions: who has a
// Pool starts and ends them.
//
//	place, err := p.Enter(ctx, owner, session, create, end)
//	defer p.Leave(place)
//
// # Goroutines
//
// A Pool has none. Enter may end an idle connection on the goroutine of its caller. A Pool is safe for concurrent use.
package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/life"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// Most is how many connections a server may have with those who do not share one.
const Most = 32

// ErrFull is the error of Enter if all connections are in use.
var ErrFull = fmt.Errorf("all of its %d connections are in use by others", Most)

// An Owner is whose connection it is: a user, or one session of a client.
type Owner struct {
	User    string // "": who has not logged in
	Session any    // comparable; nil: all of the user
}

// A Place is one connection. No other owner ever gets it.
type Place[T any] struct {
	Owner Owner
	Value T // what the caller has created; a Pool does not look at it

	// Guarded by the mu of the Pool.
	holds    int              // requests and subscriptions
	sessions map[any]struct{} // of clients that have used it and have not left
	number   int              // in the order in which they were created
	started  time.Time
	used     time.Time
}

// A Pool is the connections with one server. Its zero value has none.
type Pool[T any] struct {
	mu      sync.Mutex
	places  map[Owner]*Place[T]
	created int          // places, ever
	ending  int          // places that are not in the map any more, and whose connection has not ended
	changed wait.Changes // when one has ended
}

// Enter returns the connection of an owner, and keeps it from ending until Leave. A new one has the value of create. If there are Most, one that is idle is ended by end first,
// on this goroutine: of a client that has left if possible, and the one that was used the longest time ago. Session is that of
// the client, or nil. The error is ErrFull, or that of ctx.
func (p *Pool[T]) Enter(ctx context.Context, owner Owner, session any, create func(*Place[T]), end func(*Place[T])) (*Place[T], error) {
	for {
		place, idle, changed := p.enter(owner, session, create)
		switch {
		case place != nil:
			return place, nil
		case idle != nil:
			end(idle)
			p.Ended()
		case changed != nil:
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		default:
			return nil, ErrFull
		}
	}
}

// enter returns the place, or one to end before, or what to wait for. If it returns nothing, nobody can be ended.
func (p *Pool[T]) enter(owner Owner, session any, create func(*Place[T])) (place, idle *Place[T], changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place = p.places[owner]; place == nil {
		if len(p.places)+p.ending >= Most {
			idle, changed = p.makeRoom()
			return nil, idle, changed
		}
		place = p.add(owner, create)
	}
	place.holds++
	if session != nil {
		place.sessions[session] = struct{}{}
	}
	return place, nil, nil
}

// add creates the place of an owner. The caller holds mu.
func (p *Pool[T]) add(owner Owner, create func(*Place[T])) *Place[T] {
	if p.places == nil {
		p.places = make(map[Owner]*Place[T])
	}
	p.created++
	now := time.Now()
	place := &Place[T]{Owner: owner, number: p.created, started: now, used: now, sessions: make(map[any]struct{})}
	create(place)
	p.places[owner] = place
	return place
}

// makeRoom takes out the place that is missed least. The caller holds mu.
func (p *Pool[T]) makeRoom() (idle *Place[T], changed <-chan struct{}) {
	for _, place := range p.places {
		if place.holds == 0 && (idle == nil || place.before(idle)) {
			idle = place
		}
	}
	if idle != nil {
		p.take(idle)
		return idle, nil
	}
	if p.ending == 0 {
		return nil, nil
	}
	return nil, p.changed.Next()
}

// before reports whether one is ended rather than another: who has left misses nothing, and
// whoever has not called for long misses it least.
func (pl *Place[T]) before(other *Place[T]) bool {
	if left := len(pl.sessions) == 0; left != (len(other.sessions) == 0) {
		return left
	}
	return pl.used.Before(other.used)
}

// take removes a place whose connection the caller ends. From now on its owner gets another one. The caller holds mu.
func (p *Pool[T]) take(place *Place[T]) {
	delete(p.places, place.Owner)
	p.ending++
}

// Ended says that a connection has ended which Due has returned. Until then it counts among
// Most, although nobody can get it any more: its process may still run.
func (p *Pool[T]) Ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending--
	p.changed.Announce()
}

// Hold keeps a connection that is held already from ending until one Leave more.
func (p *Pool[T]) Hold(place *Place[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place.holds++
}

// Leave ends an Enter or a Hold. It reports whether the connection is idle, and of a client that has left.
func (p *Pool[T]) Leave(place *Place[T]) (over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place.holds--
	place.used = time.Now()
	return place.holds == 0 && place.isOver()
}

// isOver reports whether nobody can use it any more. The caller holds mu.
func (pl *Place[T]) isOver() bool { return pl.Owner.Session != nil && len(pl.sessions) == 0 }

// Left says that the session of a client has ended.
func (p *Pool[T]) Left(session any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, place := range p.places {
		delete(place.sessions, session)
	}
}

// Due takes out the connections that are to end now, and returns when to look again at the latest. The caller ends them, and calls Ended for each. Keeps
// says whether the file still wants such connections, and rule when one ends whose client has not left, or has.
func (p *Pool[T]) Due(now time.Time, keeps func(Owner) bool, rule func(left bool) life.Rule) (due []*Place[T], next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, place := range p.places {
		if place.isOver() || !keeps(place.Owner) {
			if place.holds == 0 { // else Leave tells
				due = append(due, place)
			}
			continue
		}
		switch at := rule(len(place.sessions) == 0).Ends(place.started, place.used, place.holds > 0, now); {
		case !at.IsZero() && !at.After(now):
			due = append(due, place)
		default:
			next = life.Earlier(next, at)
		}
	}
	for _, place := range due {
		p.take(place)
	}
	return due, next
}

// A Use is how a connection is used.
type Use struct {
	Since time.Time // when its owner got it
	Calls int       // requests and subscriptions that hold it
	Left  bool      // no client has a session that has used it
}

// All returns the places, the oldest first, and how they are used.
func (p *Pool[T]) All() (all []*Place[T], uses []Use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, place := range p.places {
		all = append(all, place)
	}
	slices.SortFunc(all, func(a, b *Place[T]) int { return cmp.Compare(a.number, b.number) })
	for _, place := range all {
		uses = append(uses, Use{place.started, place.holds, len(place.sessions) == 0})
	}
	return all, uses
}
