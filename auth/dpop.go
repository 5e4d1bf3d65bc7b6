package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"

	"github.com/bowline-mcp/bowline/auth/internal/dpop"
)

// A prover signs DPoP proofs (RFC 9449) with one key.
type prover struct {
	key    *ecdsa.PrivateKey
	signer jose.Signer
}

// newProver returns a prover with a saved key, or with a new key if there is none.
func newProver(saved Secret) (*prover, error) {
	key, err := proofKey(saved)
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{EmbedJWK: true}).WithType(dpop.Type))
	if err != nil {
		return nil, err
	}
	return &prover{key: key, signer: signer}, nil
}

// proofKey decodes a saved key, or generates one if there is none.
func proofKey(saved Secret) (*ecdsa.PrivateKey, error) {
	if saved.IsZero() {
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	var stored jose.JSONWebKey
	if err := stored.UnmarshalJSON([]byte(saved.Reveal())); err != nil {
		return nil, errors.New("auth: the saved DPoP key cannot be read")
	}
	key, ok := stored.Key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("auth: the saved DPoP key is of another kind")
	}
	return key, nil
}

// save encodes the key for saving.
func (p *prover) save() (Secret, error) {
	key := jose.JSONWebKey{Key: p.key, Algorithm: string(jose.ES256)}
	text, err := key.MarshalJSON()
	return NewSecret(string(text)), err
}

// proofClaims are the claims of a proof.
type proofClaims struct {
	ID       string `json:"jti"`
	Method   string `json:"htm"`
	URL      string `json:"htu"`
	IssuedAt int64  `json:"iat"`
	Token    string `json:"ath,omitempty"`
	Nonce    string `json:"nonce,omitempty"`
}

// proof signs a proof for one request. Token is the access token in that request; "" at
// the token endpoint.
func (p *prover) proof(method string, to *url.URL, token, nonce string) (string, error) {
	claims := proofClaims{
		ID: rand.Text(), Method: method, IssuedAt: time.Now().Unix(), Nonce: nonce,
		URL: (&url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path, RawPath: to.RawPath}).String(),
	}
	if token != "" {
		claims.Token = dpop.TokenHash(token)
	}
	signed, err := jwt.Signed(p.signer).Claims(claims).Serialize()
	if err != nil {
		return "", fmt.Errorf("auth: sign the DPoP proof: %w", err)
	}
	return signed, nil
}

// maxNonces is for how many origins a nonce is remembered.
const maxNonces = 16

// nonces contains the latest DPoP nonces that servers have sent.
type nonces struct {
	mu   sync.Mutex
	last map[string]string // the latest nonces by origin
}

func (n *nonces) of(u *url.URL) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last[origin(u)]
}

// note stores a nonce.
func (n *nonces) note(u *url.URL, nonce string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if nonce == "" || len(nonce) > 1<<10 {
		return
	}
	at := origin(u)
	if _, known := n.last[at]; !known && len(n.last) >= maxNonces || n.last == nil {
		n.last = make(map[string]string)
	}
	n.last[at] = nonce
}

// hasNewer reports whether there is another nonce for a request than the one in the proof
// that it was sent with. Several requests may be refused because of the same old nonce, so
// it does not matter which of them was the first.
func (n *nonces) hasNewer(r *http.Request) bool {
	parts := strings.Split(r.Header.Get("DPoP"), ".")
	if len(parts) != 3 {
		return false // without a proof, a nonce does not help
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var sent proofClaims
	return err == nil && json.Unmarshal(payload, &sent) == nil && n.of(r.URL) != sent.Nonce
}
