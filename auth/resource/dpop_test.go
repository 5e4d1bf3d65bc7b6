package resource_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/go-jose/go-jose/v4"
)

func allowed(o *resource.Options) { o.DPoP = resource.DPoPAllowed }

// bound returns a token that is bound to a key.
func bound(t testing.TB, as *authtest.Server, thumbprint string) string {
	t.Helper()
	claims := as.Claims("read")
	claims["cnf"] = map[string]any{"jkt": thumbprint}
	return as.IssueClaims(claims)
}

// TestProofs sends a bound token with valid and invalid proofs.
//
// Guarantees: G-0046.7
func TestProofs(t *testing.T) {
	s := newSite(t, allowed, authtest.Options{})
	key, stranger := newKey(t), newKey(t)
	token := bound(t, s.as, thumbprint(t, key))
	short, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	send := func(proofs ...string) reply {
		t.Helper()
		lines := []string{"Authorization: DPoP " + token}
		for _, proof := range proofs {
			lines = append(lines, "DPoP: "+proof)
		}
		return s.call("whoami", lines...)
	}
	with := func(changes map[string]any) string {
		claims := s.prove(token)
		maps.Copy(claims, changes)
		return signedBy(t, key, jose.ES256, "dpop+jwt", mustJSON(t, claims))
	}
	right := with(nil)
	if r := send(right); r.status != http.StatusOK {
		t.Fatalf("a valid proof: %+v", r)
	}
	now := time.Now()
	for name, changes := range map[string]map[string]any{
		"query":        {"htu": s.url + "?x=1#y"},
		"4 min old":    {"iat": now.Add(-4 * time.Minute).Unix()},
		"4 min ahead":  {"iat": now.Add(4 * time.Minute).Unix()},
		"more members": {"content_digest": "x"},
	} {
		if r := send(with(changes)); r.status != http.StatusOK {
			t.Errorf("%s: %+v", name, r)
		}
	}
	claims := mustJSON(t, s.prove(token))
	private := signedWithHeader(t, key, jose.ES256, s.prove(token), map[jose.HeaderKey]any{"typ": "dpop+jwt", "jwk": jose.JSONWebKey{Key: key}})
	for name, proofs := range map[string][]string{
		"none":             nil,
		"two":              {with(nil), with(nil)},
		"again":            {right},
		"no JWT":           {"proof"},
		"another key":      {signedBy(t, stranger, jose.ES256, "dpop+jwt", claims)},
		"another kind":     {signedBy(t, short, jose.RS256, "dpop+jwt", claims)},
		"another type":     {signedBy(t, key, jose.ES256, "JWT", claims)},
		"no key":           {signedWithHeader(t, key, jose.ES256, s.prove(token), map[jose.HeaderKey]any{"typ": "dpop+jwt"})},
		"a private key":    {private},
		"alg none":         {encode(`{"alg":"none","typ":"dpop+jwt"}`) + "." + encode(string(claims)) + "."},
		"signature cut":    {with(nil)[:200]},
		"method":           {with(map[string]any{"htm": "GET"})},
		"method's case":    {with(map[string]any{"htm": "post"})},
		"URL":              {with(map[string]any{"htu": "https://other.example/mcp"})},
		"path":             {with(map[string]any{"htu": s.url + "/x"})},
		"another token":    {with(map[string]any{"ath": s.prove(token + "x")["ath"]})},
		"no token":         {with(map[string]any{"ath": ""})},
		"no id":            {with(map[string]any{"jti": ""})},
		"a long id":        {with(map[string]any{"jti": strings.Repeat("x", 300)})},
		"6 min old":        {with(map[string]any{"iat": now.Add(-6 * time.Minute).Unix()})},
		"6 min ahead":      {with(map[string]any{"iat": now.Add(6 * time.Minute).Unix()})},
		"no time":          {with(map[string]any{"iat": 0})},
		"a time in text":   {with(map[string]any{"iat": "now"})},
		"9 KiB":            {with(map[string]any{"x": strings.Repeat("x", 9<<10)})},
		"claims of a list": {signedBy(t, key, jose.ES256, "dpop+jwt", []byte(`[]`))},
	} {
		r := send(proofs...)
		s.wantChallenge(r, http.StatusUnauthorized, "invalid_dpop_proof")
		if t.Failed() {
			t.Fatalf("%s was not refused", name)
		}
		if challenges := r.header["Www-Authenticate"]; len(challenges) != 2 || !strings.HasPrefix(challenges[0], "DPoP ") || !strings.HasPrefix(challenges[1], "Bearer ") {
			t.Errorf("%s: the challenges are %q", name, challenges)
		}
	}
	s.wantChallenge(s.call("whoami", bearer(token), "DPoP: "+with(nil)), http.StatusUnauthorized, "invalid_token")
	plain := s.as.Issue("ada", "read")
	s.wantChallenge(s.call("whoami", "Authorization: DPoP "+plain, "DPoP: "+with(nil)), http.StatusUnauthorized, "invalid_token")
	if r := s.call("whoami", bearer(plain)); r.status != http.StatusOK {
		t.Errorf("a bearer token where DPoP is allowed: %+v", r)
	}
}

