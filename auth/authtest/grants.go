package authtest

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	grantCode        = "authorization_code"
	grantRefresh     = "refresh_token"
	grantCredentials = "client_credentials"
	grantExchange    = "urn:ietf:params:oauth:grant-type:token-exchange"
	grantJWT         = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	grantDevice      = "urn:ietf:params:oauth:grant-type:device_code"

	typeIDJAG = "urn:ietf:params:oauth:token-type:id-jag"
	typeID    = "urn:ietf:params:oauth:token-type:id_token"
	typeToken = "urn:ietf:params:oauth:token-type:access_token"
)

func grantTypes() []string {
	return []string{grantCode, grantRefresh, grantCredentials, grantExchange, grantJWT, grantDevice}
}

// A grant is what somebody has approved: a family of tokens.
type grant struct {
	client    string
	subject   string
	scope     string
	resource  string
	redirect  string
	challenge string // of PKCE
	revoked   bool
}

// A device waits for approval.
type device struct {
	grant *grant
	polls int // so far
}

// authorize approves at once, and sends the browser back.
func (s *Server) authorize(r *Request) *Answer {
	query := r.Form
	c, ok := s.client(query.Get("client_id"))
	if !ok || !c.allows(query.Get("redirect_uri")) {
		return refuse(http.StatusBadRequest, "invalid_request", "the client or its redirect URI is not registered") // and no redirect
	}
	a := &Answer{Status: http.StatusFound, Header: http.Header{}, Redirect: query.Get("redirect_uri"), Query: url.Values{"iss": {s.Issuer()}}}
	if state := query.Get("state"); state != "" {
		a.Query.Set("state", state)
	}
	g := &grant{client: c.ID, subject: s.options.Subject, scope: query.Get("scope"), resource: query.Get("resource"),
		redirect: query.Get("redirect_uri"), challenge: query.Get("code_challenge")}
	switch {
	case query.Get("response_type") != "code":
		a.Query.Set("error", "unsupported_response_type")
	case g.challenge == "" || query.Get("code_challenge_method") != "S256":
		a.Query.Set("error", "invalid_request")
	case g.resource != "" && g.resource != s.options.Resource:
		a.Query.Set("error", "invalid_target")
	case !s.offers(g.scope):
		a.Query.Set("error", "invalid_scope")
	default:
		code := "code-" + random()
		s.codes[code] = g
		a.Query.Set("code", code)
	}
	return a
}

func (s *Server) offers(scope string) bool {
	for _, one := range strings.Fields(scope) {
		if one != "openid" && !slices.Contains(s.options.Scopes, one) {
			return false
		}
	}
	return true
}

// device begins a device grant (RFC 8628).
func (s *Server) device(r *Request) *Answer {
	c, refused := s.authenticate(r)
	if refused != nil {
		return refused
	}
	code := "device-" + random()
	s.devices[code] = &device{grant: &grant{client: c.ID, subject: s.options.Subject, scope: r.Form.Get("scope"), resource: r.Form.Get("resource")}}
	return succeed(map[string]any{"device_code": code, "user_code": "BOWL-LINE", "verification_uri": s.Issuer() + "/device-login",
		"expires_in": 600, "interval": 1})
}

// token serves the token endpoint.
func (s *Server) token(r *Request) *Answer {
	for _, once := range []string{"grant_type", "code", "client_id", "code_verifier", "refresh_token"} {
		if len(r.Form[once]) > 1 {
			return refuse(http.StatusBadRequest, "invalid_request", once+" is given twice")
		}
	}
	jkt, refused := s.proof(r, http.MethodPost, s.URL(Token), "")
	if refused != nil {
		return refused
	}
	grantType := r.Form.Get("grant_type")
	if grantType == grantJWT && r.Form.Get("client_id") == "" && r.Form.Get("client_assertion") == "" && r.Header.Get("Authorization") == "" {
		return s.workload(r, jkt)
	}
	c, refused := s.authenticate(r)
	if refused != nil {
		return refused
	}
	if target := r.Form.Get("resource"); target != "" && target != s.options.Resource && grantType != grantExchange {
		return refuse(http.StatusBadRequest, "invalid_target", "resource is unknown")
	}
	return s.give(r, c, grantType, jkt)
}

