package gateway

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// An unreadable is a Store that lets nobody look.
type unreadable struct{ auth.Store }

func (unreadable) Load(context.Context, auth.Key) (*auth.Entry, error) {
	return nil, errors.New("the store is away")
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
	if found, err := g.logins.logout(t.Context(), at, "ada"); !found {
		t.Errorf("there is nothing to end: %v", err)
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
