package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// Guarantees: G-0044.15
func TestLogout(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	e, err := a.Status(t.Context())
	if err != nil || e == nil || e.Issuer != f.as.Issuer() || len(e.Scopes) == 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := a.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	revoked := f.as.Sink.Requests(authtest.Revoke)
	if len(revoked) != 2 || revoked[0].Form.Get("token") != e.Refresh.Reveal() || revoked[1].Form.Get("token") != e.Access.Reveal() {
		t.Errorf("%d revocations", len(revoked))
	}
	if e, err := a.Status(t.Context()); e != nil || err != nil {
		t.Errorf("%+v, %v", e, err)
	}
	wantNoToken(t, a)
	wantCall(t, a, f.url) // another login
	f.as.Lie(authtest.Revoke, func(a *authtest.Answer) { a.Status = 503 })
	if err := a.Logout(t.Context()); err == nil {
		t.Error("the server failed to revoke, and Logout returned no error")
	}
	if e, err := a.Status(t.Context()); e != nil || err != nil {
		t.Errorf("%+v, %v", e, err)
	}
	wantNoToken(t, a) // which the server would accept
}

// wantNoToken checks that an Authorizer adds no token to requests.
func wantNoToken(t *testing.T, a *Authorizer) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.resource().String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	quick := a.Bearer(t.Context(), r.URL)
	if err := a.Authorize(t.Context(), r); err != nil || r.Header.Get("Authorization") != "" || quick != nil {
		t.Errorf("after Logout a request carries a token: %v or %v, %v", quick != nil, r.Header.Get("Authorization") != "", err)
	}
}

// A store that lags holds the results of its calls back.
type laggingStore struct {
	*Memory
	load, locked chan struct{} // a call takes a value when it has its result, and another to return; nil: it does not wait
}

func (s *laggingStore) Load(ctx context.Context, k Key) (*Entry, error) {
	e, err := s.Memory.Load(ctx, k)
	wait(s.load)
	return e, err
}

func (s *laggingStore) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	err := s.Memory.Locked(ctx, k, f)
	wait(s.locked)
	return err
}

func wait(c chan struct{}) {
	if c != nil {
		<-c
		<-c
	}
}

// A request that has just read or refreshed the login does not bring it back after Logout.
//
// Guarantees: G-0044.15
func TestALogoutIsNotUndoneByARequest(t *testing.T) {
	for name, refreshes := range map[string]bool{"reading": false, "refreshing": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{})
			f.as.Lie(authtest.Revoke, answerWith(http.StatusServiceUnavailable, "{}")) // the server would accept the tokens
			s := &laggingStore{Memory: NewMemory()}
			a := loggedIn(t, f, Options{Store: s})
			lag := make(chan struct{})
			if refreshes {
				expireBy(t, a, 2*time.Hour)
				s.locked = lag
			} else {
				a.current.Store(nil)
				s.load = lag
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				_ = a.Authorize(t.Context(), r) // this request was before Logout, or after it
			}()
			lag <- struct{}{} // the request has its result
			s.load, s.locked = nil, nil
			if err := a.Logout(t.Context()); err == nil {
				t.Error("the server failed to revoke, and Logout returned no error")
			}
			lag <- struct{}{}
			<-ended
			a.jobs.goroutines.Wait()
			wantNoToken(t, a)
		})
	}
}

// Logout succeeds if the server cannot revoke access tokens. If it cannot revoke a refresh
// token, Logout returns an error, but still revokes the access token.
//
// Guarantees: G-0044.15
func TestLogoutWhereATokenCannotBeRevoked(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	const unsupported = `{"error":"unsupported_token_type"}`
	for _, c := range []struct {
		hint   string
		status int
		body   string
		fails  bool
	}{
		{"access_token", 400, unsupported, false}, {"refresh_token", 400, unsupported, true}, {"access_token", 503, unsupported, true},
		{"access_token", 400, `{"error":"invalid_request"}`, true}, {"access_token", 400, unsupported[1:], true}, {"access_token", 204, "", true},
	} {
		a := loggedIn(t, f, Options{})
		before := len(f.as.Sink.Requests(authtest.Revoke))
		f.as.Lie(authtest.Revoke, func(a *authtest.Answer) {
			if a.Request.Form.Get("token_type_hint") == c.hint {
				a.Status, a.Body = c.status, []byte(c.body)
			}
		})
		hint, err := c.hint, a.Logout(t.Context())
		if want := fmt.Sprintf("does not revoke the login: status %d", c.status); (err != nil) != c.fails || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s, with status %d and %s: %v", hint, c.status, c.body, err)
		}
		if n := len(f.as.Sink.Requests(authtest.Revoke)) - before; n != 2 {
			t.Errorf("%s: %d revocations", hint, n)
		}
	}
}

// Logout deletes the login although the authorization server cannot be reached, and says that it cannot, for each token.
//
// Guarantees: G-0044.15
func TestLogoutWithoutTheServer(t *testing.T) {
	f, gone := newOffline(authtest.Options{}), errors.New("unreachable")
	o := byConsent(f)
	o.Offline = true
	a := f.login(t, o)
	f.wantCall(t, a)
	f.fetch = func(*http.Request) (*http.Response, error) { return nil, gone }
	if err := a.Logout(t.Context()); !errors.Is(err, gone) || strings.Count("\n"+err.Error(), "\nauth: revoke the login: ") != 2 {
		t.Errorf("Logout: %v, want an error for each of two tokens", err)
	}
	if e, err := a.Status(t.Context()); e != nil || err != nil {
		t.Errorf("the login is %+v, %v", e, err)
	}
}
