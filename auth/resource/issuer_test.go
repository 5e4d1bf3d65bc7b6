package resource_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/go-jose/go-jose/v4"
)

// newGuard returns a Guard and the authorization server behind it, without a network.
func newGuard(t testing.TB, change func(*resource.Options), of authtest.Options) (*resource.Guard, *authtest.Server) {
	t.Helper()
	of.Resource = "https://mcp.example/mcp"
	as := authtest.New("https://as.example", of)
	o := resource.Options{URL: of.Resource, Issuers: []resource.Issuer{{URL: as.Issuer()}}, HTTP: as.Client()}
	if change != nil {
		change(&o)
	}
	guard, err := resource.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return guard, as
}

// status returns the status for a request with headers: 200 if it is accepted.
func status(t testing.TB, g *resource.Guard, lines ...string) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	if _, denied := g.Check(r); denied != nil {
		return denied.Status
	}
	return http.StatusOK
}

func wantStatus(t testing.TB, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: status %d, want %d", what, got, want)
	}
}

// sleep lets the time of a bubble of testing/synctest pass.
func sleep(d time.Duration) { <-time.NewTimer(d).C }

func serverError(a *authtest.Answer) {
	a.Status, a.Body = http.StatusInternalServerError, []byte("down")
}

// A hangingIssuer answers nothing.
type hangingIssuer struct {
	t     *testing.T
	asked *atomic.Int64
}

func (h hangingIssuer) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.asked.Add(1) > 20 {
		h.t.Fatal("the issuer is asked again without a pause")
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestAnIssuerThatHangs checks that the pause after a failure begins when the fetch has failed, and
// not when it began.
//
// Guarantees: G-0046.4
func TestAnIssuerThatHangs(t *testing.T) {
	testHangingIssuer(t, nil, authtest.Options{})
}

func testHangingIssuer(t *testing.T, change func(*resource.Options), of authtest.Options) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		g, as := newGuard(t, func(o *resource.Options) {
			if change != nil {
				change(o)
			}
			o.HTTP = &http.Client{Transport: hangingIssuer{t, &asked}}
		}, of)
		start := time.Now()
		check := func(what string, want time.Duration) {
			t.Helper()
			wantStatus(t, what, status(t, g, bearer(as.Issue("ada", "read"))), http.StatusServiceUnavailable)
			if at := time.Since(start); at != want {
				t.Errorf("%s: answered after %v, want %v", what, at, want)
			}
		}
		check("the first", 10*time.Second)
		first := asked.Load()
		check("at once", 10*time.Second)
		sleep(5*time.Second - 1)
		check("almost 5 s later", 15*time.Second-1)
		if n := asked.Load(); n != first {
			t.Errorf("within 5 s after the failure the issuer got %d requests", n-first)
		}
		sleep(1)
		check("after the pause", 25*time.Second)
		if asked.Load() == first {
			t.Error("5 s after the failure the issuer was not asked again")
		}
	})
}

// TestLyingIssuers checks that false metadata is refused, and that its size is bounded.
//
// Guarantees: G-0046.2, G-0046.4
func TestLyingIssuers(t *testing.T) {
	metadata := func(name string, value any) authtest.Lie { return func(a *authtest.Answer) { a.Object[name] = value } }
	raw := func(kind string, body []byte) authtest.Lie {
		return func(a *authtest.Answer) { a.Body = body; a.Header.Set("Content-Type", kind) }
	}
	for name, lie := range map[string]struct {
		authtest.Endpoint
		authtest.Lie
	}{
		"another issuer":   {authtest.Metadata, metadata("issuer", "https://other.example")},
		"issuer and slash": {authtest.Metadata, metadata("issuer", "https://as.example/")},
		"no keys there":    {authtest.Metadata, metadata("jwks_uri", "https://as.example/nothing")},
		"keys are a list":  {authtest.Metadata, metadata("jwks_uri", []string{"https://as.example/keys"})},
		"metadata is HTML": {authtest.Metadata, raw("text/html", []byte("<html>"))},
		"keys as HTML":     {authtest.Keys, raw("text/html", []byte(`{"keys":[]}`))},
		"keys are null":    {authtest.Keys, raw("application/json", []byte(`{"keys":null}`))},
		"keys twice":       {authtest.Keys, raw("application/json", []byte(`{"keys":[],"keys":[]}`))},
		"300 KiB of keys":  {authtest.Keys, raw("application/json", append([]byte(`{"keys":[],"x":"`), append(bytes.Repeat([]byte("x"), 300<<10), `"}`...)...))},
		"no keys":          {authtest.Keys, raw("application/json", []byte(`{"keys":[]}`))},
		"secret keys":      {authtest.Keys, raw("application/json", []byte(`{"keys":[{"kty":"oct","k":"AAAA","kid":"key-1"}]}`))},
		"of encryption":    {authtest.Keys, raw("application/json", []byte(`{"keys":[{"kty":"EC","use":"enc","kid":"key-1"}]}`))},
	} {
		g, as := newGuard(t, nil, authtest.Options{})
		as.Lie(lie.Endpoint, lie.Lie)
		if got := status(t, g, bearer(as.Issue("ada", "read"))); got != http.StatusServiceUnavailable && got != http.StatusUnauthorized {
			t.Errorf("%s: status %d", name, got)
		}
	}
}

