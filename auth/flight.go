package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

const (
	exchangeTime  = 30 * time.Second // for an exchange and its saving, even if nobody waits
	probeTime     = 10 * time.Second
	forgivingTime = 10 * time.Minute // after that, logins in vain are forgotten
	maxInVain     = 2                // for one set of scopes
)

// A flight is the refresh or login that is running. There is at most one.
type flight struct {
	done    chan struct{}
	err     error // once done
	waiting int
	left    bool // by all who waited, once
	asks    bool // it asks a person, who has time to answer even if the requests end
	cancel  context.CancelCauseFunc
}

// fly runs work on a new goroutine, and waits for it until ctx ends. Only one work runs
// at a time: if another one is running, fly waits for that, and mine is false. A login
// is cancelled when nobody waits for it any more, unless a request has made it ask a
// person: then the page stays open for loginTime. An exchange is never cancelled. If a
// caller arrives while a login is being cancelled, it tries again.
func (a *Authorizer) fly(ctx context.Context, work func(context.Context) error) (mine bool, err error) {
	for {
		mine, err = a.board(ctx, work)
		if mine || !errors.Is(err, errAbandoned) || ctx.Err() != nil {
			return mine, err
		}
	}
}

// board is one attempt of fly. Its error is errAbandoned if the other work was
// cancelled.
func (a *Authorizer) board(ctx context.Context, work func(context.Context) error) (mine bool, err error) {
	a.mu.Lock()
	f := a.flight
	if mine = f == nil; mine {
		if f, err = a.takeOff(ctx, work); err != nil {
			a.mu.Unlock()
			return true, err
		}
	}
	f.waiting++
	left := f.left
	a.mu.Unlock()
	select {
	case <-f.done:
		if err = f.err; err != nil && left {
			err = errAbandoned
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.waiting--; f.waiting == 0 && !f.asks {
		f.left = true
		f.cancel(errAbandoned)
	}
	return mine, err
}

var errAbandoned = errors.New("auth: nobody waits for the login any more")

// takeOff starts a flight. The caller holds the lock, and no other flight exists.
func (a *Authorizer) takeOff(ctx context.Context, work func(context.Context) error) (*flight, error) {
	if a.closed {
		return nil, errClosed
	}
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f := &flight{done: make(chan struct{}), cancel: cancel}
	a.flight = f
	a.flights.Add(1)
	go func() {
		defer a.flights.Done()
		err := guarded(func() error { return work(detached) })
		cancel(nil)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.flight, f.err = nil, err
		close(f.done)
	}()
	return f, nil
}

// guarded converts a panic in the program's code to an error.
func guarded(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = errors.New("auth: panic in code of Options")
		}
	}()
	return f()
}

// exchanging returns a context for work that must finish after it has begun.
func exchanging(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
}

// stored returns the credential in the store, refreshed if it has expired, or nil if
// there is none.
func (a *Authorizer) stored(ctx context.Context) (*credential, error) {
	e, err := a.store.Load(ctx, a.key())
	if err != nil {
		a.warn("the store cannot be read", err)
		return nil, nil
	}
	if !a.usable(e) {
		return nil, nil
	}
	c, err := newCredential(e, time.Time{})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if !e.Access.IsZero() && !c.ended(now) {
		a.current.Store(c)
		return c, nil
	}
	if e.Refresh.IsZero() {
		return nil, nil
	}
	if err := a.mayRefresh(now); err != nil {
		return nil, err
	}
	if _, err := a.fly(ctx, func(ctx context.Context) error {
		_, err := a.refresh(ctx, e.Access.Reveal(), true)
		return err
	}); err != nil {
		return nil, err
	}
	if c := a.current.Load(); c != nil && !c.ended(time.Now()) {
		return c, nil
	}
	return nil, nil
}

// refreshBehind starts a refresh in the background.
func (a *Authorizer) refreshBehind(ctx context.Context, c *credential) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.flight != nil || a.backoff.wait(time.Now()) != nil {
		return
	}
	if _, err := a.takeOff(ctx, func(ctx context.Context) error {
		_, err := a.refresh(ctx, c.access(), false)
		return err
	}); err != nil {
		return // closed
	}
}

// mayRefresh returns why it is too early for another refresh, or nil.
func (a *Authorizer) mayRefresh(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.backoff.wait(now)
}

// renew replaces a token that the server has refused.
func (a *Authorizer) renew(ctx context.Context, used string, c challenge, status int) error {
	now := time.Now()
	held := a.current.Load()
	recent := held != nil && held.access() == used && held.recent(now)
	if status == http.StatusUnauthorized && (!recent || held.ended(now)) {
		if renewed, err := a.refresh(ctx, used, true); err != nil || renewed {
			return err
		}
	}
	var before []string
	if held != nil && status == http.StatusForbidden {
		before = held.entry.Scopes
	}
	if used != "" && (recent || status == http.StatusForbidden) && a.inVain(setOf(union(before, c.scopes)), now) {
		return errInVain
	}
	ctx, cancel := a.giveTime(ctx)
	defer cancel()
	return a.login(ctx, c, before, readable)
}

// giveTime lets the running login continue when the requests that need it have ended,
// because a handshake has seconds, but a person needs minutes.
func (a *Authorizer) giveTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if !a.personal() {
		return ctx, func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flight.asks = true
	return context.WithTimeoutCause(ctx, loginTime, fmt.Errorf("%w within %v", ErrNobody, loginTime))
}

