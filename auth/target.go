package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/auth/guard"
	"github.com/bowline-mcp/bowline/transport"
)

// A target is the MCP server, with what talks to it and to its authorization servers.
type target struct {
	resource *url.URL
	key      Key
	options  *Options
	guard    *guard.Guard
	store    *storage
	warnings *warnings

	discovery *discovery
	clients   *registrations
	endpoint  *endpoint
}

func newTarget(a *Authorizer, u *url.URL) *target {
	resource := &url.URL{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Host), Path: u.Path, RawPath: u.RawPath}
	t := &target{
		resource: resource, key: Key{Resource: resource.String(), Principal: a.o.Principal},
		options: &a.o, guard: a.o.Guard, store: a.store, warnings: &warnings{log: a.o.Log.With("resource", resource.String())},
	}
	if t.guard == nil {
		t.guard = guard.New(guard.Options{Endpoint: resource.String()})
	}
	t.discovery = &discovery{t.guard}
	t.clients = &registrations{options: t.options, store: t.store, guard: t.guard, warnings: t.warnings}
	t.endpoint = &endpoint{guard: t.guard, nonces: &a.nonces}
	return t
}

// obtain gets a new token. The challenge, and the metadata of the server and of the
// authorization server, determine the place, the client and the scopes.
func (t *target) obtain(ctx context.Context, c challenge, stored *Entry, before []string, how change) (*Entry, error) {
	l, err := t.begin(ctx, c, stored, before, how)
	if err != nil {
		return nil, err
	}
	request := t.byCode
	if t.options.Grant != nil {
		request = t.options.Grant.token
	}
	used, token, err := request(ctx, l)
	if err != nil {
		if isClientRefused(err) {
			t.clients.forget(ctx, l.discovered.server.Issuer, l.registered)
		}
		return nil, err
	}
	e, err := l.entry(t.options.grantName(), used, token)
	if err == nil {
		e.Pinned = t.pinOf(e, l, used)
	}
	return e, err
}

// begin finds the authorization server, and chooses the scopes and the key of a login.
func (t *target) begin(ctx context.Context, c challenge, stored *Entry, before []string, how change) (*login, error) {
	pinned, last := t.earlierIssuers(stored)
	p, err := t.discovery.discover(ctx, t.resource, c, t.knownIssuers(pinned, last))
	if err != nil {
		return nil, err
	}
	p.onUndecryptable = how
	if t.clients.isUnbound(p.server.Issuer, pinned) {
		return nil, &RegistrationError{Issuer: p.server.Issuer, Reason: "the client in Registered was used at " + pinned + " before: name its Issuer, or log out first"}
	}
	if p.server.Issuer != last {
		before = nil // scopes of another server
	}
	l := &login{
		discovered: p, pinned: pinned, scopes: chooseScopes(p, c, before, t.options.Offline, t.options.Scopes),
		endpoint: t.endpoint, clients: t.clients,
	}
	if t.options.DPoP {
		l.proof, err = newProver(Secret{})
	}
	return l, err
}

// earlierIssuers returns the issuer that the client is bound to, and the one of the last token; "" for none.
func (t *target) earlierIssuers(stored *Entry) (pinned, last string) {
	if stored != nil {
		pinned = stored.Pinned
	}
	if t.clients.usable(stored) {
		last = stored.Issuer
	}
	return pinned, last
}

// knownIssuers returns the issuers that this program has used for the server, or is registered at.
// If the server names several, one of these is taken.
func (t *target) knownIssuers(pinned, last string) []string {
	known := []string{pinned, last}
	for _, r := range t.options.Registered {
		known = append(known, r.Issuer)
	}
	return slices.DeleteFunc(known, func(issuer string) bool { return issuer == "" })
}

// pinOf returns the issuer that the client of a login is bound to from now on. A client without
// an Issuer in Registered is bound to the first one that it is used at.
func (t *target) pinOf(e *Entry, l *login, used *client) string {
	if r, ok := t.clients.given(e.Issuer, l.pinned); ok && r.Issuer == "" && used != nil {
		return e.Issuer
	}
	return l.pinned
}

