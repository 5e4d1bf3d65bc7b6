package auth

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/bowline-mcp/bowline/auth/guard"
)

// A Registered is a client that is already registered with an authorization server. It
// has a Secret, or a Key, or neither if it is a public client.
type Registered struct {
	// Issuer is the authorization server that the client is registered with. If it is
	// empty, the client is bound to the authorization server that the MCP server names
	// at the first use. A login at any other one then fails. The Store keeps this
	// binding with the login. After Logout, or if the Store is lost or cannot be read,
	// the next use counts as the first. So set the Issuer if the client has a Secret.
	Issuer string

	ID     string
	Secret Secret

	// Key signs assertions, which replace a secret (private_key_jwt, RFC 7523). It is
	// an RSA, ECDSA or Ed25519 key, and may be in a hardware module. KeyID is its kid;
	// "" for none.
	Key   crypto.Signer
	KeyID string
}

// A client is the program's registration with one authorization server.
type client struct {
	id     string
	secret Secret
	key    crypto.Signer
	keyID  string
	method string // the authentication method at the token endpoint

	registered bool      // the client has registered itself, so its secret is stored with the login
	expires    time.Time // when that secret expires; zero: never
}

// A registrations finds the program's client at an authorization server, or registers
// one.
type registrations struct {
	options  *Options
	store    *storage
	guard    *guard.Guard
	warnings *warnings
}

// given returns the client that the program was given for an issuer. If that client
// names no issuer, pinned is the issuer to which it is bound; "" if it is not bound yet.
func (s *registrations) given(issuer, pinned string) (*Registered, bool) {
	for i, r := range s.options.Registered {
		if r.Issuer == issuer {
			return &s.options.Registered[i], true
		}
	}
	for i, r := range s.options.Registered {
		if r.Issuer == "" && (pinned == "" || pinned == issuer) {
			return &s.options.Registered[i], true
		}
	}
	return nil, false
}

// isUnbound reports whether an issuer is neither the one to which the program's client is
// bound, nor named in Options.
func (s *registrations) isUnbound(issuer, pinned string) bool {
	if s.options.Grant != nil && s.options.Grant.name() == (Workload{}).name() {
		return false // the grant has no client
	}
	_, known := s.given(issuer, pinned)
	return !known && slices.ContainsFunc(s.options.Registered, func(r Registered) bool { return r.Issuer == "" })
}

// usable reports whether these Options could have produced a stored login. It must be of
// the same kind, bound to a key if DPoP is set and, if the program has its own client at
// that issuer, belong to that client.
func (s *registrations) usable(e *Entry) bool {
	if e == nil || e.Issuer == "" || e.Grant != s.options.grantName() {
		return false
	}
	if s.isUnbound(e.Issuer, e.Pinned) {
		return false
	}
	if r, ok := s.given(e.Issuer, e.Pinned); ok && e.Grant != (Workload{}).name() && r.ID != e.ClientID {
		return false
	}
	switch e.Type {
	case "DPoP":
		return true // a key does no harm if DPoP is not set
	case "Bearer", "":
		return !s.options.DPoP
	default:
		return false
	}
}

// requireGiven returns the client that the program was given for a login. It fails
// if there is none.
func (s *registrations) requireGiven(l *login) (*client, error) {
	r, ok := s.given(l.discovered.server.Issuer, l.pinned)
	if !ok {
		return nil, &RegistrationError{Issuer: l.discovered.server.Issuer, Reason: "name the client in Registered, with this Issuer"}
	}
	return r.as(l.discovered.server.AuthMethods), nil
}

// restore returns the client of a saved login, or nil if it has none.
func (s *registrations) restore(e *Entry) (*client, error) {
	if e.ClientID == "" {
		return nil, nil
	}
	if r, ok := s.given(e.Issuer, e.Pinned); ok && r.ID == e.ClientID {
		return &client{id: r.ID, secret: r.Secret, key: r.Key, keyID: r.KeyID, method: e.ClientAuth}, nil
	}
	if e.ClientAuth != authNone && e.ClientSecret.IsZero() {
		return nil, fmt.Errorf("auth: the login at %s has not the secret of its client: log in again", e.Issuer)
	}
	return clientOf(e), nil
}

