package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/bowline-mcp/bowline/auth/guard"
)

// Status returns the login in the Store, or nil if there is none. Printing it shows no
// secrets.
func (a *Authorizer) Status(ctx context.Context) (*Entry, error) {
	if a.resource() == nil {
		return nil, errNoResource
	}
	e, err := a.store.Load(ctx, a.key())
	if err != nil || !a.usable(e) {
		return nil, err
	}
	return e, nil
}

// Logout deletes the login, and asks the authorization server to revoke its tokens (RFC
// 7009), if the server supports that. Many servers cannot revoke an access token, which
// then expires by itself; that is not an error. Logout deletes the login even if the
// server returns an error. It also deletes a sealed login that it cannot decrypt; its
// error then says that nothing was revoked.
func (a *Authorizer) Logout(ctx context.Context) error {
	if a.resource() == nil {
		return errNoResource
	}
	var revoked error
	err := a.store.change(ctx, a.key(), removed, func(e *Entry) (*Entry, error) {
		if a.usable(e) {
			revoked = a.revoke(ctx, e)
		}
		return nil, nil
	})
	a.current.Store(nil)
	if errors.As(err, new(unopened)) {
		err = fmt.Errorf("auth: the login is removed, and its tokens are not revoked: %w", err)
	}
	return errors.Join(revoked, err)
}

// revoke revokes the tokens of a login. It begins with the refresh token, with which
// others could be obtained.
func (a *Authorizer) revoke(ctx context.Context, e *Entry) error {
	if e.RevocationEndpoint == "" {
		return nil
	}
	endpoint, err := url.Parse(e.RevocationEndpoint)
	if err != nil {
		return errors.New("auth: the revocation endpoint is no URL")
	}
	c, err := a.clientFor(e)
	if err != nil {
		return err
	}
	problems := []error{}
	for _, token := range []struct {
		hint   string
		secret Secret
	}{{"refresh_token", e.Refresh}, {accessToken, e.Access}} {
		if token.secret.IsZero() {
			continue
		}
		form := url.Values{"token": {token.secret.Reveal()}, "token_type_hint": {token.hint}}
		response, err := a.post(ctx, &tokenRequest{endpoint: e.RevocationEndpoint, issuer: e.Issuer, client: c, form: form}, endpoint)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("auth: revoke the login: %w", err))
		case response.Status != http.StatusOK && (token.hint != accessToken || !isUnsupportedToken(response)):
			problems = append(problems, fmt.Errorf("auth: %s does not revoke the login: status %d", endpoint.Host, response.Status))
		}
	}
	return errors.Join(problems...)
}

const accessToken = "access_token" // as token_type_hint

// isUnsupportedToken reports whether a server says that it cannot revoke tokens of this
// type (RFC 7009, section 2.2.1).
func isUnsupportedToken(response *guard.Response) bool {
	var d tokenDocument
	return response.Status == http.StatusBadRequest && guard.DecodeJSON(response.Body, &d) == nil && d.Code == "unsupported_token_type"
}
