package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/transport"
)

// A stored login is used if these Options could have produced it.
//
// Guarantees: G-0044.11, G-0044.18
func TestWhichStoredLoginIsUsed(t *testing.T) {
	const other = "https://other.example"
	code := func(change func(*Entry)) Entry {
		e := Entry{Issuer: offlineIssuer, Grant: "authorization_code", ClientID: "x", Type: "Bearer", Access: NewSecret("t"), Refresh: NewSecret("r")}
		change(&e)
		return e
	}
	same := func(*Entry) {}
	pinned := func(issuer string) func(*Entry) { return func(e *Entry) { e.Pinned = issuer } }
	platform := func(e *Entry) { e.Grant, e.ClientID = Workload{}.name(), "" }
	here, anywhere, elsewhere := Registered{Issuer: offlineIssuer, ID: "x"}, Registered{ID: "x"}, Registered{Issuer: other, ID: "y"}
	workload := Workload{Assertion: func(context.Context, string) (Secret, error) { return NewSecret("a"), nil }}
	for name, c := range map[string]struct {
		entry Entry
		o     Options
		used  bool
	}{
		"a login by code":                      {code(same), Options{}, true},
		"by code, for a program with a device": {code(same), Options{Grant: Device{}}, true},
		"of no issuer":                         {code(func(e *Entry) { e.Issuer = "" }), Options{}, false},
		"of another kind":                      {code(func(e *Entry) { e.Grant = "client_credentials" }), Options{}, false},
		"for a program of another kind":        {code(same), Options{Grant: ClientCredentials{}}, false},
		"of the client":                        {code(same), Options{Registered: []Registered{here}}, true},
		"of another client":                    {code(func(e *Entry) { e.ClientID = "y" }), Options{Registered: []Registered{here}}, false},
		"where the program has no client":      {code(same), Options{Registered: []Registered{elsewhere}}, true},
		"of the client, not bound yet":         {code(same), Options{Registered: []Registered{anywhere}}, true},
		"of another, not bound yet":            {code(func(e *Entry) { e.ClientID = "y" }), Options{Registered: []Registered{anywhere}}, false},
		"of the client, bound here":            {code(pinned(offlineIssuer)), Options{Registered: []Registered{anywhere}}, true},
		"of the client, bound elsewhere":       {code(pinned(other)), Options{Registered: []Registered{anywhere}}, false},
		"bound elsewhere, but known here":      {code(pinned(other)), Options{Registered: []Registered{anywhere, here}}, true},
		"of a program, bound elsewhere":        {code(func(e *Entry) { e.Grant, e.Pinned = "client_credentials", other }), Options{Grant: ClientCredentials{}, Registered: []Registered{anywhere}}, false},
		"bound, for a program without client":  {code(pinned(other)), Options{}, true},
		"of a platform":                        {code(platform), Options{Grant: workload}, true},
		"of a platform, with another client":   {code(platform), Options{Grant: workload, Registered: []Registered{{Issuer: offlineIssuer, ID: "z"}}}, true},
		"of a platform, bound elsewhere":       {code(func(e *Entry) { platform(e); e.Pinned = other }), Options{Grant: workload, Registered: []Registered{anywhere}}, true},
		"without a type":                       {code(func(e *Entry) { e.Type = "" }), Options{}, true},
		"of an unknown type":                   {code(func(e *Entry) { e.Type = "mac" }), Options{}, false},
		"bound to a key":                       {code(func(e *Entry) { e.Type = "DPoP" }), Options{}, true},
		"bound to a key, as wanted":            {code(func(e *Entry) { e.Type = "DPoP" }), Options{DPoP: true}, true},
		"not bound to a key":                   {code(same), Options{DPoP: true}, false},
		"without a type, not bound to a key":   {code(func(e *Entry) { e.Type = "" }), Options{DPoP: true}, false},
	} {
		f := newOffline(authtest.Options{})
		a := f.login(t, c.o)
		if err := a.store.Locked(t.Context(), a.key(), put(&c.entry)); err != nil {
			t.Fatal(err)
		}
		e, err := a.Status(t.Context())
		if err != nil || (e != nil) != c.used {
			t.Errorf("%s: used: %t, %v; want %t", name, e != nil, err, c.used)
		}
		if c.entry.Type == "DPoP" { // the entry has no key to sign with
			continue
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, offlineURL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Authorize(t.Context(), r); err != nil || (r.Header.Get("Authorization") != "") != c.used {
			t.Errorf("%s: a request carries %q, %v", name, r.Header.Get("Authorization"), err)
		}
	}
}

// A login whose token was removed, because the server has refused it, is not used, although its time has not passed.
//
// Guarantees: G-0044.3
func TestALoginWithoutATokenIsNotUsed(t *testing.T) {
	f := newOffline(authtest.Options{})
	a := f.login(t, byConsent(f))
	for _, expires := range []time.Time{{}, time.Now().Add(time.Hour)} {
		empty := Entry{Issuer: offlineIssuer, Grant: "authorization_code", ClientID: "x", ClientAuth: authNone, Type: "Bearer", Issued: time.Now(), Expires: expires}
		if err := a.store.Locked(t.Context(), a.key(), put(&empty)); err != nil {
			t.Fatal(err)
		}
		a.current.Store(nil)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, offlineURL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Authorize(t.Context(), r); err != nil || len(r.Header["Authorization"]) > 0 {
			t.Errorf("a request has the header %q, %v", r.Header["Authorization"], err)
		}
		sent := f.sentTokens()
		f.wantCall(t, a)
		if e, err := a.Status(t.Context()); err != nil || e.Access.IsZero() || len(*sent) != 2 || (*sent)[0] != "" || (*sent)[1] != e.Access.Reveal() {
			t.Errorf("%d requests were sent; the login is %+v, %v", len(*sent), e, err)
		}
		if err := a.store.Locked(t.Context(), a.key(), put(&empty)); err != nil {
			t.Fatal(err)
		}
		a.current.Store(nil)
		r.Header.Set("Authorization", "Bearer old")
		if again, err := a.Challenged(t.Context(), r, &transport.StatusError{Status: http.StatusUnauthorized, Challenge: `Bearer resource_metadata="` + f.as.URL(authtest.ResourceMetadata) + `"`}); !again || err != nil || a.current.Load().access() == "" {
			t.Errorf("after a login, a request is sent again: %t, %v", again, err)
		}
	}
}

// The refresh token, the client and its secret are sent only to the token endpoint of the login. Without its secret, a login
// is not refreshed.
//
// Guarantees: G-0044.5, G-0044.11
func TestWhoseClientRefreshesALogin(t *testing.T) {
	for name, c := range map[string]struct {
		o      Options
		change func(*Entry)
		sent   string // client id and secret
		fails  string
	}{
		"its own":                    {Options{}, func(*Entry) {}, "x s", ""},
		"one without a secret":       {Options{}, func(e *Entry) { e.ClientAuth, e.ClientSecret = authNone, Secret{} }, "x ", ""},
		"one that has lost it":       {Options{}, func(e *Entry) { e.ClientSecret = Secret{} }, "", "auth: the login at " + offlineIssuer + " has not the secret of its client: log in again"},
		"that of the options":        {Options{Registered: []Registered{{Issuer: offlineIssuer, ID: "x", Secret: NewSecret("new")}}}, func(*Entry) {}, "x new", ""},
		"that of the options, bound": {Options{Registered: []Registered{{ID: "x", Secret: NewSecret("new")}}}, func(e *Entry) { e.Pinned = offlineIssuer }, "x new", ""},
		"none":                       {Options{Grant: Workload{}}, func(e *Entry) { e.Grant, e.ClientID = Workload{}.name(), "" }, " ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOffline(authtest.Options{})
			f.as.Lie(authtest.Token, pageWith(http.StatusOK, "application/json", `{"access_token":"new","token_type":"Bearer"}`))
			a := f.login(t, c.o)
			e := Entry{
				Issuer: offlineIssuer, Grant: "authorization_code", ClientID: "x", ClientSecret: NewSecret("s"), ClientAuth: authPost, Type: "Bearer", Access: NewSecret("old"), Refresh: NewSecret("r"),
				Issued: time.Now().Add(-2 * time.Hour), Expires: time.Now().Add(-time.Hour), Scopes: []string{"read"}, Resource: "https://mcp.example", TokenEndpoint: f.as.URL(authtest.Token),
			}
			c.change(&e)
			if err := a.store.Locked(t.Context(), a.key(), put(&e)); err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, offlineURL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Authorize(t.Context(), r); errorText(err) != c.fails && (err != nil || c.fails != "") {
				t.Fatalf("%v, want %q", err, c.fails)
			}
			asked := f.as.Sink.Requests(authtest.Token)
			if c.fails != "" {
				if len(asked) > 0 {
					t.Errorf("%d token requests", len(asked))
				}
				return
			}
			if form := asked[0].Form; form.Get("client_id")+" "+form.Get("client_secret") != c.sent || form.Get("resource") != "https://mcp.example" || form.Get("refresh_token") != "r" {
				t.Errorf("the token request is %v, want the client %q", form, c.sent)
			}
			now, err := a.Status(t.Context())
			if err != nil || now.Access.Reveal() != "new" || now.Refresh.Reveal() != "r" || !now.Expires.IsZero() || strings.Join(now.Scopes, " ") != "read" || time.Since(now.Issued) > time.Hour {
				t.Errorf("the login is %+v, %v", now, err)
			}
		})
	}
}