// giveUp cancels a login that a request has started and that nobody waits for.
func (a *Authorizer) giveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.flight; f != nil && f.asks && f.waiting == 0 {
		f.left = true
		f.cancel(errAbandoned)
	}
}

var errInVain = errors.New("auth: the server refuses new tokens")

// refresh refreshes the stored login, under the lock of the store. If another process
// has just done so, refresh uses that token. It reports whether there is a token other
// than the used one, which the server may have refused. It gives a refresh token up only
// if the server says that it is invalid.
func (a *Authorizer) refresh(ctx context.Context, used string, refused bool) (renewed bool, err error) {
	ctx, cancel := exchanging(ctx)
	defer cancel()
	if e, err := a.store.Load(ctx, a.key()); err == nil && !a.usable(e) {
		return false, nil // there is nothing to refresh, so do not lock
	}
	var next *Entry
	var obtained time.Time
	asked := false
	err = a.store.Locked(ctx, a.key(), func(e *Entry) (*Entry, error) {
		switch {
		case !a.usable(e):
			return e, nil
		case e.Access.Reveal() != used && a.lasts(e):
			next = e
			return e, nil
		case e.Refresh.IsZero():
			return e, nil
		}
		asked = true
		fresh, err := a.exchange(ctx, e)
		a.counts.refreshed(err)
		var failed *TokenError
		if errors.As(err, &failed) && (failed.Final() || failed.Code == "invalid_client" && e.clientExpired(time.Now())) {
			spent := *e
			if spent.Refresh = (Secret{}); refused && e.Access.Reveal() == used {
				spent.Access = Secret{}
			}
			return &spent, nil
		}
		next, obtained = fresh, time.Now()
		return fresh, err
	})
	if err != nil && !asked && ctx.Err() == nil {
		a.warn("the store cannot be read", err)
		if !refused { // the token is still valid, so not every request needs the store's key
			a.mu.Lock()
			a.backoff.note(err, time.Now())
			a.mu.Unlock()
		}
		return false, nil
	}
	a.mu.Lock()
	a.backoff.note(err, time.Now())
	a.mu.Unlock()
	if next == nil {
		if held := a.current.Load(); err == nil && refused && held != nil && held.access() == used {
			a.current.CompareAndSwap(held, nil)
		}
		return false, err
	}
	if err != nil {
		a.keep(ctx, next, err)
	}
	return true, a.adopt(next, obtained)
}

// lasts reports whether a login has a token that is still valid.
func (a *Authorizer) lasts(e *Entry) bool {
	c, err := newCredential(e, time.Time{})
	return err == nil && !e.Access.IsZero() && !c.ended(time.Now())
}

// keep keeps a login in memory that was not saved.
func (a *Authorizer) keep(ctx context.Context, e *Entry, failed error) {
	a.warn("the login is not saved, and lasts as long as this program", failed)
	if err := a.store.keep(ctx, a.key(), e); err != nil {
		a.warn("the login is lost", err)
	}
}

// canSave returns why the login of a person could not be saved, so that nobody is asked
// for consent in vain.
func (a *Authorizer) canSave(ctx context.Context) error {
	if !a.personal() {
		return nil
	}
	if err := a.store.change(ctx, a.key(), replaced, func(e *Entry) (*Entry, error) { return e, nil }); err != nil {
		return fmt.Errorf("auth: the login could not be saved: %w", err)
	}
	return nil
}

func (a *Authorizer) adopt(e *Entry, obtained time.Time) error {
	c, err := newCredential(e, obtained)
	if err == nil {
		a.current.Store(c)
	}
	return err
}

// personal reports whether a person must log in.
func (a *Authorizer) personal() bool {
	_, device := a.o.Grant.(Device)
	return a.o.Grant == nil || device
}

// login gets a new token, and saves it. Before contains the scopes of the old token, if
// the new one must also have them. How says what to do with a login or registration that
// cannot be decrypted.
func (a *Authorizer) login(ctx context.Context, c challenge, before []string, how change) error {
	resource := a.resource().String()
	if a.o.Grant == nil && a.o.Interact == nil {
		a.counts.loggedIn(ctx, errNoInteraction)
		return &LoginError{Resource: resource, Err: errNoInteraction}
	}
	if a.personal() {
		if err := a.recentFailure(time.Now()); err != nil {
			return &LoginError{Resource: resource, Err: err}
		}
	}
	stored, err := a.store.Load(ctx, a.key())
	if err != nil {
		a.warn("the store cannot be read", err)
	}
	e, err := a.obtain(ctx, c, stored, before, how)
	a.counts.loggedIn(ctx, err)
	if err != nil {
		a.noteFailure(ctx, err, time.Now())
		return &LoginError{Resource: resource, Err: err}
	}
	save, cancel := exchanging(ctx)
	defer cancel()
	if err := a.store.change(save, a.key(), how, func(*Entry) (*Entry, error) { return e, nil }); err != nil {
		a.keep(save, e, err)
	}
	if err := a.adopt(e, time.Now()); err != nil {
		return err
	}
	a.mu.Lock()
	told := slices.Clone(a.onLogin)
	a.mu.Unlock()
	for _, f := range told {
		f()
	}
	return nil
}