// proving is a client with a bound token, and a Guard without a network.
type proving struct {
	t     testing.TB
	g     *resource.Guard
	token string
	sign  func(claims map[string]any) string
	site  *site
}

func newProving(t *testing.T, change func(*resource.Options)) (*proving, *authtest.Server) {
	g, as := newGuard(t, change, authtest.Options{Life: 100 * time.Hour})
	key := newKey(t)
	p := &proving{t: t, g: g, token: bound(t, as, thumbprint(t, key)), site: &site{t: t, url: "https://mcp.example/mcp"}}
	p.sign = func(claims map[string]any) string {
		return signedBy(t, key, jose.ES256, "dpop+jwt", mustJSON(t, claims))
	}
	return p, as
}

// send returns the status, and the nonce that the Guard requires.
func (p *proving) send(proof string) (status int, nonce string) {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), http.MethodPost, "/mcp", nil)
	r.Header.Set("Authorization", "DPoP "+p.token)
	r.Header.Set("DPoP", proof)
	if _, denied := p.g.Check(r); denied != nil {
		return denied.Status, denied.Header.Get("Dpop-Nonce")
	}
	return http.StatusOK, ""
}

func (p *proving) proof(nonce string) string {
	claims := p.site.prove(p.token)
	if nonce != "" {
		claims["nonce"] = nonce
	}
	return p.sign(claims)
}

// TestNonces checks that a proof needs a current nonce.
//
// Guarantees: G-0046.7
func TestNonces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newProving(t, func(o *resource.Options) { o.DPoP, o.DPoPNonces = resource.DPoPRequired, true })
		got, nonce := p.send(p.proof(""))
		if got != http.StatusUnauthorized || nonce == "" {
			t.Fatalf("without a nonce: %d, %q", got, nonce)
		}
		first := p.proof(nonce)
		if got, _ := p.send(first); got != http.StatusOK || len(nonce) < 22 {
			t.Errorf("with a nonce of %d letters, of 6 bits each: %d", len(nonce), got)
		}
		if got, more := p.send(first); got != http.StatusUnauthorized || more != "" {
			t.Errorf("again: %d, %q", got, more)
		}
		sleep(30 * time.Second)
		if got, _ := p.send(p.proof(nonce)); got != http.StatusOK {
			t.Errorf("with the nonce before: %d", got)
		}
		sleep(30 * time.Second)
		for _, old := range []string{nonce, "invented"} {
			if got, more := p.send(p.proof(old)); got != http.StatusUnauthorized || more == "" || more == nonce {
				t.Errorf("with the nonce %q: %d, %q", old, got, more)
			}
		}
	})
}

// TestRefusedProofIsNotShared checks that a proof without a nonce is refused although nodes share the
// proofs that they accept, and is not remembered.
//
// Guarantees: G-0046.7, G-0046.14
func TestRefusedProofIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &sharedProofs{until: make(map[resource.ProofID]time.Time)}
		p, _ := newProving(t, func(o *resource.Options) {
			o.DPoP, o.DPoPNonces, o.DPoPProofs = resource.DPoPRequired, true, shared
		})
		got, nonce := p.send(p.proof(""))
		if got != http.StatusUnauthorized || nonce == "" || len(shared.until) != 0 {
			t.Errorf("without a nonce: %d, %q, and %d proofs are shared, want 401, a nonce and none", got, nonce, len(shared.until))
		}
		if got, _ := p.send(p.proof(nonce)); got != http.StatusOK || len(shared.until) != 1 {
			t.Errorf("with it: %d, and %d proofs are shared, want 200 and one", got, len(shared.until))
		}
	})
}

