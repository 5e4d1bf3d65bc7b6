package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/transport"
)

// With each grant and registration, the program gets a token that the server accepts.
//
// Guarantees: G-0044.1
func TestEveryGrant(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret := authtest.Client{ID: "known", Secret: "s%:cret", Auth: "client_secret_basic", Redirects: []string{testRedirect}}
	registered := []Registered{{ID: "known", Secret: NewSecret("s%:cret")}}
	const document = "https://client.test/metadata.json"
	var provider *authtest.Server
	idp := authtest.Start(t, authtest.Options{Clients: []authtest.Client{secret}})
	provider = idp
	trusts := map[string]func() jose.JSONWebKeySet{idp.Issuer(): idp.Keys}
	claims := func(audience string) map[string]any {
		return map[string]any{"iss": idp.Issuer(), "sub": "ada", "aud": audience, "exp": time.Now().Add(time.Hour).Unix()}
	}
	for name, c := range map[string]struct {
		server  authtest.Options
		options Options
	}{
		"registration":     {options: Options{Interact: consent}},
		"refresh token":    {options: Options{Interact: consent, Offline: true}},
		"below a path":     {authtest.Options{Path: "/tenant"}, Options{Interact: consent}},
		"proofs":           {options: Options{Interact: consent, DPoP: true}},
		"nonces":           {authtest.Options{DPoPNonces: true}, Options{Interact: consent, DPoP: true}},
		"known":            {authtest.Options{Clients: []authtest.Client{secret}}, Options{Interact: consent, Registered: registered}},
		"metadata":         {authtest.Options{Documents: map[string]authtest.Client{document: {ID: document, Redirects: []string{testRedirect}}}}, Options{Interact: consent, MetadataURL: document}},
		"credentials":      {authtest.Options{Clients: []authtest.Client{secret}}, Options{Grant: ClientCredentials{}, Registered: registered}},
		"blank secret":     {authtest.Options{Clients: []authtest.Client{{ID: "known", Secret: "\t\u3000\t", Auth: "client_secret_basic"}}}, Options{Grant: ClientCredentials{}, Registered: []Registered{{ID: "known", Secret: NewSecret("\t\u3000\t")}}}},
		"signed assertion": {authtest.Options{Clients: []authtest.Client{{ID: "signing", Auth: "private_key_jwt", Keys: &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}}}}}, Options{Grant: ClientCredentials{}, Registered: []Registered{{ID: "signing", Key: key, KeyID: "k"}}}},
		"workload": {authtest.Options{Trusts: trusts}, Options{Grant: Workload{Assertion: func(_ context.Context, audience string) (Secret, error) {
			return NewSecret(provider.Signed("JWT", claims(audience))), nil
		}}}},
		"enterprise": {authtest.Options{Clients: []authtest.Client{secret}, Trusts: trusts}, Options{Registered: registered, Grant: IDJAG{
			TokenEndpoint: idp.URL(authtest.Token), Issuer: idp.Issuer(), Client: registered[0],
			Subject: func(context.Context) (Secret, string, error) {
				return NewSecret(provider.Signed("JWT", claims("known"))), "", nil
			},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.server)
			a := f.login(t, c.options)
			wantCall(t, a, f.url)
			wantCall(t, a, f.url)
			if n := len(f.as.Sink.Requests(authtest.Token)); n > 2 || n == 2 && name != "nonces" {
				t.Errorf("%d token requests", n)
			}
			if again := f.login(t, Options{Store: a.store, Interact: c.options.Interact, Grant: c.options.Grant, Registered: c.options.Registered, MetadataURL: c.options.MetadataURL}); true {
				before := len(f.as.Sink.Requests(authtest.Token))
				wantCall(t, again, f.url)
				if after := len(f.as.Sink.Requests(authtest.Token)); after != before {
					t.Error("a stored login is not used")
				}
			}
		})
	}
}

