package auth

import (
	"context"
	"errors"
	"time"
)

// stored returns the credential in the store, refreshed if it has expired, or nil if
// there is none.
func (a *Authorizer) stored(ctx context.Context) (*credential, error) {
	t, logouts := a.target.Load(), a.loggedOut()
	e, err := a.store.Load(ctx, t.key)
	if err != nil {
		t.warnings.add("the store cannot be read", err)
		return nil, nil
	}
	l, valid, early := a.judge(e, "")
	switch l.decide() {
	case adoptSaved:
		a.use(valid, logouts)
		return valid, nil
	case waitFirst:
		return nil, early
	case exchange:
		_, err := a.jobs.run(ctx, a.refreshOf(e.Access.Reveal(), true))
		return a.held(time.Now()), err
	default:
		return nil, nil
	}
}

// judge returns what decide must know about a login in the store, for a request with the token used. It also returns the
// credential of the login, if its token is valid, and why it is too early for a refresh.
func (a *Authorizer) judge(e *Entry, used string) (l savedLogin, valid *credential, early error) {
	now := time.Now()
	early = a.attempts.mayRefresh(now)
	if !a.target.Load().clients.usable(e) {
		return savedLogin{}, nil, early
	}
	if c, err := newCredential(e, time.Time{}); err == nil && !e.Access.IsZero() && !c.ended(now) {
		valid = c
	}
	return savedLogin{usable: true, isOther: valid != nil && valid.access() != used, refreshable: !e.Refresh.IsZero(), tooEarly: early != nil}, valid, early
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
		return a.refreshOf(c.access(), false)(ctx)
	})
}

// refreshOf returns the job of a refresh that is due.
func (a *Authorizer) refreshOf(used string, refused bool) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := a.refresh(ctx, used, refused)
		return err
	}
}

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
	r := &refreshing{Authorizer: a, target: t, used: used, refused: refused}
	err = a.store.Locked(ctx, t.key, func(e *Entry) (*Entry, error) { return r.replace(ctx, e) })
	switch {
	case r.early != nil:
		return false, r.early
	case err != nil && !r.asked && ctx.Err() == nil:
		r.unreadable(err)
		return false, nil
	}
	a.attempts.recordRefresh(err, time.Now())
	switch {
	case r.next == nil && err != nil:
		return false, err
	case r.next == nil:
		a.refreshEnded(used, refused)
		return false, nil
	case err != nil:
		t.keepInMemory(ctx, r.next, err)
	}
	return true, a.adopt(r.next, r.obtained, logouts)
}

// A refreshing is one refresh, and what has become of it.
type refreshing struct {
	*Authorizer
	target  *target
	used    string // the token that the request has
	refused bool   // the server has refused that token

	next     *Entry    // the login to use; nil if there is none
	obtained time.Time // when this process got it; zero if another one did
	early    error     // why it is too early for a refresh; nil if it is not
	asked    bool      // the authorization server was asked
}

// replace returns what to store in place of a login. The store is locked meanwhile.
func (r *refreshing) replace(ctx context.Context, e *Entry) (*Entry, error) {
	l, _, early := r.judge(e, r.used)
	switch l.decide() {
	case waitFirst:
		r.early = early
		return e, nil
	case adoptSaved:
		r.next = e
		return e, nil
	case exchange:
		return r.exchange(ctx, e)
	default:
		return e, nil
	}
}

// exchange exchanges the refresh token of a login. If the server says that it is invalid, the
// login without it is stored: also without the token, if the server has refused that, too.
func (r *refreshing) exchange(ctx context.Context, e *Entry) (*Entry, error) {
	r.asked = true
	fresh, err := r.target.exchange(ctx, e)
	r.counts.refreshed(err)
	var failed *TokenError
	if errors.As(err, &failed) && (failed.Final() || failed.Code == "invalid_client" && e.clientExpired(time.Now())) {
		spent := *e
		if spent.Refresh = (Secret{}); r.refused && e.Access.Reveal() == r.used {
			spent.Access = Secret{}
		}
		return &spent, nil
	}
	r.next, r.obtained = fresh, time.Now()
	return fresh, err
}

// unreadable notes that the store could not be read. A token that is still valid is used on, so
// not every request needs the key of the store.
func (r *refreshing) unreadable(err error) {
	r.target.warnings.add("the store cannot be read", err)
	if !r.refused {
		r.attempts.recordRefresh(err, time.Now())
	}
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

// held returns the token in use; nil if there is none, or if it has expired.
func (a *Authorizer) held(now time.Time) *credential {
	if c := a.current.Load(); c != nil && !c.ended(now) {
		return c
	}
	return nil
}
