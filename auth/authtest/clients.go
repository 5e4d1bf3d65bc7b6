package authtest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A Client is a registered client. Its JSON has the form of RFC 7591.
type Client struct {
	ID              string              `json:"client_id"`
	Secret          string              `json:"client_secret,omitempty"`
	Name            string              `json:"client_name,omitempty"`
	Redirects       []string            `json:"redirect_uris,omitempty"`
	Auth            string              `json:"token_endpoint_auth_method,omitempty"` // default: client_secret_basic with a secret, else none
	GrantTypes      []string            `json:"grant_types,omitempty"`
	ApplicationType string              `json:"application_type,omitempty"`
	Scope           string              `json:"scope,omitempty"`
	Keys            *jose.JSONWebKeySet `json:"jwks,omitempty"` // for private_key_jwt
	Expires         int64               `json:"client_secret_expires_at"`
}

const (
	authBasic = "client_secret_basic"
	authPost  = "client_secret_post"
	authJWT   = "private_key_jwt"
	authNone  = "none"
)

func authMethods() []string { return []string{authBasic, authPost, authJWT, authNone} }

func (c Client) auth() string {
	switch {
	case c.Auth != "":
		return c.Auth
	case c.Secret != "":
		return authBasic
	case c.Keys != nil:
		return authJWT
	}
	return authNone
}

// allows compares a redirect URI as RFC 8252 §7.3 wants it: the port of a loopback
// address is free.
func (c Client) allows(redirect string) bool {
	if slices.Contains(c.Redirects, redirect) {
		return true
	}
	asked, err := url.Parse(redirect)
	if err != nil || asked.Scheme != "http" || asked.Hostname() != "127.0.0.1" && asked.Hostname() != "::1" {
		return false
	}
	return slices.ContainsFunc(c.Redirects, func(registered string) bool {
		known, err := url.Parse(registered)
		return err == nil && known.Scheme == "http" && known.Hostname() == asked.Hostname() && known.Path == asked.Path
	})
}

// redirectProblem says what is wrong with the redirect URIs of a client that registers.
func (c *Client) redirectProblem() string {
	for _, redirect := range c.Redirects {
		u, err := url.Parse(redirect)
		loopback := err == nil && (u.Hostname() == "127.0.0.1" || u.Hostname() == "::1" || u.Hostname() == "localhost")
		switch {
		case err != nil || u.Fragment != "" || u.Scheme != "https" && !(u.Scheme == "http" && loopback):
			return "redirect_uris must be https or loopback"
		case loopback && u.Scheme == "http" && c.ApplicationType != "native": // OpenID Connect registration: web is the default
			return "a loopback redirect needs application_type native"
		}
	}
	return ""
}

// register serves RFC 7591.
func (s *Server) register(r *Request) *Answer {
	var c Client
	if err := json.Unmarshal(r.Body, &c); err != nil {
		return refuse(http.StatusBadRequest, "invalid_client_metadata", "the body is no client metadata")
	}
	if !slices.Contains(authMethods(), c.auth()) {
		return refuse(http.StatusBadRequest, "invalid_client_metadata", "token_endpoint_auth_method is not supported")
	}
	if problem := c.redirectProblem(); problem != "" {
		return refuse(http.StatusBadRequest, "invalid_redirect_uri", problem)
	}
	c.ID, c.Auth = "client-"+random(), c.auth()
	if c.Auth == authBasic || c.Auth == authPost {
		c.Secret = "secret-" + random()
	}
	s.clients[c.ID] = c
	return created(c)
}

// created tells a client what was registered, as an object that a Lie can change.
func created(c Client) *Answer {
	text, err := json.Marshal(c)
	object := map[string]any{}
	if err != nil || json.Unmarshal(text, &object) != nil {
		return refuse(http.StatusInternalServerError, "server_error", "the client cannot be encoded")
	}
	a := succeed(object)
	a.Status = http.StatusCreated
	return a
}

// client returns a client by its id: one that is registered, or whose id is the URL of a
// document.
func (s *Server) client(id string) (Client, bool) {
	if c, ok := s.clients[id]; ok {
		return c, true
	}
	c, ok := s.options.Documents[id]
	if !ok || !strings.HasPrefix(id, "https://") || c.ID != id {
		return Client{}, false
	}
	return c, true
}

// authenticate returns the client that sends a request, which has to use the method that
// it was registered with.
func (s *Server) authenticate(r *Request) (Client, *Answer) {
	refused := refuse(http.StatusUnauthorized, "invalid_client", "client authentication failed")
	id, secret, used := r.Form.Get("client_id"), "", authNone
	assertion := r.Form.Get("client_assertion")
	switch basicID, basicSecret, basic := r.basic(); {
	case basic && (assertion != "" || r.Form.Get("client_secret") != ""):
		return Client{}, refuse(http.StatusBadRequest, "invalid_request", "the client authenticates twice")
	case basic:
		refused.Header.Set("WWW-Authenticate", "Basic")
		id, secret, used = basicID, basicSecret, authBasic
	case r.Form.Get("client_secret") != "":
		secret, used = r.Form.Get("client_secret"), authPost
	case assertion != "":
		token, err := jwt.ParseSigned(assertion, asymmetric())
		var claims jwt.Claims
		if err != nil || token.UnsafeClaimsWithoutVerification(&claims) != nil {
			return Client{}, refused
		}
		id, used = claims.Subject, authJWT
	}
	c, ok := s.client(id)
	if !ok || c.auth() != used || c.Secret != secret {
		return Client{}, refused
	}
	if used == authJWT && !s.asserts(c, r.Form.Get("client_assertion_type"), assertion) {
		return Client{}, refused
	}
	return c, nil
}

// asserts checks a client assertion, whose audience is the issuer and nothing else
// (RFC 7523bis).
func (s *Server) asserts(c Client, kind, assertion string) bool {
	token, err := jwt.ParseSigned(assertion, asymmetric())
	if err != nil || kind != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" || c.Keys == nil {
		return false
	}
	for _, key := range c.Keys.Keys {
		var claims jwt.Claims
		if token.Claims(key.Public(), &claims) != nil {
			continue
		}
		right := claims.Issuer == c.ID && claims.Subject == c.ID && len(claims.Audience) == 1 && claims.Audience[0] == s.Issuer() &&
			claims.Expiry != nil && claims.ID != "" && !s.assertions[claims.ID] && claims.ValidateWithLeeway(jwt.Expected{Time: time.Now()}, 0) == nil
		s.assertions[claims.ID] = true
		return right
	}
	return false
}