// Guarantees: G-0044.2
func TestAMissingLoginIsSaid(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := f.login(t, Options{})
	_, err := call(t.Context(), a, f.url)
	var missing *LoginError
	if !errors.As(err, &missing) || missing.Resource != f.url || !errors.Is(err, transport.ErrAuthRequired) || errorText(err) != "auth: log in to "+f.url+" first: nobody is there to log in" {
		t.Fatalf("%v", err)
	}
	if n := len(f.as.Sink.Requests(authtest.Metadata, authtest.ResourceMetadata, authtest.Register)); n > 0 {
		t.Errorf("%d requests, although the program cannot log in", n)
	}
	if err := a.Login(t.Context()); !errors.As(err, &missing) {
		t.Errorf("Login: %v", err)
	}
	// Another program that shares the store logs in.
	other := f.login(t, Options{Store: a.store, Interact: consent})
	if err := other.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCall(t, a, f.url)
}

// The error of a request that needs a login says which scopes the server requires.
//
// Guarantees: G-0044.2
func TestAMissingLoginNamesItsScopes(t *testing.T) {
	f := newOffline(authtest.Options{})
	f.server = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer scope="read write"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	_, err := f.call(t.Context(), f.login(t, Options{}))
	var missing *LoginError
	if !errors.As(err, &missing) || !slices.Equal(missing.Scopes, []string{"read", "write"}) {
		t.Errorf("%v, for the scopes %q", err, missing.Scopes)
	}
}

// After a refused login, the next calls start no other.
//
// Guarantees: G-0044.9
func TestARefusedLoginIsNotAskedForAgain(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	f.as.Lie(authtest.Authorize, func(a *authtest.Answer) {
		a.Query = url.Values{"error": {"access_denied"}, "state": a.Query["state"], "iss": a.Query["iss"]}
	})
	a := f.login(t, Options{Interact: consent})
	for range 3 {
		_, err := call(t.Context(), a, f.url)
		var denied *ResponseError
		if !errors.As(err, &denied) || denied.Code != "access_denied" || !errors.Is(err, transport.ErrAuthRequired) {
			t.Fatalf("%v", err)
		}
	}
	if n := len(f.as.Sink.Requests(authtest.Authorize)); n != 1 {
		t.Errorf("%d logins were started", n)
	}
	f.as.Lie(authtest.Authorize, nil)
	woken := 0
	a.OnLogin(func() { woken++ })
	if err := a.Login(t.Context()); err != nil || woken != 1 {
		t.Fatalf("%v, woken %d times", err, woken)
	}
	wantCall(t, a, f.url)
}

// Guarantees: G-0044.8
func TestAServerThatRefusesEveryToken(t *testing.T) {
	for status, challenge := range map[int]string{
		401: `Bearer error="invalid_token", resource_metadata="%s"`,
		403: `Bearer error="insufficient_scope", scope="read", resource_metadata="%s"`,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			f := newFixture(t, authtest.Options{Scopes: []string{"read", "write"}})
			f.refuseAll(status, challenge)
			a := f.login(t, Options{Interact: consent})
			for range 4 {
				if got, err := call(t.Context(), a, f.url); err != nil || got != status {
					t.Fatalf("status %d, %v", got, err)
				}
			}
			if n := len(f.as.Sink.Requests(authtest.Authorize)); n != 3 {
				t.Errorf("%d logins were started", n)
			}
		})
	}
}

// Guarantees: G-0044.8
func TestAStepUpAddsScopes(t *testing.T) {
	f := newFixture(t, authtest.Options{Scopes: []string{"read", "write"}})
	f.stepUp()
	a := f.login(t, Options{Interact: consent})
	wantCall(t, a, f.url)
	asked := f.as.Sink.Requests(authtest.Authorize)
	if len(asked) != 2 || asked[0].Form.Get("scope") != "read" || asked[1].Form.Get("scope") != "read write" {
		t.Errorf("%d authorizations", len(asked))
	}
}

// If Options.Scopes leaves out what the server requires, another login would get the same
// scopes. So nobody is asked, and the error names the scopes.
//
// Guarantees: G-0044.8
func TestAStepUpThatGetsNoNewScopesAsksNobody(t *testing.T) {
	for name, c := range map[string]struct {
		scopes func([]string) []string
		logins int
	}{
		"a list": {func([]string) []string { return []string{"read"} }, 1},
		"a filter": {func(asked []string) []string {
			return slices.DeleteFunc(asked, func(scope string) bool { return scope == "write" })
		}, 1},
		"another scope in its place": {func(asked []string) []string {
			if slices.Contains(asked, "write") {
				return []string{"read", "admin"}
			}
			return asked
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{Scopes: []string{"read", "write", "admin", "offline_access"}})
			f.stepUp()
			a := f.login(t, Options{Interact: consent, Offline: true, Scopes: c.scopes})
			for range 3 {
				_, err := call(t.Context(), a, f.url)
				if err == nil || !strings.Contains(err.Error(), `"write"`) || errors.Is(err, transport.ErrAuthRequired) {
					t.Errorf("%v, want an error that names the scope and asks for no login", err)
				}
			}
			if n := len(f.as.Sink.Requests(authtest.Authorize)); n != c.logins {
				t.Errorf("%d logins were started, want %d", n, c.logins)
			}
			if err := a.Login(t.Context()); err != nil {
				t.Errorf("Login: %v", err)
			}
		})
	}
}

