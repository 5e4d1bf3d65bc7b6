package auth

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// A client without an Issuer stays bound to the issuer of its first use, even if the server
// refuses its tokens repeatedly, and other programs have logged in meanwhile.
//
// Guarantees: G-0044.7, G-0044.11
func TestAPinSurvivesEveryLogin(t *testing.T) {
	known := authtest.Client{ID: "known", Secret: "the-secret", Auth: "client_secret_basic", Redirects: []string{testRedirect}}
	f := newFixture(t, authtest.Options{Clients: []authtest.Client{known}})
	asked := 0
	o := Options{Registered: []Registered{{ID: "known", Secret: NewSecret("the-secret")}}, Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
		asked++
		return consent(ctx, i)
	}}
	a := f.login(t, o)
	wantCall(t, a, f.url)
	second := authtest.Start(t, authtest.Options{Resource: f.url, Clients: []authtest.Client{known}})
	f.as.Lie(authtest.ResourceMetadata, func(a *authtest.Answer) { a.Object["authorization_servers"] = []string{second.Issuer()} })
	f.refuseAll(401, `Bearer resource_metadata="%s"`)
	refused := func(a *Authorizer) {
		t.Helper()
		_, err := call(t.Context(), a, f.url)
		var stray *RegistrationError
		if !errors.As(err, &stray) || stray.Issuer != second.Issuer() {
			t.Errorf("%v", err)
		}
		if seen := second.Sink.Requests(authtest.Register, authtest.Authorize, authtest.Token); len(seen) > 0 {
			t.Fatalf("the second server got a request: %v", seen[0].URL)
		}
	}
	refused(a)
	refused(a)
	f.serve = nil
	// A program without its own client shares the store, and may use the second server.
	other := f.login(t, Options{Store: a.store, Interact: consent})
	if err := other.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := a.store.Load(t.Context(), a.key()); err != nil || e.Issuer != second.Issuer() || e.Pinned != f.as.Issuer() {
		t.Fatalf("%+v, %v", e, err)
	}
	f.refuseAll(401, `Bearer resource_metadata="%s"`)
	o.Store = a.store
	_, err := call(t.Context(), f.login(t, o), f.url)
	if stray := (*RegistrationError)(nil); !errors.As(err, &stray) {
		t.Errorf("%v", err)
	}
	if len(second.Sink.Holding("the-secret")) > 0 || asked != 1 {
		t.Errorf("the second server has the secret, or %d logins were started", asked)
	}
	for _, r := range second.Sink.Requests(authtest.Token) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a client has authenticated at the second server")
		}
	}
}

// Only a client without an Issuer is bound to that of its first use: what Registered names needs no binding, and would else keep it
// when the program names another.
//
// Guarantees: G-0044.11
func TestWhichClientsAreBound(t *testing.T) {
	for named, want := range map[string]string{"": offlineIssuer, offlineIssuer: ""} {
		f := newOffline(authtest.Options{Clients: []authtest.Client{{ID: "known", Secret: "the-secret", Auth: "client_secret_basic"}}})
		a := f.login(t, Options{Grant: ClientCredentials{}, Registered: []Registered{{Issuer: named, ID: "known", Secret: NewSecret("the-secret")}}})
		if err := a.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e, err := a.Status(t.Context()); err != nil || e.Pinned != want {
			t.Errorf("a client with the issuer %q is bound to %q, %v; want %q", named, e.Pinned, err, want)
		}
	}
}
