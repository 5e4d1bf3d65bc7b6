package resource

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/internal/dpop"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/go-jose/go-jose/v4"
)

// TestKeysFitTheirAlgorithm checks that a key is not used with an algorithm of another kind, if it is
// too short, or for another purpose than signatures.
//
// Guarantees: G-0046.2
func TestKeysFitTheirAlgorithm(t *testing.T) {
	made := func(key any, err error) any {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if private, ok := key.(crypto.Signer); ok {
			return private.Public()
		}
		return key
	}
	elliptic256 := made(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	long := made(rsa.GenerateKey(rand.Reader, 2048))
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	keys := map[string]struct {
		jose.JSONWebKey
		fits []jose.SignatureAlgorithm
	}{
		"RSA":        {jose.JSONWebKey{Key: long}, []jose.SignatureAlgorithm{jose.RS256, jose.PS256}},
		"short RSA":  {jose.JSONWebKey{Key: &rsa.PublicKey{N: new(big.Int).Rsh(long.(*rsa.PublicKey).N, 100), E: 65537}}, nil},
		"long RSA":   {jose.JSONWebKey{Key: &rsa.PublicKey{N: new(big.Int).Lsh(long.(*rsa.PublicKey).N, 8192-2048), E: 65537}}, []jose.SignatureAlgorithm{jose.RS256, jose.PS256}},
		"longer RSA": {jose.JSONWebKey{Key: &rsa.PublicKey{N: new(big.Int).Lsh(long.(*rsa.PublicKey).N, 8192-2047), E: 65537}}, nil},
		"P-256":      {jose.JSONWebKey{Key: elliptic256, Use: "sig"}, []jose.SignatureAlgorithm{jose.ES256}},
		"P-384":      {jose.JSONWebKey{Key: made(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))}, []jose.SignatureAlgorithm{jose.ES384}},
		"Ed25519":    {jose.JSONWebKey{Key: made(edwards, err)}, []jose.SignatureAlgorithm{jose.EdDSA}},
		"encryption": {jose.JSONWebKey{Key: elliptic256, Use: "enc"}, nil},
		"another's":  {jose.JSONWebKey{Key: elliptic256, Algorithm: "ECDH-ES"}, nil},
		"a secret":   {jose.JSONWebKey{Key: []byte("secret")}, nil},
		"of PS256":   {jose.JSONWebKey{Key: made(rsa.GenerateKey(rand.Reader, 2048)), Algorithm: "PS256"}, []jose.SignatureAlgorithm{jose.PS256}},
	}
	for name, key := range keys {
		for _, algorithm := range append(algorithms(), jose.HS256, jose.RS512, "none") {
			want := false
			for _, fitting := range key.fits {
				want = want || fitting == algorithm
			}
			if got := isUsable(key.JSONWebKey, algorithm); got != want {
				t.Errorf("%s and %s: %v", name, algorithm, got)
			}
		}
	}
}

// TestManyKeysAreNotTried checks that a token without a key id is accepted only if one key fits, whatever others there are, and
// that few keys with the same id are tried.
func TestManyKeysAreNotTried(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{keys: []jose.JSONWebKey{{Key: edwards, KeyID: "k"}}} // which is for another algorithm
	for _, want := range []struct{ named, unnamed int }{{0, 0}, {1, 1}, {2, 0}, {3, 0}, {4, 0}, {4, 0}} {
		if got := len(i.candidates(joseHeader{Algorithm: jose.ES256, Key: "k"})); got != want.named {
			t.Errorf("of %d keys, %d are tried for their id", len(i.keys), got)
		}
		if got := len(i.candidates(joseHeader{Algorithm: jose.ES256})); got != want.unnamed {
			t.Errorf("of %d keys, %d are tried without an id", len(i.keys), got)
		}
		i.keys = append(i.keys, jose.JSONWebKey{Key: key.Public(), KeyID: "k"})
	}
}