// A request is sent with the token only to the server of the login. The path may be another.
//
// Guarantees: G-0044.10
func TestWhereATokenIsSent(t *testing.T) {
	for address, sent := range map[string]bool{
		offlineURL: true, "https://mcp.example/other": true, "https://MCP.example/mcp?a": true,
		"http://mcp.example/mcp": false, "https://mcp.example:444/mcp": false, "https://other.example/mcp": false, "https://mcp.example.evil.example/mcp": false,
	} {
		f := newOffline(authtest.Options{})
		a := f.login(t, byConsent(f))
		to, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if a.Bearer(t.Context(), to) != nil {
			t.Errorf("%s: there is a token before the first login", address)
		}
		f.wantCall(t, a)
		want := a.current.Load().header[0]
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		quick := strings.Join(a.Bearer(t.Context(), to), "")
		if err := a.Authorize(t.Context(), r); (err == nil) != sent || (r.Header.Get("Authorization") == want) != sent || (quick == want) != sent || !sent && quick+r.Header.Get("Authorization") != "" {
			t.Errorf("%s: %q and %q are sent, %v", address, quick, r.Header.Get("Authorization"), err)
		}
	}
	f := newOffline(authtest.Options{})
	a := f.login(t, Options{Interact: f.consent, DPoP: true})
	f.wantCall(t, a)
	if a.Bearer(t.Context(), a.resource()) != nil {
		t.Error("a token that needs a proof is sent without one")
	}
	if New(Options{}).Bearer(t.Context(), a.resource()) != nil {
		t.Error("there is a token of no server")
	}
}

