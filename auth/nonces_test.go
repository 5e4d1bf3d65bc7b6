package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/transport"
)

// If the server requires a new nonce, all requests that were sent with the old one are sent
// again with the same token. There is no refresh and no login, and no refusal is counted.
//
// Guarantees: G-0044.3, G-0044.8
func TestANewNonceKeepsTheTokenForAllRequests(t *testing.T) {
	for name, offline := range map[string]bool{"with a refresh token": true, "without a refresh token": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{DPoPNonces: true})
			a := f.login(t, Options{Interact: consent, Offline: offline, DPoP: true})
			wantCall(t, a, f.url)
			a.current.Load().obtained = time.Now().Add(-10 * time.Minute)
			exchanges := f.grants("refresh_token") + f.grants("authorization_code")
			before, _ := sampled(t, a, f)

			const parallel = 4
			var arrived sync.WaitGroup
			arrived.Add(parallel)
			var mu sync.Mutex
			seen := 0
			protected := f.as.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			f.serve = func(rw http.ResponseWriter, r *http.Request) {
				mu.Lock()
				seen++
				first := seen <= parallel
				mu.Unlock()
				if first { // all of them have the old nonce
					arrived.Done()
					arrived.Wait()
				}
				protected.ServeHTTP(rw, r)
			}
			f.as.RotateNonce()
			var calls sync.WaitGroup
			for range parallel {
				calls.Go(func() {
					if status, err := call(t.Context(), a, f.url); err != nil || status != http.StatusOK {
						t.Errorf("status %d, %v", status, err)
					}
				})
			}
			calls.Wait()
			if n := f.grants("refresh_token") + f.grants("authorization_code") - exchanges; n != 0 {
				t.Errorf("%d token requests, want none", n)
			}
			if n := len(f.as.Sink.Requests(authtest.Authorize)); n != 1 {
				t.Errorf("%d logins were started, want 1", n)
			}
			if seen != 2*parallel {
				t.Errorf("%d requests, want %d", seen, 2*parallel)
			}
			if after, _ := sampled(t, a, f); !maps.Equal(after, before) {
				t.Errorf("counted %v, want %v as before", after, before)
			}
		})
	}
}

// A refresh uses the new nonce of the token endpoint, even if a request to a server of the
// same origin has got that nonce in the meantime.
//
// Guarantees: G-0044.3
func TestARefreshUsesANonceThatIsKnownAlready(t *testing.T) {
	f := newFixture(t, authtest.Options{DPoPNonces: true})
	a := loggedIn(t, f, Options{DPoP: true})
	expireBy(t, a, 2*time.Hour)
	f.as.RotateNonce()
	f.as.Lie(authtest.Token, func(answer *authtest.Answer) {
		endpoint, err := url.Parse(f.as.URL(authtest.Token))
		if err != nil {
			t.Error(err)
			return
		}
		a.nonces.note(endpoint, answer.Header.Get("DPoP-Nonce"))
	})
	wantCall(t, a, f.url)
	if n := f.grants("refresh_token"); n != 2 {
		t.Errorf("%d token requests for the refresh, want one without and one with the new nonce", n)
	}
}

// A token endpoint that sends the next nonce with each token, and takes each nonce once, gets one
// request for each refresh (RFC 9449, section 8.2).
func TestTheNonceOfATokenIsUsedForTheNextRequest(t *testing.T) {
	f := newFixture(t, authtest.Options{KeepRefresh: true})
	a := loggedIn(t, f, Options{DPoP: true})
	nonce := "first"
	f.as.Lie(authtest.Token, func(answer *authtest.Answer) {
		if sent := nonceOf(t, answer.Request.Header.Get("DPoP")); sent != nonce {
			answer.Status, answer.Body = http.StatusBadRequest, []byte(`{"error":"use_dpop_nonce"}`)
		} else {
			nonce += "+"
		}
		answer.Header.Set("DPoP-Nonce", nonce)
	})
	for n, want := range []int{2, 1, 1} {
		before := f.grants("refresh_token")
		expireBy(t, a, 2*time.Hour)
		wantCall(t, a, f.url)
		if got := f.grants("refresh_token") - before; got != want {
			t.Errorf("refresh %d took %d requests, want %d", n+1, got, want)
		}
	}
}

