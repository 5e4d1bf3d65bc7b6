// Package dpop has what both sides of a DPoP proof (RFC 9449) have to compute alike: the
// client that signs it, and the server that checks it.
package dpop

import (
	"crypto"
	"crypto/sha256"
	"encoding/base64"

	"github.com/go-jose/go-jose/v4"
)

// Type is the typ of a proof.
const Type = "dpop+jwt"

// TokenHash returns the claim ath of a proof that goes along with an access token: the
// base64url text of its SHA-256.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Thumbprint returns the claim jkt of a token that is bound to a key: the base64url text
// of the key's SHA-256 (RFC 7638). Of a private key it is that of its public half.
func Thumbprint(key *jose.JSONWebKey) (string, error) {
	sum, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}
