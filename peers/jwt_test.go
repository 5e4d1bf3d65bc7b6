//go:build npm

package peers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/go-jose/go-jose/v4"
)

const tokenURL = "https://mcp.example/mcp"

// runJWT runs jwt.mjs.
func runJWT(t *testing.T, task, issuer string, in []byte) []byte {
	t.Helper()
	if err := typeScriptV1.install(); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "node", "jwt.mjs", typeScriptV1.folder(), task, issuer, tokenURL)
	command.Stdin, command.Stderr = bytes.NewReader(in), t.Output()
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTokensOfAnotherLibraryAreTaken checks tokens and DPoP proofs made by jose for JavaScript.
func TestTokensOfAnotherLibraryAreTaken(t *testing.T) {
	as := authtest.New("https://as.example", authtest.Options{Resource: tokenURL})
	var made []struct {
		Key                 json.RawMessage
		Token, Bound, Proof string
	}
	if err := json.Unmarshal(runJWT(t, "make", as.Issuer(), nil), &made); err != nil || len(made) != 5 {
		t.Fatalf("%d, %v", len(made), err)
	}
	var keys []any
	for _, m := range made {
		keys = append(keys, m.Key)
	}
	as.Lie(authtest.Keys, func(a *authtest.Answer) { a.Object["keys"] = keys })
	guard, err := resource.New(resource.Options{URL: tokenURL, Issuers: []resource.Issuer{{URL: as.Issuer()}}, DPoP: resource.DPoPAllowed, HTTP: as.Client()})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range made {
		for _, header := range []http.Header{
			{"Authorization": {"Bearer " + m.Token}},
			{"Authorization": {"DPoP " + m.Bound}, "Dpop": {m.Proof}},
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
			r.Header = header
			caller, denied := guard.Check(r)
			if denied != nil {
				t.Errorf("%s: %s", m.Key, denied.Text)
			} else if p := caller.(*resource.Principal); p.Subject != "ada" || p.Client != "jose" {
				t.Errorf("%s: %+v", m.Key, p)
			}
		}
	}
}

// TestOurTokensAreTakenByAnotherLibrary checks that another library than the one that makes them
// accepts the tokens of authtest, with which the resource server is tested.
func TestOurTokensAreTakenByAnotherLibrary(t *testing.T) {
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.ES384, jose.EdDSA} {
		as := authtest.New("https://as.example", authtest.Options{Resource: tokenURL, Sign: algorithm})
		in, err := json.Marshal(map[string]any{"keys": as.Keys(), "token": as.Issue("ada", "read")})
		if err != nil {
			t.Fatal(err)
		}
		if out := runJWT(t, "verify", as.Issuer(), in); string(out) != "ada\n" {
			t.Errorf("%s: %s", algorithm, out)
		}
	}
}
