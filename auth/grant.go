package auth

import (
	"context"
	"errors"
	"net/url"
	"strings"
)

// A Grant is a way to get a token without a browser: [ClientCredentials], [IDJAG],
// [Workload] or [Device]. A login by the first three needs nobody.
type Grant interface {
	name() string
	// token asks for a token, once it is known where.
	token(ctx context.Context, a *Authorizer, p *place, pinned string, scopes []string, proof *prover) (*client, *tokenResponse, error)
}

// ClientCredentials are the program's own credentials: the client of
// Options.Registered (extension io.modelcontextprotocol/oauth-client-credentials).
type ClientCredentials struct{}

func (ClientCredentials) name() string { return "client_credentials" }

func (ClientCredentials) token(ctx context.Context, a *Authorizer, p *place, pinned string, scopes []string, proof *prover) (*client, *tokenResponse, error) {
	c, err := a.mustRegistered(p, pinned)
	if err != nil {
		return nil, nil, err
	}
	return a.grant(ctx, p, c, url.Values{"grant_type": {"client_credentials"}}, scopes, proof)
}

// IDJAG gets a token on the word of an identity provider that the person has logged in
// with: the provider exchanges the person's token for an assertion (ID-JAG), and the
// authorization server takes that (extension
// io.modelcontextprotocol/enterprise-managed-authorization). Options.Registered has the
// client at the authorization server. There is no refresh: the exchange is made again,
// so that the provider's policy holds.
type IDJAG struct {
	// TokenEndpoint is that of the identity provider, as the program's user has
	// configured it.
	TokenEndpoint string

	// Issuer of the identity provider; for its clients that sign assertions.
	Issuer string

	// Client at the identity provider.
	Client Registered

	// Subject returns the person's identity token, and its type: "" means
	// urn:ietf:params:oauth:token-type:id_token.
	Subject func(context.Context) (token Secret, kind string, err error)
}

const (
	grantExchange  = "urn:ietf:params:oauth:grant-type:token-exchange"
	grantJWTBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	typeIDJAG      = "urn:ietf:params:oauth:token-type:id-jag"
	typeIDToken    = "urn:ietf:params:oauth:token-type:id_token"
)

func (IDJAG) name() string { return grantJWTBearer + "#id-jag" }

func (g IDJAG) token(ctx context.Context, a *Authorizer, p *place, pinned string, scopes []string, proof *prover) (*client, *tokenResponse, error) {
	c, err := a.mustRegistered(p, pinned)
	if err != nil {
		return nil, nil, err
	}
	if g.Subject == nil {
		return nil, nil, errors.New("auth: IDJAG has no Subject")
	}
	subject, kind, err := g.Subject(ctx)
	if err != nil {
		return nil, nil, err
	}
	if kind == "" {
		kind = typeIDToken
	}
	form := url.Values{
		"grant_type": {grantExchange}, "requested_token_type": {typeIDJAG},
		"audience": {p.server.Issuer}, "subject_token": {subject.Reveal()}, "subject_token_type": {kind},
	}
	provider := g.Client.as([]string{authKey, authBasic})
	exchange := &tokenRequest{endpoint: g.TokenEndpoint, issuer: g.Issuer, client: provider, form: form, issued: typeIDJAG}
	complete(form, p, scopes)
	assertion, err := a.ask(ctx, exchange)
	if err != nil {
		return nil, nil, err
	}
	return a.grant(ctx, p, c, url.Values{"grant_type": {grantJWTBearer}, "assertion": {assertion.access.Reveal()}}, scopes, proof)
}

// Workload gets a token for the identity that a platform has given to the program, such
// as a service account of Kubernetes (RFC 7523; the workload identity federation draft
// of MCP). There is no client and no refresh.
type Workload struct {
	// Assertion returns the platform's signed token for an audience, which is the
	// issuer of the authorization server.
	Assertion func(ctx context.Context, audience string) (Secret, error)
}

func (Workload) name() string { return grantJWTBearer }

func (g Workload) token(ctx context.Context, a *Authorizer, p *place, _ string, scopes []string, proof *prover) (*client, *tokenResponse, error) {
	if g.Assertion == nil {
		return nil, nil, errors.New("auth: Workload has no Assertion")
	}
	assertion, err := g.Assertion(ctx, p.server.Issuer)
	if err != nil {
		return nil, nil, err
	}
	return a.grant(ctx, p, nil, url.Values{"grant_type": {grantJWTBearer}, "assertion": {assertion.Reveal()}}, scopes, proof)
}

// mustRegistered returns the client that the program was given for an issuer.
func (a *Authorizer) mustRegistered(p *place, pinned string) (*client, error) {
	r, ok := a.registered(p.server.Issuer, pinned)
	if !ok {
		return nil, &RegistrationError{Issuer: p.server.Issuer, Reason: "name the client in Registered, with this Issuer"}
	}
	return r.as(p.server.AuthMethods), nil
}

// grant makes a token request of a place.
func (a *Authorizer) grant(ctx context.Context, p *place, c *client, form url.Values, scopes []string, proof *prover) (*client, *tokenResponse, error) {
	complete(form, p, scopes)
	token, err := a.ask(ctx, &tokenRequest{endpoint: p.server.Token, issuer: p.server.Issuer, client: c, form: form, prover: proof})
	return c, token, err
}

// complete adds what a token request says of the resource.
func complete(form url.Values, p *place, scopes []string) {
	if p.resource != "" {
		form.Set("resource", p.resource)
	}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
}
