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
)

// registrations counts the registrations.
func (f *fixture) registrations() int { return len(f.as.Sink.Requests(authtest.Register)) }

// lose makes the authorization server refuse a client at one of its endpoints, as if it had
// lost that client.
func (f *fixture) lose(at authtest.Endpoint, client string, refuse authtest.Lie) {
	f.as.Lie(at, func(a *authtest.Answer) {
		if a.Request.Form.Get("client_id") == client {
			refuse(a)
		}
	})
}

// findLost lets a refresh find out that the authorization server has lost the client.
func (f *fixture) findLost(t *testing.T, a *Authorizer) {
	t.Helper()
	lost, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expireBy(t, a, 2*time.Hour)
	f.lose(authtest.Token, lost.ClientID, answerWith(http.StatusUnauthorized, `{"error":"invalid_client"}`))
	if _, err := call(t.Context(), a, f.url); err == nil {
		t.Fatal("the refresh succeeded with a client that the server has lost")
	}
}

func answerWith(status int, body string) authtest.Lie {
	return func(a *authtest.Answer) { a.Status, a.Redirect, a.Body = status, "", []byte(body) }
}

// If the authorization server does not accept a stored registration any more, one login
// fails at most, and the next registers again.
//
// Guarantees: G-0044.22
func TestLoginReplacesARegistrationThatTheServerHasLost(t *testing.T) {
	for name, c := range map[string]struct {
		at     authtest.Endpoint
		refuse authtest.Lie
	}{
		"an error page": {authtest.Authorize, answerWith(http.StatusBadRequest, "unknown client")},
		"a redirect": {authtest.Authorize, func(a *authtest.Answer) {
			a.Redirect, a.Status = testRedirect, http.StatusFound
			a.Query = url.Values{"error": {"unauthorized_client"}, "state": {a.Request.Form.Get("state")}, "iss": a.Query["iss"]}
		}},
		"no token": {authtest.Token, answerWith(http.StatusUnauthorized, `{"error":"invalid_client"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{})
			a := loggedIn(t, f, Options{})
			lost, err := a.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			f.lose(c.at, lost.ClientID, c.refuse)
			if err := a.Login(t.Context()); err == nil {
				t.Fatal("Login succeeded with a client that the server has lost")
			}
			if err := f.login(t, Options{Store: a.store, Interact: consent}).Login(t.Context()); err != nil {
				t.Fatalf("the next Login: %v", err)
			}
			if n := f.registrations(); n != 2 {
				t.Errorf("%d registrations, want 2", n)
			}
		})
	}
}

// Guarantees: G-0044.22
func TestLoginReplacesARegistrationThatARefreshFoundLost(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	f.findLost(t, a)
	if e, err := a.Status(t.Context()); err != nil || e == nil || e.Refresh.IsZero() {
		t.Errorf("the login is not kept: %+v, %v", e, err)
	}
	if err := a.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.registrations(); n != 2 {
		t.Errorf("%d registrations, want 2", n)
	}
}

// After Logout, the next login registers again.
//
// Guarantees: G-0044.15
func TestLogoutRemovesTheRegistration(t *testing.T) {
	for name, store := range stores(t) {
		f := newFixture(t, authtest.Options{})
		a := loggedIn(t, f, Options{Store: store})
		if err := a.Logout(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if e, err := store.Load(t.Context(), Key{Issuer: f.as.Issuer()}); e != nil || err != nil {
			t.Errorf("%s: the registration is %+v, %v, want none", name, e, err)
		}
		wantCall(t, a, f.url)
		if n := f.registrations(); n != 2 {
			t.Errorf("%s: %d registrations, want 2", name, n)
		}
	}
}

// A login that a request has begun and nobody has finished, and one that a person has
// refused, keep the registration.
//
// Guarantees: G-0044.22
func TestAnAbandonedLoginKeepsTheRegistration(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	if err := a.store.Locked(t.Context(), a.key(), put(nil)); err != nil {
		t.Fatal(err)
	}
	leave := func(ctx context.Context, i Interaction) (*url.URL, error) {
		if _, err := i.Start(ctx, testRedirect); err != nil {
			return nil, err
		}
		return nil, ErrUnanswered
	}
	if _, err := call(t.Context(), f.login(t, Options{Store: a.store, Interact: leave}), f.url); !errors.Is(err, ErrUnanswered) {
		t.Errorf("%v, want ErrUnanswered", err)
	}
	f.as.Lie(authtest.Authorize, func(a *authtest.Answer) {
		a.Query = url.Values{"error": {"access_denied"}, "state": a.Query["state"], "iss": a.Query["iss"]}
	})
	if err := f.login(t, Options{Store: a.store, Interact: consent}).Login(t.Context()); !errors.As(err, new(*ResponseError)) {
		t.Errorf("%v, want a *ResponseError", err)
	}
	f.as.Lie(authtest.Authorize, nil)
	wantCall(t, f.login(t, Options{Store: a.store, Interact: consent}), f.url)
	if n := f.registrations(); n != 1 {
		t.Errorf("%d registrations, want 1", n)
	}
}

// The person sees the name of the program that asks, even if another program has
// registered before with the same Store.
//
// Guarantees: G-0044.22
func TestARegistrationBelongsToOneProgram(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{ClientName: "First"})
	if err := f.login(t, Options{Store: a.store, ClientName: "Second", Interact: consent}).Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.login(t, Options{Store: a.store, ClientName: "Second", Interact: consent}).Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	registered := f.as.Sink.Requests(authtest.Register)
	if len(registered) != 2 || !strings.Contains(string(registered[1].Body), `"Second"`) {
		t.Errorf("%d registrations, want one of each program", len(registered))
	}
}

// Guarantees: G-0044.22
func TestALoginWithADeviceForgetsALostClient(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	f.as.Lie(authtest.Device, answerWith(http.StatusUnauthorized, `{"error":"invalid_client"}`))
	a := f.login(t, Options{Grant: Device{Show: func(context.Context, DeviceCode) error { return nil }}})
	var refused *TokenError
	if err := a.Login(t.Context()); !errors.As(err, &refused) || refused.Code != "invalid_client" {
		t.Errorf("Login: %v, want the code of the server", err)
	}
	if e, err := a.store.Load(t.Context(), Key{Issuer: f.as.Issuer()}); e != nil || err != nil || f.registrations() != 1 {
		t.Errorf("the registration is %+v, %v, want none", e, err)
	}
}

// A server that gives a client only the scopes that it has registered allows a step-up,
// because a registration names none.
//
// Guarantees: G-0044.8, G-0044.22
func TestAStepUpWhereOnlyRegisteredScopesAreGiven(t *testing.T) {
	f := newFixture(t, authtest.Options{Scopes: []string{"read", "write"}})
	f.stepUp()
	f.as.Lie(authtest.Authorize, func(a *authtest.Answer) {
		var registered struct{ Scope string }
		if err := json.Unmarshal(f.as.Sink.Requests(authtest.Register)[0].Body, &registered); err != nil {
			t.Error(err)
		}
		if len(without(scopesOf(a.Request.Form.Get("scope")), scopesOf(registered.Scope))) > 0 && registered.Scope != "" {
			a.Query = url.Values{"error": {"invalid_scope"}, "state": a.Query["state"], "iss": a.Query["iss"]}
		}
	})
	wantCall(t, f.login(t, Options{Interact: consent}), f.url)
}
