package resource

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Options configure a Guard. URL and at least one issuer are required. The zero value of every
// other field means its default.
type Options struct {
	// URL is the address at which clients reach the server, such as
	// "https://mcp.example.com/mcp". Tokens must name it as their audience. It must be an
	// https URL, unless the host is a loopback host.
	URL string

	// Audiences lists further audiences that a token may name in place of URL, compared
	// exactly. Use it for authorization servers that cannot use a URL as audience.
	Audiences []string

	// Issuers lists the authorization servers whose tokens are accepted. The metadata
	// lists them for clients in this order.
	Issuers []Issuer

	// Scopes are the scopes that a client should ask for at first: as few as are useful.
	// New refuses offline_access, which concerns only the authorization server.
	Scopes []string

	// Needs returns the scopes that an operation needs. If it is nil or returns none, any
	// valid token is enough.
	Needs func(op streamable.Operation) []string

	// Implies reports whether a granted scope includes a needed one. Nil: it does if they
	// are equal.
	Implies func(granted, needed string) bool

	// DPoP says whether tokens that are bound to a key of the client (RFC 9449) are
	// accepted. Default: they are refused.
	DPoP DPoPMode

	// DPoPNonces requires proofs to contain a nonce of this server, so nobody can create
	// proofs in advance. This costs a client one more request at the beginning, and one
	// every 30 to 60 s. Without it, the server requires nonces only when it has to
	// remember many proofs.
	DPoPNonces bool

	// DPoPSecrets returns the secrets that nonces are derived from, of at least 32 random
	// bytes each: new nonces come from the first one, and those of any are accepted. If
	// several nodes serve URL, give all of them the same secrets, so that each accepts the
	// nonces of the others; their clocks should agree within seconds. The Guard calls
	// DPoPSecrets for each proof, so it must not block, and secrets can be replaced at any
	// time: add a new one at the end on every node, then move it to the front, and remove
	// the old one a minute later. While there is none, requests that need a nonce are
	// answered with 503. Nil: a random secret for each Guard, so with several nodes a
	// client may have to repeat each request with another nonce. Secrets do not make nodes
	// share the proofs that they have accepted; see DPoPProofs.
	DPoPSecrets func() [][]byte

	// DPoPProofs remembers the accepted proofs for all nodes that serve URL. A request that
	// another node has accepted and forwarded is not refused for its own proof, if that node
	// has proved to be one (streamable.Forwarded). Without DPoPProofs, somebody who has
	// intercepted a proof can use it once at each of the other nodes, for five minutes, or for
	// one minute with DPoPNonces. Nil: each Guard remembers only the
	// proofs that it has accepted itself. It always does so, within its own bounds.
	DPoPProofs Proofs

	// Strict refuses tokens whose type is not "at+jwt" (RFC 9068). Otherwise the type
	// "JWT", and tokens without a type, are accepted too.
	Strict bool

	// Leeway is how much the clocks of the issuers may differ from the local clock.
	// Default 60 s, at most 5 min. Negative: no difference is allowed.
	Leeway time.Duration

	// HTTP fetches metadata and keys, and introspects tokens. Nil: an auth/guard.Guard for
	// each issuer, which refuses private addresses unless the issuer has one itself.
	HTTP *http.Client
}

// An Issuer is an authorization server.
type Issuer struct {
	URL string // the issuer identifier, compared exactly

	// Keys is the URL of the issuer's keys (a JWK Set). Default: the URL in its metadata.
	Keys string

	// Introspect asks the issuer about each token (RFC 7662) instead of verifying it with
	// keys. The Guard trusts a confirmed token for 30 s, but not beyond its expiry, and
	// refuses a rejected token for 5 s, before it asks again. At most 64 such requests run
	// at a time, 16 of them for one network address. Others wait for up to 10 s; after
	// that, the response is 503. At most one issuer may have Introspect: it is also asked
	// about tokens that do not name their issuer.
	Introspect *Introspection
}

// An Introspection says how to ask an issuer about a token.
type Introspection struct {
	URL          string // default: the URL in the issuer's metadata
	ClientID     string // the client id of this server at the issuer
	ClientSecret string // sent by HTTP Basic authentication
}

// A DPoPMode says whether tokens that are bound to a key of the client are accepted.
type DPoPMode int

const (
	DPoPOff      DPoPMode = iota // they are refused
	DPoPAllowed                  // they are accepted with a proof; bearer tokens are accepted too
	DPoPRequired                 // they are accepted with a proof; bearer tokens are refused
)

