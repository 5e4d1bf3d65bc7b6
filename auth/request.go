package auth

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/oauth2"
)

// An authRequest is an authorization request that waits for its response.
type authRequest struct {
	place    *discovered
	client   *client
	redirect string
	state    string
	verifier string
	scopes   []string
}

// newAuthRequest generates the secrets of an authorization request.
func newAuthRequest(l *login, c *client, redirect string) *authRequest {
	return &authRequest{place: l.discovered, client: c, redirect: redirect, state: rand.Text(), verifier: oauth2.GenerateVerifier(), scopes: l.scopes}
}

// url returns the address that the person's browser opens.
func (p *authRequest) url() (*url.URL, error) {
	config := oauth2.Config{
		ClientID: p.client.id, RedirectURL: p.redirect, Scopes: p.scopes,
		Endpoint: oauth2.Endpoint{AuthURL: p.place.server.Authorization},
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(p.verifier)}
	if p.place.resource != "" {
		options = append(options, oauth2.SetAuthURLParam("resource", p.place.resource))
	}
	if slices.Contains(p.scopes, offlineAccess) {
		options = append(options, oauth2.SetAuthURLParam("prompt", "consent")) // OpenID Connect Core, section 11
	}
	return url.Parse(config.AuthCodeURL(p.state, options...))
}

// takesCode returns why the place does not support the authorization code flow, or nil.
func (p *discovered) takesCode() error {
	switch {
	case p.server.Authorization == "":
		return &MetadataError{URL: p.server.Issuer, Rule: "it has no authorization endpoint"}
	case !slices.Contains(p.server.Challenges, "S256"):
		return &MetadataError{URL: p.server.Issuer, Rule: "it does not list the PKCE method S256"}
	default:
		return nil
	}
}

// form returns the token request for a code.
func (p *authRequest) form(code string) url.Values {
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {p.redirect}, "code_verifier": {p.verifier},
	}
	if p.place.resource != "" {
		form.Set("resource", p.place.resource)
	}
	return form
}

// code checks the response to an authorization request in this order: whether it belongs
// to the request, whether the right server sent it (RFC 9207), and what it says. It
// returns the code.
func (p *authRequest) code(redirected *url.URL) (string, error) {
	refuse := func(rule string) (string, error) {
		return "", &ResponseError{Issuer: p.place.server.Issuer, Rule: rule}
	}
	if redirected == nil {
		return refuse("there is none")
	}
	query, err := url.ParseQuery(redirected.RawQuery)
	if err != nil {
		return refuse("it cannot be read")
	}
	for _, name := range []string{"state", "iss", "code", "error"} {
		if len(query[name]) > 1 {
			return refuse(name + " is repeated")
		}
	}
	issuer, named := query.Get("iss"), query.Has("iss")
	switch {
	case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(p.state)) != 1:
		return refuse("its state is not that of the request")
	case named && issuer != p.place.server.Issuer:
		return refuse("it is from another issuer")
	case !named && p.place.server.NamesIssuer:
		return refuse("it does not say which issuer it is from")
	case query.Has("error"):
		reported := query.Get("error")
		if !isScope(reported) || len(reported) > 64 {
			reported = "an error"
		}
		return "", &ResponseError{Issuer: p.place.server.Issuer, Code: reported}
	case query.Get("code") == "" || len(query.Get("code")) > maxToken:
		return refuse("it has no code")
	}
	return query.Get("code"), nil
}

// offlineAccess is the scope that asks for a refresh token.
const offlineAccess = "offline_access"

// chooseScopes returns the scopes to request: those of the challenge, or else those that
// the resource lists. For a step-up, it adds the scopes that were requested before.
func chooseScopes(p *discovered, c challenge, before []string, offline bool, narrow func([]string) []string) []string {
	asked := c.scopes
	if len(asked) == 0 {
		asked = p.scopes
	}
	asked = union(before, asked)
	if narrow != nil {
		asked = cleanScopes(narrow(asked))
	}
	if offline && slices.Contains(p.server.Scopes, offlineAccess) {
		asked = union(asked, []string{offlineAccess})
	}
	return asked
}

// stepUp returns why a login cannot help if a server requires more scopes than those of a
// token: because Options.Scopes leaves them out, and adds no other scopes for them.
func (o *Options) stepUp(before, required []string) error {
	if o.Scopes == nil {
		return nil
	}
	next := cleanScopes(o.Scopes(union(before, required)))
	asked := union(before, o.Scopes(slices.Clone(before)))
	missing := without(required, next)
	if len(missing) == 0 || len(without(next, asked)) > 0 {
		return nil
	}
	return fmt.Errorf("requires the scopes %q, which this program does not ask for: add them to Options.Scopes, or to the scopes of the server's entry in mcp.json", missing)
}

// without returns the scopes of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(scope string) bool { return slices.Contains(b, scope) })
}

func union(a, b []string) []string { return cleanScopes(slices.Concat(a, b)) }

// setOf returns a key for a set of scopes, independent of their order.
func setOf(scopes []string) string { return strings.Join(slices.Sorted(slices.Values(scopes)), " ") }
