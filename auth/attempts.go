package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// A backoff delays refreshes that fail for a temporary reason. The zero value delays none.
type backoff struct {
	failed error
	delay  time.Duration
	until  time.Time
}

const (
	shortestDelay = time.Second
	longestDelay  = time.Minute
	forgetTime    = 10 * time.Minute // after this time, a refusal of a token is forgotten
	maxRefusals   = 2                // how many refusals in this time lead to a login, for one set of scopes
)

// record records the result of a refresh.
func (b *backoff) record(err error, now time.Time) {
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
	if !now.Before(b.until) {
		return nil
	}
	return fmt.Errorf("auth: the refresh failed, and is tried again in %v: %w", b.until.Sub(now).Round(time.Second), b.failed)
}

// attempts records the refreshes and logins of the last minutes that did not help. The
// zero value has none.
type attempts struct {
	mu       sync.Mutex
	backoff  backoff
	failed   error // how the last login by a person failed; nil if it did not
	failedAt time.Time
	refusals map[string][]time.Time // when tokens were refused that a login replaced, by set of scopes
}

// recordRefresh records the result of a refresh.
func (a *attempts) recordRefresh(err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.backoff.record(err, now)
}

// mayRefresh returns why it is too early for another refresh, or nil.
func (a *attempts) mayRefresh(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.backoff.wait(now)
}

// maxSets is how many sets of scopes are remembered.
const maxSets = 64

// refusedTooOften reports whether tokens with these scopes were refused too often for another
// login.
func (a *attempts) refusedTooOften(set string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.refusals, func(_ string, at []time.Time) bool { return now.Sub(at[len(at)-1]) > forgetTime })
	at, known := a.refusals[set]
	return len(at) >= maxRefusals && now.Sub(at[len(at)-maxRefusals]) <= forgetTime || !known && len(a.refusals) >= maxSets
}

// recordRefusal records a refusal that leads to a login.
func (a *attempts) recordRefusal(set string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refusals == nil {
		a.refusals = make(map[string][]time.Time)
	}
	at := append(a.refusals[set], now)
	a.refusals[set] = at[max(0, len(at)-maxRefusals):]
}

// recentFailure returns why it is too early to ask a person to log in again, or nil.
func (a *attempts) recentFailure(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.failedAt) > forgetTime {
		return nil
	}
	return a.failed
}

// recordFailure remembers that a person has refused or abandoned a login, so that not
// every call asks again. Failures of the network do not count.
func (a *attempts) recordFailure(ctx context.Context, err error, now time.Time) {
	timedOut := errors.Is(context.Cause(ctx), ErrUnanswered)
	if !timedOut && !errors.As(err, new(*ResponseError)) && !errors.Is(err, ErrUnanswered) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed, a.failedAt = err, now
}

// forget removes all records of logins, because a person wants to log in.
func (a *attempts) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed, a.failedAt, a.refusals = nil, time.Time{}, nil
}
