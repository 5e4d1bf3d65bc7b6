package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// shownForm returns the parameters of a request, in order. Of those that are random it has only the names.
func shownForm(form url.Values) string {
	form, names := url.Values{}, form
	for name, values := range names {
		if slices.Contains([]string{"code", "code_verifier", "code_challenge", "state", "refresh_token", "device_code", "assertion", "client_assertion", "subject_token", "token"}, name) ||
			strings.HasPrefix(values[0], "client-") {
			values = []string{"*"}
		}
		form[name] = values
	}
	text, err := url.QueryUnescape(form.Encode())
	if err != nil {
		return err.Error()
	}
	return text
}

// Each authorization, token and revocation request has these parameters and no others: so a secret is sent only where it
// belongs, and a token is asked for one server.
//
// Guarantees: G-0044.1, G-0044.10
func TestRequestsToTheAuthorizationServer(t *testing.T) {
	const resource, exchange = "resource=" + offlineURL, "grant_type=urn:ietf:params:oauth:grant-type:"
	secret := authtest.Client{ID: "known", Secret: "the-secret", Auth: "client_secret_post", Redirects: []string{testRedirect}}
	known := []Registered{{Issuer: offlineIssuer, ID: "known", Secret: NewSecret("the-secret")}}
	post := setMember("token_endpoint_auth_methods_supported", []string{"client_secret_post"})
	sink := new(authtest.Sink)
	provider := authtest.New("https://idp.example", authtest.Options{Clients: []authtest.Client{{ID: "known", Secret: "another"}}, Sink: sink})
	for name, c := range map[string]struct {
		options func(*offline) Options
		lie     authtest.Lie // about the metadata; nil: it is as it is
		want    []string     // the parameters, of all of the first login, a refresh and a logout
	}{
		"a code": {options: byConsent, want: []string{
			"client_id=*&code_challenge=*&code_challenge_method=S256&redirect_uri=" + testRedirect + "&" + resource + "&response_type=code&scope=read write&state=*",
			"client_id=*&code=*&code_verifier=*&grant_type=authorization_code&redirect_uri=" + testRedirect + "&" + resource,
			"client_id=*&token=*&token_type_hint=access_token",
		}},
		"a code and a refresh token": {options: func(f *offline) Options { return Options{Interact: f.consent, Offline: true} }, want: []string{
			"client_id=*&code_challenge=*&code_challenge_method=S256&prompt=consent&redirect_uri=" + testRedirect + "&" + resource + "&response_type=code&scope=read write offline_access&state=*",
			"client_id=*&code=*&code_verifier=*&grant_type=authorization_code&redirect_uri=" + testRedirect + "&" + resource,
			"client_id=*&grant_type=refresh_token&refresh_token=*&" + resource,
			"client_id=*&token=*&token_type_hint=refresh_token",
			"client_id=*&token=*&token_type_hint=access_token",
		}},
		"a refresh token where none is offered": {options: func(f *offline) Options {
			return Options{Interact: f.consent, Scopes: func([]string) []string { return []string{"offline_access"} }}
		}, lie: setMember("scopes_supported", nil), want: []string{
			"client_id=*&code_challenge=*&code_challenge_method=S256&prompt=consent&redirect_uri=" + testRedirect + "&" + resource + "&response_type=code&scope=offline_access&state=*",
			"client_id=*&code=*&code_verifier=*&grant_type=authorization_code&redirect_uri=" + testRedirect + "&" + resource,
			"client_id=*&grant_type=refresh_token&refresh_token=*&" + resource,
			"client_id=*&token=*&token_type_hint=refresh_token",
			"client_id=*&token=*&token_type_hint=access_token",
		}},
		"fewer scopes": {options: func(f *offline) Options {
			return Options{Interact: f.consent, Scopes: func([]string) []string { return nil }}
		}, want: []string{
			"client_id=*&code_challenge=*&code_challenge_method=S256&redirect_uri=" + testRedirect + "&" + resource + "&response_type=code&state=*",
			"client_id=*&code=*&code_verifier=*&grant_type=authorization_code&redirect_uri=" + testRedirect + "&" + resource,
			"client_id=*&token=*&token_type_hint=access_token",
		}},
		"a client with a secret": {options: func(f *offline) Options { return Options{Interact: f.consent, Registered: known} }, lie: post, want: []string{
			"client_id=known&code_challenge=*&code_challenge_method=S256&redirect_uri=" + testRedirect + "&" + resource + "&response_type=code&scope=read write&state=*",
			"client_id=known&client_secret=the-secret&code=*&code_verifier=*&grant_type=authorization_code&redirect_uri=" + testRedirect + "&" + resource,
			"client_id=known&client_secret=the-secret&token=*&token_type_hint=access_token",
		}},
		"credentials": {options: func(*offline) Options { return Options{Grant: ClientCredentials{}, Registered: known} }, lie: post, want: []string{
			"client_id=known&client_secret=the-secret&grant_type=client_credentials&" + resource + "&scope=read write",
			"client_id=known&client_secret=the-secret&token=*&token_type_hint=access_token",
		}},
		"a device": {options: func(*offline) Options {
			return Options{Grant: Device{Show: func(context.Context, DeviceCode) error { return nil }}}
		}, want: []string{
			"client_id=*&" + resource + "&scope=read write",
			"client_id=*&device_code=*&grant_type=urn:ietf:params:oauth:grant-type:device_code&" + resource,
			"client_id=*&token=*&token_type_hint=access_token",
		}},
		"workload": {options: func(*offline) Options {
			return Options{Grant: Workload{Assertion: func(_ context.Context, audience string) (Secret, error) {
				return NewSecret(provider.Signed("JWT", map[string]any{"iss": provider.Issuer(), "sub": "pod", "aud": audience, "exp": time.Now().Add(time.Hour).Unix()})), nil
			}}}
		}, want: []string{
			"assertion=*&" + exchange + "jwt-bearer&" + resource + "&scope=read write",
			"token=*&token_type_hint=access_token",
		}},
		"enterprise": {options: func(f *offline) Options {
			return Options{Registered: known, Grant: IDJAG{
				TokenEndpoint: provider.URL(authtest.Token), Issuer: provider.Issuer(), Client: Registered{ID: "known", Secret: NewSecret("another")},
				Subject: func(context.Context) (Secret, string, error) {
					return NewSecret(provider.Signed("JWT", map[string]any{"iss": provider.Issuer(), "sub": "ada", "aud": "known", "exp": time.Now().Add(time.Hour).Unix()})), "", nil
				},
			}}
		}, lie: post, want: []string{
			"audience=" + offlineIssuer + "&client_id=known&" + exchange + "token-exchange&requested_token_type=urn:ietf:params:oauth:token-type:id-jag&" + resource + "&scope=read write&subject_token=*&subject_token_type=urn:ietf:params:oauth:token-type:id_token",
			"assertion=*&client_id=known&client_secret=the-secret&" + exchange + "jwt-bearer&" + resource + "&scope=read write",
			"client_id=known&client_secret=the-secret&token=*&token_type_hint=access_token",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(sink.Requests())
			f := newOffline(authtest.Options{Clients: []authtest.Client{secret}, Sink: sink, Trusts: map[string]func() jose.JSONWebKeySet{provider.Issuer(): provider.Keys}})
			f.fetch = func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "idp.example" {
					return answerOf(provider, r), nil
				}
				return nil, nil
			}
			f.as.Lie(authtest.Metadata, c.lie)
			f.as.Lie(authtest.Device, setMember("interval", 0.001))
			options := c.options(f)
			if device, ok := options.Grant.(Device); ok {
				options.Grant = fastDevice{device}
			}
			a := f.login(t, options)
			f.wantCall(t, a)
			if !a.current.Load().entry.Refresh.IsZero() {
				expireBy(t, a, 2*time.Hour)
				f.wantCall(t, a)
			}
			if err := a.Logout(t.Context()); err != nil && !strings.Contains(name, "workload") { // a platform has no client that could revoke
				t.Errorf("Logout: %v", err)
			}
			var got []string
			for _, r := range sink.Requests()[before:] {
				if !slices.Contains([]authtest.Endpoint{authtest.Authorize, authtest.Device, authtest.Token, authtest.Revoke}, r.Endpoint) {
					continue
				}
				got = append(got, shownForm(r.Form))
				if accept, kind := r.Header.Get("Accept"), r.Header.Get("Content-Type"); r.Endpoint != authtest.Authorize && (accept != "application/json" || kind != "application/x-www-form-urlencoded") {
					t.Errorf("a request to %s has the headers Accept: %s and Content-Type: %s", r.Endpoint, accept, kind)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the requests differ: -want +got\n%s", diff)
			}
		})
	}
}

