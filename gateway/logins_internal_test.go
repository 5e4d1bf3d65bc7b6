package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/internal/logins"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// An unreadable is a Store that lets nobody look.
type unreadable struct{ auth.Store }

func (unreadable) Load(context.Context, auth.Key) (*auth.Entry, error) {
	return nil, errors.New("the store is away")
}

func (unreadable) Locked(context.Context, auth.Key, func(*auth.Entry) (*auth.Entry, error)) error {
	return errors.New("the store is away")
}

// While nobody knows whether a user is logged in, his connections go on, and he sees the login and can end it.
//
// Guarantees: G-0102.13
func TestLoginsThatCannotBeRead(t *testing.T) {
	g := New(Options{UserLogins: &UserLogins{For: func(*mcpjson.Server) (auth.Options, error) {
		return auth.Options{Store: unreadable{auth.NewMemory()}, Resource: "https://a.example/mcp"}, nil
	}}})
	defer g.Close(t.Context())
	at := &mcpjson.Server{Name: "a", Transport: &streamable.Client{URL: "https://a.example/mcp"}}
	at.Settings.PerUser = true
	u := &upstream{entry: entry{perUser: at}, traffic: &traffic{notifier: g.notifier}, pool: new(pool.Pool[*connection])}
	u.Name = "a"
	g.order, g.servers = []string{"a"}, map[string]*upstream{"a": u}
	c := &connection{as: "a #1", place: &place{Owner: pool.Owner{User: "ada"}}}
	c.login.seen.Store(true)
	if g.endIfLoggedOut(t.Context(), u, c); !c.login.seen.Load() {
		t.Error("she counts as logged out")
	}
	if at := g.loggedInAt(t.Context(), "ada"); !slices.Equal(at, []string{"a"}) {
		t.Errorf("she sees logins at %q", at)
	}
	if found, err := g.logins.logout(t.Context(), at, "ada"); !found || err == nil || strings.Contains(err.Error(), "is removed") {
		t.Errorf("there is a login to end: %t, and the answer is %v", found, err)
	}
}

// A connection looks at most once a second for whether its user is still logged in, and not just after a login.
func TestHowOftenAConnectionLooksForItsLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l seenLogin
		looks := func(after time.Duration, want bool) {
			t.Helper()
			<-time.NewTimer(after).C
			if got := l.mayLook(); got != want {
				t.Errorf("%v later it looks: %t, want %t", after, got, want)
			}
		}
		looks(0, true)
		looks(time.Second-1, false)
		looks(1, true)
		looks(time.Minute, true)
		<-time.NewTimer(time.Second / 2).C
		l.note()
		if !l.seen.Load() {
			t.Error("a login that was noted was not seen")
		}
		looks(time.Second-1, false)
		looks(1, true)
	})
}

// A request without a token leaves that of the one before, and the same token is no other one.
func TestWhichTokensAreNew(t *testing.T) {
	var s subject
	if _, err := s.token(t.Context()); err == nil {
		t.Error("there is a token before any")
	}
	for i, c := range []struct {
		given string // "": none
		isNew bool
		has   string
	}{{"", false, ""}, {"one", true, "one"}, {"one", false, "one"}, {"", false, "one"}, {"two", true, "two"}, {"one", true, "one"}} {
		ctx := t.Context()
		if c.given != "" {
			ctx = WithSubjectToken(ctx, c.given)
		}
		isNew := s.note(ctx)
		has := ""
		if now := s.last.Load(); now != nil {
			has = *now
		}
		if isNew != c.isNew || has != c.has {
			t.Errorf("%d, with %q: new %t, and now it has %q; want %t and %q", i, c.given, isNew, has, c.isNew, c.has)
		}
	}
}

// A login of a user has the store that it must have, and none of what would log in without his browser.
func TestWhatALoginOfAUserTakesOver(t *testing.T) {
	of := auth.Options{Grant: auth.ClientCredentials{}, Interact: func(context.Context, auth.Interaction) (*url.URL, error) { return nil, nil }}
	d := desk{given: &UserLogins{For: func(*mcpjson.Server) (auth.Options, error) { return of, nil }}}
	if _, err := d.options(&mcpjson.Server{}, "ada"); !errors.Is(err, errNoStore) {
		t.Errorf("without a store: %v", err)
	}
	of.Store = auth.NewMemory()
	if o, err := d.options(&mcpjson.Server{}, "ada"); err != nil || o.Principal != "ada" || o.Grant != nil || o.Interact != nil || o.Store != of.Store {
		t.Errorf("%+v, %v", o, err)
	}
}