// A proof names the address of its request as it is sent there, without the query and the fragment (RFC 9449, section 4.2): a path in
// another spelling would be another address.
func TestAProofNamesTheAddressOfItsRequest(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{DPoP: true})
	for path, want := range map[string]string{"/mcp": "/mcp", "/mcp?a=b#c": "/mcp", "/a%2Fb/mcp": "/a%2Fb/mcp", "/a%20b": "/a%20b", "": ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin(a.resource())+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Authorize(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := claimsOf(t, r.Header.Get("DPoP")); got.URL != origin(a.resource())+want || got.Method != http.MethodPost {
			t.Errorf("the proof for %q is for %s of %s, want %q", path, got.Method, got.URL, want)
		}
	}
}

// nonceOf returns the nonce in a proof.
func nonceOf(t *testing.T, proof string) string {
	t.Helper()
	return claimsOf(t, proof).Nonce
}

func claimsOf(t *testing.T, proof string) (claims proofClaims) {
	t.Helper()
	parts := strings.Split(proof, ".")
	if len(parts) != 3 {
		t.Errorf("the request has no proof, but %q", proof)
		return claims
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		t.Error(err)
	}
	return claims
}

// A nonce is remembered for each origin, up to 1 KiB. There are at most 16 of them.
func TestHowManyNoncesAreRemembered(t *testing.T) {
	var n nonces
	at := func(i int) *url.URL {
		return &url.URL{Scheme: "https", Host: fmt.Sprintf("as%d.example", i), Path: "/token"}
	}
	n.note(at(0), "a")
	n.note(at(0), "")
	n.note(at(0), long(1<<10+1))
	if got := n.of(&url.URL{Scheme: "https", Host: "as0.example", Path: "/other"}); got != "a" {
		t.Errorf("the nonce is %.10q, want a", got)
	}
	if got := n.of(&url.URL{Scheme: "http", Host: "as0.example"}); got != "" {
		t.Errorf("another origin has the nonce %q", got)
	}
	n.note(at(0), long(1<<10))
	for i := 1; i < 16; i++ {
		n.note(at(i), fmt.Sprint(i))
	}
	n.note(at(3), "new")
	n.note(at(3), "new")
	for i, want := range map[int]string{0: long(1 << 10), 1: "1", 3: "new", 15: "15"} {
		if got := n.of(at(i)); got != want {
			t.Errorf("origin %d has the nonce %.10q, want %.10q", i, got, want)
		}
	}
	n.note(at(3), "new")
	if len(n.last) != 16 {
		t.Errorf("%d nonces are remembered, want 16", len(n.last))
	}
	n.note(at(16), "16")
	if got := n.of(at(16)); got != "16" || len(n.last) > 16 {
		t.Errorf("the latest is %q of %d", got, len(n.last))
	}
}

// Only a server that requires a nonce gets the token request again: another failure that happens to bring a nonce counts as
// it is.
//
// Guarantees: G-0044.18
func TestAFailureWithANonceIsNotRepeated(t *testing.T) {
	f := newOffline(authtest.Options{})
	f.as.Lie(authtest.Token, func(a *authtest.Answer) {
		a.Status, a.Body = http.StatusServiceUnavailable, []byte("{}")
		a.Header.Set("DPoP-Nonce", "a nonce")
	})
	a := f.login(t, Options{Interact: f.consent, DPoP: true})
	var failed *TokenError
	if err := a.Login(t.Context()); !errors.As(err, &failed) || failed.Status != http.StatusServiceUnavailable {
		t.Errorf("Login: %v", err)
	}
	if n := len(f.as.Sink.Requests(authtest.Token)); n != 1 {
		t.Errorf("%d token requests", n)
	}
}

// A nonce does not help a request without a proof: the server gets no other one of the kind, and a login is needed.
//
// Guarantees: G-0044.2, G-0044.18
func TestANonceForARequestWithoutAProof(t *testing.T) {
	f := newOffline(authtest.Options{})
	a := f.login(t, Options{})
	for _, proof := range []string{"", "no proof", "a.%.c", "a." + base64.RawURLEncoding.EncodeToString([]byte("{")) + ".c"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, offlineURL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Authorize(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if proof != "" {
			r.Header.Set("DPoP", proof)
		}
		again, err := a.Challenged(t.Context(), r, &transport.StatusError{Status: http.StatusUnauthorized, Challenge: `DPoP error="use_dpop_nonce"`, Nonce: "a nonce"})
		if again || !errors.Is(err, transport.ErrAuthRequired) {
			t.Errorf("with the proof %q: sent again: %t, %v", proof, again, err)
		}
	}
}
