package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// exchangeTime is the time for an exchange and its saving, even if no request waits.
const exchangeTime = 30 * time.Second

// exchangeContext returns a context for work that must finish after it has begun.
func exchangeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
}

// stored returns the credential in the store, refreshed if it has expired, or nil if
// there is none.
func (a *Authorizer) stored(ctx context.Context) (*credential, error) {
	t, logouts := a.target.Load(), a.loggedOut()
	e, err := a.store.Load(ctx, t.key)
	if err != nil {
		t.warnings.add("the store cannot be read", err)
		return nil, nil
	}
	if !t.clients.usable(e) {
		return nil, nil
	}
	c, err := newCredential(e, time.Time{})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if !e.Access.IsZero() && !c.ended(now) {
		a.use(c, logouts)
		return c, nil
	}
	if e.Refresh.IsZero() {
		return nil, nil
	}
	if err := a.attempts.mayRefresh(now); err != nil {
		return nil, err
	}
	if _, err := a.jobs.run(ctx, func(ctx context.Context) error {
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

// refreshInBackground starts a refresh in the background, unless one has just failed.
func (a *Authorizer) refreshInBackground(ctx context.Context, c *credential) {
	if a.attempts.mayRefresh(time.Now()) != nil {
		return
	}
	a.jobs.runInBackground(ctx, func(ctx context.Context) error {
		if a.attempts.mayRefresh(time.Now()) != nil {
			return nil // one has failed meanwhile
		}
		_, err := a.refresh(ctx, c.access(), false)
		return err
	})
}

// renew replaces a token that the server has refused.
func (a *Authorizer) renew(ctx context.Context, used string, c challenge, status int) error {
	if a.useSaved(ctx, used) {
		return nil
	}
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
	if used != "" && status == http.StatusForbidden {
		if err := a.o.stepUp(before, c.scopes); err != nil {
			return fmt.Errorf("auth: %s %w", a.resource(), err)
		}
	}
	if used != "" && (recent || status == http.StatusForbidden) && a.attempts.tooManyRefusals(setOf(union(before, c.scopes)), now) {
		return errNewTokenRefused
	}
	if a.o.personal() { // a handshake has seconds, but a person needs minutes
		a.jobs.detach()
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, loginTime, fmt.Errorf("%w within %v", ErrNobody, loginTime))
		defer cancel()
	}
	return a.login(ctx, c, before, readable)
}

// useSaved uses the token in the store, if it is valid and another than the used one, which was
// refused. It reports whether it is: another program has logged in or refreshed meanwhile.
func (a *Authorizer) useSaved(ctx context.Context, used string) bool {
	t, logouts := a.target.Load(), a.loggedOut()
	e, err := a.store.Load(ctx, t.key)
	if err != nil || !t.clients.usable(e) || e.Access.Reveal() == used || !hasValidToken(e) {
		return false
	}
	return a.adopt(e, time.Time{}, logouts) == nil
}

var errNewTokenRefused = errors.New("auth: the server refuses new tokens")

// refresh refreshes the stored login, under the lock of the store. If another process
// has just done so, refresh uses that token. It reports whether there is a token other
// than the used one, which the server may have refused. It gives a refresh token up only
// if the server says that it is invalid.
func (a *Authorizer) refresh(ctx context.Context, used string, refused bool) (renewed bool, err error) {
	ctx, cancel := exchangeContext(ctx)
	defer cancel()
	t, logouts := a.target.Load(), a.loggedOut()
	if e, err := a.store.Load(ctx, t.key); err == nil && !t.clients.usable(e) {
		a.refreshEnded(used, false)
		return false, nil // there is nothing to refresh, so do not lock
	}
	var next *Entry
	var obtained time.Time
	var early error // one has failed, and it is too early for another
	asked := false
	err = a.store.Locked(ctx, t.key, func(e *Entry) (*Entry, error) {
		switch {
		case !t.clients.usable(e):
			return e, nil
		case e.Access.Reveal() != used && hasValidToken(e):
			next = e
			return e, nil
		case e.Refresh.IsZero():
			return e, nil
		}
		if early = a.attempts.mayRefresh(time.Now()); early != nil {
			return e, nil
		}
		asked = true
		fresh, err := t.exchange(ctx, e)
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
	if early != nil {
		return false, early
	}
	if err != nil && !asked && ctx.Err() == nil {
		t.warnings.add("the store cannot be read", err)
		if !refused { // the token is still valid, so not every request needs the key of the store
			a.attempts.recordRefresh(err, time.Now())
		}
		return false, nil
	}
	a.attempts.recordRefresh(err, time.Now())
	if next == nil {
		if err == nil {
			a.refreshEnded(used, refused)
		}
		return false, err
	}
	if err != nil {
		t.keepInMemory(ctx, next, err)
	}
	return true, a.adopt(next, obtained, logouts)
}

// refreshEnded removes the refresh token of the token in use, so that requests do not try
// to refresh it. A token that the server has refused is removed, too.
func (a *Authorizer) refreshEnded(used string, refused bool) {
	held := a.current.Load()
	if held == nil || held.access() != used {
		return
	}
	if refused {
		a.current.CompareAndSwap(held, nil)
		return
	}
	kept, entry := *held, *held.entry
	entry.Refresh, kept.entry = Secret{}, &entry
	a.current.CompareAndSwap(held, &kept)
}

func (a *Authorizer) adopt(e *Entry, obtained time.Time, logouts int) error {
	c, err := newCredential(e, obtained)
	if err == nil {
		a.use(c, logouts)
	}
	return err
}

// loggedOut returns how often Logout was called.
func (a *Authorizer) loggedOut() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logouts
}

// use takes a credential into use that was got after so many logouts. If there was another
// since then, Logout has removed what the credential is of.
func (a *Authorizer) use(c *credential, logouts int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.logouts == logouts {
		a.current.Store(c)
	}
}

// login gets a new token, and saves it. Before contains the scopes of the old token, if
// the new one must also have them. How says what to do with a login or registration that
// cannot be decrypted.
func (a *Authorizer) login(ctx context.Context, c challenge, before []string, how change) error {
	t := a.target.Load()
	resource := t.resource.String()
	if a.o.Grant == nil && a.o.Interact == nil {
		a.counts.loggedIn(ctx, errNoInteraction)
		return &LoginError{Resource: resource, Err: errNoInteraction}
	}
	if a.o.personal() {
		if err := a.attempts.recentFailure(time.Now()); err != nil {
			return &LoginError{Resource: resource, Err: err}
		}
	}
	stored, err := a.store.Load(ctx, t.key)
	if err != nil {
		t.warnings.add("the store cannot be read", err)
	}
	e, err := t.obtain(ctx, c, stored, before, how)
	a.counts.loggedIn(ctx, err)
	if err != nil {
		a.attempts.recordFailure(ctx, err, time.Now())
		return &LoginError{Resource: resource, Err: err}
	}
	save, cancel := exchangeContext(ctx)
	defer cancel()
	logouts := a.loggedOut() // before the login is saved: a later Logout removes it
	var unsaved error
	if err := a.store.save(save, t.key, how, e); err != nil {
		t.keepInMemory(save, e, err)
		if how == replaced { // a person waits for the result
			unsaved = fmt.Errorf("auth: the login could not be saved, and lasts as long as this program: %w", err)
		}
	}
	if err := a.adopt(e, time.Now(), logouts); err != nil {
		return err
	}
	a.mu.Lock()
	callbacks := slices.Clone(a.onLogin)
	a.mu.Unlock()
	for _, f := range callbacks {
		f()
	}
	return unsaved
}

// hasValidToken reports whether a login has a token that is still valid.
func hasValidToken(e *Entry) bool {
	c, err := newCredential(e, time.Time{})
	return err == nil && !e.Access.IsZero() && !c.ended(time.Now())
}
