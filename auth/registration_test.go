package auth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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

// What a program registers depends on how it logs in, and on what the authorization server supports.
//
// Guarantees: G-0044.22
func TestWhatAProgramRegisters(t *testing.T) {
	at := func(redirect string) func(*offline) Options {
		return func(*offline) Options {
			return Options{Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
				_, err := i.Start(ctx, redirect)
				return nil, err
			}}
		}
	}
	with := func(o Options) func(*offline) Options {
		return func(f *offline) Options {
			if o.Grant == nil {
				o.Interact = f.consent
			}
			return o
		}
	}
	const begin, code = `{"client_name":"Bowline","redirect_uris":["`, `"],"grant_types":["authorization_code","refresh_token"],"response_types":["code"],"token_endpoint_auth_method":"`
	const native, web = `","application_type":"native"}`, `","application_type":"web"}`
	for name, c := range map[string]struct {
		options func(*offline) Options
		methods any // what the server lists
		want    string
	}{
		"a loopback address":        {at(testRedirect), []string{"none"}, begin + testRedirect + code + "none" + native},
		"localhost":                 {at("https://localhost/cb"), []string{"none"}, begin + "https://localhost/cb" + code + "none" + native},
		"a scheme of its own":       {at("com.example:/cb"), []string{"none"}, begin + "com.example:/cb" + code + "none" + native},
		"an https address":          {at("https://app.example/cb"), []string{"none"}, begin + "https://app.example/cb" + code + "none" + web},
		"no methods are listed":     {with(Options{}), nil, begin + testRedirect + code + "none" + native},
		"all methods are listed":    {with(Options{}), []string{"client_secret_post", "client_secret_basic", "none"}, begin + testRedirect + code + "none" + native},
		"secrets are listed":        {with(Options{}), []string{"client_secret_post", "client_secret_basic"}, begin + testRedirect + code + "client_secret_basic" + native},
		"secrets in the form":       {with(Options{}), []string{"client_secret_post"}, begin + testRedirect + code + "client_secret_post" + native},
		"an unknown method":         {with(Options{}), []string{"tls_client_auth"}, begin + testRedirect + code + "none" + native},
		"a name":                    {with(Options{ClientName: "Mine"}), []string{"none"}, strings.Replace(begin, "Bowline", "Mine", 1) + testRedirect + code + "none" + native},
		"proofs":                    {with(Options{DPoP: true}), []string{"none"}, begin + testRedirect + code + "none" + strings.Replace(native, "}", `,"dpop_bound_access_tokens":true}`, 1)},
		"a device without redirect": {with(Options{Grant: Device{}}), []string{"none"}, `{"client_name":"Bowline","grant_types":["urn:ietf:params:oauth:grant-type:device_code","refresh_token"],"response_types":[],"token_endpoint_auth_method":"none` + native},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOffline(authtest.Options{})
			f.as.Lie(authtest.Metadata, setMember("token_endpoint_auth_methods_supported", c.methods))
			f.as.Lie(authtest.Device, answerWith(http.StatusBadRequest, "{}"))
			_ = f.login(t, c.options(f)).Login(t.Context()) // only its registration matters
			asked := f.as.Sink.Requests(authtest.Register)
			if len(asked) == 0 {
				t.Fatal("it has not registered")
			}
			if got := string(asked[0].Body); got != c.want {
				t.Errorf("it has registered\n%s, want\n%s", got, c.want)
			}
			if accept, kind := asked[0].Header.Get("Accept"), asked[0].Header.Get("Content-Type"); accept != "application/json" || kind != "application/json" {
				t.Errorf("it has the headers Accept: %s and Content-Type: %s", accept, kind)
			}
		})
	}
}

