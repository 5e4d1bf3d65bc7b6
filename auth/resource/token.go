package resource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-jose/go-jose/v4"
)

// algorithms returns the accepted signature algorithms. None of them uses a key that
// both sides know.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.ES384, jose.EdDSA}
}

func algorithmNames() string {
	var names []string
	for _, algorithm := range algorithms() {
		names = append(names, string(algorithm))
	}
	return strings.Join(names, " ")
}

// claims contains the claims that are used, of a token or of an introspection response.
type claims struct {
	Issuer     string          `json:"iss"`
	Subject    string          `json:"sub"`
	Audience   oneOrMany       `json:"aud"`
	Expires    date            `json:"exp"`
	NotBefore  date            `json:"nbf"`
	IssuedAt   date            `json:"iat"`
	Client     string          `json:"client_id"`
	Authorized string          `json:"azp"`
	Scope      oneOrMany       `json:"scope"`
	Scopes     oneOrMany       `json:"scp"` // the name that some servers use for scope
	Confirmed  json.RawMessage `json:"cnf"`
	Active     bool            `json:"active"` // only in introspection responses
}

// A oneOrMany is a string or a list of strings.
type oneOrMany []string

// UnmarshalJSON implements json.Unmarshaler.
func (o *oneOrMany) UnmarshalJSON(raw []byte) error {
	if bytes.HasPrefix(raw, []byte{'"'}) {
		*o = []string{""}
		return protocol.Unmarshal(raw, &(*o)[0])
	}
	return protocol.Unmarshal(raw, (*[]string)(o))
}

// A date is a NumericDate of RFC 7519; zero if it is absent.
type date struct{ time.Time }

// maxDate is 31 December 9999, in seconds since 1970.
const maxDate = 253402300799

// UnmarshalJSON implements json.Unmarshaler. Later dates than the year 9999 are that.
func (d *date) UnmarshalJSON(raw []byte) error {
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0 {
		return invalid("a date of the token cannot be read")
	}
	d.Time = time.Unix(int64(min(seconds, maxDate)), 0)
	return nil
}

// verify returns the principal of a request's token, and remembers it. Its error is a
// fault.
func (g *Guard) verify(r *http.Request, hash [sha256.Size]byte, token string) (*cachedToken, error) {
	from, err := g.issuerOf(token)
	if err != nil {
		return nil, err
	}
	if from.of.Introspect != nil {
		return g.introspect(r, hash, token)
	}
	p, err := g.verifySigned(r.Context(), from, token)
	if err != nil {
		return nil, err
	}
	return g.remember(hash, p, time.Now().Add(tokenLife)), nil
}

func (g *Guard) remember(hash [sha256.Size]byte, p *Principal, until time.Time) *cachedToken {
	p.guard, p.identity = g, identityOf(p)
	p.bearer = p.key == ""
	k := &cachedToken{hash: hash, who: p, until: until}
	g.tokens.add(k)
	return k
}

// issuerOf returns the issuer that may have issued a token.
func (g *Guard) issuerOf(token string) (*issuer, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		if g.introspector == nil {
			return nil, invalid("the token is not a signed JWT")
		}
		return g.introspector, nil
	}
	named, isJWT := claimedIssuer(parts[1])
	if (!isJWT || named == "") && g.introspector != nil {
		return g.introspector, nil // the token only looks like a JWT, or is one that is for its issuer alone
	}
	from := g.issuers[named]
	switch {
	case !isJWT:
		return nil, invalid("the token is malformed")
	case from == nil:
		return nil, invalid("the token is from another issuer")
	default:
		return from, nil
	}
}

// claimedIssuer returns the issuer that a JWT names. Nothing is verified yet: the name only says whose keys to try.
func claimedIssuer(encoded string) (issuer string, isJWT bool) {
	payload, err := base64.RawURLEncoding.DecodeString(encoded)
	var unverified struct {
		Issuer string `json:"iss"`
	}
	isJWT = err == nil && protocol.Unmarshal(payload, &unverified) == nil
	return unverified.Issuer, isJWT
}

// A joseHeader contains the members of a JWT's header that are used. All other
// information about keys is ignored.
type joseHeader struct {
	Algorithm jose.SignatureAlgorithm `json:"alg"`
	Key       string                  `json:"kid"`
	Type      string                  `json:"typ"`
	Critical  json.RawMessage         `json:"crit"`
	Public    json.RawMessage         `json:"jwk"` // only in DPoP proofs
}