// A login asks for the scopes of the challenge, or else for those of the resource. Only a step-up adds those of the token, and
// only at the same authorization server.
//
// Guarantees: G-0044.8, G-0044.11
func TestWhichScopesAreAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string // the challenges
		status        int    // of the second
		options       func(*Options)
		want          string // the scopes of the last login
	}{
		"those of the resource":          {"", "", 0, nil, "read write"},
		"those of the challenge":         {"admin", "", 0, nil, "admin"},
		"a step-up":                      {"read", "write", 403, nil, "read write"},
		"a step-up to the same":          {"read", "read", 403, nil, "read"},
		"a refused token":                {"read", "write", 401, nil, "write"},
		"offline":                        {"read", "", 0, func(o *Options) { o.Offline = true }, "read offline_access"},
		"fewer":                          {"read write", "", 0, func(o *Options) { o.Scopes = func([]string) []string { return []string{"read", "read", "a b"} } }, "read"},
		"others":                         {"read", "", 0, func(o *Options) { o.Scopes = func(asked []string) []string { return append(asked, "admin") } }, "read admin"},
		"a step-up without a token":      {"", "write", -403, nil, "write"},
		"a step-up, offline":             {"read", "write", 403, func(o *Options) { o.Offline = true }, "read offline_access write"},
		"a step-up that adds scopes":     {"read", "write", 403, func(o *Options) { o.Scopes = func(asked []string) []string { return append(asked, "admin") } }, "read admin write"},
		"a step-up at another authority": {"read", "admin", 403, nil, "admin"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOffline(authtest.Options{Scopes: []string{"read", "write", "admin", "offline_access"}})
			f.as.Lie(authtest.ResourceMetadata, setMember("scopes_supported", []string{"read", "write"}))
			second := authtest.New("https://other.example", authtest.Options{Resource: offlineURL, Scopes: []string{"read", "write", "admin"}, Sink: f.as.Sink})
			f.fetch = func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "other.example" {
					return answerOf(second, r), nil
				}
				return nil, nil
			}
			metadata := `, resource_metadata="` + f.as.URL(authtest.ResourceMetadata) + `"`
			challenge := func(w http.ResponseWriter, status int, code, scope string) {
				text := fmt.Sprintf(`Bearer error="%s"`, code)
				if scope != "" {
					text += fmt.Sprintf(`, scope="%s"`, scope)
				}
				w.Header().Set("WWW-Authenticate", text+metadata)
				w.WriteHeader(status)
			}
			refused := ""
			f.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				token := tokenOf(r)
				switch {
				case token == "" && c.status < 0:
					challenge(w, -c.status, "insufficient_scope", c.second)
				case token == "":
					challenge(w, http.StatusUnauthorized, "", c.first)
				case c.status > 0 && (refused == "" || refused == token):
					refused = token
					if name == "a step-up at another authority" {
						f.as.Lie(authtest.ResourceMetadata, setMember("authorization_servers", []string{second.Issuer()}))
					}
					challenge(w, c.status, map[int]string{401: "invalid_token", 403: "insufficient_scope"}[c.status], c.second)
				}
			})
			visit := func(ctx context.Context, i Interaction) (*url.URL, error) {
				address, err := i.Start(ctx, testRedirect)
				if err != nil {
					return nil, err
				}
				as := f.as
				if address.Host == "other.example" {
					as = second
				}
				response := answerOf(as, &http.Request{Method: http.MethodGet, URL: address, Header: http.Header{}})
				if i.Resource != offlineURL || i.Issuer != as.Issuer() || strings.Join(i.Scopes, " ") != address.Query().Get("scope") {
					t.Errorf("the person is told %+v", i)
				}
				return response.Location()
			}
			o := Options{Interact: visit}
			if c.options != nil {
				c.options(&o)
			}
			f.wantCall(t, f.login(t, o))
			asked := f.as.Sink.Requests(authtest.Authorize)
			if got := asked[len(asked)-1].Form.Get("scope"); got != c.want {
				t.Errorf("the last login asks for %q, want %q", got, c.want)
			}
		})
	}
}

