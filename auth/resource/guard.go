package resource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A Guard protects the endpoint of one server. It is safe for concurrent use, and has no
// goroutine.
type Guard struct {
	options      Options
	url          string   // the URL of the server in canonical form
	scopes       []string // Options.Scopes
	leeway       time.Duration
	issuers      map[string]*issuer
	introspector *issuer // the issuer that introspects; nil if there is none
	tokens       *tokens
	refused      *tokens // tokens that the introspecting issuer has refused
	proofs       *proofs // nil: DPoP is off
	metadata     string  // the address of Metadata, for challenges
}

// New returns a Guard. It fetches nothing, so a server can start while an issuer is
// unreachable. The error says which option is invalid.
func New(o Options) (*Guard, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	g := &Guard{options: o, url: canonical(o.URL), scopes: slices.Clone(o.Scopes), leeway: max(o.Leeway, 0), issuers: make(map[string]*issuer), tokens: newTokens(maxTokens), refused: newTokens(maxRefused)}
	if o.Leeway == 0 {
		g.leeway = defaultLeeway
	}
	for _, of := range o.Issuers {
		i := newIssuer(of, o.HTTP)
		if g.issuers[of.URL] = i; of.Introspect != nil {
			g.introspector = i
		}
	}
	if o.DPoP != DPoPOff {
		g.proofs = newProofs(g.url, o.DPoPNonces, o.DPoPSecrets)
		g.proofs.shared = o.DPoPProofs
	}
	at, err := url.Parse(o.URL)
	if err != nil {
		return nil, err // check has read it
	}
	at.Path = wellKnown + strings.TrimSuffix(at.Path, "/")
	g.metadata = at.String()
	return g, nil
}

// A Principal is the user or client that an access token was issued for. It is read-only.
// Handlers of a server get it from PrincipalFrom.
type Principal struct {
	Issuer  string
	Subject string // the user at that issuer; "" if the token names none
	Client  string // the id of the client that got the token; "" if the token names none
	Scopes  []string
	Expires time.Time
	Claims  json.RawMessage // all claims of the token, or the whole introspection response

	guard          *Guard
	texts          func() map[string][]string // of the claims
	identity       string
	key            string    // the thumbprint of the key that the token is bound to; "": none
	bearer         bool      // the token came as a bearer token
	introspectedAt time.Time // when the token was introspected; zero: it is signed
}

// Identity implements streamable.Caller. The identity consists of issuer and subject, so
// sessions, tasks and questions belong to the user and outlive the token. If a token has no
// subject, they belong to its client.
func (p *Principal) Identity() string { return p.identity }

// Until returns when streams of this caller end; see streamable.Caller. They end Leeway after
// the token has expired. If the token was introspected, it may be revoked before that, so its
// streams end at the latest five minutes after the introspection. A client that reconnects is
// checked again. A Guard does not notice that a signed token was revoked.
func (p *Principal) Until() time.Time {
	var until time.Time
	if !p.Expires.IsZero() {
		until = p.Expires.Add(p.guard.leeway)
	}
	if p.introspectedAt.IsZero() {
		return until
	}
	if again := p.introspectedAt.Add(introspectedStream); until.IsZero() || again.Before(until) {
		return again
	}
	return until
}

// Has reports whether the token has a scope, or one that implies it.
func (p *Principal) Has(scope string) bool {
	return slices.ContainsFunc(p.Scopes, func(granted string) bool {
		return granted == scope || p.guard.options.Implies != nil && p.guard.options.Implies(granted, scope)
	})
}

// Claim returns the text of a claim of the token, or its texts if the claim is a list of texts, such as the groups of a user. A claim of another
// form, or that the token does not have, has none. The result is read-only.
func (p *Principal) Claim(name string) []string {
	if p.texts == nil { // no Guard has made it
		return textsOf(p.Claims)[name]
	}
	return p.texts()[name]
}

