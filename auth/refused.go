package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// This file is what happens to a 401 or a 403, from top to bottom: a link calls Challenged
// (transport/internal/web, authorize.go), all requests that wait share one renewal, and that takes
// the steps that decide.go returns.

// Challenged implements transport.Authorizer. It refreshes a refused token once. If
// there is no refresh token, or the new token is refused as well, Challenged logs in
// again, or fails with a *LoginError if it cannot. If the request lacks scopes, it
// logs in with more scopes. If the server keeps refusing the tokens for a set of
// scopes, at most two refusals lead to a login for that set in ten minutes.
func (a *Authorizer) Challenged(ctx context.Context, r *http.Request, refused *transport.StatusError) (bool, error) {
	if err := a.takesLogins(); err != nil {
		return false, err
	}
	used := tokenOf(r)
	c := parseChallenge(refused.Challenge)
	a.nonces.note(r.URL, refused.Nonce)
	if c.err == "use_dpop_nonce" && a.nonces.hasNewer(r) {
		return true, nil // the link repeats a request at most three times
	}
	a.counts.denied(refused.Status)
	if refused.Status == http.StatusForbidden && c.err != "insufficient_scope" {
		return false, nil
	}
	return a.replace(ctx, used, c, refused.Status)
}

// replace has a refused token replaced, once for all requests that were sent with it. It reports whether there is another one.
func (a *Authorizer) replace(ctx context.Context, used string, c challenge, status int) (bool, error) {
	for {
		if held := a.held(time.Now()); held != nil && held.access() != used {
			return true, nil // another request was challenged, too
		}
		if a.jobs.waitsForPerson() {
			logouts := a.loggedOut()
			if saved := a.otherSaved(ctx, used); saved != nil {
				a.use(saved, logouts)
				return true, nil // another program has logged in, while the person does not come to this one
			}
		}
		started, err := a.jobs.run(ctx, func(ctx context.Context) error { return a.renew(ctx, used, c, status) })
		switch {
		case errors.Is(err, errNewTokenRefused):
			return false, nil
		case started || err != nil:
			return err == nil, err
		}
	}
}

// errNewTokenRefused says that a login was not tried again.
var errNewTokenRefused = errors.New("auth: the server refuses new tokens")

// renew replaces a token that the server has refused. It runs as a job, for all requests that
// wait for it.
func (a *Authorizer) renew(ctx context.Context, used string, c challenge, status int) error {
	logouts := a.loggedOut() // before the store is read: a later Logout removes what was read
	saved := a.otherSaved(ctx, used)
	t := refusedToken{forbidden: status == http.StatusForbidden, sent: used != "", savedIsOK: saved != nil}
	var before []string // the scopes that the new token must have, too
	if held := a.current.Load(); held != nil {
		now, same := time.Now(), held.access() == used
		t.recent, t.expired = same && held.recent(now), same && held.ended(now)
		if t.forbidden {
			before = held.entry.Scopes
		}
	}
	next := t.decide()
	switch next {
	case takeSaved:
		a.use(saved, logouts)
		return nil
	case refreshFirst:
		if renewed, err := a.refresh(ctx, used, true); err != nil || renewed {
			return err
		}
		t.refreshed = true
		next = t.decide()
	}
	if err := a.mayLogIn(next, t, before, c.scopes); err != nil {
		return err
	}
	return a.loginForRequest(ctx, c, before)
}

// mayLogIn returns why a step leads to no login, or nil. A server that refuses whatever it gets must not have a person asked for
// ever: refusals are counted, but for those of a token that has come to its end.
func (a *Authorizer) mayLogIn(next step, t refusedToken, before, required []string) error {
	if next == stepUp {
		if err := a.o.stepUp(before, required); err != nil {
			return fmt.Errorf("auth: %s %w", a.resource(), err)
		}
	}
	set, now := setOf(union(before, required)), time.Now()
	if next != logIn && a.attempts.refusedTooOften(set, now) {
		return errNewTokenRefused
	}
	if next != logIn && (t.recent || !t.expired) {
		a.attempts.recordRefusal(set, now)
	}
	return nil
}

// loginForRequest logs in because a request needs it. A handshake has seconds, but a person
// needs minutes: so the login goes on when no request waits for it any more.
func (a *Authorizer) loginForRequest(ctx context.Context, c challenge, before []string) error {
	if a.o.personal() {
		a.jobs.detach()
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, loginTime, fmt.Errorf("%w within %v", ErrUnanswered, loginTime))
		defer cancel()
	}
	return a.login(ctx, c, before, readable)
}

// otherSaved returns the credential in the store, if it is valid and another than the used one:
// another program has logged in or refreshed meanwhile.
func (a *Authorizer) otherSaved(ctx context.Context, used string) *credential {
	e, err := a.store.Load(ctx, a.key())
	if l, valid, _ := a.judge(e, used); err == nil && l.isOther {
		return valid
	}
	return nil
}
