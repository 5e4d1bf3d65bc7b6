package auth

import (
	"context"
	"errors"
	"net/url"
)

// A Grant is a way to get a token without a browser on this machine:
// [ClientCredentials], [Exchange], [IDJAG], [Workload] or [Device]. All but the last need no person.
type Grant interface {
	name() string
	// token requests a token. It also returns the client that the token belongs to, or
	// nil if it belongs to none.
	token(ctx context.Context, l *login) (*client, *tokenResponse, error)
}

// ClientCredentials is a Grant for a program that acts for itself, with the credentials
// of a client in Options.Registered (extension
// io.modelcontextprotocol/oauth-client-credentials).
type ClientCredentials struct{}

func (ClientCredentials) name() string { return "client_credentials" }

func (ClientCredentials) token(ctx context.Context, l *login) (*client, *tokenResponse, error) {
	c, err := l.clients.requireGiven(l)
	if err != nil {
		return nil, nil, err
	}
	return l.endpoint.grant(ctx, l, c, url.Values{"grant_type": {"client_credentials"}})
}

const (
	grantExchange   = "urn:ietf:params:oauth:grant-type:token-exchange"
	grantJWTBearer  = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	grantDevice     = "urn:ietf:params:oauth:grant-type:device_code"
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
	typeIDJAG       = "urn:ietf:params:oauth:token-type:id-jag"
	typeIDToken     = "urn:ietf:params:oauth:token-type:id_token"
)

// Workload is a Grant for a program whose platform gives it an identity, such as a
// service account of Kubernetes (RFC 7523; the workload identity federation draft of
// MCP). It needs no registered client. There are no refresh tokens.
type Workload struct {
	// Assertion returns the platform's signed token for an audience. The audience is
	// the issuer of the authorization server.
	Assertion func(ctx context.Context, audience string) (Secret, error)
}

func (Workload) name() string { return grantJWTBearer }

func (g Workload) token(ctx context.Context, l *login) (*client, *tokenResponse, error) {
	if g.Assertion == nil {
		return nil, nil, errors.New("auth: Workload has no Assertion")
	}
	assertion, err := g.Assertion(ctx, l.discovered.server.Issuer)
	if err != nil {
		return nil, nil, err
	}
	return l.endpoint.grant(ctx, l, nil, url.Values{"grant_type": {grantJWTBearer}, "assertion": {assertion.Reveal()}})
}
