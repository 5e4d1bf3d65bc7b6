package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// exchanging returns a server, and the options of a program that exchanges the token of a user there.
func exchanging(t *testing.T, o authtest.Options) (f *fixture, made Options, subject string) {
	t.Helper()
	o.Clients = []authtest.Client{{ID: "gateway", Secret: "S3CRET", Auth: "client_secret_basic"}}
	f = newFixture(t, o)
	f.quiet = true
	subject = f.as.Issue("ada", "")
	made = Options{
		Registered: []Registered{{Issuer: f.as.Issuer(), ID: "gateway", Secret: NewSecret("S3CRET")}},
		Grant:      Exchange{Subject: func(context.Context) (Secret, error) { return NewSecret(subject), nil }},
	}
	return f, made, subject
}

// Guarantees: G-0102.9
func TestAnExchange(t *testing.T) {
	for name, opaque := range map[string]bool{"JWT": false, "opaque": true} {
		t.Run(name, func(t *testing.T) {
			f, o, subject := exchanging(t, authtest.Options{Opaque: opaque})
			o.Scopes = func([]string) []string { return []string{"read"} }
			a := f.login(t, o)
			wantCall(t, a, f.url)
			wantCall(t, a, f.url)
			asked := f.as.Sink.Requests(authtest.Token)
			if len(asked) != 1 {
				t.Fatalf("%d exchanges", len(asked))
			}
			for name, want := range map[string]string{
				"grant_type": grantExchange, "subject_token": subject, "subject_token_type": typeAccessToken, "requested_token_type": typeAccessToken,
				"audience": f.url, "resource": f.url, "scope": "read",
			} {
				if got := asked[0].Form.Get(name); got != want {
					t.Errorf("%s is %q", name, got)
				}
			}
			if e, err := a.Status(t.Context()); err != nil || e.Access.Reveal() == subject || !e.Refresh.IsZero() || e.Expires.IsZero() {
				t.Errorf("%v, %v", e, err)
			}
		})
	}
	f, o, _ := exchanging(t, authtest.Options{Opaque: true})
	f.as.Lie(authtest.Token, func(a *authtest.Answer) { a.Object["refresh_token"] = "outlives-the-subject" })
	a := f.login(t, o)
	wantCall(t, a, f.url)
	if e, err := a.Status(t.Context()); err != nil || !e.Refresh.IsZero() {
		t.Errorf("a refresh token is kept: %v, %v", e, err)
	}
	f, o, _ = exchanging(t, authtest.Options{Opaque: true})
	g := o.Grant.(Exchange)
	g.Audience = "issues"
	o.Grant = g
	wantCall(t, f.login(t, o), f.url)
	if asked := f.as.Sink.Requests(authtest.Token); asked[0].Form.Get("audience") != "issues" || asked[0].Form.Get("resource") != f.url {
		t.Errorf("with a name for the server: %v", asked[0].Form)
	}
}

// At the end of a token the exchange is made again, for the token that the user has then, and not before.
//
// Guarantees: G-0102.9
func TestAnExchangeIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOffline(authtest.Options{Life: time.Hour, Clients: []authtest.Client{{ID: "gateway", Secret: "S3CRET", Auth: "client_secret_basic"}}})
		var shown []string
		a := f.login(t, Options{
			Registered: []Registered{{Issuer: f.as.Issuer(), ID: "gateway", Secret: NewSecret("S3CRET")}},
			Grant: Exchange{Subject: func(context.Context) (Secret, error) {
				shown = append(shown, f.as.Issue("ada", ""))
				return NewSecret(shown[len(shown)-1]), nil
			}},
		})
		for range 3 {
			f.wantCall(t, a)
			sleep(50 * time.Minute)
			f.wantCall(t, a)
			sleep(11 * time.Minute)
		}
		asked := f.as.Sink.Requests(authtest.Token)
		if len(asked) != 3 || len(shown) != 3 || asked[2].Form.Get("subject_token") != shown[2] {
			t.Errorf("%d exchanges of %d tokens", len(asked), len(shown))
		}
	})
}

// Whatever a token endpoint answers that is no token for this server, for a time, is refused, and nothing of it reaches the server.
//
// Guarantees: G-0102.10
func TestATokenEndpointThatLies(t *testing.T) {
	lies := lies()
	lies["another issued type"] = lie{setMember("issued_token_type", typeIDJAG), "a token of another type"}
	lies["no issued type"] = lie{setMember("issued_token_type", nil), "a token of another type"}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			f, o, _ := exchanging(t, authtest.Options{})
			f.as.Lie(authtest.Token, lie.with)
			_, err := call(t.Context(), f.login(t, o), f.url)
			if err == nil || !strings.Contains(err.Error(), lie.want) {
				t.Errorf("%v", err)
			}
			if failed := (*TokenError)(nil); errors.As(err, &failed) && (failed.Status == 0 || !strings.HasSuffix(f.as.Issuer(), "://"+failed.Endpoint)) {
				t.Errorf("the host of the token endpoint is %q, its status %d", failed.Endpoint, failed.Status)
			}
			if n := len(f.as.Sink.Requests(authtest.Token)); n != 1 {
				t.Errorf("%d exchanges", n)
			}
			wantNothingSent(t, f.as)
		})
	}
	t.Run("the token that was to be exchanged", func(t *testing.T) {
		f, o, subject := exchanging(t, authtest.Options{Opaque: true})
		f.as.Lie(authtest.Token, setMember("access_token", subject))
		if _, err := call(t.Context(), f.login(t, o), f.url); err == nil || !strings.Contains(err.Error(), "was to be exchanged") {
			t.Error(err)
		}
	})
}