// as returns the client with an authentication method that the authorization server
// lists.
func (r *Registered) as(methods []string) *client {
	c := &client{id: r.ID, secret: r.Secret, key: r.Key, keyID: r.KeyID}
	c.method = methodFor(c, methods)
	return c
}

// methodFor chooses how a client authenticates, from the methods that a server lists. A
// server that lists none supports client_secret_basic (RFC 8414, section 2).
func methodFor(c *client, listed []string) string {
	able := []string{}
	if c.key != nil {
		able = append(able, authKey)
	}
	if !c.secret.IsZero() {
		able = append(able, authBasic, authPost)
	}
	able = append(able, authNone)
	for _, method := range able {
		if slices.Contains(listed, method) {
			return method
		}
	}
	return able[0]
}

// clientAt returns the client for a login. It tries, in this order: a client of the
// options, the metadata document, an earlier registration, and a new one. Redirect is
// the redirect address, or "" for a login without redirects.
func (s *registrations) clientAt(ctx context.Context, l *login, redirect string) (*client, error) {
	p, issuer := l.discovered, l.discovered.server.Issuer
	if r, ok := s.given(issuer, l.pinned); ok {
		return r.as(p.server.AuthMethods), nil
	}
	if s.options.MetadataURL != "" && p.server.TakesMetadata {
		return &client{id: s.options.MetadataURL, method: authNone}, nil
	}
	if p.server.Registration == "" {
		reason := "it registers no clients by itself: register one there, and name it in Registered"
		if len(s.options.Registered) > 0 {
			reason += ", with this Issuer"
		}
		return nil, &RegistrationError{Issuer: issuer, Reason: reason}
	}
	var registration *Entry
	tried := false
	find := func(e *Entry) (*Entry, error) {
		tried = true
		if e != nil && e.Issuer == issuer && e.ClientName == s.options.clientName() && e.RedirectURI == redirect && !e.clientExpired(time.Now()) {
			registration = e
			return e, nil
		}
		fresh, err := s.register(ctx, l, redirect)
		registration = fresh
		return fresh, err
	}
	err := s.store.change(ctx, Key{Issuer: issuer}, p.onUndecryptable, find)
	if err != nil && !tried && ctx.Err() == nil {
		s.warnings.add("the registration is not saved", err)
		err = s.store.memory.Locked(ctx, Key{Issuer: issuer}, find)
	}
	if registration == nil {
		return nil, err
	}
	if err != nil {
		s.warnings.add("the registration is not saved", err)
	}
	l.registered = registration.ClientID
	return clientOf(registration), nil
}

// forget deletes the stored registration of a client, so that the next login registers
// again. Logins keep the client that they were made with.
func (s *registrations) forget(ctx context.Context, issuer, client string) {
	if client == "" {
		return
	}
	ctx, cancel := exchangeContext(ctx)
	defer cancel()
	key := Key{Issuer: issuer}
	for _, store := range []Store{s.store.Store, s.store.memory} {
		if e, err := store.Load(ctx, key); err != nil || e == nil || e.ClientID != client {
			continue // there is nothing to delete, so do not lock
		}
		if err := store.Locked(ctx, key, func(e *Entry) (*Entry, error) {
			if e != nil && e.ClientID == client {
				return nil, nil
			}
			return e, nil
		}); err != nil {
			s.warnings.add("the registration is not removed", err)
		}
	}
}

func clientOf(e *Entry) *client {
	return &client{id: e.ClientID, secret: e.ClientSecret, method: e.ClientAuth, registered: true, expires: e.ClientExpires}
}