// The authorization server of an earlier login, or of a client that the program has, is preferred to others that the server
// lists before it.
//
// Guarantees: G-0044.11
func TestWhichAuthorizationServerIsChosen(t *testing.T) {
	for name, c := range map[string]struct {
		o      Options
		stored *Entry
		want   string
	}{
		"the first":                    {Options{}, nil, "https://first.example"},
		"that of a client":             {Options{Registered: []Registered{{Issuer: offlineIssuer, ID: "x"}}}, nil, offlineIssuer},
		"that of the login":            {Options{}, &Entry{Issuer: offlineIssuer, Grant: "authorization_code", Type: "Bearer"}, offlineIssuer},
		"not that of another kind":     {Options{}, &Entry{Issuer: offlineIssuer, Grant: "client_credentials", Type: "Bearer"}, "https://first.example"},
		"where the client is bound to": {Options{}, &Entry{Issuer: "https://first.example", Pinned: offlineIssuer, Grant: "authorization_code", Type: "Bearer"}, offlineIssuer},
		"the login before the clients": {Options{Registered: []Registered{{Issuer: "https://first.example", ID: "x"}}}, &Entry{Issuer: offlineIssuer, Grant: "authorization_code", Type: "Bearer"}, offlineIssuer},
		"not one that is not listed":   {Options{Registered: []Registered{{Issuer: "https://unlisted.example", ID: "x"}}}, nil, "https://first.example"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOffline(authtest.Options{})
			f.as.Lie(authtest.ResourceMetadata, setMember("authorization_servers", []string{"https://first.example", offlineIssuer}))
			stop := errors.New("stop here")
			asked := ""
			f.fetch = func(r *http.Request) (*http.Response, error) {
				if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-authorization-server") {
					asked = "https://" + r.URL.Host
					return nil, stop
				}
				return nil, nil
			}
			c.o.Interact = f.consent
			a := f.login(t, c.o)
			if err := a.store.Locked(t.Context(), a.key(), put(c.stored)); err != nil {
				t.Fatal(err)
			}
			if err := a.Login(t.Context()); !errors.Is(err, stop) || !errors.Is(err, transport.ErrAuthRequired) || asked != c.want {
				t.Errorf("%s was asked, want %s: %v", asked, c.want, err)
			}
		})
	}
}

