package resource

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Options configure a Guard. URL and one issuer are needed; the zero value of every other
// field means its default.
type Options struct {
	// URL is where clients reach the server, such as "https://mcp.example.com/mcp". Tokens
	// have to name it as their audience. It is never taken from a request. Only a loopback
	// host may do with http.
	URL string

	// Audiences are taken as well as URL, each exactly as it is written: what an
	// authorization server that cannot name URLs calls this server.
	Audiences []string

	// Issuers are the authorization servers whose tokens are taken. Clients are told of
	// them in this order.
	Issuers []Issuer

	// Scopes are those that a client should ask for at first: the least that is of use.
	// A scope such as offline_access is none of the server's, and is refused.
	Scopes []string

	// Needs returns the scopes that an operation needs. Nil, or no scopes: a valid token
	// is enough.
	Needs func(op streamable.Operation) []string

	// Implies reports whether one granted scope is as good as a needed one. Nil: if they
	// are equal.
	Implies func(granted, needed string) bool

	// DPoP says what becomes of tokens that are bound to a key of the client (RFC 9449).
	// Default: they are refused.
	DPoP DPoPMode

	// DPoPNonces asks clients for proofs with a nonce of this server, so that none can be
	// made in advance. It costs a client one more request at first, and one every 30 to
	// 60 s. Without it, clients are asked for nonces only when many proofs have to be
	// remembered.
	DPoPNonces bool

	// DPoPSecret is what nonces are made of: at least 32 random bytes, the same at all
	// nodes that serve URL, whose clocks should agree within seconds. Each node then takes
	// the nonces of the others. Default: a random one for each Guard. With several nodes
	// behind one address a client may then be asked for a nonce at each request. With or
	// without it each node remembers only the proofs that it has taken itself, unless there
	// are DPoPProofs.
	DPoPSecret []byte

	// DPoPProofs remembers the proofs that were taken for all nodes that serve URL. Without it a
	// proof that somebody has read on its way to one node may be taken by each of the others
	// too, for five minutes, with DPoPNonces for one. Nil: each Guard remembers its own. It does
	// so, and keeps to its bounds, in any case.
	DPoPProofs Proofs

	// Strict refuses tokens whose type is not "at+jwt" (RFC 9068). Otherwise "JWT" and no
	// type are taken too.
	Strict bool

	// Leeway is how much the clocks of the issuers may differ from the one here. Default
	// 60 s, at most 5 min; negative: none.
	Leeway time.Duration

	// HTTP fetches metadata and keys, and introspects. Nil: a client of auth/guard for each
	// issuer, which fetches from no private address unless the issuer has one.
	HTTP *http.Client
}

// An Issuer is an authorization server.
type Issuer struct {
	URL string // its identifier, to the letter

	// Keys is where its keys are, as a JWK Set. Default: where its metadata says.
	Keys string

	// Introspect asks the issuer about tokens (RFC 7662) in place of verifying them with
	// keys. A token that it has confirmed is trusted for 30 s and not beyond its expiry; one
	// that it has refused stays refused for 5 s. At most 64 are asked about at a time, 16 of
	// them for one network address; others wait for up to 10 s, and are answered with 503
	// then. At most one issuer may have it: it is also asked about tokens that do not say
	// who made them.
	Introspect *Introspection
}

// An Introspection is how an issuer is asked about a token.
type Introspection struct {
	URL          string // default: where the issuer's metadata says
	ClientID     string // of this server, at the issuer
	ClientSecret string // is sent by HTTP Basic
}

// A DPoPMode says what becomes of tokens that are bound to a key of the client.
type DPoPMode int

const (
	DPoPOff      DPoPMode = iota // they are refused
	DPoPAllowed                  // they are taken with a proof, and bearer tokens are taken too
	DPoPRequired                 // only they are taken
)

// Proofs remember proofs of DPoP that were taken, for several nodes: a database that they share, for
// instance. A Guard calls Take at most once for each proof that is right and that it has not taken
// before, on the goroutine of the request.
type Proofs interface {
	// Take remembers a proof until a time, at most ten minutes ahead, and reports whether
	// it was not remembered yet: of several calls for one proof exactly one gets true. It ends
	// with ctx, which lasts for at most ten seconds. With an error the request is answered with
	// 503. This node then refuses the same proof as used: a client makes a new one each time.
	Take(ctx context.Context, proof ProofID, until time.Time) (fresh bool, err error)
}

// A ProofID names a proof: it is the start of a hash of URL, key and jti. Only the owner of a key
// could make two proofs of one ProofID, and would have one of them refused.
type ProofID [16]byte

const (
	defaultLeeway = time.Minute
	maxLeeway     = 5 * time.Minute
	leastSecret   = 32 // bytes
)

func (o Options) check() error {
	if err := checkURL(o.URL); err != nil {
		return fmt.Errorf("resource: URL %w", err)
	}
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
	for _, scope := range o.Scopes {
		if scope == "offline_access" || !isScope(scope) {
			return fmt.Errorf("resource: %.80q cannot be a scope of a server", scope)
		}
	}
	if n := len(o.DPoPSecret); n > 0 && n < leastSecret {
		return fmt.Errorf("resource: the secret of nonces has %d bytes, fewer than %d", n, leastSecret)
	}
	if o.Leeway > maxLeeway {
		return fmt.Errorf("resource: the leeway of %v is more than %v", o.Leeway, maxLeeway)
	}
	return nil
}

// checkURL takes https, and http with a loopback host.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%.80q is none", text)
	case u.Host == "" || u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(text, "?") || strings.HasSuffix(text, "#"):
		return fmt.Errorf("%.80q has to be a scheme, a host and a path", u.Redacted())
	case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		return fmt.Errorf("%.80q has to be https, or http on a loopback host", text)
	}
	return nil
}

func isLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// isScope reports whether a text is a scope-token of RFC 6749.
func isScope(text string) bool {
	return text != "" && strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) < 0
}

// canonical folds what two ways to write the URL of a server may differ in: the case of
// scheme and host, the default port, and one slash at the end. It returns "" for what is no URL.
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
