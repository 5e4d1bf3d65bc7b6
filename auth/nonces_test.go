package auth

import (
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// If the server requires a new nonce, all requests that were sent with the old one are sent
// again with the same token. There is no refresh and no login.
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
