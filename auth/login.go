package auth

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// login gets a new token, and saves it. Before contains the scopes of the old token, if
// the new one must also have them. How says what to do with a login or registration that
// cannot be decrypted.
func (a *Authorizer) login(ctx context.Context, c challenge, before []string, how change) error {
	t := a.target.Load()
	resource := t.resource.String()
	if a.o.Grant == nil && a.o.Interact == nil {
		a.counts.loggedIn(ctx, errNoInteraction)
		return &LoginError{Resource: resource, Scopes: union(before, c.scopes), Err: errNoInteraction}
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
	a.attempts.recordRefresh(nil, time.Now()) // the token endpoint works
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

// A login is one attempt to get a new token.
type login struct {
	discovered *discovered
	pinned     string // the issuer that the client is bound to; "" for none
	scopes     []string
	proof      *prover // the key for DPoP; nil without DPoP
	registered string  // the id of the client, if it has registered itself

	endpoint *endpoint
	clients  *registrations
}

// addParameters adds the parameters resource and scope to a token request.
func (l *login) addParameters(form url.Values) {
	if l.discovered.resource != "" {
		form.Set("resource", l.discovered.resource)
	}
	if len(l.scopes) > 0 {
		form.Set("scope", strings.Join(l.scopes, " "))
	}
}

// entry returns what to save of a login that has got a token.
func (l *login) entry(grant string, c *client, token *tokenResponse) (*Entry, error) {
	e := &Entry{
		Issuer: l.discovered.server.Issuer, Grant: grant,
		Access: token.access, Refresh: token.refresh, Type: token.kind, Issued: time.Now(), Expires: token.expires,
		Scopes: l.scopes, Resource: l.discovered.resource, TokenEndpoint: l.discovered.server.Token, RevocationEndpoint: l.discovered.server.Revocation,
	}
	if c != nil {
		e.ClientID, e.ClientAuth = c.id, c.method
		if c.registered {
			e.ClientSecret, e.ClientExpires = c.secret, c.expires
		}
	}
	if token.scopes != nil {
		e.Scopes = token.scopes
	}
	var err error
	if l.proof != nil {
		e.Proof, err = l.proof.save()
	}
	return e, err
}
