package auth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// elsewhere simulates a login whose redirect address has another port.
func elsewhere(ctx context.Context, i Interaction) (*url.URL, error) {
	start := i.start
	i.start = func(ctx context.Context, _ string) (*url.URL, error) {
		return start(ctx, "http://127.0.0.1:10/callback")
	}
	return consent(ctx, i)
}

// A login is refreshed with the secret of its own registration, even if the stored
// registration has changed since.
//
// Guarantees: G-0044.5
func TestALoginOutlivesItsRegistration(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, w *fixture, a *Authorizer){
		"replaced": func(t *testing.T, f *fixture, a *Authorizer) {
			wantCall(t, f.login(t, Options{Store: a.store, Principal: "eve", Interact: elsewhere}), f.url)
		},
		"deleted": func(t *testing.T, f *fixture, a *Authorizer) {
			if err := a.store.Locked(t.Context(), Key{Issuer: f.as.Issuer()}, put(nil)); err != nil {
				t.Fatal(err)
			}
		},
		"in a store that is not used any more": func(t *testing.T, _ *fixture, a *Authorizer) {
			e, err := a.store.Load(t.Context(), a.key())
			if err == nil {
				err = a.store.keepInMemory(t.Context(), a.key(), e)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{})
			f.as.Lie(authtest.Metadata, setMember("token_endpoint_auth_methods_supported", []string{"client_secret_basic"}))
			a := loggedIn(t, f, Options{})
			lose(t, f, a)
			expireBy(t, a, 2*time.Hour)
			wantCall(t, a, f.url)
			if n := f.grants("refresh_token"); n != 1 {
				t.Errorf("%d refreshes", n)
			}
		})
	}
}

// With each authentication method, a token request has the client_id in its form, because
// some servers require it.
//
// Guarantees: G-0044.1
func TestTokenRequestsNameTheirClient(t *testing.T) {
	for _, method := range []string{authBasic, authPost, authNone} {
		f := newFixture(t, authtest.Options{})
		f.as.Lie(authtest.Metadata, setMember("token_endpoint_auth_methods_supported", []string{method}))
		a := loggedIn(t, f, Options{})
		expireBy(t, a, 2*time.Hour)
		wantCall(t, a, f.url)
		e, err := a.Status(t.Context())
		if err != nil || e.ClientAuth != method {
			t.Fatalf("%s: %+v, %v", method, e, err)
		}
		for _, r := range f.as.Sink.Requests(authtest.Token) {
			_, secret := r.Form["client_secret"]
			if r.Form.Get("client_id") != e.ClientID || secret != (method == authPost) || (r.Header.Get("Authorization") != "") != (method == authBasic) {
				t.Errorf("%s: a token request has the form %v", method, r.Form)
			}
		}
	}
}

func setMember(name string, value any) authtest.Lie {
	return func(a *authtest.Answer) { object(name, value)(a, "") }
}

// When the server refuses a registration whose secret has expired, the next login replaces
// it.
//
// Guarantees: G-0044.5
func TestARegistrationThatHasExpired(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	f.as.Lie(authtest.Metadata, setMember("token_endpoint_auth_methods_supported", []string{"client_secret_basic"}))
	a := loggedIn(t, f, Options{})
	expireBy(t, a, 2*time.Hour)
	if err := a.store.Locked(t.Context(), a.key(), func(e *Entry) (*Entry, error) {
		expired := *e
		expired.ClientExpires = time.Now().Add(-time.Hour)
		return &expired, nil
	}); err != nil {
		t.Fatal(err)
	}
	refused := 0
	f.as.Lie(authtest.Token, func(a *authtest.Answer) {
		if refused++; refused == 1 {
			a.Status, a.Body = http.StatusUnauthorized, []byte(`{"error":"invalid_client"}`)
		}
	})
	wantCall(t, a, f.url)
	if n := len(f.as.Sink.Requests(authtest.Authorize)); n != 2 || refused != 2 {
		t.Errorf("%d logins were started, after %d token requests", n, refused)
	}
}

// A program that cannot save anything registers once.
//
// Guarantees: G-0044.12
func TestARegistrationThatCannotBeSaved(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := f.login(t, Options{Store: NewFiles(filepath.Join(file, "folder"), nil), Interact: consent, Offline: true})
	wantCall(t, a, f.url)
	if err := a.Login(t.Context()); !errors.As(err, new(*StoreError)) {
		t.Errorf("Login: %v, want a *StoreError", err)
	}
	if err := a.store.Locked(t.Context(), a.key(), put(nil)); err != nil {
		t.Fatal(err)
	}
	a.current.Store(nil)
	wantCall(t, a, f.url) // another login
	if n := len(f.as.Sink.Requests(authtest.Register)); n != 1 {
		t.Errorf("%d registrations", n)
	}
}