// give serves a client that is known.
func (s *Server) give(r *Request, c Client, grantType, jkt string) *Answer {
	switch grantType {
	case grantCode:
		return s.redeem(r, c, jkt)
	case grantRefresh:
		return s.refresh(r, c, jkt)
	case grantCredentials:
		if c.auth() == authNone {
			return refuse(http.StatusBadRequest, "unauthorized_client", "the client has no credentials")
		}
		return s.issue(&grant{client: c.ID, subject: c.ID, scope: r.Form.Get("scope"), resource: r.Form.Get("resource")}, jkt, false)
	case grantExchange:
		return s.exchange(r, c)
	case grantJWT:
		return s.bearer(r, c, jkt)
	case grantDevice:
		return s.poll(r, c, jkt)
	}
	return refuse(http.StatusBadRequest, "unsupported_grant_type", "the grant type is not supported")
}

// redeem takes an authorization code. A code that comes twice revokes what it gave.
func (s *Server) redeem(r *Request, c Client, jkt string) *Answer {
	code := r.Form.Get("code")
	if g := s.spent[code]; g != nil {
		g.revoked = true
	}
	g := s.codes[code]
	if g == nil || g.client != c.ID {
		return refuse(http.StatusBadRequest, "invalid_grant", "the code is unknown or used")
	}
	delete(s.codes, code)
	s.spent[code] = g
	sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
	target := r.Form.Get("resource")
	if base64.RawURLEncoding.EncodeToString(sum[:]) != g.challenge || r.Form.Get("redirect_uri") != g.redirect || target != "" && g.resource != "" && target != g.resource {
		return refuse(http.StatusBadRequest, "invalid_grant", "the code belongs to another request")
	}
	if g.resource == "" {
		g.resource = target
	}
	return s.issue(g, jkt, true)
}

// refresh takes a refresh token and gives another. One that was replaced revokes its
// family.
func (s *Server) refresh(r *Request, c Client, jkt string) *Answer {
	token := r.Form.Get("refresh_token")
	if g := s.rotated[token]; g != nil {
		g.revoked = true
	}
	g := s.refreshes[token]
	if g == nil || g.client != c.ID || g.revoked {
		return refuse(http.StatusBadRequest, "invalid_grant", "the refresh token is unknown, used or revoked")
	}
	if !s.options.KeepRefresh {
		delete(s.refreshes, token)
		s.rotated[token] = g
	}
	return s.issue(g, jkt, !s.options.KeepRefresh)
}

// exchange gives an identity assertion for an id token or an access token of s (RFC 8693, ID-JAG), or an access token for the resource for another access token of s.
func (s *Server) exchange(r *Request, c Client) *Answer {
	if r.Form.Get("requested_token_type") == typeToken && r.Form.Get("subject_token_type") == typeToken {
		return s.onBehalf(r, c)
	}
	kind := r.Form.Get("subject_token_type")
	if r.Form.Get("requested_token_type") != typeIDJAG || kind != typeID && kind != typeToken || r.Form.Get("audience") == "" {
		return refuse(http.StatusBadRequest, "invalid_request", "the exchange is one of an id token or an access token for an ID-JAG, with an audience")
	}
	var claims jwt.Claims
	if known := s.lookUp(r.Form.Get("subject_token")); kind == typeToken && known != nil {
		claims.Subject = known.grant.subject
	} else if kind == typeToken || !s.verify(r.Form.Get("subject_token"), &claims) || claims.Issuer != s.Issuer() {
		return refuse(http.StatusBadRequest, "invalid_grant", "the subject token is not valid")
	}
	return s.assert(r, c, claims.Subject)
}

