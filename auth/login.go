package auth

import (
	"net/url"
	"strings"
	"time"
)

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
	if l.proof != nil {
		var err error
		if e.Proof, err = l.proof.save(); err != nil {
			return nil, err
		}
	}
	return e, nil
}
