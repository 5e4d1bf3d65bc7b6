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
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/internal/dpop"
	"github.com/go-jose/go-jose/v4"
)

// TestKeysFitTheirAlgorithm: no key is used with the algorithm of another kind, too short, or for
// what it is not meant.
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
			if got := fits(key.JSONWebKey, algorithm); got != want {
				t.Errorf("%s and %s: %v", name, algorithm, got)
			}
		}
	}
}

// TestManyKeysAreNotTried: a token that names no key is taken if one fits, and few keys of one
// name are tried.
func TestManyKeysAreNotTried(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{}
	for _, want := range []struct{ named, unnamed int }{{0, 0}, {1, 1}, {2, 0}, {3, 0}, {4, 0}, {4, 0}} {
		if got := len(i.fitting(joseHeader{Algorithm: jose.ES256, Key: "k"})); got != want.named {
			t.Errorf("with %d keys %d are tried for their name", len(i.keys), got)
		}
		if got := len(i.fitting(joseHeader{Algorithm: jose.ES256})); got != want.unnamed {
			t.Errorf("with %d keys %d are tried without a name", len(i.keys), got)
		}
		i.keys = append(i.keys, jose.JSONWebKey{Key: key.Public(), KeyID: "k"})
	}
}

// TestSignaturesOfOtherKeysAreNotChecked: a proof that is not of the token's key is refused for
// that, however long its signature would take to check.
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

func numbered(n int) (hash [sha256.Size]byte) {
	binary.BigEndian.PutUint64(hash[:], uint64(n))
	return hash
}

// TestTokensMakeRoom: the one that was not used for longest is forgotten.
//
// Guarantees: G-0046.5
func TestTokensMakeRoom(t *testing.T) {
	remembered, later := newTokens(mostTokens), time.Now().Add(time.Hour)
	for n := range mostTokens {
		remembered.add(&known{hash: numbered(n), who: &Principal{Expires: later}, until: later})
	}
	remembered.find(numbered(0))
	remembered.add(&known{hash: numbered(mostTokens), who: &Principal{Expires: later}, until: later})
	if len(remembered.by) != mostTokens || remembered.order.Len() != mostTokens {
		t.Errorf("%d and %d tokens are remembered", len(remembered.by), remembered.order.Len())
	}
	if remembered.find(numbered(0)) == nil || remembered.find(numbered(1)) != nil || remembered.find(numbered(mostTokens)) == nil {
		t.Error("another than the one that was not used for longest made room")
	}
}

func take(s *proofs, now time.Time, thumbprint string, p *proof) error {
	_, _, err := s.take(now, thumbprint, p)
	return err
}

// TestProofsMakeRoom: when many are remembered, a nonce is needed; with many more, none is taken
// that could be taken twice.
//
// Guarantees: G-0046.7
func TestProofsMakeRoom(t *testing.T) {
	s, now := newProofs("https://mcp.example/mcp", false, nil), time.Now()
	fill := func(until int) {
		for n := s.count; n < until; n++ {
			p := &proof{ID: strconv.Itoa(n), IssuedAt: date{now}}
			if s.count >= manyProofs {
				p.Nonce = s.nonce(now, 0)
			}
			if err := take(s, now, "key "+strconv.Itoa(n%100), p); err != nil {
				t.Fatalf("proof %d: %v", n, err)
			}
		}
	}
	fill(manyProofs - 1)
	if err := take(s, now, "key", &proof{ID: "1", IssuedAt: date{now}}); err != nil {
		t.Errorf("below the bound: %v", err)
	}
	asked, ok := take(s, now, "key", &proof{ID: "2", IssuedAt: date{now}}).(fault)
	if !ok || asked.code != "use_dpop_nonce" || asked.nonce == "" {
		t.Errorf("at the bound: %+v", asked)
	}
	if err := take(s, now, "key", &proof{ID: "2", IssuedAt: date{now}, Nonce: asked.nonce}); err != nil {
		t.Errorf("with a nonce: %v", err)
	}
	if err := take(s, now, "key", &proof{ID: "1", IssuedAt: date{now}, Nonce: asked.nonce}); err == nil {
		t.Error("a proof was taken twice")
	}
	fill(mostProofs)
	if away, ok := take(s, now, "key", &proof{ID: "3", IssuedAt: date{now}, Nonce: asked.nonce}).(fault); !ok || !away.away {
		t.Errorf("far beyond the bound: %+v", away)
	}
	later := now.Add(11 * time.Minute)
	if err := take(s, later, "key", &proof{ID: "4", IssuedAt: date{later}}); err != nil || s.count != 1 || len(s.of) != 1 {
		t.Errorf("eleven minutes later: %v, %d of %d keys are remembered", err, s.count, len(s.of))
	}
}

// TestOneKeyFillsNoMemory: a client with too many proofs is refused, and no other.
//
// Guarantees: G-0046.11
func TestOneKeyFillsNoMemory(t *testing.T) {
	s, now := newProofs("https://mcp.example/mcp", false, nil), time.Now()
	var last error
	for n := range mostOfKey + 1 {
		p := &proof{ID: strconv.Itoa(n), IssuedAt: date{now}}
		if n >= manyOfKey {
			if err, ok := take(s, now, "busy", p).(fault); !ok || err.code != "use_dpop_nonce" {
				t.Fatalf("proof %d without a nonce: %v", n, err)
			}
			p.Nonce = s.nonce(now, 0)
		}
		err := take(s, now, "busy", p)
		if err != nil && n < mostOfKey {
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

// TestManyProofsPerSecond: 3,000 of 30 clients are taken each second, for two minutes.
//
// Guarantees: G-0046.11
func TestManyProofsPerSecond(t *testing.T) {
	s, start := newProofs("https://mcp.example/mcp", false, nil), time.Now()
	asked := 0
	for second := range 120 {
		now := start.Add(time.Duration(second) * time.Second)
		nonce := ""
		for n := range 3000 {
			p, key := &proof{ID: strconv.Itoa(second*3000 + n), IssuedAt: date{now}, Nonce: nonce}, "key "+strconv.Itoa(n%30)
			err := take(s, now, key, p)
			if f, ok := err.(fault); ok && f.nonce != "" {
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
		t.Errorf("a nonce was asked for %d times", asked)
	}
}

// TestConfirmations: a binding that is not checked here is not ignored.
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
			t.Errorf("%s: %q is taken", raw, key)
		}
	}
}

// TestSlotsAreGivenBack: nothing is kept of an address that has no request.
//
// Guarantees: G-0046.10
func TestSlotsAreGivenBack(t *testing.T) {
	s := newSlots()
	var taken []func()
	for range mostAskedFor {
		taken = append(taken, s.take(t.Context(), "a"))
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if s.take(ended, "a") != nil {
		t.Error("an address has more than its share")
	}
	for n := range mostAsked - mostAskedFor {
		taken = append(taken, s.take(t.Context(), strconv.Itoa(n)))
	}
	if s.take(ended, "b") != nil {
		t.Error("there are more slots than there should be")
	}
	for _, giveBack := range taken {
		giveBack()
	}
	if len(s.of) != 0 || len(s.all) != 0 {
		t.Errorf("%d addresses and %d slots are left", len(s.of), len(s.all))
	}
}