// A program authenticates as its registration says. If that names no method that the program can use, it chooses one that the
// server lists. A login keeps the secret of its registration, and when it expires.
//
// Guarantees: G-0044.1, G-0044.5
func TestHowARegisteredProgramAuthenticates(t *testing.T) {
	for name, c := range map[string]struct {
		answer  string
		methods []string // what the server lists
		method  string
		secret  string
		expires time.Time
	}{
		"none":                   {`{"client_id":"x","token_endpoint_auth_method":"none"}`, nil, authNone, "", time.Time{}},
		"none, with a secret":    {`{"client_id":"x","client_secret":"s","token_endpoint_auth_method":"none"}`, nil, authNone, "s", time.Time{}},
		"basic":                  {`{"client_id":"x","client_secret":"s","token_endpoint_auth_method":"client_secret_basic"}`, []string{authPost}, authBasic, "s", time.Time{}},
		"post":                   {`{"client_id":"x","client_secret":"s","token_endpoint_auth_method":"client_secret_post"}`, []string{authBasic}, authPost, "s", time.Time{}},
		"basic without a secret": {`{"client_id":"x","token_endpoint_auth_method":"client_secret_basic"}`, []string{authBasic}, authNone, "", time.Time{}},
		"no method":              {`{"client_id":"x","client_secret":"s"}`, []string{authNone, authPost}, authPost, "s", time.Time{}},
		"nothing is listed":      {`{"client_id":"x","client_secret":"s"}`, nil, authBasic, "s", time.Time{}},
		"an unknown method":      {`{"client_id":"x","client_secret":"s","token_endpoint_auth_method":"private_key_jwt"}`, []string{authNone, authBasic}, authBasic, "s", time.Time{}},
		"a secret that expires":  {`{"client_id":"x","client_secret":"s","client_secret_expires_at":4000000000,"token_endpoint_auth_method":"client_secret_basic"}`, nil, authBasic, "s", time.Unix(4000000000, 0)},
		"one that never does":    {`{"client_id":"x","client_secret":"s","client_secret_expires_at":0,"token_endpoint_auth_method":"client_secret_basic"}`, nil, authBasic, "s", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOffline(authtest.Options{Clients: []authtest.Client{{ID: "x", Redirects: []string{testRedirect}}}})
			f.as.Lie(authtest.Metadata, setMember("token_endpoint_auth_methods_supported", c.methods))
			f.as.Lie(authtest.Register, pageWith(http.StatusCreated, "application/json", c.answer))
			f.as.Lie(authtest.Token, pageWith(http.StatusOK, "application/json", `{"access_token":"t","token_type":"Bearer","refresh_token":"r"}`))
			a := f.login(t, byConsent(f))
			if err := a.Login(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := f.as.Sink.Requests(authtest.Token)[0]
			_, basic, _ := (&http.Request{Header: r.Header}).BasicAuth()
			if post := r.Form.Get("client_secret"); (basic != "") != (c.method == authBasic) || (post != "") != (c.method == authPost) || basic+post != strings.Repeat(c.secret, min(len(basic+post), 1)) {
				t.Errorf("the client authenticates with %q and %q, want %s", basic, post, c.method)
			}
			e, err := a.Status(t.Context())
			if err != nil || e.ClientID != "x" || e.ClientAuth != c.method || e.ClientSecret.Reveal() != c.secret || !e.ClientExpires.Equal(c.expires) {
				t.Errorf("the login has the client %q, %q, with %q until %v, %v", e.ClientID, e.ClientAuth, e.ClientSecret.Reveal(), e.ClientExpires, err)
			}
		})
	}
}

// A registration is used again for the same name, redirect address and issuer, until its secret expires.
//
// Guarantees: G-0044.22
func TestWhichRegistrationIsUsedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Entry)
		again  bool
	}{
		"the same":                      {func(*Entry) {}, true},
		"a secret that has not expired": {func(e *Entry) { e.ClientExpires = time.Now().Add(time.Minute) }, true},
		"a secret that has expired":     {func(e *Entry) { e.ClientExpires = time.Now().Add(-time.Minute) }, false},
		"of another program":            {func(e *Entry) { e.ClientName = "Mine" }, false},
		"for another address":           {func(e *Entry) { e.RedirectURI += "/x" }, false},
		"of another issuer":             {func(e *Entry) { e.Issuer = "https://other.example" }, false},
	} {
		f := newOffline(authtest.Options{})
		a := f.login(t, byConsent(f))
		f.wantCall(t, a)
		if err := a.store.Locked(t.Context(), Key{Issuer: offlineIssuer}, func(e *Entry) (*Entry, error) {
			other := *e
			c.change(&other)
			return &other, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := a.Login(t.Context()); err != nil {
			t.Errorf("%s: Login: %v", name, err)
		}
		if n := len(f.as.Sink.Requests(authtest.Register)); (n == 1) != c.again {
			t.Errorf("%s: %d registrations; used again, want %t", name, n, c.again)
		}
	}
}