// TestNodesShareNonces checks that nodes that share a secret accept each other's nonces, and that
// nodes without a secret do not. New nonces come from the first secret.
//
// Guarantees: G-0046.12
func TestNodesShareNonces(t *testing.T) {
	secret, next := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	for name, c := range map[string]struct {
		url           string
		first, second func() [][]byte
		taken, same   bool
	}{
		"one secret":        {"https://mcp.example/mcp", secretsOf(secret), secretsOf(bytes.Clone(secret)), true, true},
		"another secret":    {"https://mcp.example/mcp", secretsOf(secret), secretsOf(next), false, false},
		"one more":          {"https://mcp.example/mcp", secretsOf(secret), secretsOf(secret, next), true, true},
		"a new first one":   {"https://mcp.example/mcp", secretsOf(secret, next), secretsOf(next, secret), true, false},
		"none":              {"https://mcp.example/mcp", nil, nil, false, false},
		"of another server": {"https://mcp.example/other", secretsOf(secret), secretsOf(secret), false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			node := func(url string, secrets func() [][]byte) *proving {
				p, _ := newProving(t, func(o *resource.Options) {
					o.URL, o.DPoP, o.DPoPNonces, o.DPoPSecrets = url, resource.DPoPRequired, true, secrets
					o.Audiences = []string{"https://mcp.example/mcp"}
				})
				p.site.url = url
				return p
			}
			first, second := node("https://mcp.example/mcp", c.first), node(c.url, c.second)
			_, nonce := first.send(first.proof(""))
			if got, _ := second.send(second.proof(nonce)); nonce == "" || (got == http.StatusOK) != c.taken {
				t.Errorf("%s: status %d with the nonce %q", name, got, nonce)
			}
			if _, again := second.send(second.proof("")); again == "" || (again == nonce) != c.same {
				t.Errorf("%s: the nonces are %q and %q", name, nonce, again)
			}
		})
	}
	for text, secrets := range map[string]func() [][]byte{"31 bytes": secretsOf(secret, secret[:31]), "there is no secret": secretsOf()} {
		_, err := resource.New(resource.Options{URL: "https://mcp.example/mcp", Issuers: []resource.Issuer{{URL: "https://as.example"}}, DPoPSecrets: secrets})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
}

func secretsOf(secrets ...[]byte) func() [][]byte { return func() [][]byte { return secrets } }

// TestSecretsOfNoncesRotate checks that the secrets of a Guard are replaced while it is in use,
// that nonces of a removed one are refused, and that without a secret, and with a short one,
// no nonce is accepted or given.
//
// Guarantees: G-0046.12
func TestSecretsOfNoncesRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
		secrets := [][]byte{old}
		p, _ := newProving(t, func(o *resource.Options) {
			o.DPoP, o.DPoPNonces, o.DPoPSecrets = resource.DPoPRequired, true, func() [][]byte { return secrets }
		})
		_, first := p.send(p.proof(""))
		secrets = [][]byte{next, old}
		got, _ := p.send(p.proof(first))
		wantStatus(t, "the nonce of the old secret", got, http.StatusOK)
		_, second := p.send(p.proof(""))
		if second == first || second == "" {
			t.Errorf("the new secret gives the nonce %q, and the old one %q", second, first)
		}
		secrets = [][]byte{next}
		got, _ = p.send(p.proof(second))
		wantStatus(t, "the nonce of the new secret", got, http.StatusOK)
		got, _ = p.send(p.proof(first))
		wantStatus(t, "the nonce of a secret that was removed", got, http.StatusUnauthorized)
		for name, none := range map[string][][]byte{"no secret": nil, "an empty secret": {{}}, "a short secret": {next[:31]}} {
			secrets = none
			got, nonce := p.send(p.proof(second))
			if wantStatus(t, name, got, http.StatusServiceUnavailable); nonce != "" {
				t.Errorf("%s gives the nonce %q", name, nonce)
			}
		}
	})
}

// sharedProofs are the proofs that nodes share.
type sharedProofs struct {
	mu    sync.Mutex
	until map[resource.ProofID]time.Time
	err   error
	hangs bool
}