// Proofs remembers accepted DPoP proofs for several nodes, for instance in a database that they
// share. A Guard calls Take on the goroutine of the request, at most once for each valid proof
// that it has not accepted before.
type Proofs interface {
	// Take remembers a proof until the given time, which is at most ten minutes ahead. It
	// reports whether the proof is fresh, that is not remembered yet: of several calls for
	// one proof, exactly one returns true. Take must return when ctx ends, which is after
	// at most ten seconds. If it returns an error, the response to the request is 503, and
	// this node refuses the proof from then on; clients create a new proof for each request.
	Take(ctx context.Context, proof ProofID, until time.Time) (fresh bool, err error)
}

// A ProofID identifies a proof. It is the beginning of a hash of URL, key and jti. Only the owner
// of a key could create two proofs with the same ProofID, and one of them would be refused.
type ProofID [16]byte

const (
	defaultLeeway = time.Minute
	maxLeeway     = 5 * time.Minute
	minSecret     = 32 // the minimum length of a secret, in bytes
)

func (o Options) check() error {
	if err := checkURL(o.URL); err != nil {
		return fmt.Errorf("resource: URL %w", err)
	}
	if err := o.checkIssuers(); err != nil {
		return err
	}
	for _, scope := range o.Scopes {
		if scope == "offline_access" || !isScope(scope) {
			return fmt.Errorf("resource: %.80q cannot be a scope of a server", scope)
		}
	}
	if err := o.checkSecrets(); err != nil {
		return err
	}
	if o.Leeway > maxLeeway {
		return fmt.Errorf("resource: the leeway of %v is more than %v", o.Leeway, maxLeeway)
	}
	return nil
}

// checkIssuers refuses issuers among which a token would have no clear one, or would be shown to the wrong one.
func (o Options) checkIssuers() error {
	if len(o.Issuers) == 0 {
		return fmt.Errorf("resource: no issuer is given, so no token could be taken")
	}
	introspecting := 0
	for i, issuer := range o.Issuers {
		for _, address := range []string{issuer.URL, cmp.Or(issuer.Keys, issuer.URL)} {
			if err := checkURL(address); err != nil {
				return fmt.Errorf("resource: the issuer's URL %w", err)
			}
		}
		if slices.ContainsFunc(o.Issuers[:i], func(other Issuer) bool { return other.URL == issuer.URL }) {
			return fmt.Errorf("resource: the issuer %q is given twice", issuer.URL)
		}
		if issuer.Introspect == nil {
			continue
		}
		if introspecting++; introspecting > 1 {
			return fmt.Errorf("resource: more than one issuer is to be asked about tokens: each would see those of the other")
		}
		if address := issuer.Introspect.URL; address != "" {
			if err := checkURL(address); err != nil {
				return fmt.Errorf("resource: the URL of introspection %w", err)
			}
		}
	}
	return nil
}

// checkSecrets refuses secrets by which anybody could make nonces.
func (o Options) checkSecrets() error {
	if o.DPoPSecrets == nil {
		return nil
	}
	secrets := o.DPoPSecrets()
	if len(secrets) == 0 {
		return fmt.Errorf("resource: there is no secret for nonces")
	}
	for _, secret := range secrets {
		if n := len(secret); n < minSecret {
			return fmt.Errorf("resource: a secret of nonces has %d bytes, fewer than %d", n, minSecret)
		}
	}
	return nil
}

// checkURL accepts https, and http with a loopback host.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%.80q is none", text)
	case u.Host == "" || u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(text, "?") || strings.HasSuffix(text, "#"):
		return fmt.Errorf("%.80q has to be a scheme, a host and a path", u.Redacted())
	case u.Scheme != "https" && !(u.Scheme == "http" && network.IsLoopback(u.Hostname())):
		return fmt.Errorf("%.80q has to be https, or http on a loopback host", text)
	}
	return nil
}

// isScope reports whether a text is a scope-token of RFC 6749.
func isScope(text string) bool {
	return text != "" && strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) < 0
}

// canonical returns a common form for URLs of a server that differ only in the case of
// scheme and host, the default port, and one slash at the end. It returns "" for an
// invalid URL.
func canonical(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if u.Scheme == "https" {
		u.Host = strings.TrimSuffix(u.Host, ":443")
	} else {
		u.Host = strings.TrimSuffix(u.Host, ":80")
	}
	return strings.TrimSuffix(u.String(), "/")
}