// An assertion of a client is for one issuer, for one minute, and is used once.
//
// Guarantees: G-0044.1
func TestAssertionsOfAClient(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f := newOffline(authtest.Options{Clients: []authtest.Client{{ID: "signing", Redirects: []string{testRedirect}, Auth: "private_key_jwt", Keys: &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}}}}})
	a := f.login(t, Options{Grant: ClientCredentials{}, Registered: []Registered{{ID: "signing", Key: key, KeyID: "k"}}})
	seen := map[string]bool{}
	for range 2 {
		if err := a.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	person := f.login(t, Options{Interact: f.consent, Offline: true, Registered: []Registered{{ID: "signing", Key: key, KeyID: "k"}}})
	if err := person.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	expireBy(t, person, 2*time.Hour)
	f.wantCall(t, person)
	if n := f.tokenRequests("refresh_token"); n != 1 {
		t.Errorf("%d refreshes, want one", n)
	}
	for _, r := range f.as.Sink.Requests(authtest.Token) {
		signed, err := jose.ParseSignedCompact(r.Form.Get("client_assertion"), []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		var claims struct {
			Issuer   string `json:"iss"`
			Subject  string `json:"sub"`
			Audience any    `json:"aud"`
			ID       string `json:"jti"`
			Issued   int64  `json:"iat"`
			Expires  int64  `json:"exp"`
		}
		if err := json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &claims); err != nil {
			t.Fatal(err)
		}
		header := signed.Signatures[0].Header
		if claims.Issuer != "signing" || claims.Subject != "signing" || claims.Expires-claims.Issued != 60 || claims.ID == "" || seen[claims.ID] ||
			header.KeyID != "k" || header.ExtraHeaders[jose.HeaderType] != "JWT" || r.Form.Get("client_secret") != "" {
			t.Errorf("the assertion has the claims %+v and the header %+v", claims, header)
		}
		seen[claims.ID] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d token requests, want four", len(seen))
	}
}

