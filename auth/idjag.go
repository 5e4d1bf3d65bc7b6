package auth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
)

// IDJAG is a Grant for a person who has logged in with an identity provider. The
// provider exchanges the person's token for an assertion (ID-JAG), and the authorization
// server exchanges the assertion for an access token (extension
// io.modelcontextprotocol/enterprise-managed-authorization). Options.Registered holds
// the client at the authorization server. There are no refresh tokens, and an access token
// must say when it ends: both exchanges are repeated, so a changed policy of the provider
// takes effect.
type IDJAG struct {
	// TokenEndpoint is the token endpoint of the identity provider. Take it from the
	// user's configuration: the person's token goes there, and nowhere else.
	TokenEndpoint string

	// Issuer is the issuer of the identity provider. Only clients that sign assertions
	// need it.
	Issuer string

	// Client is the client that is registered with the identity provider.
	Client Registered

	// Subject returns the person's identity token, and its type: "" means
	// urn:ietf:params:oauth:token-type:id_token.
	Subject func(context.Context) (token Secret, kind string, err error)

	// Audience is what the authorization server calls the server in its tokens, for one
	// that does not know it by its URL. Default: the URL.
	Audience string
}

func (IDJAG) name() string { return grantJWTBearer + "#id-jag" }

func (g IDJAG) token(ctx context.Context, l *login) (*client, *tokenResponse, error) {
	c, err := l.clients.requireGiven(l)
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
	assertion, err := g.assertion(ctx, l, subject, kind)
	if err != nil {
		return nil, nil, err
	}
	c, token, err := l.endpoint.grant(ctx, l, c, url.Values{"grant_type": {grantJWTBearer}, "assertion": {assertion.Reveal()}})
	if err != nil {
		return nil, nil, err
	}
	return c, token, acceptGiven(token, []string{l.discovered.resource, cmp.Or(g.Audience, l.discovered.resource)}, subject, assertion)
}

// assertion lets the provider assert who the person is. What is not for the authorization server
// of this server does not go there: it may be the person's token, or let that server act elsewhere.
func (g IDJAG) assertion(ctx context.Context, l *login, subject Secret, kind string) (Secret, error) {
	issuer := l.discovered.server.Issuer
	form := url.Values{
		"grant_type": {grantExchange}, "requested_token_type": {typeIDJAG},
		"audience": {issuer}, "subject_token": {subject.Reveal()}, "subject_token_type": {kind},
	}
	l.addParameters(form)
	provider := g.Client.as([]string{authKey, authBasic})
	given, err := l.endpoint.requestToken(ctx, &tokenRequest{endpoint: g.TokenEndpoint, issuer: g.Issuer, client: provider, form: form, issued: typeIDJAG})
	if err != nil {
		return Secret{}, err
	}
	failed := &TokenError{Endpoint: given.host, Status: http.StatusOK}
	audiences, _ := audiencesOf(given.access.Reveal())
	switch {
	case given.access == subject:
		failed.Rule = "its assertion is the token that was to be exchanged"
	case !slices.Contains(audiences, issuer):
		failed.Rule = "its assertion is for another authorization server"
	default:
		return given.access, nil
	}
	return Secret{}, failed
}