// byCode runs the authorization code flow.
func (t *target) byCode(ctx context.Context, l *login) (*client, *tokenResponse, error) {
	if err := l.discovered.takesCode(); err != nil {
		return nil, nil, err
	}
	var request *authRequest
	interaction := Interaction{
		Resource: t.resource.String(), Issuer: l.discovered.server.Issuer, Scopes: l.scopes,
		start: func(ctx context.Context, redirect string) (*url.URL, error) {
			c, err := l.clients.clientAt(ctx, l, redirect)
			if err != nil {
				return nil, err
			}
			request = newAuthRequest(l, c, redirect)
			return request.url()
		},
	}
	if e, err := t.store.Load(ctx, Key{Issuer: l.discovered.server.Issuer}); err == nil && e != nil {
		interaction.Redirect = e.RedirectURI
	}
	redirected, err := t.options.Interact(ctx, interaction)
	if err != nil {
		if l.discovered.onUndecryptable == replaced {
			// A server that has lost the client shows an error page and does not redirect. The person
			// who tries again gets a new client. A request that nobody answers keeps the client.
			t.clients.forget(ctx, l.discovered.server.Issuer, l.registered)
		}
		return nil, nil, err
	}
	if request == nil {
		return nil, nil, errors.New("auth: Interact has not started the login")
	}
	code, err := request.code(redirected)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := exchangeContext(ctx)
	defer cancel()
	token, err := l.endpoint.requestToken(ctx, &tokenRequest{
		endpoint: l.discovered.server.Token, issuer: l.discovered.server.Issuer, client: request.client, form: request.form(code), prover: l.proof,
	})
	return request.client, token, err
}

// exchange exchanges the refresh token of a login for a new login.
func (t *target) exchange(ctx context.Context, e *Entry) (*Entry, error) {
	c, err := t.clients.restore(e)
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
	token, err := t.endpoint.requestToken(ctx, &tokenRequest{endpoint: e.TokenEndpoint, issuer: e.Issuer, client: c, form: form, prover: proof})
	if err != nil {
		if isClientRefused(err) {
			t.clients.forget(ctx, e.Issuer, e.ClientID)
		}
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

// probe sends a request without a token, and returns the challenge in the response. The guard
// limits how long the server may take.
func (t *target) probe(ctx context.Context) (challenge, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.resource.String(), http.NoBody)
	if err != nil {
		return challenge{}, err
	}
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Content-Type", "application/json")
	response, err := t.guard.Do(request)
	if err != nil {
		return challenge{}, err
	}
	if refused := (&transport.StatusError{Status: response.Status}); !refused.Denied() {
		return challenge{}, nil // the server may allow it, or require a login only later
	}
	return parseChallenge(strings.Join(response.Header.Values("WWW-Authenticate"), ", ")), nil
}

// keepInMemory keeps a login in memory that was not saved.
func (t *target) keepInMemory(ctx context.Context, e *Entry, failed error) {
	t.warnings.add("the login is not saved, and lasts as long as this program", failed)
	if err := t.store.keepInMemory(ctx, t.key, e); err != nil {
		t.warnings.add("the login is lost", err)
	}
}

// revoke revokes the tokens of a login, if its server can do that.
func (t *target) revoke(ctx context.Context, e *Entry) error {
	if e.RevocationEndpoint == "" {
		return nil
	}
	c, err := t.clients.restore(e)
	if err != nil {
		return err
	}
	return t.endpoint.revoke(ctx, e, c)
}

// warnings logs each problem once.
type warnings struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[string]bool
}

func (w *warnings) add(what string, err error) {
	w.mu.Lock()
	logged := w.logged[what]
	if w.logged == nil {
		w.logged = make(map[string]bool)
	}
	w.logged[what] = true
	w.mu.Unlock()
	if logged {
		return
	}
	attributes := []any{"error", err}
	if errors.As(err, new(decryptError)) {
		attributes = append(attributes, "hint", "Login replaces it")
	}
	w.log.Warn("auth: "+what, attributes...)
}