// assert gives an identity assertion of a subject to a client.
func (s *Server) assert(r *Request, c Client, subject string) *Answer {
	now := time.Now()
	object := map[string]any{"iss": s.Issuer(), "sub": subject, "aud": r.Form.Get("audience"), "client_id": c.ID, "jti": random(),
		"iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	for _, name := range []string{"resource", "scope"} {
		if value := r.Form.Get(name); value != "" {
			object[name] = value
		}
	}
	return succeed(map[string]any{"access_token": s.signed("oauth-id-jag+jwt", object), "issued_token_type": typeIDJAG, "token_type": "N_A",
		"expires_in": 300, "scope": r.Form.Get("scope")})
}

// onBehalf gives an access token for the subject of another one.
func (s *Server) onBehalf(r *Request, c Client) *Answer {
	known := s.lookUp(r.Form.Get("subject_token"))
	switch {
	case known == nil:
		return refuse(http.StatusBadRequest, "invalid_request", "the subject token is not valid")
	case r.Form.Get("resource") != s.options.Resource || r.Form.Get("audience") == "":
		return refuse(http.StatusBadRequest, "invalid_target", "resource is unknown")
	}
	a := s.issue(&grant{client: c.ID, subject: known.grant.subject, scope: r.Form.Get("scope"), resource: s.options.Resource}, "", false)
	a.Object["issued_token_type"] = typeToken
	return a
}

// An assertion are the claims of what the grant jwt-bearer takes.
type assertion struct {
	jwt.Claims
	Client   string `json:"client_id"`
	Resource string `json:"resource"`
	Scope    string `json:"scope"`
}

// bearer takes an ID-JAG of an issuer that s trusts.
func (s *Server) bearer(r *Request, c Client, jkt string) *Answer {
	claims, typ, refused := s.asserted(r)
	switch {
	case refused != nil:
		return refused
	case typ != "oauth-id-jag+jwt" || claims.Client != c.ID || claims.Resource != "" && claims.Resource != s.options.Resource:
		return refuse(http.StatusBadRequest, "invalid_grant", "the assertion is not for this client and resource")
	}
	return s.issue(&grant{client: c.ID, subject: claims.Subject, scope: claims.Scope, resource: s.options.Resource}, jkt, false)
}

// workload takes the token of a platform, from a client without any other credential.
func (s *Server) workload(r *Request, jkt string) *Answer {
	claims, _, refused := s.asserted(r)
	if refused != nil {
		return refused
	}
	return s.issue(&grant{client: claims.Subject, subject: claims.Subject, scope: r.Form.Get("scope"), resource: r.Form.Get("resource")}, jkt, false)
}

func (s *Server) asserted(r *Request) (claims assertion, typ string, refused *Answer) {
	refused = refuse(http.StatusBadRequest, "invalid_grant", "the assertion is not valid")
	token, err := jwt.ParseSigned(r.Form.Get("assertion"), asymmetric())
	if err != nil || token.UnsafeClaimsWithoutVerification(&claims) != nil || s.options.Trusts[claims.Issuer] == nil {
		return claims, "", refused
	}
	set := s.options.Trusts[claims.Issuer]()
	typ, _ = token.Headers[0].ExtraHeaders["typ"].(string)
	if token.Claims(&set, &claims) != nil || claims.Expiry == nil || claims.Subject == "" ||
		claims.ValidateWithLeeway(jwt.Expected{AnyAudience: jwt.Audience{s.Issuer()}, Time: time.Now()}, 0) != nil {
		return claims, "", refused
	}
	return claims, typ, nil
}

// poll answers a device that asks whether it was approved.
func (s *Server) poll(r *Request, c Client, jkt string) *Answer {
	d := s.devices[r.Form.Get("device_code")]
	if d == nil || d.grant.client != c.ID {
		return refuse(http.StatusBadRequest, "invalid_grant", "the device code is unknown")
	}
	if d.polls++; d.polls <= s.options.DevicePolls {
		return refuse(http.StatusBadRequest, "authorization_pending", "the user has not approved yet")
	}
	delete(s.devices, r.Form.Get("device_code"))
	return s.issue(d.grant, jkt, true)
}
