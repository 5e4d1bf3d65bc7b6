package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

// loggedIn returns an Authorizer with a refresh token.
func loggedIn(t *testing.T, f *fixture, o Options) *Authorizer {
	t.Helper()
	o.Interact, o.Offline = consent, true
	a := f.login(t, o)
	wantCall(t, a, f.url)
	return a
}

// A token that expires on its way to the server is refreshed, even if it is new.
//
// Guarantees: G-0044.3
func TestATokenThatEndsOnItsWayIsRefreshed(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	old := a.current.Load()
	f.serve = func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == old.header[0] {
			old.end = time.Now().Add(-time.Second)
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}
	wantCall(t, a, f.url)
	if refreshes, logins := f.grants("refresh_token"), f.grants("authorization_code"); refreshes != 1 || logins != 1 {
		t.Errorf("%d refreshes and %d logins", refreshes, logins)
	}
}

// If each token expires before it arrives, the number of new tokens is bounded.
//
// Guarantees: G-0044.8
func TestTokensThatExpireInTransit(t *testing.T) {
	f := newFixture(t, authtest.Options{Clients: []authtest.Client{{ID: "known", Secret: "the-secret", Auth: "client_secret_basic"}}})
	a := f.login(t, Options{Grant: ClientCredentials{}, Registered: []Registered{{ID: "known", Secret: NewSecret("the-secret")}}})
	wantCall(t, a, f.url)
	refused := &transport.StatusError{
		Status: http.StatusUnauthorized, Challenge: fmt.Sprintf(`Bearer resource_metadata="%s"`, f.as.URL(authtest.ResourceMetadata)),
	}
	renewed := 0
	for again := true; again && renewed < 10; {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Authorize(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		a.current.Load().end = time.Now().Add(-time.Second)
		if again, err = a.Challenged(t.Context(), r, refused); err != nil {
			t.Fatal(err)
		}
		if again {
			renewed++
		}
	}
	if renewed != maxRefusals {
		t.Errorf("%d new tokens", renewed)
	}
}

// Guarantees: G-0044.4
func TestARefreshOutlivesItsCaller(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	expireBy(t, a, 2*time.Hour)
	asked, answer := make(chan struct{}), make(chan struct{})
	f.as.Lie(authtest.Token, func(*authtest.Answer) { close(asked); <-answer })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := call(ctx, a, f.url)
		ended <- err
	}()
	testenv.Receive(t, asked, "the token endpoint is asked")
	cancel()
	if err := testenv.Receive(t, ended, "the call ends"); !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v, and not when it was cancelled", err)
	}
	f.as.Lie(authtest.Token, nil)
	close(answer)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := a.store.Load(t.Context(), a.key())
	if err != nil || !time.Now().Before(e.Expires) {
		t.Fatalf("the new tokens were lost: %+v, %v", e, err)
	}
	wantCall(t, f.login(t, Options{Store: a.store}), f.url)
	if n := f.grants("refresh_token"); n != 1 {
		t.Errorf("%d refreshes", n)
	}
}