// What is exchanged is for the audience that the file names, also through a provider, to which the gateway comes as its client there.
//
// Guarantees: G-0102.9
func TestAnExchangeIsForTheAudienceOfTheFile(t *testing.T) {
	x := &mcpjson.Exchange{ClientID: "at the issuer", Audience: "vault"}
	if grant, ok := new(subject).grant(x).(auth.Exchange); !ok || grant.Audience != "vault" {
		t.Errorf("an exchange is %+v", grant)
	}
	x.Provider = &mcpjson.Provider{TokenEndpoint: "https://idp.example/token", ClientID: "at the provider"}
	if grant, ok := new(subject).grant(x).(auth.IDJAG); !ok || grant.Audience != "vault" || grant.Client.ID != "at the provider" || grant.TokenEndpoint != x.Provider.TokenEndpoint {
		t.Errorf("an exchange through a provider is %+v", grant)
	}
}

// A login asks for the scopes that a call needs, unless the file says which ones there may be.
//
// Guarantees: G-0102.7
func TestScopesOfALoginOfAUser(t *testing.T) {
	behind := httptest.NewUnstartedServer(nil)
	resource := "http://" + behind.Listener.Addr().String() + "/mcp"
	as := authtest.Start(t, authtest.Options{Resource: resource, Scopes: []string{"read", "write", "admin"}})
	as.Lie(authtest.ResourceMetadata, func(a *authtest.Answer) { a.Object["scopes_supported"] = []string{"read"} })
	behind.Config.Handler = as.Protect(http.NotFoundHandler())
	behind.Start()
	defer behind.Close()
	defer http.DefaultClient.CloseIdleConnections()
	stop := errors.New("stop here")
	for _, c := range []struct {
		ofFile func([]string) []string
		want   string
	}{{nil, "read write"}, {func([]string) []string { return []string{"admin"} }, "admin"}} {
		d := desk{
			given: &UserLogins{For: func(*mcpjson.Server) (auth.Options, error) {
				return auth.Options{Store: auth.NewMemory(), Resource: resource, Scopes: c.ofFile}, nil
			}},
			ended: func(context.Context, string, string, error) {},
		}
		got := ""
		visit := func(ctx context.Context, start func(context.Context, string) (*url.URL, error)) (*url.URL, error) {
			at, err := start(ctx, authtest.Redirect)
			if err != nil {
				return nil, err
			}
			got = at.Query().Get("scope")
			return nil, stop
		}
		if err := d.run(t.Context(), &mcpjson.Server{Name: "a"}, "ada", []string{"write"}, visit); !errors.Is(err, stop) || got != c.want {
			t.Errorf("a login asks for %q, %v; want %q", got, err, c.want)
		}
	}
}

// A login for other scopes has a page of its own: the one that is open would not ask for them.
//
// Guarantees: G-0102.7
func TestALoginForOtherScopesIsAnotherOne(t *testing.T) {
	var d desk
	d.pages.Store(&served{Pages: logins.New("https://gateway.example/login", "", nil)})
	defer d.close()
	at := &mcpjson.Server{Name: "a", Transport: &streamable.Client{URL: "https://a.example/mcp"}}
	var ids []string
	for _, scopes := range [][]string{nil, {"write"}, {"write"}} {
		link, err := d.open(at, "ada", scopes)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, link.ID)
	}
	if ids[0] == ids[1] || ids[1] != ids[2] {
		t.Errorf("the logins are %q, want one for each set of scopes", ids)
	}
}

// A client that has left before its connection is noted keeps none.
//
// Guarantees: G-0095.3
func TestAConnectionOfAClientThatHasLeft(t *testing.T) {
	g := New(Options{})
	defer g.Close(t.Context())
	for _, left := range []bool{false, true} {
		session, end := context.WithCancel(t.Context())
		if left {
			end()
		}
		ctx := context.WithValue(t.Context(), memberKey{}, &member{session: new(server.Session), ctx: session})
		u := &upstream{pool: new(pool.Pool[*connection])}
		u.share = shareClient
		c, err := g.lifecycle.connect(ctx, u)
		if err != nil {
			t.Fatal(err)
		}
		if over := u.pool.Leave(c.place); over != left {
			t.Errorf("the client has left: %t; after its request nobody needs the connection: %t", left, over)
		}
		end()
	}
}

// A question outside of calls is no one of several clients.
//
// Guarantees: G-0091.23
func TestWhyNobodyIsAsked(t *testing.T) {
	_, none := callOf(nil)
	for _, c := range []struct {
		err  error
		want string
	}{{none, admin.RefusedNoCall}, {errSeveral, admin.RefusedSeveral}} {
		if got := whyNobody(c.err); got != c.want {
			t.Errorf("%v counts as %s, want %s", c.err, got, c.want)
		}
	}
}