// Allow implements streamable.Caller. It denies an operation if the token lacks one of the
// scopes that Options.Needs returns for it.
func (p *Principal) Allow(op streamable.Operation) *streamable.Denial {
	needs := p.needs(op)
	if p.hasAll(needs) {
		return nil
	}
	return p.guard.deny(http.StatusForbidden, denial{code: "insufficient_scope", text: "the operation needs more scopes", scopes: needs}, !p.bearer)
}

func (p *Principal) needs(op streamable.Operation) []string {
	if p.guard.options.Needs == nil {
		return nil
	}
	return p.guard.options.Needs(op)
}

func (p *Principal) hasAll(scopes []string) bool {
	for _, scope := range scopes {
		if !p.Has(scope) {
			return false
		}
	}
	return true
}

// PrincipalFrom returns who sent the request that a handler serves. It returns nil if no Guard
// has checked the request.
func PrincipalFrom(ctx context.Context) *Principal {
	r := server.RequestFrom(ctx)
	if r == nil {
		return nil
	}
	p, _ := r.Origin.Principal.(*Principal)
	return p
}

// Visible is for server.Options.Visible. It hides the features that a client cannot use with
// its scopes. Without it, clients see all features, and a call that needs more scopes makes
// the client ask for them. A request that no Guard has checked sees no features.
func (g *Guard) Visible(ctx context.Context, f server.Feature) bool {
	p := PrincipalFrom(ctx)
	if p == nil {
		return false
	}
	op := streamable.Operation{Method: protocol.MethodReadResource}
	named := map[string]string{"uri": f.Name}
	switch f.Kind {
	case server.KindTool:
		op.Method, named = protocol.MethodCallTool, map[string]string{"name": f.Name}
	case server.KindPrompt:
		op.Method, named = protocol.MethodGetPrompt, map[string]string{"name": f.Name}
	}
	params, err := protocol.Marshal(named)
	if err != nil {
		return false
	}
	op.Params = params
	return p.hasAll(p.needs(op))
}

// Check is for streamable.HandlerOptions.Check. It returns who sent a request, or how to deny
// the request. It may fetch from an issuer, for at most ten seconds or until the request's
// context ends.
func (g *Guard) Check(r *http.Request) (streamable.Caller, *streamable.Denial) {
	token, bound, denied := g.credentials(r)
	if denied != nil {
		return nil, denied
	}
	hash := sha256.Sum256([]byte(token))
	found := g.tokens.find(hash)
	if found == nil {
		var err error
		if found, err = g.verify(r, hash, token); err != nil {
			return nil, g.denyFor(err, bound)
		}
	}
	p := found.who
	switch {
	case p.bearer && g.options.DPoP == DPoPRequired:
		return nil, g.deny(http.StatusUnauthorized, invalid("the token is not bound to a key"), true)
	case p.bearer == bound:
		return nil, g.deny(http.StatusUnauthorized, invalid("the scheme does not fit the token"), !p.bearer)
	case p.bearer:
		return p, nil
	}
	if err := g.proofs.check(r, token, p.key); err != nil {
		return nil, g.denyFor(err, true)
	}
	return p, nil
}

// identityOf returns a unique key for a user. It is unique because no issuer contains a
// space or a line break.
func identityOf(p *Principal) string {
	if p.Subject == "" {
		return p.Issuer + "\n" + p.Client
	}
	return p.Issuer + " " + p.Subject
}

// maxToken is the maximum length of a token, in bytes.
const maxToken = 8 << 10

