package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/bowline-mcp/bowline/auth/guard"
)

// These are the ways in which a client authenticates at the token endpoint.
const (
	authNone  = "none"
	authBasic = "client_secret_basic"
	authPost  = "client_secret_post"
	authKey   = "private_key_jwt"
)

const (
	maxToken   = 64 << 10             // the maximum length of a token, in bytes
	maxLife    = 5 * 365 * 24 * 3600  // seconds; a longer lifetime must be a mistake
	maxSkew    = 5 * time.Minute      // the difference between clocks from which an error mentions it
	bearerFlow = "authorization_code" // the value of grant_type and of Entry.Grant
)

// A tokenResponse is a checked response of a token endpoint.
type tokenResponse struct {
	host            string // the host of the token endpoint
	access, refresh Secret
	kind            string    // "Bearer" or "DPoP"
	expires         time.Time // zero: unknown
	scopes          []string  // the granted scopes; nil if the response has none
}

// A tokenDocument is the body of such a response.
type tokenDocument struct {
	Access  string         `json:"access_token"`
	Kind    string         `json:"token_type"`
	Life    jsontext.Value `json:"expires_in"`
	Refresh string         `json:"refresh_token"`
	Scope   *string        `json:"scope"`
	Issued  string         `json:"issued_token_type"`
	Code    string         `json:"error"`
}

// A tokenRequest is a request to a token endpoint.
type tokenRequest struct {
	endpoint string
	issuer   string
	client   *client // the client; nil without client authentication
	form     url.Values
	prover   *prover // the key for DPoP; nil without DPoP
	issued   string  // the issued_token_type of an exchange; "": there is none
}

// An endpoint sends requests to the endpoints of authorization servers.
type endpoint struct {
	guard  *guard.Guard
	nonces *nonces
}

// requestToken sends the request, and repeats it once if the server requires a nonce in the
// proof.
func (n *endpoint) requestToken(ctx context.Context, r *tokenRequest) (*tokenResponse, error) {
	endpoint, err := url.Parse(r.endpoint)
	if err != nil {
		return nil, errors.New("auth: the token endpoint is no URL")
	}
	for again := false; ; again = true {
		response, err := n.post(ctx, r, endpoint)
		if err != nil {
			return nil, err
		}
		token, err := readToken(endpoint.Host, response, r.issued, time.Now())
		nonce := response.Header.Get("DPoP-Nonce")
		n.nonces.note(endpoint, nonce)
		if failed := (*TokenError)(nil); errors.As(err, &failed) && failed.Code == "use_dpop_nonce" && r.prover != nil && nonce != "" && !again {
			continue
		}
		if isBound := err == nil && token.kind == "DPoP"; err == nil && isBound != (r.prover != nil) {
			return nil, &TokenError{Endpoint: endpoint.Host, Status: response.Status, Rule: wrongBinding[isBound]}
		}
		return token, err
	}
}

// wrongBinding is the rule that a token breaks that is bound to a key, or is not, unlike the one that was requested.
var wrongBinding = map[bool]string{true: "the token is bound to a DPoP key, although none was requested", false: "the token is not bound to the DPoP key"}

