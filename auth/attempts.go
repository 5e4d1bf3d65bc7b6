package auth

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A backoff delays refreshes that fail for a temporary reason.
type backoff struct {
	failed error
	delay  time.Duration
	until  time.Time
}

const (
	shortestDelay = time.Second
	longestDelay  = time.Minute
)

// note records the result of a refresh.
func (b *backoff) note(err error, now time.Time) {
	if err == nil {
		*b = backoff{}
		return
	}
	b.failed = err
	b.delay = min(max(2*b.delay, shortestDelay), longestDelay)
	wait := b.delay
	var refused *TokenError
	if errors.As(err, &refused) {
		wait = max(wait, refused.RetryAfter)
	}
	b.until = now.Add(wait)
}

// wait returns why it is too early for another refresh, or nil.
func (b *backoff) wait(now time.Time) error {
	if b.failed == nil || !now.Before(b.until) {
		return nil
	}
	return fmt.Errorf("auth: the refresh failed, and is tried again in %v: %w", b.until.Sub(now).Round(time.Second), b.failed)
}

// attempts records the logins of the last minutes that did not help.
type attempts struct {
	failed   error // how the last one with a person failed; nil if it did not
	failedAt time.Time
	vain     map[string]vainAttempt // by set of scopes
}

type vainAttempt struct {
	count int
	since time.Time
}

// maxSets is how many sets of scopes are remembered.
const maxSets = 64

// inVain counts a refusal of a new token. It reports whether there were too many for
// another login with these scopes.
func (a *Authorizer) inVain(set string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s, v := range a.attempts.vain {
		if now.Sub(v.since) > forgivingTime {
			delete(a.attempts.vain, s)
		}
	}
	v, known := a.attempts.vain[set]
	if !known && len(a.attempts.vain) >= maxSets {
		return true
	}
	if v.count >= maxInVain {
		return true
	}
	if !known {
		v.since = now
	}
	v.count++
	if a.attempts.vain == nil {
		a.attempts.vain = make(map[string]vainAttempt)
	}
	a.attempts.vain[set] = v
	return false
}

// recentFailure returns why nobody may be asked to log in again yet, or nil.
func (a *Authorizer) recentFailure(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.attempts.failed == nil || now.Sub(a.attempts.failedAt) > forgivingTime {
		return nil
	}
	return a.attempts.failed
}

// ErrNobody says that a person was asked to log in, but did not do so in time. If
// Interact returns it, requests do not call Interact again for ten minutes, as after a
// refusal. Login calls it at any time.
var ErrNobody = errors.New("auth: nobody has logged in")

// noteFailure remembers that a person has refused or abandoned a login, so that not
// every call asks again. Failures of the network do not count.
func (a *Authorizer) noteFailure(ctx context.Context, err error, now time.Time) {
	left := errors.Is(context.Cause(ctx), ErrNobody)
	if !left && !errors.As(err, new(*ResponseError)) && !errors.Is(err, ErrNobody) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts.failed, a.attempts.failedAt = err, now
}

// forgetAttempts removes all records, because a person wants to log in.
func (a *Authorizer) forgetAttempts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts = attempts{}
}
