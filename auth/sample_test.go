package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// sampled returns the counts of an Authorizer, as kind and result or status.
func sampled(t *testing.T, a *Authorizer, f *fixture) (map[string]uint64, *telemetry.AuthSample) {
	t.Helper()
	counted := map[string]uint64{}
	var last *telemetry.AuthSample
	for s := range a.Samples() {
		host, err := url.Parse(f.url)
		if err != nil || s.Name != host.Scheme+"://"+host.Host {
			t.Errorf("the sample has the name %q", s.Name)
		}
		last = s.Auth
		for _, r := range last.Refreshes {
			counted["refresh "+r.Result] = r.Count
		}
		for _, r := range last.Logins {
			counted["login "+r.Result] = r.Count
		}
		for _, r := range last.Denied {
			counted[http.StatusText(r.Status)] = r.Count
		}
		text, err := json.Marshal(s)
		if held := a.current.Load(); err != nil || held != nil && strings.Contains(string(text), held.access()) {
			t.Errorf("the sample is %s, %v", text, err)
		}
	}
	if last == nil {
		t.Fatal("there is no sample")
	}
	return counted, last
}

// An Authorizer counts each login and refresh once, by its result. The sample has the
// expiry of the token.
//
// Guarantees: G-0060.3
func TestLoginsAreCountedByResult(t *testing.T) {
	refuse := func(context.Context, Interaction) (*url.URL, error) { return nil, ErrUnanswered }
	for _, test := range []struct {
		name string
		o    Options
		then func(*testing.T, *Authorizer, *fixture)
		want map[string]uint64
	}{
		{"a login and a refresh", Options{Interact: consent, Offline: true}, func(t *testing.T, a *Authorizer, f *fixture) {
			expireBy(t, a, 2*time.Hour)
			wantCall(t, a, f.url)
		}, map[string]uint64{"Unauthorized": 1, "login succeeded": 1, "refresh succeeded": 1}},
		{"a refresh token that is spent", Options{Interact: consent, Offline: true}, func(t *testing.T, a *Authorizer, f *fixture) {
			if err := a.store.Locked(t.Context(), a.key(), func(e *Entry) (*Entry, error) {
				other := *e
				other.Refresh = NewSecret("unknown")
				return &other, nil
			}); err != nil {
				t.Fatal(err)
			}
			expireBy(t, a, 2*time.Hour)
			wantCall(t, a, f.url)
		}, map[string]uint64{"Unauthorized": 2, "login succeeded": 2, "refresh refused": 1}},
		{"nobody", Options{Interact: refuse}, nil, map[string]uint64{"Unauthorized": 1, "login nobody": 1}},
		{"no way", Options{}, nil, map[string]uint64{"Unauthorized": 1, "login impossible": 1}},
		{"a failure", Options{Interact: func(context.Context, Interaction) (*url.URL, error) { return nil, errors.New("no browser") }}, nil,
			map[string]uint64{"Unauthorized": 1, "login failed": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{})
			a := f.login(t, test.o)
			if test.then != nil {
				wantCall(t, a, f.url)
				test.then(t, a, f)
			} else if _, err := call(t.Context(), a, f.url); err == nil {
				t.Error("the call succeeds")
			}
			got, s := sampled(t, a, f)
			if len(got) != len(test.want) {
				t.Errorf("counted %v, want %v", got, test.want)
			}
			for what, n := range test.want {
				if got[what] != n {
					t.Errorf("counted %v, want %v", got, test.want)
				}
			}
			if left := time.Until(s.Expires); s.Expires.IsZero() != (test.then == nil) || left > 2*time.Hour {
				t.Errorf("the token expires at %v", s.Expires)
			}
		})
	}
}

// A login is refused if the person or the server has said so, and failed after anything else. Only refusals of requests that may
// need a token count.
//
// Guarantees: G-0060.3
func TestWhatIsCounted(t *testing.T) {
	stop := errors.New("stop here")
	ends := func(err error) func(*offline) Options {
		return func(*offline) Options {
			return Options{Interact: func(context.Context, Interaction) (*url.URL, error) { return nil, err }}
		}
	}
	for name, c := range map[string]struct {
		options func(*offline) Options
		token   authtest.Lie
		login   string
	}{
		"a login":               {byConsent, nil, "succeeded"},
		"the person refuses":    {ends(&ResponseError{Code: "access_denied"}), nil, "refused"},
		"nobody comes":          {ends(fmt.Errorf("%w today", ErrUnanswered)), nil, "nobody"},
		"no browser":            {ends(stop), nil, "failed"},
		"the grant has ended":   {byConsent, answerWith(http.StatusBadRequest, `{"error":"invalid_grant"}`), "refused"},
		"the server is down":    {byConsent, answerWith(http.StatusServiceUnavailable, ``), "failed"},
		"it refuses the client": {byConsent, answerWith(http.StatusUnauthorized, `{"error":"invalid_client"}`), "failed"},
		"there is no way":       {func(*offline) Options { return Options{} }, nil, "impossible"},
	} {
		f := newOffline(authtest.Options{})
		f.as.Lie(authtest.Token, c.token)
		a := f.login(t, c.options(f))
		_ = a.Login(t.Context()) // only the count matters
		for s := range a.Samples() {
			if logins := s.Auth.Logins; s.Name != "https://mcp.example" || len(logins) != 1 || logins[0] != (telemetry.AuthResult{Result: c.login, Count: 1}) || len(s.Auth.Refreshes)+len(s.Auth.Denied) > 0 {
				t.Errorf("%s: the sample is %q with %+v, want one login that has %s", name, s.Name, *s.Auth, c.login)
			}
		}
	}
	for answer, want := range map[string]string{`{"error":"invalid_grant"}`: "refused", `{"error":"invalid_request"}`: "failed", `<html>`: "failed"} {
		f := newOffline(authtest.Options{})
		a := f.login(t, Options{Interact: f.consent, Offline: true})
		f.wantCall(t, a)
		expireBy(t, a, 2*time.Hour)
		f.as.Lie(authtest.Token, answerWith(http.StatusBadRequest, answer))
		_, _ = f.call(t.Context(), a) // only the count matters
		for s := range a.Samples() {
			if n := s.Auth.Refreshes; len(n) != 1 || n[0] != (telemetry.AuthResult{Result: want, Count: 1}) {
				t.Errorf("a refresh that was answered with %s: %+v, want one that has %s", answer, n, want)
			}
		}
	}
	f := newOffline(authtest.Options{})
	a := f.login(t, byConsent(f))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, offlineURL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if again, err := a.Challenged(t.Context(), r, &transport.StatusError{Status: http.StatusForbidden, Challenge: "Bearer"}); again || err != nil {
			t.Errorf("a request that is forbidden for other reasons than scopes is sent again: %t, %v", again, err)
		}
	}
	for s := range a.Samples() {
		if n := s.Auth.Denied; len(n) != 1 || n[0] != (telemetry.Refused{Status: http.StatusForbidden, Count: 2}) || len(s.Auth.Logins) > 0 || !s.Auth.Expires.IsZero() {
			t.Errorf("two forbidden requests: %+v", *s.Auth)
		}
	}
	for s := range New(Options{}).Samples() {
		t.Errorf("without a server there is the sample %+v", s)
	}
}