// A refresh token that the server has ended is removed, and with it the token that the server has refused. No other answer
// removes anything, unless the secret of the client has expired.
//
// Guarantees: G-0044.5
func TestWhatAFailedRefreshLeaves(t *testing.T) {
	const spent, unknown = `{"error":"invalid_grant"}`, `{"error":"invalid_client"}`
	for name, c := range map[string]struct {
		stored        string // the access token in the Store; the one that is refused is "used"
		clientExpires time.Duration
		status        int
		answer        string
		access        string // what is left
		refresh       bool
	}{
		"spent":                              {"used", 0, 400, spent, "", false},
		"spent, with another token":          {"other", 0, 400, spent, "other", false},
		"spent, with another status":         {"used", 0, 403, spent, "used", true},
		"down":                               {"used", 0, 503, ``, "used", true},
		"an unknown client":                  {"used", 0, 401, unknown, "used", true},
		"a client that has expired":          {"used", -time.Minute, 401, unknown, "", false},
		"a client that has not expired":      {"used", time.Minute, 401, unknown, "used", true},
		"down, and the client has expired":   {"used", -time.Minute, 503, ``, "used", true},
		"another error, and it has expired":  {"used", -time.Minute, 400, `{"error":"invalid_request"}`, "used", true},
		"another code of an expired client":  {"used", -time.Minute, 401, `{"error":"unauthorized_client"}`, "used", true},
		"spent, and the client has expired ": {"used", -time.Minute, 400, spent, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOffline(authtest.Options{})
			f.as.Lie(authtest.Token, pageWith(c.status, "application/json", c.answer))
			a := f.login(t, Options{})
			e := Entry{Issuer: offlineIssuer, Grant: "authorization_code", ClientID: "x", ClientAuth: authNone, Type: "Bearer", Access: NewSecret(c.stored), Refresh: NewSecret("r"),
				Issued: time.Now().Add(-2 * time.Hour), Expires: time.Now().Add(-time.Hour), TokenEndpoint: f.as.URL(authtest.Token)}
			if c.clientExpires != 0 {
				e.ClientExpires = time.Now().Add(c.clientExpires)
			}
			if err := a.store.Locked(t.Context(), a.key(), put(&e)); err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, offlineURL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer used")
			again, err := a.Challenged(t.Context(), r, &transport.StatusError{Status: http.StatusUnauthorized, Challenge: "Bearer"})
			if again || err == nil || errors.Is(err, transport.ErrAuthRequired) == c.refresh {
				t.Errorf("sent again: %t, %v; want a new login: %t", again, err, !c.refresh)
			}
			left, err := a.Status(t.Context())
			if err != nil || left.Access.Reveal() != c.access || left.Refresh.IsZero() == c.refresh {
				t.Errorf("the Store has the token %q, and a refresh token: %t, %v", left.Access.Reveal(), !left.Refresh.IsZero(), err)
			}
		})
	}
}

// A login asks for a refresh token only where the authorization server lists that scope: others refuse what they do not know.
//
// Guarantees: G-0044.1
func TestAScopeThatIsNotListedIsNotAskedFor(t *testing.T) {
	f := newOffline(authtest.Options{Scopes: []string{"read"}})
	f.wantCall(t, f.login(t, Options{Interact: f.consent, Offline: true}))
	asked := f.as.Sink.Requests(authtest.Authorize)
	if len(asked) != 1 || asked[0].Form.Get("scope") != "read" {
		t.Errorf("%d logins, the first for the scopes %q, want read", len(asked), asked[0].Form.Get("scope"))
	}
}