// TestSignaturesOfOtherKeysAreNotChecked checks that a proof with another key than the token's is
// refused before its signature is checked, which might take long.
//
// Guarantees: G-0046.7
func TestSignaturesOfOtherKeysAreNotChecked(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := jose.JSONWebKey{Key: key.Public()}
	thumbprint, err := dpop.Thumbprint(&public)
	if err != nil {
		t.Fatal(err)
	}
	text, err := public.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"dpop+jwt","jwk":`+string(text)+`}`)) + ".e30.AAAA"
	for of, want := range map[string]string{thumbprint: "resource: the signature of the proof is wrong", "another": "resource: the proof is of another key than the token"} {
		if _, err := readProof(unsigned, of); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func hashOf(n int) (hash [sha256.Size]byte) {
	binary.BigEndian.PutUint64(hash[:], uint64(n))
	return hash
}

// TestTokensMakeRoom checks that a full cache drops the least recently used token.
//
// Guarantees: G-0046.5
func TestTokensMakeRoom(t *testing.T) {
	remembered, later := newTokens(maxTokens), time.Now().Add(time.Hour)
	testenv.Within(t, "the tokens are remembered", func() {
		for n := range maxTokens {
			remembered.add(&cachedToken{hash: hashOf(n), who: &Principal{Expires: later}, until: later})
		}
		remembered.find(hashOf(0))
		remembered.add(&cachedToken{hash: hashOf(maxTokens), who: &Principal{Expires: later}, until: later})
	})
	if len(remembered.by) != maxTokens || remembered.order.Len() != maxTokens {
		t.Errorf("%d and %d tokens are remembered", len(remembered.by), remembered.order.Len())
	}
	if remembered.find(hashOf(0)) == nil || remembered.find(hashOf(1)) != nil || remembered.find(hashOf(maxTokens)) == nil {
		t.Error("the cache did not drop the least recently used token")
	}
}

// TestExpiredTokensMakeRoomFirst checks that a result that was found to have expired does not take the place of one that
// was used longer ago.
//
// Guarantees: G-0046.5
func TestExpiredTokensMakeRoomFirst(t *testing.T) {
	remembered, now := newTokens(2), time.Now()
	remembered.add(&cachedToken{hash: hashOf(0), refused: errUsedBefore, until: now.Add(time.Hour)})
	remembered.add(&cachedToken{hash: hashOf(1), refused: errUsedBefore, until: now})
	if remembered.find(hashOf(1)) != nil {
		t.Error("a result that has expired is used")
	}
	remembered.add(&cachedToken{hash: hashOf(2), refused: errUsedBefore, until: now.Add(time.Hour)})
	if remembered.find(hashOf(0)) == nil || remembered.find(hashOf(2)) == nil {
		t.Error("a result was forgotten for one that has expired")
	}
}

func take(s *proofs, now time.Time, thumbprint string, p *proof) error {
	_, _, err := s.use(now, thumbprint, p)
	return err
}

// TestProofsMakeRoom checks that a nonce is needed when many proofs are remembered, and that with
// many more, proofs are refused that could be used twice.
//
// Guarantees: G-0046.7
func TestProofsMakeRoom(t *testing.T) {
	testenv.Crowd(t)
	s, now := newProofs("https://mcp.example/mcp", false, nil), time.Now()
	fill := func(until int) {
		for n := s.count; n < until; n++ {
			p := &proof{ID: strconv.Itoa(n), IssuedAt: date{now}}
			if s.count >= nonceProofs {
				p.Nonce = s.nonce(s.secrets()[0], now, 0)
			}
			if err := take(s, now, "key "+strconv.Itoa(n%100), p); err != nil {
				t.Fatalf("proof %d: %v", n, err)
			}
		}
	}
	fill(nonceProofs - 1)
	if err := take(s, now, "key", &proof{ID: "1", IssuedAt: date{now}}); err != nil {
		t.Errorf("below the bound: %v", err)
	}
	asked, ok := take(s, now, "key", &proof{ID: "2", IssuedAt: date{now}}).(denial)
	if !ok || asked.code != "use_dpop_nonce" || asked.nonce == "" {
		t.Errorf("at the bound: %+v", asked)
	}
	if err := take(s, now, "key", &proof{ID: "2", IssuedAt: date{now}, Nonce: asked.nonce}); err != nil {
		t.Errorf("with a nonce: %v", err)
	}
	if err := take(s, now, "key", &proof{ID: "1", IssuedAt: date{now}, Nonce: asked.nonce}); err == nil {
		t.Error("a proof was accepted twice")
	}
	fill(maxProofs)
	if away, ok := take(s, now, "key", &proof{ID: "3", IssuedAt: date{now}, Nonce: asked.nonce}).(denial); !ok || !away.unavailable {
		t.Errorf("far beyond the bound: %+v", away)
	}
	later := now.Add(11 * time.Minute)
	if err := take(s, later, "key", &proof{ID: "4", IssuedAt: date{later}}); err != nil || s.count != 1 || len(s.provers) != 1 {
		t.Errorf("eleven minutes later: %v, %d of %d keys are remembered", err, s.count, len(s.provers))
	}
}

// TestBoundsOfProofs has a Guard and a key with so many proofs, and one more.
//
// Guarantees: G-0046.11
func TestBoundsOfProofs(t *testing.T) {
	for _, c := range []struct {
		all, key int
		nonce    bool
		want     string // what the denial says
		status   int
	}{
		{49_999, 4_999, false, "", 0},
		{50_000, 0, false, "the proof needs a nonce of this server", http.StatusUnauthorized},
		{5_000, 5_000, false, "the proof needs a nonce of this server", http.StatusUnauthorized},
		{50_000, 5_000, true, "", 0},
		{249_999, 24_999, true, "", 0},
		{250_000, 24_999, true, "too many proofs are remembered", http.StatusServiceUnavailable},
		{25_000, 25_000, true, "the client sends more proofs than can be remembered", http.StatusTooManyRequests},
	} {
		g, err := New(Options{URL: "https://mcp.example/mcp", Issuers: []Issuer{{URL: "https://as.example"}}, DPoP: DPoPAllowed})
		if err != nil {
			t.Fatal(err)
		}
		s, now := g.proofs, time.Now()
		s.count, s.provers["key"] = c.all, &prover{"key", c.key}
		p := &proof{ID: "x", IssuedAt: date{now}}
		if c.nonce {
			p.Nonce = s.nonce(s.secrets()[0], now, 0)
		}
		status, text := 0, ""
		err = take(s, now, "key", p)
		if err != nil {
			denied := g.denyFor(err, true)
			status, text = denied.Status, denied.Text
		}
		if status != c.status || text != c.want || err == nil && (s.count != c.all+1 || s.provers["key"].count != c.key+1) || err != nil && s.count != c.all {
			t.Errorf("with %d proofs, %d of the key: %d %q, want %d %q; %d are remembered", c.all, c.key, status, text, c.status, c.want, s.count)
		}
	}
}

// TestNoncesOfShortSecrets checks that nobody gets a proof accepted with a nonce of a secret that is
// too short.
//
// Guarantees: G-0046.12
func TestNoncesOfShortSecrets(t *testing.T) {
	long, now := []byte(strings.Repeat("s", minSecret)), time.Now()
	s := newProofs("https://mcp.example/mcp", true, func() [][]byte {
		return [][]byte{long, long[:minSecret-1], nil, []byte(strings.Repeat("t", minSecret))}
	})
	for n, secret := range s.secrets() {
		var err error
		testenv.Within(t, "a proof is remembered", func() {
			err = take(s, now, "key", &proof{ID: strconv.Itoa(n), IssuedAt: date{now}, Nonce: s.nonce(secret, now, 0)})
		})
		if accepted := err == nil; accepted != (len(secret) >= minSecret) {
			t.Errorf("a nonce of a secret of %d bytes: %v", len(secret), err)
		}
	}
}

// TestOneKeyFillsNoMemory checks that only the client that sends too many proofs is refused.
//
// Guarantees: G-0046.11
func TestOneKeyFillsNoMemory(t *testing.T) {
	s, now := newProofs("https://mcp.example/mcp", false, nil), time.Now()
	var last error
	for n := range maxKeyProofs + 1 {
		p := &proof{ID: strconv.Itoa(n), IssuedAt: date{now}}
		if n >= nonceKeyProofs {
			if err, ok := take(s, now, "busy", p).(denial); !ok || err.code != "use_dpop_nonce" {
				t.Fatalf("proof %d without a nonce: %v", n, err)
			}
			p.Nonce = s.nonce(s.secrets()[0], now, 0)
		}
		err := take(s, now, "busy", p)
		if err != nil && n < maxKeyProofs {
			t.Fatalf("proof %d: %v", n, err)
		}
		last = err
	}
	denial := (&Guard{}).denyFor(last, true)
	if denial.Status != http.StatusTooManyRequests || denial.Header.Get("Retry-After") == "" {
		t.Errorf("too many proofs of one key: %+v", denial)
	}
	if err := take(s, now, "calm", &proof{ID: "1", IssuedAt: date{now}}); err != nil {
		t.Errorf("another key: %v", err)
	}
}

// TestManyProofsPerSecond checks that 3,000 proofs of 30 clients are accepted each second, for two
// minutes.
//
// Guarantees: G-0046.11
func TestManyProofsPerSecond(t *testing.T) {
	testenv.Crowd(t)
	s, start := newProofs("https://mcp.example/mcp", false, nil), time.Now()
	asked := 0
	for second := range 120 {
		now := start.Add(time.Duration(second) * time.Second)
		nonce := ""
		for n := range 3000 {
			p, key := &proof{ID: strconv.Itoa(second*3000 + n), IssuedAt: date{now}, Nonce: nonce}, "key "+strconv.Itoa(n%30)
			err := take(s, now, key, p)
			if f, ok := err.(denial); ok && f.nonce != "" {
				asked++
				nonce = f.nonce
				p.Nonce = nonce
				err = take(s, now, key, p)
			}
			if err != nil {
				t.Fatalf("second %d, proof %d: %v, %d are remembered", second, n, err, s.count)
			}
		}
	}
	if asked > 3000 {
		t.Errorf("%d proofs were refused because they needed a nonce", asked)
	}
}

// TestConfirmations checks that a token with an unknown kind of binding is refused.
//
// Guarantees: G-0046.7
func TestConfirmations(t *testing.T) {
	g := &Guard{proofs: newProofs("", false, nil)}
	for raw, want := range map[string]string{`{"jkt":"x"}`: "x", ``: ""} {
		if key, err := g.confirmation([]byte(raw)); err != nil || key != want {
			t.Errorf("%s: %q, %v", raw, key, err)
		}
	}
	for _, raw := range []string{`{}`, `null`, `[]`, `"x"`, `{"jkt":""}`, `{"jkt":1}`, `{"jkt":null}`, `{"jwk":{}}`, `{"jkt":"x","x5t#S256":"y"}`, `{"x5t#S256":"y"}`} {
		if key, err := g.confirmation([]byte(raw)); err == nil {
			t.Errorf("%s: %q is accepted", raw, key)
		}
	}
}

// TestSlotsAreGivenBack checks that an address without a request keeps no slot and no memory.
//
// Guarantees: G-0046.10
func TestSlotsAreGivenBack(t *testing.T) {
	s := newSlots()
	var taken []func()
	testenv.Within(t, "there are slots", func() {
		for range maxIntrospectionsPerAddress {
			taken = append(taken, s.acquire(t.Context(), "a"))
		}
	})
	ended, end := context.WithCancel(t.Context())
	end()
	if s.acquire(ended, "a") != nil {
		t.Error("an address has too many slots")
	}
	for n := range maxIntrospections - maxIntrospectionsPerAddress {
		taken = append(taken, s.acquire(t.Context(), strconv.Itoa(n)))
	}
	if s.acquire(ended, "b") != nil {
		t.Error("there are more slots than there should be")
	}
	for _, giveBack := range taken {
		giveBack()
	}
	if len(s.of) != 0 || len(s.all) != 0 {
		t.Errorf("%d addresses and %d slots are left", len(s.of), len(s.all))
	}
}