func readHeader(token string) (joseHeader, error) {
	encoded, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	var h joseHeader
	switch {
	case err != nil || protocol.Unmarshal(raw, &h) != nil:
		return h, invalid("the header of the token cannot be read")
	case !slices.Contains(algorithms(), h.Algorithm):
		return h, invalid("the algorithm of the token is not accepted")
	case len(h.Critical) > 0:
		return h, invalid("the token has critical extensions")
	}
	return h, nil
}

func (g *Guard) verifySigned(ctx context.Context, from *issuer, token string) (*Principal, error) {
	header, err := readHeader(token)
	if err != nil {
		return nil, err
	}
	if !g.isAccessToken(header.Type) {
		return nil, invalid("the token is of another type")
	}
	keys, err := from.keysFor(ctx, header)
	if err != nil {
		return nil, err
	}
	payload, err := payloadOf(token, keys)
	if err != nil {
		return nil, err
	}
	p, err := g.read(from, payload)
	if err != nil {
		return nil, err
	}
	if p.Expires.IsZero() {
		return nil, invalid("the token does not say when it expires")
	}
	return p, nil
}

// isAccessToken reports whether a token is of the type of RFC 9068. Unless the options are strict, one that does not say
// more than that it is a JWT is taken for an access token, too: many issuers say no more.
func (g *Guard) isAccessToken(kind string) bool {
	kind = strings.TrimPrefix(strings.ToLower(kind), "application/")
	return kind == "at+jwt" || !g.options.Strict && (kind == "jwt" || kind == "")
}

// payloadOf returns what a token says, if one of the keys has made its signature.
func payloadOf(token string, keys []jose.JSONWebKey) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(token, algorithms())
	if err != nil {
		return nil, invalid("the token is malformed")
	}
	for _, key := range keys {
		if payload, err := signed.Verify(key); err == nil {
			return payload, nil
		}
	}
	return nil, invalid("the signature of the token is wrong")
}

// read reads the claims of a token whose signature is valid.
func (g *Guard) read(from *issuer, payload []byte) (*Principal, error) {
	var c claims
	if err := protocol.Unmarshal(payload, &c); err != nil {
		return nil, invalid("the claims of the token cannot be read")
	}
	if err := g.checkClaims(from, &c); err != nil {
		return nil, err
	}
	p := &Principal{Issuer: from.of.URL, Subject: c.Subject, Client: c.Client, Scopes: c.scopes(), Expires: c.Expires.Time, Claims: slices.Clone(payload)}
	if p.Client == "" {
		p.Client = c.Authorized
	}
	if p.Subject == "" && p.Client == "" {
		return nil, invalid("the token has neither subject nor client")
	}
	var err error
	p.texts = sync.OnceValue(func() map[string][]string { return textsOf(p.Claims) })
	p.key, err = g.confirmation(c.Confirmed)
	return p, err
}

// checkClaims checks that a token is for this server, from this issuer, and valid now.
func (g *Guard) checkClaims(from *issuer, c *claims) error {
	now := time.Now()
	introspected := from.of.Introspect != nil
	switch {
	case introspected && !c.Active:
		return invalid("the token is not active")
	case c.Issuer != from.of.URL && !(introspected && c.Issuer == ""):
		return invalid("the token is from another issuer")
	case !slices.ContainsFunc(c.Audience, g.isAudience):
		return invalid("the token is for another audience")
	case !c.Expires.IsZero() && !now.Before(c.Expires.Add(g.leeway)):
		return invalid("the token has expired")
	case c.NotBefore.After(now.Add(g.leeway)), c.IssuedAt.After(now.Add(g.leeway)):
		return invalid("the token is not valid yet")
	}
	return nil
}

func (g *Guard) isAudience(audience string) bool {
	return slices.Contains(g.options.Audiences, audience) || canonical(audience) == g.url
}

func (c *claims) scopes() []string {
	scopes := c.Scope
	if len(scopes) == 0 {
		scopes = c.Scopes
	}
	return strings.Fields(strings.Join(scopes, " "))
}

// confirmation returns the thumbprint of the key that a token is bound to. It fails for
// a binding that is not supported, because ignoring it would be unsafe.
func (g *Guard) confirmation(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	var bound map[string]json.RawMessage
	var key string
	err := protocol.Unmarshal(raw, &bound)
	if err == nil {
		err = protocol.Unmarshal(bound["jkt"], &key)
	}
	if err != nil || len(bound) != 1 || key == "" || g.proofs == nil {
		return "", invalid("the token is bound to a key in a way that is not accepted")
	}
	return key, nil
}
