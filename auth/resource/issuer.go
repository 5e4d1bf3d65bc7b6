package resource

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-jose/go-jose/v4"
)

const (
	// Keys are fetched again after the time that the issuer names, within these limits.
	minKeyLife, maxKeyLife = 5 * time.Minute, 24 * time.Hour

	// staleKeyLife is how much longer keys are used while the issuer is unreachable.
	staleKeyLife = 24 * time.Hour

	// unknownKeyPause is how long the keys are not fetched again for an unknown key id,
	// because anybody can invent one.
	unknownKeyPause = 30 * time.Second

	// failurePause is how long the keys are not fetched again after a failure.
	failurePause = 5 * time.Second

	// minRSA and maxRSA limit the size of RSA keys, in bits. Shorter keys can be
	// broken. To check a signature of a much longer key takes tens of milliseconds.
	minRSA, maxRSA = 2048, 8192

	// maxSameKeyID is how many keys with the same id are tried.
	maxSameKeyID = 4

	fetchTimeout = 10 * time.Second
)

// An issuer manages the keys and endpoints of an authorization server.
type issuer struct {
	of    Issuer
	fetch fetch
	slots *slots // the slots for introspections; nil if the issuer does not introspect

	mu       sync.Mutex
	fetching chan struct{} // closed when the running fetch has ended; nil: none is running
	keys     []jose.JSONWebKey
	fetched  time.Time // when the keys were fetched; zero: never
	fresh    time.Time // until when the keys are fresh
	tried    time.Time // when a fetch was last tried
	failed   bool      // whether that fetch failed

	endpoints        endpoints // the endpoints; zero until they are known
	introspectFailed bool      // an introspection at this endpoint has failed
}

// endpoints contains the members of an authorization server's metadata that are used.
type endpoints struct {
	Issuer     string `json:"issuer"`
	Keys       string `json:"jwks_uri"`
	Introspect string `json:"introspection_endpoint"`
}

func newIssuer(of Issuer, client *http.Client) *issuer {
	if of.Introspect == nil {
		return &issuer{of: of, fetch: newFetch(of.URL, client, 1)}
	}
	return &issuer{of: of, fetch: newFetch(of.URL, client, maxIntrospections), slots: newSlots()}
}

// keysFor returns the keys that may have made a signature. A token without a key id is
// accepted only if exactly one key fits, so that nobody can make the server try many
// keys. The error is a fault.
func (i *issuer) keysFor(ctx context.Context, h joseHeader) ([]jose.JSONWebKey, error) {
	for {
		i.mu.Lock()
		now := time.Now()
		candidates := i.candidates(h)
		usable := !i.fetched.IsZero() && now.Before(i.fresh.Add(staleKeyLife))
		if usable && len(candidates) > 0 && (now.Before(i.fresh) || i.fetching != nil || i.tooEarly(now)) {
			i.mu.Unlock()
			return candidates, nil
		}
		if i.fetching == nil && i.tooEarly(now) {
			i.mu.Unlock()
			if !usable {
				return nil, unavailable("the keys of the authorization server cannot be fetched now")
			}
			return nil, invalid("the token is signed with an unknown key")
		}
		if err := i.together(ctx, now, i.refresh); err != nil {
			return nil, err
		}
	}
}

// together calls what fetches, or waits until that has ended which is running for another request. The caller holds mu, and has it no more afterwards.
func (i *issuer) together(ctx context.Context, now time.Time, by func(context.Context)) error {
	fetching := i.fetching
	if fetching == nil {
		i.fetching, i.tried = make(chan struct{}), now
		i.mu.Unlock()
		by(ctx)
		return nil
	}
	i.mu.Unlock()
	select {
	case <-fetching:
		return nil
	case <-ctx.Done():
		return unavailable("the client has left")
	}
}

// tooEarly reports whether it is too early for another fetch.
func (i *issuer) tooEarly(now time.Time) bool {
	pause := unknownKeyPause
	if i.failed {
		pause = failurePause
	}
	return !i.tried.IsZero() && now.Before(i.tried.Add(pause))
}

func (i *issuer) candidates(h joseHeader) (keys []jose.JSONWebKey) {
	for _, key := range i.keys {
		if (h.Key == "" || key.KeyID == h.Key) && isUsable(key, h.Algorithm) {
			keys = append(keys, key)
		}
	}
	if h.Key == "" && len(keys) > 1 {
		return nil
	}
	return keys[:min(len(keys), maxSameKeyID)]
}

// isUsable reports whether a key belongs to an algorithm. Without this check, a public key
// could be used as the secret of another algorithm.
func isUsable(key jose.JSONWebKey, algorithm jose.SignatureAlgorithm) bool {
	if key.Use != "" && key.Use != "sig" || key.Algorithm != "" && key.Algorithm != string(algorithm) {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		size := public.N.BitLen()
		return (algorithm == jose.RS256 || algorithm == jose.PS256) && size >= minRSA && size <= maxRSA
	case *ecdsa.PublicKey:
		return algorithm == jose.ES256 && public.Curve == elliptic.P256() || algorithm == jose.ES384 && public.Curve == elliptic.P384()
	case ed25519.PublicKey:
		return algorithm == jose.EdDSA
	}
	return false
}