func (n *endpoint) post(ctx context.Context, r *tokenRequest, endpoint *url.URL) (*guard.Response, error) {
	form := maps.Clone(r.form)
	header := http.Header{"Accept": {"application/json"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	if r.client != nil {
		if err := r.client.prove(form, header, r.issuer); err != nil {
			return nil, err
		}
	}
	if r.prover != nil {
		proof, err := r.prover.proof(http.MethodPost, endpoint, "", n.nonces.of(endpoint))
		if err != nil {
			return nil, err
		}
		header.Set("DPoP", proof)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header = header
	return n.guard.Do(request)
}

// grant sends the token request of a login, and returns the client c with the token.
func (n *endpoint) grant(ctx context.Context, l *login, c *client, form url.Values) (*client, *tokenResponse, error) {
	l.addParameters(form)
	token, err := n.requestToken(ctx, &tokenRequest{endpoint: l.discovered.server.Token, issuer: l.discovered.server.Issuer, client: c, form: form, prover: l.proof})
	return c, token, err
}

// revoke revokes the tokens of a login. It begins with the refresh token, with which
// others could be obtained.
func (n *endpoint) revoke(ctx context.Context, e *Entry, c *client) error {
	endpoint, err := url.Parse(e.RevocationEndpoint)
	if err != nil {
		return errors.New("auth: the revocation endpoint is no URL")
	}
	problems := []error{}
	for i, token := range []Secret{e.Refresh, e.Access} {
		if token.IsZero() {
			continue
		}
		hint := []string{"refresh_token", accessToken}[i]
		form := url.Values{"token": {token.Reveal()}, "token_type_hint": {hint}}
		response, err := n.post(ctx, &tokenRequest{endpoint: e.RevocationEndpoint, issuer: e.Issuer, client: c, form: form}, endpoint)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("auth: revoke the login: %w", err))
		case response.Status != http.StatusOK && (hint != accessToken || !isUnsupportedToken(response)):
			problems = append(problems, fmt.Errorf("auth: %s does not revoke the login: status %d", endpoint.Host, response.Status))
		}
	}
	return errors.Join(problems...)
}

const accessToken = "access_token" // the value of token_type_hint

// isUnsupportedToken reports whether a server says that it cannot revoke tokens of this
// type (RFC 7009, section 2.2.1).
func isUnsupportedToken(response *guard.Response) bool {
	var d tokenDocument
	return response.Status == http.StatusBadRequest && guard.DecodeJSON(response.Body, &d) == nil && d.Code == "unsupported_token_type"
}

// prove adds the client's authentication. The form always contains the client id. RFC
// 6749, section 3.2.1, allows that, and the authorization server of the Python SDK
// requires it even beside a Basic header.
func (c *client) prove(form url.Values, header http.Header, issuer string) error {
	switch c.method {
	case authBasic:
		r := http.Request{Header: header}
		r.SetBasicAuth(url.QueryEscape(c.id), url.QueryEscape(c.secret.Reveal()))
	case authPost:
		form.Set("client_secret", c.secret.Reveal())
	case authKey:
		assertion, err := c.assertion(issuer)
		if err != nil {
			return err
		}
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
	}
	form.Set("client_id", c.id)
	return nil
}

// assertion signs an assertion of the client's identity, for one issuer and one minute
// (RFC 7523).
func (c *client) assertion(issuer string) (string, error) {
	opaque := cryptosigner.Opaque(c.key)
	algorithms := opaque.Algs()
	if len(algorithms) == 0 {
		return "", fmt.Errorf("auth: the key of client %q is of no kind that signs assertions", c.id)
	}
	options := (&jose.SignerOptions{}).WithType("JWT")
	if c.keyID != "" {
		options = options.WithHeader("kid", c.keyID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithms[0], Key: opaque}, options)
	if err != nil {
		return "", fmt.Errorf("auth: the key of client %q: %w", c.id, err)
	}
	now := time.Now()
	return jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: c.id, Subject: c.id, Audience: jwt.Audience{issuer}, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Minute)),
	}).Serialize()
}

// readToken checks the response of a token endpoint. Its error is a *TokenError.
func readToken(host string, response *guard.Response, issued string, now time.Time) (*tokenResponse, error) {
	failed := &TokenError{Endpoint: host, Status: response.Status}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil && date.Sub(now).Abs() > maxSkew {
		failed.Skew = date.Sub(now)
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		failed.RetryAfter = min(time.Duration(seconds), 3600) * time.Second
	}
	var d tokenDocument
	err := guard.DecodeJSON(response.Body, &d)
	if response.Status != http.StatusOK {
		if err == nil && isScope(d.Code) && len(d.Code) < 64 {
			failed.Code = d.Code
		}
		return nil, failed
	}
	if failed.Rule = d.check(response.JSON(), err, issued); failed.Rule != "" {
		return nil, failed
	}
	token := &tokenResponse{host: host, access: NewSecret(d.Access), refresh: NewSecret(d.Refresh), kind: "Bearer"}
	if strings.EqualFold(d.Kind, "DPoP") {
		token.kind = "DPoP"
	}
	if life := lifeOf(d.Life); life > 0 {
		token.expires = now.Add(life)
	}
	if d.Scope != nil {
		token.scopes = scopesOf(*d.Scope)
	}
	return token, nil
}

// check returns the rule that a body breaks, or "".
func (d *tokenDocument) check(isJSON bool, unreadable error, issued string) string {
	switch {
	case !isJSON:
		return "its answer is not JSON"
	case unreadable != nil:
		return "its answer cannot be read"
	case !isToken(d.Access):
		return "its answer has no access token that can be sent"
	case d.Refresh != "" && !isToken(d.Refresh):
		return "its refresh token cannot be sent"
	case issued != "" && d.Issued != issued:
		return "its answer is a token of another type"
	case (issued == "" || issued == typeAccessToken) && !strings.EqualFold(d.Kind, "Bearer") && !strings.EqualFold(d.Kind, "DPoP"):
		return "its token is of an unknown type"
	default:
		return ""
	}
}

// isToken reports whether a text can be sent as a token.
func isToken(text string) bool {
	return text != "" && len(text) <= maxToken && !slices.ContainsFunc([]byte(text), func(c byte) bool { return c <= ' ' || c > '~' })
}

// lifeOf reads expires_in, which some servers quote. If the lifetime is implausible, it
// counts as unknown.
func lifeOf(value jsontext.Value) time.Duration {
	seconds, err := strconv.ParseFloat(strings.Trim(string(value), `"`), 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 || seconds > maxLife {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}