// credentials returns the token of a request, and whether its scheme says that the token
// is bound to a key.
func (g *Guard) credentials(r *http.Request) (token string, bound bool, denied *streamable.Denial) {
	values := r.Header["Authorization"]
	if r.URL.RawQuery != "" && r.URL.Query().Has("access_token") {
		return "", false, g.deny(http.StatusBadRequest, denial{code: "invalid_request", text: "a token must not be part of a URL"}, false)
	}
	if len(values) > 1 {
		return "", false, g.deny(http.StatusBadRequest, denial{code: "invalid_request", text: "the header Authorization is given more than once"}, false)
	}
	if len(values) == 0 {
		return "", false, g.deny(http.StatusUnauthorized, denial{}, false)
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
	case strings.EqualFold(scheme, "DPoP") && g.proofs != nil:
		bound = true
	default:
		return "", false, g.deny(http.StatusUnauthorized, denial{}, false)
	}
	token = strings.TrimLeft(token, " ")
	if len(token) > maxToken {
		return "", false, g.deny(http.StatusUnauthorized, invalid("the token is too long"), bound)
	}
	if !isToken(token) {
		return "", false, g.deny(http.StatusUnauthorized, invalid("the token is malformed"), bound)
	}
	return token, bound, nil
}

// isToken reports whether a text is a b64token of RFC 6750.
func isToken(text string) bool {
	text = strings.TrimRight(text, "=")
	for i := range len(text) {
		c := text[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~+/", c) >= 0) {
			return false
		}
	}
	return text != ""
}

// A denial says why a request is denied, in the terms of RFC 6750. The zero value is for
// a request without a token.
type denial struct {
	code        string
	text        string   // the class of the fault, without anything from the token
	scopes      []string // the needed scopes; nil: those of the options
	nonce       string   // the nonce that a proof should have
	unavailable bool     // an issuer cannot be reached, so the token may be valid
	tooMany     bool     // the client sends too much
}

func (f denial) Error() string { return "resource: " + f.text }

func invalid(text string) denial { return denial{code: "invalid_token", text: text} }

func unavailable(text string) denial { return denial{text: text, unavailable: true} }

// denyFor returns the denial for an error of verify or of a proof.
func (g *Guard) denyFor(err error, bound bool) *streamable.Denial {
	var f denial
	if !errors.As(err, &f) {
		f = invalid("the token cannot be verified")
	}
	status := 0
	switch {
	case f.unavailable:
		status = http.StatusServiceUnavailable
	case f.tooMany:
		status = http.StatusTooManyRequests
	default:
		return g.deny(http.StatusUnauthorized, f, bound)
	}
	return &streamable.Denial{Status: status, Header: http.Header{"Retry-After": {"5"}}, Text: f.text}
}

// deny returns a denial with a challenge (RFC 6750 §3, RFC 9728 §5.1). With DPoP it
// offers both schemes, the client's first.
func (g *Guard) deny(status int, f denial, bound bool) *streamable.Denial {
	scopes := f.scopes
	if scopes == nil {
		scopes = g.scopes
	}
	var parameters []string
	if f.code != "" {
		parameters = append(parameters, fmt.Sprintf(`error="%s"`, f.code), fmt.Sprintf(`error_description="%s"`, f.text))
	}
	parameters = append(parameters, fmt.Sprintf(`resource_metadata="%s"`, g.metadata))
	if len(scopes) > 0 {
		parameters = append(parameters, fmt.Sprintf(`scope="%s"`, strings.Join(scopes, " ")))
	}
	header := http.Header{"Www-Authenticate": g.challenges(strings.Join(parameters, ", "), bound)}
	if f.nonce != "" {
		header["Dpop-Nonce"] = []string{f.nonce}
	}
	return &streamable.Denial{Status: status, Header: header, Text: cmp.Or(f.text, "a token is needed")}
}

// challenges returns one challenge for each scheme that the options allow, the client's first.
func (g *Guard) challenges(parameters string, bound bool) []string {
	bearer, dpop := "Bearer "+parameters, fmt.Sprintf(`DPoP algs="%s", `, algorithmNames())+parameters
	switch {
	case g.options.DPoP == DPoPRequired:
		return []string{dpop}
	case g.options.DPoP == DPoPOff:
		return []string{bearer}
	case bound:
		return []string{dpop, bearer}
	default:
		return []string{bearer, dpop}
	}
}
