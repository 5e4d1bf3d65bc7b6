package resource_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/go-jose/go-jose/v4"
)

// BenchmarkCheck checks the token of a request: one that was checked before, one that is new, one with a new proof of DPoP, and one that
// the authorization server is asked about, in this process, for each request.
func BenchmarkCheck(b *testing.B) {
	b.Run("known token", func(b *testing.B) {
		g, as := newGuard(b, nil, authtest.Options{})
		token := as.Issue("ada", "read")
		measureCheck(b, g, func() (string, string) { return "Bearer " + token, "" })
	})
	b.Run("new token", func(b *testing.B) {
		g, as := newGuard(b, nil, authtest.Options{})
		measureCheck(b, g, func() (string, string) { return "Bearer " + as.Issue("ada", "read"), "" })
	})
	b.Run("new proof", func(b *testing.B) {
		g, as := newGuard(b, func(o *resource.Options) { o.DPoP = resource.DPoPRequired }, authtest.Options{Life: 100 * time.Hour})
		key := newKey(b)
		token, at := bound(b, as, thumbprint(b, key)), &site{url: "https://mcp.example/mcp"}
		measureCheck(b, g, func() (string, string) {
			return "DPoP " + token, signedBy(b, key, jose.ES256, "dpop+jwt", mustJSON(b, at.prove(token)))
		})
	})
	b.Run("introspection", func(b *testing.B) {
		g, as := newGuard(b, introspecting, opaque())
		measureCheck(b, g, func() (string, string) { return "Bearer " + as.Issue("ada", "read"), "" })
	})
}

// measureCheck measures Check alone, and not what makes the request.
func measureCheck(b *testing.B, g *resource.Guard, next func() (authorization, proof string)) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/mcp", nil)
		authorization, proof := next()
		r.Header.Set("Authorization", authorization)
		if proof != "" {
			r.Header.Set("DPoP", proof)
		}
		b.StartTimer()
		if _, denied := g.Check(r); denied != nil {
			b.Fatalf("%d %s", denied.Status, denied.Header)
		}
	}
}