// Guarantees: G-0044.5
func TestEndsOfALogin(t *testing.T) {
	fail := func(status int, body string) authtest.Lie {
		return func(a *authtest.Answer) { a.Status, a.Body = status, []byte(body) }
	}
	for name, c := range map[string]struct {
		lie  authtest.Lie
		ends bool
	}{
		"spent":                     {fail(400, `{"error":"invalid_grant"}`), true},
		"spent, by another status":  {fail(401, `{"error":"invalid_grant"}`), false},
		"another error":             {fail(400, `{"error":"invalid_client"}`), false},
		"overloaded":                {fail(429, `{"error":"slow_down"}`), false},
		"down":                      {fail(503, `<html>invalid_grant</html>`), false},
		"a page":                    {fail(200, `<html>log in</html>`), false},
		"a gateway's page":          {fail(400, `<html>invalid_grant</html>`), false},
		"no token":                  {fail(200, `{"token_type":"Bearer"}`), false},
		"a token of another type":   {fail(200, `{"access_token":"x","token_type":"mac"}`), false},
		"a token with a line break": {fail(200, `{"access_token":"x\r\nX-Y: z","token_type":"Bearer"}`), false},
		"cut off": {func(a *authtest.Answer) {
			a.Write = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{})
			a := loggedIn(t, f, Options{})
			expireBy(t, a, 2*time.Hour)
			b := f.login(t, Options{Store: a.store})
			f.as.Lie(authtest.Token, c.lie)
			_, err := call(t.Context(), b, f.url)
			if errors.Is(err, transport.ErrAuthRequired) != c.ends || err == nil {
				t.Fatalf("%v", err)
			}
			if strings.Contains(err.Error(), "html") {
				t.Errorf("the error shows the body: %v", err)
			}
			again, err := call(t.Context(), b, f.url) // soon after
			if n := f.grants("refresh_token"); err == nil || n != 1 {
				t.Errorf("status %d, %v; %d refreshes", again, err, n)
			}
			e, _ := a.store.Load(t.Context(), a.key())
			if e.Refresh.IsZero() != c.ends {
				t.Errorf("the refresh token is kept: %v", !e.Refresh.IsZero())
			}
			f.as.Lie(authtest.Token, nil)
			if later := f.login(t, Options{Store: a.store}); !c.ends && !strings.Contains(name, "cut") {
				// The false answer came after the server had rotated the refresh token, so the server revokes the login.
				_, err := call(t.Context(), later, f.url)
				if n := f.grants("refresh_token"); n != 2 {
					t.Errorf("%d refreshes, %v", n, err)
				}
			}
		})
	}
}

// Guarantees: G-0044.6
func TestATokenIsRefreshedBeforeItsEnd(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	expireBy(t, a, 47*time.Minute) // of an hour
	wantCall(t, a, f.url)
	if n := f.grants("refresh_token"); n != 0 {
		t.Fatalf("%d refreshes at 78 %%", n)
	}
	expireBy(t, a, 2*time.Minute)
	answer := make(chan struct{})
	f.as.Lie(authtest.Token, func(*authtest.Answer) { <-answer })
	wantCall(t, a, f.url) // it does not wait
	close(answer)
	a.jobs.goroutines.Wait()
	if n := f.grants("refresh_token"); n != 1 {
		t.Fatalf("%d refreshes at 82 %%", n)
	}
	wantCall(t, a, f.url)
}

// While the token is valid, a failed refresh has no effect on requests.
//
// Guarantees: G-0044.5, G-0044.6
func TestAFailedRefreshIsRepeatedLater(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	expireBy(t, a, 50*time.Minute)
	f.as.Lie(authtest.Token, func(a *authtest.Answer) { a.Status, a.Body = 503, []byte("{}") })
	for range 5 {
		wantCall(t, a, f.url)
		a.jobs.goroutines.Wait()
	}
	if n := f.grants("refresh_token"); n != 1 {
		t.Errorf("%d refreshes", n)
	}
}

// If the resource moves to another authorization server, that server gets no secret of the
// first.
//
// Guarantees: G-0044.11
func TestAnotherAuthorizationServer(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	first, err := a.store.Load(t.Context(), a.key())
	if err != nil {
		t.Fatal(err)
	}
	second := authtest.Start(t, authtest.Options{Resource: f.url})
	f.as.Lie(authtest.ResourceMetadata, func(a *authtest.Answer) { a.Object["authorization_servers"] = []string{second.Issuer()} })
	protected := second.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	f.serve = func(rw http.ResponseWriter, r *http.Request) { protected.ServeHTTP(rw, r) }
	second.Lie(authtest.Challenge, func(a *authtest.Answer) {
		a.Header.Set("WWW-Authenticate", `Bearer resource_metadata="`+f.as.URL(authtest.ResourceMetadata)+`"`)
	})
	wantCall(t, a, f.url)
	now, err := a.store.Load(t.Context(), a.key())
	if err != nil || now.Issuer != second.Issuer() || now.ClientID == first.ClientID {
		t.Fatalf("%+v, %v", now, err)
	}
	for _, secret := range []string{first.ClientID, first.Access.Reveal(), first.Refresh.Reveal()} {
		if seen := second.Sink.Holding(secret); len(seen) > 0 {
			t.Errorf("the second server got %.10s...", secret)
		}
	}
}

