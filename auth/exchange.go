package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/bowline-mcp/bowline/auth/guard"
)

// Exchange is a Grant for a program that acts for its users, such as a gateway: an
// authorization server exchanges the token that a user has for the program for one that is
// for the server (RFC 8693). The client in Options.Registered must name its Issuer: the
// user's token goes to the token endpoint of that authorization server, and to no other
// that a server may name. There are no refresh tokens: at the end of a token the exchange
// is made again, so that it ends with what it was exchanged for.
type Exchange struct {
	// Subject returns the access token of the user.
	Subject func(context.Context) (Secret, error)

	// Audience is what the authorization server calls the server, for one that does not
	// know it by its URL. Default: the URL.
	Audience string
}

func (Exchange) name() string { return grantExchange }

// token exchanges the token of the user. Nothing is sent before it is certain where the token
// goes: a server that could name the authorization server could collect the tokens of all users,
// and a client without an Issuer is bound to whatever a server names first.
func (g Exchange) token(ctx context.Context, l *login) (*client, *tokenResponse, error) {
	issuer := l.discovered.server.Issuer
	if !slices.ContainsFunc(l.clients.options.Registered, func(r Registered) bool { return r.Issuer == issuer }) {
		return nil, nil, &RegistrationError{Issuer: issuer, Reason: "the token of a user is exchanged only at an Issuer that Registered names"}
	}
	c, err := l.clients.requireGiven(l)
	if err != nil {
		return nil, nil, err
	}
	if g.Subject == nil {
		return nil, nil, errors.New("auth: Exchange has no Subject")
	}
	subject, err := g.Subject(ctx)
	if err != nil {
		return nil, nil, err
	}
	form := url.Values{
		"grant_type": {grantExchange}, "subject_token": {subject.Reveal()}, "subject_token_type": {typeAccessToken},
		"requested_token_type": {typeAccessToken}, "audience": {g.audience(l)},
	}
	l.addParameters(form)
	token, err := l.endpoint.requestToken(ctx, &tokenRequest{endpoint: l.discovered.server.Token, issuer: issuer, client: c, form: form, prover: l.proof, issued: typeAccessToken})
	if err != nil {
		return nil, nil, err
	}
	return c, token, acceptGiven(token, []string{l.discovered.resource, g.audience(l)}, subject)
}

// audience returns what the authorization server calls the server. The parameter resource has
// its URL in any case.
func (g Exchange) audience(l *login) string {
	if g.Audience != "" {
		return g.Audience
	}
	return l.discovered.resource
}

// acceptGiven checks a token that was given for others, and drops its refresh token, which would
// outlive these. A token that says for whom it is, and does not name the server, would let the
// server act at somebody else. One of those that were shown would let the server act at this
// program, or as it. One without an end would go on after the user's login has ended.
func acceptGiven(token *tokenResponse, server []string, shown ...Secret) error {
	audiences, says := audiencesOf(token.access.Reveal())
	named := slices.ContainsFunc(audiences, func(one string) bool { return one != "" && slices.Contains(server, one) })
	failed := &TokenError{Endpoint: token.host, Status: http.StatusOK}
	switch {
	case slices.Contains(shown, token.access):
		failed.Rule = "its token is the one that was to be exchanged"
	case token.expires.IsZero():
		failed.Rule = "its token does not say when it ends"
	case says && !named:
		failed.Rule = "its token is for another audience"
	default:
		token.refresh = Secret{}
		return nil
	}
	return failed
}

// audiencesOf returns for whom a token is, if it is a JWT that says so. The signature is not
// looked at: the token has just come from its issuer, over TLS. Only the server can check it.
func audiencesOf(token string) (all []string, says bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, false
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, false
	}
	var of struct {
		Audience jsontext.Value `json:"aud"`
	}
	if err := guard.DecodeJSON(claims, &of); err != nil || of.Audience == nil {
		return nil, false
	}
	if json.Unmarshal(of.Audience, &all) != nil {
		one := ""
		_ = json.Unmarshal(of.Audience, &one) // else it names nobody
		all = []string{one}
	}
	return all, true
}
