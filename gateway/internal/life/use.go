package life

import (
	"sync"
	"time"
)

// A Use is how one server is used. The zero value is one that was never started. It is safe for concurrent use.
type Use struct {
	mu      sync.Mutex
	holds   int       // calls and the like that are under way
	used    time.Time // when a client has used it last, or when it was started
	started time.Time
	ending  bool      // somebody is about to end it
	due     time.Time // when the one was started that is about to be ended
	asleep  bool      // it is ended, or is being ended, until somebody uses it
	failure string    // what was wrong with it when it fell asleep
}

// Hold keeps the server from falling asleep until Release.
func (u *Use) Hold() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.holds++
}

// Release ends a Hold. If that was one of a client, the server was used.
func (u *Use) Release(byClient bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.holds--; byClient {
		u.used = time.Now()
	}
}

// Begin notes that the server is started.
func (u *Use) Begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.started = time.Now()
	u.used, u.asleep, u.failure = u.started, false, ""
}

// SetAsleep says whether the next use starts a server that does not run.
func (u *Use) SetAsleep(asleep bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asleep = asleep
}

// IsAsleep reports whether the next use starts the server, and what was wrong with it before.
func (u *Use) IsAsleep() (failure string, asleep bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failure, u.asleep
}

// Look returns when the server ends if nobody uses it; never is the zero time. If it is over now, it is the caller who ends it, and calls Ended
// then. Kept says that it must go on for another reason than a Hold.
func (u *Use) Look(r Rule, kept bool, now time.Time) (next time.Time, over bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ending {
		return next, false
	}
	next = u.ends(r, kept, now)
	if over = isOver(next, now); over {
		u.ending, u.due = true, u.started
	}
	return next, over
}

// FallAsleep reports whether the server may be ended now. From then on, who holds it finds it asleep. Failure is what is wrong with it.
func (u *Use) FallAsleep(r Rule, kept bool, now time.Time, failure string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !isOver(u.ends(r, kept, now), now) {
		return false
	}
	u.asleep, u.failure = true, failure
	return true
}

// Ended lets the server be looked at again. If it did not run, there is nothing to end before the next Begin: a person has stopped it, or it could
// not be started.
func (u *Use) Ended(ran bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ending = false
	if !ran && u.started.Equal(u.due) {
		u.started = time.Time{}
	}
}

func isOver(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// ends is that of the rule. The caller holds mu.
func (u *Use) ends(r Rule, kept bool, now time.Time) (never time.Time) {
	if u.asleep || u.started.IsZero() {
		return never
	}
	return r.Ends(u.started, u.used, kept || u.holds > 0, now)
}