// A server of revision 2025-03-26 has no metadata of its own. It is its own authorization server, with endpoints at fixed paths
// unless it has metadata, and gets no parameter resource.
//
// Guarantees: G-0044.1, G-0044.7
func TestServersOfTheFirstRevisionWithLogins(t *testing.T) {
	const self = "https://mcp.example"
	absent := answerWith(http.StatusNotFound, "")
	for name, c := range map[string]struct {
		metadata authtest.Lie // about the metadata of the authorization server
		want     string
	}{
		"without metadata":       {absent, ""},
		"with metadata":          {nil, ""},
		"with a page":            {pageWith(http.StatusOK, "text/html", "<html>"), ""},
		"whose metadata is away": {answerWith(http.StatusServiceUnavailable, ""), "auth: metadata at " + self + "/.well-known/oauth-authorization-server: status 503"},
		"with metadata of another issuer": {setMember("issuer", "https://evil.example"),
			"auth: metadata at " + self + "/.well-known/oauth-authorization-server: it is not that of the authorization server: its issuer is another"},
		"whose token endpoint is in the network": {setMember("token_endpoint", "https://10.0.0.1/token"),
			"auth: metadata at " + self + "/.well-known/oauth-authorization-server: it is not that of the authorization server: https://10.0.0.1/token: it leads to a private address"},
		"without PKCE": {setMember("code_challenge_methods_supported", []string{"plain"}), "auth: metadata at " + self + ": it does not list the PKCE method S256"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOffline(authtest.Options{})
			f.as = authtest.New(self, authtest.Options{Resource: offlineURL})
			f.server = f.as.Protect(http.NotFoundHandler())
			f.as.Lie(authtest.ResourceMetadata, absent)
			f.as.Lie(authtest.Metadata, c.metadata)
			f.as.Lie(authtest.Challenge, func(a *authtest.Answer) { a.Header.Set("WWW-Authenticate", "Bearer") })
			f.as.Lie(authtest.Authorize, func(a *authtest.Answer) {
				if c.metadata != nil {
					delete(a.Query, "iss")
				}
			})
			a := f.login(t, byConsent(f))
			err := a.Login(t.Context())
			if text := strings.TrimPrefix(errorText(err), "auth: log in to "+offlineURL+" first: "); c.want != "" && text != c.want || c.want == "" && err != nil {
				t.Fatalf("Login: %s\nwant:  %s", text, c.want)
			}
			if c.want != "" {
				return
			}
			e, err := a.Status(t.Context())
			if err != nil || e == nil || e.Issuer != self || e.Resource != "" || e.TokenEndpoint != self+"/token" {
				t.Errorf("the login is %+v, %v", e, err)
			}
			for _, r := range f.as.Sink.Requests(authtest.Authorize, authtest.Token) {
				if r.Form.Has("resource") {
					t.Errorf("%s has the parameter resource", r.URL)
				}
			}
		})
	}
}