func (s *sharedProofs) Take(ctx context.Context, id resource.ProofID, until time.Time) (bool, error) {
	if s.hangs {
		<-ctx.Done()
		return false, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, before := s.until[id]
	s.until[id] = until
	return !before && s.err == nil, s.err
}

// TestNodesShareProofs checks that a proof that one node has accepted is refused by another, and
// that no proof is accepted while the shared store fails.
//
// Guarantees: G-0046.14
func TestNodesShareProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &sharedProofs{until: make(map[resource.ProofID]time.Time)}
		first, as := newProving(t, func(o *resource.Options) { o.DPoP, o.DPoPProofs = resource.DPoPAllowed, shared })
		node := func(proofs resource.Proofs) *proving {
			g, err := resource.New(resource.Options{
				URL: "https://mcp.example/mcp", Issuers: []resource.Issuer{{URL: as.Issuer()}}, HTTP: as.Client(), DPoP: resource.DPoPAllowed, DPoPProofs: proofs,
			})
			if err != nil {
				t.Fatal(err)
			}
			return &proving{t: t, g: g, token: first.token, sign: first.sign, site: first.site}
		}
		alone, second := node(nil), node(shared)
		proof := first.proof("")
		for _, c := range []struct {
			what   string
			node   *proving
			status int
		}{
			{"fresh", first, http.StatusOK},
			{"again", first, http.StatusUnauthorized},
			{"at another node", second, http.StatusUnauthorized},
			{"at a node that shares nothing", alone, http.StatusOK},
		} {
			got, _ := c.node.send(proof)
			wantStatus(t, c.what, got, c.status)
		}
		if len(shared.until) != 1 {
			t.Errorf("%d proofs are shared", len(shared.until))
		}
		for _, until := range shared.until {
			if left := time.Until(until); left <= 0 || left > 5*time.Minute {
				t.Errorf("the proof is remembered for %v", left)
			}
		}
		shared.err = errors.New("the database is away")
		got, _ := second.send(first.proof(""))
		wantStatus(t, "while it cannot be found out", got, http.StatusServiceUnavailable)
		shared.err, shared.hangs = nil, true
		before := time.Now()
		got, _ = second.send(first.proof(""))
		wantStatus(t, "while nobody answers", got, http.StatusServiceUnavailable)
		if waited := time.Since(before); waited != 10*time.Second {
			t.Errorf("waited for %v", waited)
		}
	})
}

// TestAProofIsTakenOnce checks that a proof is not accepted again from any sender before it expires.
//
// Guarantees: G-0046.7
func TestAProofIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newProving(t, allowed)
		claims := p.site.prove(p.token)
		claims["iat"] = time.Now().Add(4 * time.Minute).Unix()
		proof := p.sign(claims)
		var taken atomic.Int32
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if got, _ := p.send(proof); got == http.StatusOK {
					taken.Add(1)
				}
			})
		}
		all.Wait()
		if n := taken.Load(); n != 1 {
			t.Errorf("one proof was accepted %d times at once", n)
		}
		for range 20 {
			sleep(30 * time.Second)
			if got, _ := p.send(proof); got == http.StatusOK {
				t.Fatal("a proof was accepted again")
			}
		}
		if got, _ := p.send(p.proof("")); got != http.StatusOK {
			t.Errorf("another proof: %d", got)
		}
	})
}

// TestBearerWhereProofsAreRequired checks that a token without a proof is refused.
//
// Guarantees: G-0046.7
func TestBearerWhereProofsAreRequired(t *testing.T) {
	g, as := newGuard(t, func(o *resource.Options) { o.DPoP = resource.DPoPRequired }, authtest.Options{})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
	for i, header := range []string{"", "Bearer " + as.Issue("ada", "read"), "Bearer " + bound(t, as, "x")} {
		r.Header.Set("Authorization", header)
		_, denied := g.Check(r)
		if denied == nil || denied.Status != http.StatusUnauthorized {
			t.Fatal(strconv.Itoa(i) + " was accepted")
		}
		if challenges := denied.Header["Www-Authenticate"]; len(challenges) != 1 || !strings.HasPrefix(challenges[0], `DPoP algs="`) {
			t.Errorf("the challenges are %q", challenges)
		}
	}
}
