package resource_test

import (
	"bytes"
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

// TestKeysAreFetchedWhenTheyAreNeeded checks that rotated keys are fetched, and that invalid tokens
// cannot make the Guard fetch keys too often.
//
// Guarantees: G-0046.4
func TestKeysAreFetchedWhenTheyAreNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, nil, authtest.Options{Life: 100 * time.Hour})
		fetched := func() int { return len(as.Sink.Requests(authtest.Keys)) }
		first := as.Issue("ada", "read")
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { wantStatus(t, "at once", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK) })
		}
		all.Wait()
		if n := fetched(); n != 1 {
			t.Errorf("for 50 requests at once the keys were fetched %d times", n)
		}

		as.RotateKey(false)
		rotated := as.Issue("ada", "read")
		for range 100 {
			wantStatus(t, "a new key, at once", status(t, g, bearer(rotated)), http.StatusUnauthorized)
		}
		if n := fetched(); n != 1 {
			t.Errorf("for unknown keys the keys were fetched %d times within 30 s", n)
		}
		sleep(30 * time.Second)
		wantStatus(t, "a new key, after 30 s", status(t, g, bearer(rotated)), http.StatusOK)
		wantStatus(t, "the old key, still in the set", status(t, g, bearer(first)), http.StatusOK)
		if n := fetched(); n != 2 {
			t.Errorf("the keys were fetched %d times, want 2", n)
		}
		as.RotateKey(true)
		sleep(6 * time.Minute) // beyond the life of keys and of verified tokens
		wantStatus(t, "a key that was withdrawn", status(t, g, bearer(first)), http.StatusUnauthorized)
		wantStatus(t, "the newest key", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
	})
}

// TestAnIssuerThatIsAway checks that tokens stay valid while the issuer is down.
//
// Guarantees: G-0046.4
func TestAnIssuerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, nil, authtest.Options{Life: 100 * time.Hour})
		token := as.Issue("ada", "read")
		as.Lie(authtest.Metadata, serverError)
		for range 20 {
			wantStatus(t, "without keys", status(t, g, bearer(token)), http.StatusServiceUnavailable)
		}
		if n := len(as.Sink.Requests(authtest.Metadata)); n > 2 { // two addresses
			t.Errorf("an issuer that is down got %d requests at once", n)
		}
		as.Lie(authtest.Metadata, nil)
		sleep(5 * time.Second)
		wantStatus(t, "when it is back", status(t, g, bearer(token)), http.StatusOK)
		as.Lie(authtest.Keys, serverError)
		sleep(23 * time.Hour)
		wantStatus(t, "away for 23 hours", status(t, g, bearer(token)), http.StatusOK)
		sleep(2 * time.Hour)
		wantStatus(t, "away for 25 hours", status(t, g, bearer(token)), http.StatusServiceUnavailable)
		as.Lie(authtest.Keys, nil)
		sleep(5 * time.Second)
		wantStatus(t, "back after a day", status(t, g, bearer(token)), http.StatusOK)
	})
}

// TestKeysMove checks that keys are found at their new address when the old one fails, however the
// old one fails.
//
// Guarantees: G-0046.4
func TestKeysMove(t *testing.T) {
	const elsewhere authtest.Endpoint = "" // all paths but those of the server
	for name, gone := range map[string]authtest.Lie{
		"not found":  nil,
		"a web page": func(a *authtest.Answer) { a.Status, a.Body = http.StatusOK, []byte("<html>") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, as := newGuard(t, nil, authtest.Options{Life: 100 * time.Hour})
				as.Lie(authtest.Metadata, func(a *authtest.Answer) { a.Object["jwks_uri"] = "https://as.example/old-keys" })
				as.Lie(elsewhere, func(a *authtest.Answer) { a.Status, a.Object = http.StatusOK, map[string]any{"keys": as.Keys().Keys} })
				old := as.Issue("ada", "read")
				wantStatus(t, "a key at the old address", status(t, g, bearer(old)), http.StatusOK)
				as.Lie(authtest.Metadata, nil)
				as.Lie(elsewhere, gone)
				as.RotateKey(true)
				sleep(30 * time.Second)
				token := as.Issue("ada", "read")
				wantStatus(t, "a key that is not found", status(t, g, bearer(token)), http.StatusUnauthorized)
				wantStatus(t, "a key that is known", status(t, g, bearer(old)), http.StatusOK)
				sleep(5 * time.Second)
				wantStatus(t, "a key at the new address", status(t, g, bearer(token)), http.StatusOK)
				if n := len(as.Sink.Requests(elsewhere)); n != 2 {
					t.Errorf("the old address got %d requests, want 2", n)
				}
			})
		})
	}
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

// TestKeysOfADayAreUsedForAnother checks that keys are used for a day after they should have been
// fetched again.
//
// Guarantees: G-0046.4
func TestKeysOfADayAreUsedForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, nil, authtest.Options{Life: 100 * time.Hour})
		token := as.Issue("ada", "read")
		as.Lie(authtest.Keys, func(a *authtest.Answer) { a.Header.Set("Cache-Control", "max-age=86400") })
		wantStatus(t, "fresh", status(t, g, bearer(token)), http.StatusOK)
		as.Lie(authtest.Keys, serverError)
		sleep(24*time.Hour + time.Second)
		wantStatus(t, "away for a second", status(t, g, bearer(token)), http.StatusOK)
		sleep(24*time.Hour - 2*time.Second)
		wantStatus(t, "away for almost a day", status(t, g, bearer(token)), http.StatusOK)
		sleep(2 * time.Minute)
		wantStatus(t, "away for longer", status(t, g, bearer(token)), http.StatusServiceUnavailable)
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