// Guarantees: G-0044.10
func TestALoginIsForOneServer(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := f.login(t, Options{Interact: consent})
	wantCall(t, a, f.url)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://elsewhere.test/mcp", nil)
	if err := a.Authorize(t.Context(), r); err == nil || r.Header.Get("Authorization") != "" {
		t.Errorf("%v, %v", err, r.Header)
	}
	other := f.login(t, Options{Store: a.store, Principal: "eve"})
	if _, err := call(t.Context(), other, f.url); !errors.Is(err, transport.ErrAuthRequired) {
		t.Errorf("another principal: %v", err)
	}
}

// A token is not sent over a connection that others can read.
//
// Guarantees: G-0044.10
func TestATokenGoesOverHTTPS(t *testing.T) {
	for address, goes := range map[string]bool{
		"https://mcp.example.com/mcp":     true,
		"https://10.0.0.1/mcp":            true,
		"http://127.0.0.1/mcp":            true,
		"http://[::1]:8080/mcp":           true,
		"http://localhost:8080/mcp":       true,
		"http://mcp.example.com/mcp":      false,
		"http://10.0.0.1/mcp":             false,
		"http://localhost.evil.test/mcp":  false,
		"http://127.0.0.1.evil.test/mcp":  false,
		"http://someone@mcp.example.com/": false,
	} {
		a := New(Options{Resource: address, Interact: consent})
		t.Cleanup(func() { a.Close() })
		e := &Entry{Issuer: "https://as.example", Grant: bearerFlow, Type: "Bearer", Access: NewSecret("tok")}
		if err := a.store.Locked(t.Context(), a.key(), put(e)); err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Authorize(t.Context(), r); err != nil || (r.Header.Get("Authorization") != "") != goes {
			t.Errorf("%s: %v, %q", address, err, r.Header.Get("Authorization"))
		}
		if goes {
			continue
		}
		again, err := a.Challenged(t.Context(), r, &transport.StatusError{Status: http.StatusUnauthorized})
		if again || !errors.Is(err, errPlain) || !errors.Is(err, transport.ErrAuthRequired) {
			t.Errorf("%s, challenged: %v, %v", address, again, err)
		}
		var missing *LoginError
		if err := a.Login(t.Context()); !errors.Is(err, errPlain) || !errors.As(err, &missing) || missing.Resource != a.resource().String() {
			t.Errorf("%s, Login: %v", address, err)
		}
	}
}

// With DPoP, neither a stored nor a new bearer token is used. Without a key, a token that
// is bound to a key is not used.
//
// Guarantees: G-0044.18
func TestTokensAreBoundAsWanted(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	plain := f.login(t, Options{Interact: consent})
	wantCall(t, plain, f.url)
	bound := f.login(t, Options{Store: plain.store, DPoP: true})
	if status, err := call(t.Context(), bound, f.url); !errors.Is(err, transport.ErrAuthRequired) {
		t.Errorf("a bearer token in the store: status %d, %v", status, err)
	}
	bound = f.login(t, Options{Store: plain.store, DPoP: true, Interact: consent})
	wantCall(t, bound, f.url)
	if e, err := bound.Status(t.Context()); err != nil || e == nil || e.Type != "DPoP" {
		t.Errorf("%+v, %v", e, err)
	}
	f.as.Lie(authtest.Token, setMember("token_type", "DPoP"))
	_, err := call(t.Context(), f.login(t, Options{Interact: consent}), f.url)
	var refused *TokenError
	if !errors.As(err, &refused) || refused.Rule == "" {
		t.Errorf("a token that is bound to an unknown key: %v", err)
	}
}
