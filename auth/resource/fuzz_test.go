package resource_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/go-jose/go-jose/v4"
)

// refusals checks the response to an invalid request: it has a status of the specification and a
// valid challenge, and repeats nothing of the request.
func refusals(t *testing.T, g *resource.Guard, header http.Header, secrets ...string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
	r.Header = header
	caller, denied := g.Check(r)
	if denied == nil {
		t.Fatalf("%q was accepted as %q", header, caller.Identity())
	}
	challenge := denied.Header.Get("Www-Authenticate")
	switch {
	case denied.Status != http.StatusUnauthorized && denied.Status != http.StatusBadRequest:
		t.Errorf("status %d", denied.Status)
	case !strings.Contains(challenge, `resource_metadata="https://mcp.example/.well-known/oauth-protected-resource/mcp"`):
		t.Errorf("the challenge is %q", challenge)
	}
	for _, secret := range secrets {
		if len(secret) > 40 && strings.Contains(denied.Text+challenge, secret) {
			t.Errorf("%q is repeated", secret)
		}
	}
}

// FuzzAuthorization checks that no header without an issued token is accepted.
//
// Guarantees: G-0046.2, G-0046.9
func FuzzAuthorization(f *testing.F) {
	g, as := newGuard(f, allowed, authtest.Options{})
	for _, seed := range []string{"", "Bearer", "Bearer ", "bearer x", "DPoP x", "Basic YTpi", "Bearer a.b.c", "Bearer a.b.c.d.e", "Bearer \x00", "Bearer " + as.Signed("at+jwt", map[string]any{"iss": as.Issuer()})} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		refusals(t, g, http.Header{"Authorization": {header}}, header)
	})
}

// FuzzTokenHeader signs valid claims under any header. Only the header of the issuer's key is
// accepted.
//
// Guarantees: G-0046.2
func FuzzTokenHeader(f *testing.F) {
	g, as := newGuard(f, nil, authtest.Options{})
	parts := strings.Split(as.Issue("ada", "read"), ".")
	for _, seed := range []string{`{"alg":"none"}`, `{"alg":"HS256","kid":"key-1"}`, `{"alg":"ES256","kid":"key-1","crit":["exp"]}`, `{"alg":["ES256"]}`, `{"alg":"ES256","alg":"none"}`, `{`, `null`,
		`{"alg":"ES256","jwk":{"kty":"EC"}}`, `{"alg":"ES256","kid":"../../x","jku":"https://evil.example"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		encoded := encode(header)
		if encoded == parts[0] {
			return
		}
		refusals(t, g, http.Header{"Authorization": {"Bearer " + encoded + "." + parts[1] + "." + parts[2]}})
	})
}

// FuzzProof sends any claims as a proof of the right key. None is accepted, because no generated
// claims are for this token.
//
// Guarantees: G-0046.7
func FuzzProof(f *testing.F) {
	g, as := newGuard(f, allowed, authtest.Options{})
	key := newKey(f)
	token := bound(f, as, thumbprint(f, key))
	for _, seed := range []string{`{}`, `[]`, `{"htm":"POST","htu":"https://mcp.example/mcp","jti":"1","iat":1e99,"ath":"x"}`, `{"iat":"now"}`, `{"htu":1}`, `{"jti":"1","jti":"2"}`, "\xff"} {
		f.Add([]byte(seed), "dpop+jwt")
	}
	f.Fuzz(func(t *testing.T, claims []byte, kind string) {
		proof := signedBy(t, key, jose.ES256, kind, claims)
		refusals(t, g, http.Header{"Authorization": {"DPoP " + token}, "Dpop": {proof}}, token, proof)
	})
}
