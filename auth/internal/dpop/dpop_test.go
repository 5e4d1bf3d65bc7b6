package dpop_test

import (
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/bowline-mcp/bowline/auth/internal/dpop"
)

// The token and the key are those of RFC 9449: figures 2, 12 and 13.
func TestHashesOfTheSpecification(t *testing.T) {
	const token, hash = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU", "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"
	if got := dpop.TokenHash(token); got != hash {
		t.Errorf("ath %s, want %s", got, hash)
	}
	key := new(jose.JSONWebKey)
	if err := key.UnmarshalJSON([]byte(`{"kty":"EC","x":"l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs","y":"9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA","crv":"P-256"}`)); err != nil {
		t.Fatal(err)
	}
	const thumbprint = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
	if got, err := dpop.Thumbprint(key); err != nil || got != thumbprint {
		t.Errorf("jkt %s, %v, want %s", got, err, thumbprint)
	}
	if _, err := dpop.Thumbprint(&jose.JSONWebKey{Key: "no key"}); err == nil {
		t.Error("a value that is no key has a thumbprint")
	}
}