// refresh fetches the keys, for the request that needs them and for all others that
// wait. It continues when that request has ended, because others need the keys, too.
func (i *issuer) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	keys, life, err := i.fetchKeys(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if i.failed = err != nil; err == nil {
		i.keys, i.fetched, i.fresh = keys, now, now.Add(life)
	} else {
		i.endpoints = endpoints{} // the endpoints may have moved
	}
	i.tried = now
	close(i.fetching)
	i.fetching = nil
}

func (i *issuer) fetchKeys(ctx context.Context) ([]jose.JSONWebKey, time.Duration, error) {
	address := i.of.Keys
	if address == "" {
		found, err := i.discover(ctx)
		if err != nil {
			return nil, 0, err
		}
		address = found.Keys
	}
	answer, err := i.fetch.get(ctx, address)
	if err != nil {
		return nil, 0, err
	}
	keys, isSet := publicKeys(answer.body)
	if !isSet {
		return nil, 0, fmt.Errorf("resource: what is at %s is no key set", address)
	}
	return keys, keyLife(answer.header), nil
}

// publicKeys returns the public keys of a key set (RFC 7517). It ignores those of types that are unknown here.
func publicKeys(text []byte) (keys []jose.JSONWebKey, isSet bool) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := protocol.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, false
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && key.IsPublic() {
			keys = append(keys, key)
		}
	}
	return keys, true
}

// keyLife returns how long a response may be cached.
func keyLife(header http.Header) time.Duration {
	for _, value := range header.Values("Cache-Control") {
		for directive := range strings.SplitSeq(value, ",") {
			name, seconds, _ := strings.Cut(strings.TrimSpace(directive), "=")
			if n, err := strconv.Atoi(strings.Trim(seconds, `"`)); err == nil && strings.EqualFold(name, "max-age") {
				n = min(max(n, int(minKeyLife/time.Second)), int(maxKeyLife/time.Second)) // before it could overflow
				return time.Duration(n) * time.Second
			}
		}
	}
	return minKeyLife
}

// introspectAt returns the introspection endpoint of the issuer. If an introspection has
// failed, it reads the metadata again, and uses the old endpoint until that succeeds.
// The error is a fault.
func (i *issuer) introspectAt(ctx context.Context) (string, error) {
	if i.of.Introspect.URL != "" {
		return i.of.Introspect.URL, nil
	}
	for {
		i.mu.Lock()
		now, known, fetching := time.Now(), i.endpoints.Introspect, i.fetching
		if known != "" && (!i.introspectFailed || fetching != nil || i.tooEarly(now)) {
			i.mu.Unlock()
			return known, nil
		}
		if fetching == nil && i.tooEarly(now) {
			i.mu.Unlock()
			return "", unavailable("the authorization server cannot be asked about the token now")
		}
		if err := i.together(ctx, now, i.rediscover); err != nil {
			return "", err
		}
	}
}

// rediscover reads the metadata, for the request that needs it and for all others that
// wait. It continues when that request has ended.
func (i *issuer) rediscover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	found, err := i.readMetadata(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failed = err != nil || found.Introspect == ""; !i.failed {
		i.endpoints, i.introspectFailed = found, false
	}
	i.tried = time.Now()
	close(i.fetching)
	i.fetching = nil
}

// markFailed makes the metadata be read again, if it still names this endpoint, because the
// endpoint may have moved.
func (i *issuer) markFailed(address string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if address == i.endpoints.Introspect {
		i.introspectFailed, i.failed = true, true
	}
}

// discover returns the endpoints of the issuer. It reads the metadata only if they are
// unknown.
func (i *issuer) discover(ctx context.Context) (endpoints, error) {
	i.mu.Lock()
	known := i.endpoints
	i.mu.Unlock()
	if known.Issuer != "" {
		return known, nil
	}
	found, err := i.readMetadata(ctx)
	if err != nil {
		return endpoints{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.endpoints = found
	return found, nil
}

// readMetadata fetches the metadata of the issuer (RFC 8414, OpenID Connect).
func (i *issuer) readMetadata(ctx context.Context) (endpoints, error) {
	at, err := url.Parse(i.of.URL)
	if err != nil {
		return endpoints{}, err
	}
	path := strings.TrimSuffix(at.Path, "/")
	candidates := []string{"/.well-known/oauth-authorization-server" + path, "/.well-known/openid-configuration" + path, path + "/.well-known/openid-configuration"}
	var last error
	for _, candidate := range slices.Compact(candidates) {
		at.Path = candidate
		answer, err := i.fetch.get(ctx, at.String())
		if last = err; err != nil {
			continue
		}
		var found endpoints
		switch err := protocol.Unmarshal(answer.body, &found); {
		case err != nil:
			last = fmt.Errorf("resource: what is at %s is no metadata", at)
		case found.Issuer != i.of.URL:
			last = fmt.Errorf("resource: the metadata at %s is of another issuer", at)
		default:
			return found, nil
		}
	}
	return endpoints{}, last
}