// A registrationRequest is the request of RFC 7591.
type registrationRequest struct {
	Name          string   `json:"client_name"`
	Redirects     []string `json:"redirect_uris,omitzero"`
	Grants        []string `json:"grant_types"`
	Responses     []string `json:"response_types"`
	Method        string   `json:"token_endpoint_auth_method"`
	Application   string   `json:"application_type"`
	BoundByProofs bool     `json:"dpop_bound_access_tokens,omitzero"`
}

type registrationResponse struct {
	ID      string `json:"client_id"`
	Secret  string `json:"client_secret"`
	Expires int64  `json:"client_secret_expires_at"`
	Method  string `json:"token_endpoint_auth_method"`
	Code    string `json:"error"`
}

// register registers the program. The registration names no scopes, because later logins
// may need others. If the server refuses the redirect address, register tries the other
// application type once.
func (s *registrations) register(ctx context.Context, l *login, redirect string) (*Entry, error) {
	request := registrationRequest{
		Name: s.options.clientName(), Redirects: []string{redirect},
		Grants: []string{"authorization_code", "refresh_token"}, Responses: []string{"code"},
		Method: registrationMethod(l.discovered.server.AuthMethods), Application: applicationType(redirect),
		BoundByProofs: s.options.DPoP,
	}
	if s.options.Grant != nil {
		request.Redirects, request.Responses = nil, []string{}
		request.Grants = []string{s.options.Grant.name(), "refresh_token"}
	}
	entry, err := s.registerAs(ctx, l.discovered, request)
	var refused *RegistrationError
	if errors.As(err, &refused) && refused.Code == "invalid_redirect_uri" {
		request.Application = map[string]string{"native": "web", "web": "native"}[request.Application]
		return s.registerAs(ctx, l.discovered, request)
	}
	return entry, err
}

func (s *registrations) registerAs(ctx context.Context, p *discovered, request registrationRequest) (*Entry, error) {
	failed := &RegistrationError{Issuer: p.server.Issuer}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.Registration, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", "application/json")
	post.Header.Set("Accept", "application/json")
	response, err := s.guard.Do(post)
	if err != nil {
		return nil, err
	}
	var answer registrationResponse
	unreadable := guard.DecodeJSON(response.Body, &answer)
	if response.Status/100 != 2 {
		if failed.Status = response.Status; unreadable == nil && isScope(answer.Code) && len(answer.Code) < 64 {
			failed.Code = answer.Code
		}
		failed.Reason = "it refuses to register this program"
		return nil, failed
	}
	if unreadable != nil || answer.ID == "" || len(answer.ID) > 4<<10 {
		failed.Reason = "its answer to the registration has no client id"
		return nil, failed
	}
	entry := &Entry{
		Issuer: p.server.Issuer, ClientID: answer.ID, ClientSecret: NewSecret(answer.Secret), ClientAuth: answer.Method,
		ClientName: request.Name, RedirectURI: strings.Join(request.Redirects, " "),
	}
	if answer.Expires > 0 {
		entry.ClientExpires = time.Unix(answer.Expires, 0)
	}
	if c := clientOf(entry); !slices.Contains([]string{authNone, authBasic, authPost}, c.method) || c.secret.IsZero() {
		entry.ClientAuth = methodFor(c, p.server.AuthMethods)
	}
	return entry, nil
}

// registrationMethod returns how a new client authenticates. If possible it does not,
// because anybody can register and get a secret, so the secret proves nothing.
func registrationMethod(listed []string) string {
	for _, method := range []string{authNone, authBasic, authPost} {
		if slices.Contains(listed, method) {
			return method
		}
	}
	return authNone
}

// applicationType returns the type that belongs to a redirect address (SEP-837).
func applicationType(redirect string) string {
	u, err := url.Parse(redirect)
	if err != nil || u.Scheme != "https" || u.Hostname() == "localhost" {
		return "native"
	}
	return "web"
}
