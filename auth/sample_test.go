package auth

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/telemetry"
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
	refuse := func(context.Context, Interaction) (*url.URL, error) { return nil, ErrNobody }
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