// A token that does not say for whom it is, or that only its server can read, is taken: it has come from the authorization
// server that was asked for this one.
//
// Guarantees: G-0102.10
func TestATokenNeedNotSayForWhomItIs(t *testing.T) {
	for name, token := range map[string]string{
		"of another form":     "a.b", // as an opaque one
		"not encoded":         "a.~.c",
		"of no claims":        "a." + base64.RawURLEncoding.EncodeToString([]byte("{")) + ".c",
		"without an audience": unsigned(`{"sub":"ada"}`),
	} {
		f, o, _ := exchanging(t, authtest.Options{})
		f.as.Lie(authtest.Token, setMember("access_token", token))
		if err := f.login(t, o).Login(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A token for nobody, or for somebody without a name, is for another audience, also if the server has no name either, as one of the
// first revision.
//
// Guarantees: G-0102.10
func TestATokenForNobody(t *testing.T) {
	for _, claims := range []string{`{"aud":""}`, `{"aud":7}`, `{"aud":[]}`, `{"aud":[""]}`} {
		token := &tokenResponse{access: NewSecret(unsigned(claims)), expires: time.Now().Add(time.Hour)}
		if err := acceptGiven(token, []string{"", ""}); err == nil || !strings.Contains(err.Error(), "another audience") {
			t.Errorf("%s: got %v, want a token for another audience", claims, err)
		}
	}
}

// wantNothingSent checks that no token has reached the server, and that no redirect was followed.
func wantNothingSent(t *testing.T, as *authtest.Server) {
	t.Helper()
	for _, r := range as.Sink.Requests() {
		if r.URL.Path == "/elsewhere" || r.Endpoint == authtest.Challenge && r.Header.Get("Authorization") != "" {
			t.Errorf("%s %s was sent", r.Method, r.URL)
		}
	}
}

// unsigned is a token with these claims, which nobody has signed.
func unsigned(claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"none"}`)) + "." + part([]byte(claims)) + ".c2ln"
}

// A lie is what a token endpoint answers in place of a token, and what the error must say.
type lie struct {
	with func(*authtest.Answer)
	want string
}

// lies are those of every grant by which a program acts for a user.
func lies() map[string]lie {
	jwt, set := unsigned, setMember
	return map[string]lie{
		"another audience":       {set("access_token", jwt(`{"aud":"https://other.example.com"}`)), "another audience"},
		"other audiences":        {set("access_token", jwt(`{"aud":["https://other.example.com","https://third.example.com"]}`)), "another audience"},
		"an audience of no kind": {set("access_token", jwt(`{"aud":7}`)), "another audience"},
		"no audiences":           {set("access_token", jwt(`{"aud":[]}`)), "another audience"},
		"no expiry":              {set("expires_in", nil), "does not say when it ends"},
		"an expiry in the past":  {set("expires_in", -1), "does not say when it ends"},
		"an expiry without end":  {set("expires_in", 1e12), "does not say when it ends"},
		"another token_type":     {set("token_type", "N_A"), "of an unknown type"},
		"no token_type":          {set("token_type", nil), "of an unknown type"},
		"a token bound to a key": {set("token_type", "DPoP"), "bound to a DPoP key"},
		"no token":               {set("access_token", ""), "no access token that can be sent"},
		"two headers in a token": {set("access_token", "a\r\nX: y"), "no access token that can be sent"},
		"a huge answer":          {func(a *authtest.Answer) { a.Object["more"] = strings.Repeat("x", 1<<20) }, "262144"},
		"HTML":                   {func(a *authtest.Answer) { a.Body = []byte("<html>"); a.Header.Set("Content-Type", "text/html") }, "not JSON"},
		"the same member twice": {func(a *authtest.Answer) {
			a.Body = []byte(`{"access_token":"a","access_token":"b"}`)
			a.Header.Set("Content-Type", "application/json")
		}, "cannot be read"},
		"an error": {func(a *authtest.Answer) {
			a.Status, a.Object = http.StatusBadRequest, map[string]any{"error": "invalid_target"}
		}, "invalid_target"},
		"a redirect": {func(a *authtest.Answer) {
			a.Status, a.Body = http.StatusTemporaryRedirect, []byte{}
			a.Header.Set("Location", a.Request.Host+"/elsewhere")
		}, "307"},
	}
}

// The token of a user goes to the authorization server that the program was told, whatever a server says.
//
// Guarantees: G-0102.11
func TestWhereATokenIsExchanged(t *testing.T) {
	evil := authtest.Start(t, authtest.Options{})
	for name, change := range map[string]func(f *fixture, o *Options){
		"the server names another one": func(f *fixture, _ *Options) {
			f.as.Lie(authtest.ResourceMetadata, func(a *authtest.Answer) { a.Object["authorization_servers"] = []string{evil.Issuer()} })
		},
		"the client has no issuer": func(_ *fixture, o *Options) { o.Registered[0].Issuer = "" },
		"there is no client":       func(_ *fixture, o *Options) { o.Registered = nil },
		"there is no subject":      func(_ *fixture, o *Options) { o.Grant = Exchange{} },
	} {
		t.Run(name, func(t *testing.T) {
			f, o, _ := exchanging(t, authtest.Options{})
			change(f, &o)
			_, err := call(t.Context(), f.login(t, o), f.url)
			if missing := (*LoginError)(nil); !errors.As(err, &missing) {
				t.Error(err)
			}
			want := "no client at " + f.as.Issuer() + ": the token of a user is exchanged only at an Issuer that Registered names"
			if strings.Contains(name, "client") && !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want ... %s", err, want)
			}
			if n := len(f.as.Sink.Requests(authtest.Token)) + len(evil.Sink.Requests(authtest.Token)); n != 0 {
				t.Errorf("%d token requests", n)
			}
		})
	}
}