// TestAKeySetOfHundreds checks that the key of a token is found in a large key set, and that a token
// with an unknown key id or none is refused.
//
// Guarantees: G-0046.2, G-0046.4
func TestAKeySetOfHundreds(t *testing.T) {
	g, as := newGuard(t, nil, authtest.Options{})
	as.Lie(authtest.Keys, func(a *authtest.Answer) {
		keys, stranger := as.Keys(), newKey(t)
		for n := range 1500 {
			keys.Keys = append([]jose.JSONWebKey{{Key: stranger.Public(), KeyID: "k" + strconv.Itoa(n)}}, keys.Keys...)
		}
		a.Body = mustJSON(t, keys)
		a.Header.Set("Content-Type", "application/jwk-set+json")
	})
	wantStatus(t, "among 1,500", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
	parts := strings.Split(as.Issue("eve", "read"), ".")
	for _, header := range []string{`{"alg":"ES256","kid":"k7"}`, `{"alg":"ES256"}`, `{"alg":"ES256","kid":"k1500"}`} {
		wantStatus(t, header, status(t, g, bearer(encode(header)+"."+parts[1]+"."+parts[2])), http.StatusUnauthorized)
	}
	if n := len(as.Sink.Requests(authtest.Keys)); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
}

// TestIntrospection checks that tokens are introspected, and that the result is cached for half a
// minute.
//
// Guarantees: G-0046.2, G-0046.5
func TestIntrospection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, func(o *resource.Options) {
			o.Issuers[0].Introspect = &resource.Introspection{ClientID: "server", ClientSecret: "s:e cret"}
		}, authtest.Options{Opaque: true, Clients: []authtest.Client{{ID: "server", Secret: "s:e cret"}}})
		token := as.Issue("ada", "read")
		for range 10 {
			wantStatus(t, "an opaque token", status(t, g, bearer(token)), http.StatusOK)
		}
		if n := len(as.Sink.Requests(authtest.Introspect)); n != 1 {
			t.Errorf("one token was introspected %d times", n)
		}
		wantStatus(t, "an unknown token", status(t, g, bearer("unknown")), http.StatusUnauthorized)
		as.RevokeAll()
		sleep(29 * time.Second)
		wantStatus(t, "revoked 29 s ago", status(t, g, bearer(token)), http.StatusOK)
		sleep(time.Second)
		wantStatus(t, "revoked 30 s ago", status(t, g, bearer(token)), http.StatusUnauthorized)

		for name, lie := range map[string]struct {
			authtest.Lie
			status int
		}{
			"another audience": {func(a *authtest.Answer) { a.Object["aud"] = "https://other.example" }, http.StatusUnauthorized},
			"no audience":      {func(a *authtest.Answer) { delete(a.Object, "aud") }, http.StatusUnauthorized},
			"another issuer":   {func(a *authtest.Answer) { a.Object["iss"] = "https://other.example" }, http.StatusUnauthorized},
			"no issuer":        {func(a *authtest.Answer) { delete(a.Object, "iss") }, http.StatusOK},
			"no expiry":        {func(a *authtest.Answer) { delete(a.Object, "exp") }, http.StatusOK},
			"expired":          {func(a *authtest.Answer) { a.Object["exp"] = time.Now().Add(-61 * time.Second).Unix() }, http.StatusUnauthorized},
			"active is a text": {func(a *authtest.Answer) { a.Object["active"] = "true" }, http.StatusUnauthorized},
			"active is absent": {func(a *authtest.Answer) { delete(a.Object, "active") }, http.StatusUnauthorized},
			"HTML":             {func(a *authtest.Answer) { a.Body = []byte("<html>") }, http.StatusServiceUnavailable},
			"down":             {serverError, http.StatusServiceUnavailable},
			"we are refused":   {func(a *authtest.Answer) { a.Status = http.StatusUnauthorized }, http.StatusServiceUnavailable},
		} {
			as.Lie(authtest.Introspect, lie.Lie)
			wantStatus(t, name, status(t, g, bearer(as.Issue("ada", "read"))), lie.status)
		}
	})
}

// TestVerifiedTokensAreForgotten checks that a verified token is cached for at most a minute, and not
// after its expiry.
//
// Guarantees: G-0046.5
func TestVerifiedTokensAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, func(o *resource.Options) { o.Leeway = -1 }, authtest.Options{})
		claims := as.Claims("read")
		claims["exp"] = time.Now().Add(20 * time.Second).Unix()
		short, long := as.IssueClaims(claims), as.Issue("ada", "read")
		wantStatus(t, "fresh", status(t, g, bearer(short)), http.StatusOK)
		wantStatus(t, "fresh", status(t, g, bearer(long)), http.StatusOK)
		sleep(20 * time.Second)
		wantStatus(t, "expired", status(t, g, bearer(short)), http.StatusUnauthorized)
		wantStatus(t, "remembered", status(t, g, bearer(long)), http.StatusOK)
		as.RotateKey(true)
		sleep(15 * time.Second) // the token of an unknown key makes the Guard fetch keys, so that the old one is gone
		wantStatus(t, "another key", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
		sleep(24 * time.Second)
		wantStatus(t, "remembered for 59 s", status(t, g, bearer(long)), http.StatusOK)
		sleep(time.Second)
		wantStatus(t, "remembered for 60 s", status(t, g, bearer(long)), http.StatusUnauthorized)
	})
}

// TestARememberedTokenCostsLittle checks that a cached token costs at most two allocations.
//
// Guarantees: G-0046.5
func TestARememberedTokenCostsLittle(t *testing.T) {
	g, as := newGuard(t, nil, authtest.Options{})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+as.Issue("ada", "read"))
	check := func() {
		if _, denied := g.Check(r); denied != nil {
			t.Error(denied.Text)
		}
	}
	check()
	if n := testing.AllocsPerRun(100, check); n > 2 {
		t.Errorf("%v allocations", n)
	}
}