// A client without an issuer is bound to the issuer of its first use.
//
// Guarantees: G-0044.11
func TestASecretStaysWithItsIssuer(t *testing.T) {
	known := authtest.Client{ID: "known", Secret: "the-secret", Auth: "client_secret_basic"}
	f := newFixture(t, authtest.Options{Clients: []authtest.Client{known}})
	a := f.login(t, Options{Grant: ClientCredentials{}, Registered: []Registered{{ID: "known", Secret: NewSecret("the-secret")}}})
	wantCall(t, a, f.url)
	second := authtest.Start(t, authtest.Options{Resource: f.url, Clients: []authtest.Client{known}})
	f.as.Lie(authtest.ResourceMetadata, func(a *authtest.Answer) { a.Object["authorization_servers"] = []string{second.Issuer()} })
	f.refuseAll(401, `Bearer resource_metadata="%s"`)
	_, err := call(t.Context(), a, f.url)
	var unknown *RegistrationError
	if !errors.As(err, &unknown) || unknown.Issuer != second.Issuer() || unknown.Reason != "the client in Registered was used at "+f.as.Issuer()+" before: name its Issuer, or log out first" {
		t.Errorf("%v", err)
	}
	if slices.ContainsFunc(second.Sink.Requests(), func(r *authtest.Request) bool { return r.Endpoint == authtest.Token }) {
		t.Error("the second server got a token request")
	}
}

// After Close, a token that is still valid is added, for instance to the request that ends
// a session. No token is requested or refreshed.
//
// Guarantees: G-0044.4
func TestAfterCloseATokenIsUsedAndNotRefreshed(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	expireBy(t, a, 50*time.Minute) // of an hour: it is due
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	wantCall(t, a, f.url)
	address, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	if a.Bearer(t.Context(), address) == nil {
		t.Error("there is no token, although it is valid")
	}
	expireBy(t, a, time.Hour)
	if _, err := call(t.Context(), a, f.url); !errors.Is(err, errClosed) {
		t.Errorf("%v, want %v", err, errClosed)
	}
	if err := a.Login(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("Login: %v, want %v", err, errClosed)
	}
	if n := f.grants("refresh_token"); n != 0 {
		t.Errorf("%d refreshes, want none", n)
	}
}

// Each failure doubles the delay, from a second to a minute, and a refresh that worked begins anew.
//
// Guarantees: G-0044.5
func TestARefreshThatWorkedEndsTheDelay(t *testing.T) {
	f := newFixture(t, authtest.Options{KeepRefresh: true})
	a := loggedIn(t, f, Options{})
	// fail makes a refresh fail that is due, and checks how long no other is tried.
	fail := func(want time.Duration) {
		t.Helper()
		expireBy(t, a, 2*time.Hour)
		a.attempts.backoff.until = time.Time{} // the earlier delay has passed
		before, start := f.grants("refresh_token"), time.Now()
		if status, err := call(t.Context(), a, f.url); err == nil {
			t.Fatalf("status %d without a token", status)
		}
		if n := f.grants("refresh_token") - before; n != 1 {
			t.Fatalf("%d refreshes", n)
		}
		if a.attempts.mayRefresh(start.Add(want-time.Millisecond)) == nil || a.attempts.mayRefresh(time.Now().Add(want)) != nil {
			t.Errorf("the next refresh is tried %v after the failure, want %v", a.attempts.backoff.until.Sub(start), want)
		}
	}
	f.as.Lie(authtest.Token, answerWith(http.StatusServiceUnavailable, "{}"))
	for _, seconds := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		fail(seconds * time.Second)
	}
	f.as.Lie(authtest.Token, nil)
	a.attempts.backoff.until = time.Time{}
	wantCall(t, a, f.url)
	f.as.Lie(authtest.Token, answerWith(http.StatusServiceUnavailable, "{}"))
	fail(time.Second)
	f.as.Lie(authtest.Token, func(a *authtest.Answer) {
		a.Status, a.Body = http.StatusTooManyRequests, []byte("{}")
		a.Header.Set("Retry-After", "300")
	})
	fail(5 * time.Minute)
}

