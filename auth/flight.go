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
	exchangeTime  = 30 * time.Second // for an exchange and its saving, whoever waits
	probeTime     = 10 * time.Second
	forgivingTime = 10 * time.Minute // after which attempts in vain are forgotten
	maxInVain     = 2                // logins for one set of scopes
)

// A flight is the one refresh or login that is under way.
type flight struct {
	done    chan struct{}
	err     error // once done
	waiting int
	left    bool // by all who waited, once
	asks    bool // a person, who is given time to answer whoever waits
	cancel  context.CancelCauseFunc
}

// fly does work that only one may do at a time, on a goroutine of its own, and waits
// for it until ctx ends. If other work was under way it waits for that, and mine is
// false. A login is given up when nobody waits for it any more, unless a person was asked
// by a request: that page stays open for loginTime. An exchange is not given up either. Who
// comes when a login is being given up tries again.
func (a *Authorizer) fly(ctx context.Context, work func(context.Context) error) (mine bool, err error) {
	for {
		mine, err = a.board(ctx, work)
		if mine || !errors.Is(err, errAbandoned) || ctx.Err() != nil {
			return mine, err
		}
	}
}

// board is one try of fly. Its error is errAbandoned if the other work was given up.
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

// takeOff begins a flight. The caller holds the lock, and there is no other flight.
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

// guarded turns a panic of the program's own code into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = errors.New("auth: panic in code of Options")
		}
	}()
	return f()
}

// exchanging returns a context for work that must be finished once it is begun.
func exchanging(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
}

// stored returns the credential of the store, refreshed if it has ended, or nil.
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

// refreshBehind begins a refresh that nobody waits for.
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

// mayRefresh returns why it is too early for another refresh.
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

// giveTime lets the login under way go on when the requests that need it have ended: a
// handshake has seconds, and a person needs minutes.
func (a *Authorizer) giveTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if !a.personal() {
		return ctx, func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flight.asks = true
	return context.WithTimeoutCause(ctx, loginTime, fmt.Errorf("%w within %v", ErrNobody, loginTime))
}

// giveUp ends a login that a request has begun and nobody waits for.
func (a *Authorizer) giveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.flight; f != nil && f.asks && f.waiting == 0 {
		f.left = true
		f.cancel(errAbandoned)
	}
}

var errInVain = errors.New("auth: the server refuses new tokens")

// refresh renews the stored login, under the store's lock: if another has done so
// already, that is the result. It reports whether there is a token other than the one
// used, which may have been refused. Only an answer that the refresh token is spent
// gives it up.
func (a *Authorizer) refresh(ctx context.Context, used string, refused bool) (renewed bool, err error) {
	ctx, cancel := exchanging(ctx)
	defer cancel()
	if e, err := a.store.Load(ctx, a.key()); err == nil && !a.usable(e) {
		return false, nil // and no lock for what is not there
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
		if !refused { // the token lives: not every request asks for the key of the store
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

// lasts reports whether a login has a token that can be used.
func (a *Authorizer) lasts(e *Entry) bool {
	c, err := newCredential(e, time.Time{})
	return err == nil && !e.Access.IsZero() && !c.ended(time.Now())
}

// keep goes on in memory with a login that was not saved.
func (a *Authorizer) keep(ctx context.Context, e *Entry, failed error) {
	a.warn("the login is not saved, and lasts as long as this program", failed)
	if err := a.store.keep(ctx, a.key(), e); err != nil {
		a.warn("the login is lost", err)
	}
}

// canSave returns why a login of a person could not be saved: they would consent in vain.
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

// personal reports whether a person has to log in.
func (a *Authorizer) personal() bool {
	_, device := a.o.Grant.(Device)
	return a.o.Grant == nil || device
}

// login gets a new token, and saves it. Before are the scopes of the token it replaces,
// if those are to stay. How is what is done with a login or registration that cannot be
// opened.
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