// With an address of its own in the challenge, a server is not one of that revision.
//
// Guarantees: G-0044.7
func TestAServerWhoseMetadataIsAbsentIsNoOlderOne(t *testing.T) {
	f := newOffline(authtest.Options{})
	f.as.Lie(authtest.ResourceMetadata, answerWith(http.StatusNotFound, ""))
	err := f.login(t, byConsent(f)).Login(t.Context())
	if err == nil {
		t.Error("Login succeeded")
	}
	for _, r := range f.as.Sink.Requests() {
		if r.Endpoint != authtest.ResourceMetadata {
			t.Errorf("%s was asked", r.URL)
		}
	}
}

// What the server requires may be in any of its challenges.
//
// Guarantees: G-0044.1
func TestChallengesInSeveralLines(t *testing.T) {
	f := newOffline(authtest.Options{})
	server := f.server
	f.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			if r.Method != http.MethodPost || r.Header.Get("Accept") != "application/json, text/event-stream" || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("the server is asked by %s with %v", r.Method, r.Header)
			}
			w.Header()["Www-Authenticate"] = []string{`Basic realm="x"`, `Bearer resource_metadata="` + f.as.URL(authtest.ResourceMetadata) + `"`, `scope="read"`}
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		server.ServeHTTP(w, r)
	})
	if err := f.login(t, byConsent(f)).Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked := f.as.Sink.Requests(authtest.Authorize)[0].Form.Get("scope"); asked != "read" {
		t.Errorf("the scopes are %q, want read", asked)
	}
}

// Servers that have a page at every address must know that a document is wanted.
func TestDocumentsAreAskedForAsJSON(t *testing.T) {
	f := newOffline(authtest.Options{})
	f.wantCall(t, f.login(t, Options{Interact: f.consent}))
	for _, r := range f.as.Sink.Requests(authtest.ResourceMetadata, authtest.Metadata, authtest.Register, authtest.Token) {
		if got := r.Header.Get("Accept"); got != "application/json" {
			t.Errorf("%s %s accepts %q", r.Method, r.URL, got)
		}
	}
}

// A login has the scopes that were granted, and those that were asked for if the server does not say.
//
// Guarantees: G-0044.1
func TestALoginHasTheScopesThatWereGranted(t *testing.T) {
	for name, c := range map[string]struct {
		granted any
		want    string
	}{"fewer": {"read", "read"}, "none": {"", ""}, "it does not say": {nil, "read write offline_access"}} {
		f := newOffline(authtest.Options{})
		f.as.Lie(authtest.Token, setMember("scope", c.granted))
		a := f.login(t, Options{Interact: f.consent, Offline: true})
		if err := a.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e, err := a.Status(t.Context()); err != nil || strings.Join(e.Scopes, " ") != c.want {
			t.Errorf("%s: the login has the scopes %q, %v; want %q", name, e.Scopes, err, c.want)
		}
		f.as.Lie(authtest.Token, setMember("scope", "write"))
		expireBy(t, a, 2*time.Hour)
		f.wantCall(t, a)
		if e, err := a.Status(t.Context()); err != nil || strings.Join(e.Scopes, " ") != "write" {
			t.Errorf("%s: after a refresh the login has the scopes %q, %v; want write", name, e.Scopes, err)
		}
	}
}
