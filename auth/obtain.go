package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// obtain gets a new token. The challenge, and the metadata of the server and of the
// authorization server, determine the place, the client and the scopes.
func (a *Authorizer) obtain(ctx context.Context, c challenge, stored *Entry, before []string, how change) (*Entry, error) {
	known := []string{}
	pinned, last := "", "" // the issuer that the client is bound to, and the issuer of the last token
	if stored != nil && stored.Pinned != "" {
		pinned, known = stored.Pinned, append(known, stored.Pinned)
	}
	if a.usable(stored) {
		last, known = stored.Issuer, append(known, stored.Issuer)
	}
	for _, r := range a.o.Registered {
		if r.Issuer != "" {
			known = append(known, r.Issuer)
		}
	}
	p, err := a.discover(ctx, a.resource(), c, known)
	if err != nil {
		return nil, err
	}
	p.lost = how
	if a.strays(p.server.Issuer, pinned) {
		return nil, &RegistrationError{Issuer: p.server.Issuer, Reason: "the client in Registered was used at " + pinned + " before: name its Issuer, or log out first"}
	}
	if p.server.Issuer != last {
		before = nil // scopes of another server
	}
	scopes := chooseScopes(p, c, before, a.o.Offline, a.o.Scopes)
	var proof *prover
	if a.o.DPoP {
		if proof, err = newProver(Secret{}); err != nil {
			return nil, err
		}
	}
	var used *client
	var token *tokenResponse
	if a.o.Grant != nil {
		used, token, err = a.o.Grant.token(ctx, a, p, pinned, scopes, proof)
	} else {
		used, token, err = a.byCode(ctx, p, pinned, scopes, proof)
	}
	if err != nil {
		return nil, err
	}
	e, err := a.entry(p, used, token, scopes, proof)
	if err == nil {
		e.Pinned = pinned
		if r, ok := a.registered(e.Issuer, pinned); ok && r.Issuer == "" && used != nil {
			e.Pinned = e.Issuer
		}
	}
	return e, err
}

// byCode runs the authorization code flow.
func (a *Authorizer) byCode(ctx context.Context, p *place, pinned string, scopes []string, proof *prover) (*client, *tokenResponse, error) {
	if err := p.takesCode(); err != nil {
		return nil, nil, err
	}
	var request *pending
	interaction := Interaction{
		Resource: a.resource().String(), Issuer: p.server.Issuer, Scopes: scopes,
		start: func(ctx context.Context, redirect string) (*url.URL, error) {
			c, err := a.clientAt(ctx, p, pinned, redirect, scopes)
			if err != nil {
				return nil, err
			}
			request = newPending(p, c, redirect, scopes)
			return request.url()
		},
	}
	if e, err := a.store.Load(ctx, Key{Issuer: p.server.Issuer}); err == nil && e != nil {
		interaction.Redirect = e.RedirectURI
	}
	redirected, err := a.o.Interact(ctx, interaction)
	if err != nil {
		return nil, nil, err
	}
	if request == nil {
		return nil, nil, errors.New("auth: Interact has not started the login")
	}
	code, err := request.code(redirected)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := exchanging(ctx)
	defer cancel()
	token, err := a.ask(ctx, &tokenRequest{
		endpoint: p.server.Token, issuer: p.server.Issuer, client: request.client, form: request.form(code), prover: proof,
	})
	return request.client, token, err
}

// entry returns the login for a token.
func (a *Authorizer) entry(p *place, c *client, token *tokenResponse, scopes []string, proof *prover) (*Entry, error) {
	e := &Entry{
		Issuer: p.server.Issuer, Grant: a.grantName(),
		Access: token.access, Refresh: token.refresh, Type: token.kind, Issued: time.Now(), Expires: token.expires,
		Scopes: scopes, Resource: p.resource, TokenEndpoint: p.server.Token, RevocationEndpoint: p.server.Revocation,
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
	if proof != nil {
		var err error
		if e.Proof, err = proof.save(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// exchange exchanges the refresh token of a login for a new login.
func (a *Authorizer) exchange(ctx context.Context, e *Entry) (*Entry, error) {
	c, err := a.clientFor(e)
	if err != nil {
		return nil, err
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {e.Refresh.Reveal()}}
	if e.Resource != "" {
		form.Set("resource", e.Resource)
	}
	var proof *prover
	if e.Type == "DPoP" {
		if proof, err = newProver(e.Proof); err != nil {
			return nil, err
		}
	}
	token, err := a.ask(ctx, &tokenRequest{endpoint: e.TokenEndpoint, issuer: e.Issuer, client: c, form: form, prover: proof})
	if err != nil {
		return nil, err
	}
	next := *e
	next.Access, next.Type, next.Issued, next.Expires = token.access, token.kind, time.Now(), token.expires
	if !token.refresh.IsZero() {
		next.Refresh = token.refresh
	}
	if token.scopes != nil {
		next.Scopes = token.scopes
	}
	return &next, nil
}

// clientFor returns the client of a login, or nil if it has none.
func (a *Authorizer) clientFor(e *Entry) (*client, error) {
	if e.ClientID == "" {
		return nil, nil
	}
	if r, ok := a.registered(e.Issuer, e.Pinned); ok && r.ID == e.ClientID {
		return &client{id: r.ID, secret: r.Secret, key: r.Key, keyID: r.KeyID, method: e.ClientAuth}, nil
	}
	if e.ClientAuth != authNone && e.ClientSecret.IsZero() {
		return nil, fmt.Errorf("auth: the login at %s has not the secret of its client: log in again", e.Issuer)
	}
	return clientOf(e), nil
}

// probe sends a request without a token, and returns the challenge in the response.
func (a *Authorizer) probe(ctx context.Context) (challenge, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.resource().String(), http.NoBody)
	if err != nil {
		return challenge{}, err
	}
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Content-Type", "application/json")
	response, err := a.target.Load().guard.Do(request)
	if err != nil {
		return challenge{}, err
	}
	if refused := (&transport.StatusError{Status: response.Status}); !refused.Denied() {
		return challenge{}, nil // the server may allow it, or require a login only later
	}
	var text string
	for i, line := range response.Header.Values("WWW-Authenticate") {
		if i > 0 {
			text += ", "
		}
		text += line
	}
	return parseChallenge(text), nil
}
