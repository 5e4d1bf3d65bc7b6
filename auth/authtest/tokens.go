package authtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// An access is an access token that was issued.
type access struct {
	grant   *grant
	jkt     string // of the key it is bound to
	expires time.Time
	claims  map[string]any
}

// RotateKey makes the server sign with a new key from now on. The old keys stay in the
// published set unless drop is set.
func (s *Server) RotateKey(drop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if drop {
		s.keys = nil
	}
	s.serial++
	key := jose.JSONWebKey{Key: newKey(s.options.Sign), KeyID: fmt.Sprintf("key-%d", s.serial), Algorithm: string(s.options.Sign), Use: "sig"}
	s.keys = append([]jose.JSONWebKey{key}, s.keys...)
}

// Keys returns the public keys of the server.
func (s *Server) Keys() jose.JSONWebKeySet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.publicKeys()
}

func (s *Server) publicKeys() (set jose.JSONWebKeySet) {
	for _, key := range s.keys {
		set.Keys = append(set.Keys, key.Public())
	}
	return set
}

// newKey makes a key for an algorithm. It panics for one that the server does not have.
func newKey(algorithm jose.SignatureAlgorithm) crypto.Signer {
	var key crypto.Signer
	var err error
	switch algorithm {
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jose.RS256, jose.PS256:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		panic(fmt.Sprintf("authtest: no keys for %s", algorithm))
	}
	if err != nil {
		panic(fmt.Sprintf("authtest: make a key for %s: %v", algorithm, err))
	}
	return key
}

// Signed returns a JWT with any claims, signed with the server's newest key.
func (s *Server) Signed(typ string, claims map[string]any) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signed(typ, claims)
}

func (s *Server) signed(typ string, claims map[string]any) string {
	return Sign(s.keys[0], s.options.Sign, typ, claims)
}

// Sign returns a JWT. It panics if the key does not fit the algorithm.
func Sign(key any, algorithm jose.SignatureAlgorithm, typ string, claims map[string]any) string {
	options := new(jose.SignerOptions)
	if typ != "" {
		options.WithType(jose.ContentType(typ))
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		panic(fmt.Sprintf("authtest: %v", err))
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		panic(fmt.Sprintf("authtest: %v", err))
	}
	return text
}

// Claims returns the claims of an access token that the server would issue now. A test can
// change them and pass them to IssueClaims.
func (s *Server) Claims(scope string) map[string]any {
	g := &grant{client: "client", subject: s.options.Subject, scope: scope, resource: s.options.Resource}
	return s.claims(g, "", time.Now())
}

// Issue returns an access token for a subject without a request of a client.
func (s *Server) Issue(subject, scope string) string {
	g := &grant{client: "client", subject: subject, scope: scope, resource: s.options.Resource}
	return s.IssueClaims(s.claims(g, "", time.Now()))
}

// IssueClaims returns an access token with these claims. The server knows it, so that it
// can be introspected and revoked.
func (s *Server) IssueClaims(claims map[string]any) (token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.issued = append(s.issued, token) }()
	text := func(name string) string { value, _ := claims[name].(string); return value }
	g := &grant{client: text("client_id"), subject: text("sub"), scope: text("scope"), resource: s.options.Resource}
	return s.remember(g, "", claims)
}

func (s *Server) claims(g *grant, jkt string, now time.Time) map[string]any {
	claims := map[string]any{"iss": s.Issuer(), "sub": g.subject, "aud": g.resource, "client_id": g.client, "scope": g.scope,
		"iat": now.Unix(), "exp": now.Add(s.options.Life).Unix(), "jti": random()}
	if g.resource == "" {
		claims["aud"] = s.Issuer() // only for itself
	}
	if jkt != "" {
		claims["cnf"] = map[string]any{"jkt": jkt}
	}
	return claims
}

func (s *Server) remember(g *grant, jkt string, claims map[string]any) string {
	token := "opaque-" + random()
	if !s.options.Opaque {
		token = s.signed("at+jwt", claims)
	}
	s.accesses[token] = &access{grant: g, jkt: jkt, expires: time.Now().Add(s.options.Life), claims: claims}
	return token
}

// issue answers with tokens of a grant.
func (s *Server) issue(g *grant, jkt string, refreshes bool) *Answer {
	now := time.Now()
	object := map[string]any{"access_token": s.remember(g, jkt, s.claims(g, jkt, now)), "token_type": "Bearer", "expires_in": int(s.options.Life.Seconds())}
	if jkt != "" {
		object["token_type"] = "DPoP"
	}
	scopes := strings.Fields(g.scope)
	if g.scope != "" {
		object["scope"] = g.scope
	}
	if refreshes && (slices.Contains(scopes, "offline_access") || !slices.Contains(s.options.Scopes, "offline_access")) {
		token := "refresh-" + random()
		s.refreshes[token] = g
		object["refresh_token"] = token
	}
	if slices.Contains(scopes, "openid") {
		object["id_token"] = s.signed("JWT", map[string]any{"iss": s.Issuer(), "sub": g.subject, "aud": g.client, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
	}
	return succeed(object)
}

// verify reads a JWT of the server's own.
func (s *Server) verify(text string, into *jwt.Claims) bool {
	token, err := jwt.ParseSigned(text, asymmetric())
	set := s.publicKeys()
	return err == nil && token.Claims(&set, into) == nil && into.ValidateWithLeeway(jwt.Expected{Time: time.Now()}, 0) == nil
}

// lookUp returns an access token that works.
func (s *Server) lookUp(token string) *access {
	known := s.accesses[token]
	if known == nil || known.grant.revoked || !time.Now().Before(known.expires) {
		return nil
	}
	return known
}

// introspect serves RFC 7662, to clients that authenticate.
func (s *Server) introspect(r *Request) *Answer {
	c, refused := s.authenticate(r)
	if refused != nil {
		return refused
	}
	if c.auth() == authNone {
		return refuse(http.StatusUnauthorized, "invalid_client", "a public client may not introspect")
	}
	known := s.lookUp(r.Form.Get("token"))
	if known == nil {
		return succeed(map[string]any{"active": false})
	}
	object := map[string]any{"active": true, "token_type": "Bearer"}
	if known.jkt != "" {
		object["token_type"] = "DPoP"
	}
	for name, value := range known.claims {
		object[name] = value
	}
	return succeed(object)
}

// revoke serves RFC 7009. A token that is unknown is revoked already.
func (s *Server) revoke(r *Request) *Answer {
	c, refused := s.authenticate(r)
	if refused != nil {
		return refused
	}
	token := r.Form.Get("token")
	if g := s.refreshes[token]; g != nil && g.client == c.ID {
		g.revoked = true
	}
	if known := s.accesses[token]; known != nil && known.grant.client == c.ID {
		delete(s.accesses, token)
	}
	a := succeed(nil)
	a.Body = []byte{}
	return a
}

// RevokeAll revokes all tokens of all subjects, as an administrator may.
func (s *Server) RevokeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.accesses {
		known.grant.revoked = true
	}
	for _, g := range s.refreshes {
		g.revoked = true
	}
}
