package auth

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// asserting returns a server, an identity provider that it trusts, and the options of a program that shows a user's token there.
func asserting(t *testing.T) (f *fixture, idp *authtest.Server, made Options, subject string) {
	t.Helper()
	here := []authtest.Client{{ID: "gateway", Secret: "S3CRET", Auth: "client_secret_basic"}}
	idp = authtest.Start(t, authtest.Options{Clients: []authtest.Client{{ID: "gateway", Secret: "at-the-provider", Auth: "client_secret_basic"}}})
	f = newFixture(t, authtest.Options{Clients: here, Trusts: map[string]func() jose.JSONWebKeySet{idp.Issuer(): idp.Keys}})
	f.quiet = true
	subject = idp.Issue("ada", "")
	return f, idp, Options{
		Registered: []Registered{{Issuer: f.as.Issuer(), ID: "gateway", Secret: NewSecret("S3CRET")}},
		Grant: IDJAG{
			TokenEndpoint: idp.URL(authtest.Token), Client: Registered{ID: "gateway", Secret: NewSecret("at-the-provider")},
			Subject: func(context.Context) (Secret, string, error) { return NewSecret(subject), typeAccessToken, nil },
		},
	}, subject
}

// The access token of a user goes to the provider only, the assertion to the authorization server only, and a refresh token is not kept.
//
// Guarantees: G-0102.12
func TestAnAssertion(t *testing.T) {
	f, idp, o, subject := asserting(t)
	f.as.Lie(authtest.Token, setMember("refresh_token", "outlives-the-subject"))
	a := f.login(t, o)
	wantCall(t, a, f.url)
	wantCall(t, a, f.url)
	exchanged, asked := idp.Sink.Requests(authtest.Token), f.as.Sink.Requests(authtest.Token)
	if len(exchanged) != 1 || len(asked) != 1 {
		t.Fatalf("%d assertions, %d tokens", len(exchanged), len(asked))
	}
	for name, want := range map[string]string{
		"grant_type": grantExchange, "subject_token": subject, "subject_token_type": typeAccessToken, "requested_token_type": typeIDJAG,
		"audience": f.as.Issuer(), "resource": f.url,
	} {
		if got := exchanged[0].Form.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	for _, r := range f.as.Sink.Requests() {
		if strings.Contains(r.Form.Encode(), subject) || strings.Contains(r.Header.Get("Authorization"), subject) {
			t.Errorf("%s got the token of the user", r.URL)
		}
	}
	if e, err := a.Status(t.Context()); err != nil || !e.Refresh.IsZero() || e.Expires.IsZero() {
		t.Errorf("%v, %v", e, err)
	}
}

// A server that calls itself otherwise in its tokens is named by Audience, and by nothing else.
//
// Guarantees: G-0102.12
func TestAnAssertionForAServerOfAnotherName(t *testing.T) {
	f, _, o, _ := asserting(t)
	named := o.Grant.(IDJAG)
	f.as.Lie(authtest.Token, setMember("access_token", unsigned(`{"aud":"issues"}`)))
	if _, err := call(t.Context(), f.login(t, o), f.url); err == nil || !strings.Contains(err.Error(), "another audience") {
		t.Error(err)
	}
	named.Audience = "issues"
	o.Grant = named
	a := f.login(t, o)
	if err := a.Login(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whatever the provider answers that is no assertion for the authorization server of this server stays here.
//
// Guarantees: G-0102.12
func TestAProviderThatLies(t *testing.T) {
	all, audiences := lies(), "another authorization server"
	for name := range all {
		if strings.Contains(name, "audience") {
			all[name] = lie{all[name].with, audiences}
		}
	}
	for _, of := range []string{"no expiry", "an expiry in the past", "an expiry without end", "another token_type", "no token_type", "a token bound to a key"} {
		delete(all, of) // an assertion says itself when it ends, and is no token to be sent to a server
	}
	maps.Copy(all, map[string]lie{
		"an opaque assertion": {setMember("access_token", "opaque"), audiences},
		"for nobody":          {setMember("access_token", unsigned(`{"sub":"ada"}`)), audiences},
		"another issued type": {setMember("issued_token_type", typeAccessToken), "a token of another type"},
		"no issued type":      {setMember("issued_token_type", nil), "a token of another type"},
	})
	for name, lie := range all {
		t.Run(name, func(t *testing.T) {
			f, idp, o, _ := asserting(t)
			idp.Lie(authtest.Token, lie.with)
			_, err := call(t.Context(), f.login(t, o), f.url)
			if err == nil || !strings.Contains(err.Error(), lie.want) {
				t.Errorf("%v", err)
			}
			if failed := (*TokenError)(nil); errors.As(err, &failed) && (failed.Status == 0 || !strings.HasSuffix(idp.Issuer(), "://"+failed.Endpoint)) {
				t.Errorf("the host of the token endpoint is %q, its status %d", failed.Endpoint, failed.Status)
			}
			if n, m := len(idp.Sink.Requests(authtest.Token)), len(f.as.Sink.Requests(authtest.Token)); n != 1 || m != 0 {
				t.Errorf("%d exchanges, and %d token requests", n, m)
			}
			wantNothingSent(t, f.as)
			wantNothingSent(t, idp)
		})
	}
	t.Run("the token that was to be exchanged", func(t *testing.T) {
		f, idp, o, subject := asserting(t)
		idp.Lie(authtest.Token, setMember("access_token", subject))
		_, err := call(t.Context(), f.login(t, o), f.url)
		if n := len(f.as.Sink.Requests(authtest.Token)); n != 0 || err == nil || !strings.Contains(err.Error(), "was to be exchanged") {
			t.Errorf("%v, %d token requests", err, n)
		}
	})
}

// Whatever the authorization server makes of an assertion that is no token for this server, for a time, reaches no server.
//
// Guarantees: G-0102.12
func TestAnIssuerThatLiesAfterAnAssertion(t *testing.T) {
	for name, lie := range lies() {
		t.Run(name, func(t *testing.T) {
			f, _, o, _ := asserting(t)
			f.as.Lie(authtest.Token, lie.with)
			if _, err := call(t.Context(), f.login(t, o), f.url); err == nil || !strings.Contains(err.Error(), lie.want) {
				t.Errorf("%v", err)
			}
			wantNothingSent(t, f.as)
		})
	}
	t.Run("the assertion", func(t *testing.T) {
		f, _, o, _ := asserting(t)
		f.as.Lie(authtest.Token, func(a *authtest.Answer) { a.Object["access_token"] = a.Request.Form.Get("assertion") })
		if _, err := call(t.Context(), f.login(t, o), f.url); err == nil || !strings.Contains(err.Error(), "was to be exchanged") {
			t.Error(err)
		}
		wantNothingSent(t, f.as)
	})
}

// The token of a user goes to the provider that the program was told, and to nobody if the server has another authorization server.
//
// Guarantees: G-0102.12
func TestWhereAnAssertionIsMade(t *testing.T) {
	evil := authtest.Start(t, authtest.Options{})
	for name, change := range map[string]func(f *fixture, o *Options){
		"the server names another one": func(f *fixture, _ *Options) {
			f.as.Lie(authtest.ResourceMetadata, func(a *authtest.Answer) { a.Object["authorization_servers"] = []string{evil.Issuer()} })
		},
		"there is no client":  func(_ *fixture, o *Options) { o.Registered = nil },
		"there is no subject": func(_ *fixture, o *Options) { o.Grant = IDJAG{} },
	} {
		t.Run(name, func(t *testing.T) {
			f, idp, o, _ := asserting(t)
			change(f, &o)
			_, err := call(t.Context(), f.login(t, o), f.url)
			if missing := (*LoginError)(nil); !errors.As(err, &missing) {
				t.Error(err)
			}
			if n := len(f.as.Sink.Requests(authtest.Token)) + len(idp.Sink.Requests(authtest.Token)) + len(evil.Sink.Requests(authtest.Token)); n != 0 {
				t.Errorf("%d token requests", n)
			}
		})
	}
}