// A login ends the delay after a refresh that failed: another program may replace its token, and that be revoked, at once.
//
// Guarantees: G-0044.5
func TestALoginEndsTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, store := newOffline(authtest.Options{}), NewMemory()
		a := f.login(t, Options{Store: store, Interact: f.consent, Offline: true})
		other := f.login(t, Options{Store: store, Interact: f.consent, Offline: true})
		f.wantCall(t, other)
		f.as.RevokeAll()
		f.as.Lie(authtest.Token, answerWith(http.StatusServiceUnavailable, "{}"))
		if status, err := f.call(t.Context(), a); status == http.StatusOK || err == nil {
			t.Fatalf("a call that cannot refresh: status %d, %v", status, err)
		}
		f.as.Lie(authtest.Token, nil)
		for _, program := range []*Authorizer{a, other} {
			if err := program.Login(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		f.as.RevokeAll()
		f.wantCall(t, a)
	})
}

// When the functions given to OnLogin are called, requests carry the new token.
//
// Guarantees: G-0044.9, G-0041.6
func TestOnLoginIsCalledWhenTheNewTokenIsInUse(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	old := a.current.Load().header[0]
	var sent, quick []string
	a.OnLogin(func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, http.NoBody)
		if err != nil {
			t.Error(err)
			return
		}
		quick = append(quick, a.Bearer(t.Context(), r.URL)...)
		if err := a.Authorize(t.Context(), r); err != nil {
			t.Error(err)
		}
		sent = append(sent, r.Header.Get("Authorization"))
	})
	if err := a.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	e, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := "Bearer " + e.Access.Reveal()
	if len(sent) != 1 || sent[0] != want || len(quick) != 1 || quick[0] != want {
		t.Errorf("%d requests, with the old token: %v", len(sent), len(sent) > 0 && sent[0] == old)
	}
}

// A token that has expired is not taken for one that another request has got: if the login that another
// program has saved has ended, too, the program logs in again.
//
// Guarantees: G-0044.1
func TestAnExpiredTokenIsNoNewOne(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	other := f.login(t, Options{Store: a.store, Interact: consent, Offline: true})
	if err := other.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	expireBy(t, other, 2*time.Hour)
	a.current.Load().end = time.Now().Add(-time.Second)
	f.as.RevokeAll()
	wantCall(t, a, f.url)
}

// Without a valid token, a refresh that failed for now is the error of the request, and of those that come before the next
// attempt. Nothing is sent without a token, since that would look like a login that has ended.
//
// Guarantees: G-0044.5
func TestWithoutATokenAFailedRefreshIsTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOffline(authtest.Options{})
		a := f.login(t, Options{Interact: f.consent, Offline: true})
		f.wantCall(t, a)
		sleep(2 * time.Hour)
		served := 0
		f.server = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
		f.as.Lie(authtest.Token, answerWith(http.StatusServiceUnavailable, "{}"))
		const answer = "auth: as.example gave no token: status 503"
		for _, want := range []string{answer, "auth: the refresh failed, and is tried again in 1s: " + answer} {
			_, err := f.call(t.Context(), a)
			var failed *TokenError
			if errorText(err) != want || !errors.As(err, &failed) || errors.Is(err, transport.ErrAuthRequired) {
				t.Errorf("got %v, want %s", err, want)
			}
			sleep(300 * time.Millisecond)
		}
		if n := f.tokenRequests("refresh_token"); n != 1 || served != 0 {
			t.Errorf("%d refreshes, and %d requests were sent without a token", n, served)
		}
	})
}

// Requests that come before the next refresh is tried do not put it off.
//
// Guarantees: G-0044.5
func TestRequestsDoNotProlongTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOffline(authtest.Options{KeepRefresh: true})
		a := f.login(t, Options{Interact: f.consent, Offline: true})
		f.wantCall(t, a)
		refused := a.current.Load().header[0]
		server := f.server
		f.server = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == refused {
				rw.WriteHeader(http.StatusUnauthorized)
				return
			}
			server.ServeHTTP(rw, r)
		})
		*a.current.Load() = credential{entry: a.current.Load().entry, header: a.current.Load().header} // it was not got just now
		f.as.Lie(authtest.Token, answerWith(http.StatusServiceUnavailable, "{}"))
		for range 4 {
			if status, err := f.call(t.Context(), a); err == nil {
				t.Fatalf("a call that cannot refresh: status %d", status)
			}
			<-time.NewTimer(300 * time.Millisecond).C
		}
		f.as.Lie(authtest.Token, nil)
		f.wantCall(t, a)
	})
}
