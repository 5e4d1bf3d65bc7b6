package logins

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const at = "https://tools.example.com/login"

// A browser keeps cookies, and follows no redirect.
type browser struct {
	t       *testing.T
	pages   *Pages
	cookies []*http.Cookie
}

func (b *browser) do(method, address string, header http.Header) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, address, nil)
	for name, values := range header {
		r.Header[name] = values
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	b.pages.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || !strings.HasPrefix(c.Name, "__Host-") || c.Domain != "" || c.Path != "/" {
			b.t.Errorf("the cookie is %v", c)
		}
		b.cookies = append(b.cookies, c)
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
	} {
		if got := w.Header().Get(name); got != want {
			b.t.Errorf("%s %s: %s is %q", method, address, name, got)
		}
	}
	return w
}

func (b *browser) get(address string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.do(http.MethodGet, address, nil)
}

// press sends the form of a page, as a browser does.
func (b *browser) press(address string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.do(http.MethodPost, address, http.Header{"Sec-Fetch-Site": {"same-origin"}})
}

// A site is where a login sends browsers.
type site struct {
	state string
	err   error    // why it lets nobody in
	came  *url.URL // how the browser came back
	runs  int
}

func (s *site) login(user, server string) Login {
	return Login{User: user, Server: server, Place: "api.example.com", Run: func(ctx context.Context, visit Visit) error {
		s.runs++
		came, err := visit(ctx, func(_ context.Context, redirect string) (*url.URL, error) {
			return &url.URL{Scheme: "https", Host: "as.example.com", RawQuery: url.Values{"state": {s.state}, "redirect_uri": {redirect}}.Encode()}, nil
		})
		s.came = came
		return errors.Join(err, s.err)
	}}
}

// opened returns pages, and a link of a user.
func opened(t *testing.T, s *site) (*Pages, *Link) {
	t.Helper()
	p := New(at, "", nil)
	t.Cleanup(p.Close)
	l, err := p.Open(s.login("ada", "issues"))
	if err != nil || !strings.HasPrefix(l.URL, at+"/") || len(l.URL) != len(at)+1+secretLength || strings.Contains(l.URL, l.ID) {
		t.Fatal(l, err)
	}
	return p, l
}

func want(t *testing.T, what string, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), text) {
		t.Errorf("%s: %d %s", what, w.Code, w.Body)
	}
}

// A user who is asked whether he means it logs in, once, and the program goes on.
//
// Guarantees: G-0102.1
func TestALogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{state: "s1"}
		p, l := opened(t, s)
		joined, err := p.Open(s.login("ada", "issues"))
		if joined != l || err != nil {
			t.Error("who wants the same login gets another link")
		}
		b := &browser{t: t, pages: p}
		for range 3 { // a program that shows the link opens it, too
			w := b.get(l.URL)
			want(t, "the page", w, http.StatusOK, "<b>ada</b>")
			want(t, "the page", w, http.StatusOK, "<b>issues</b> (api.example.com)")
			want(t, "its head", b.do(http.MethodHead, l.URL, nil), http.StatusOK, "")
			if w := b.do(http.MethodPut, l.URL, nil); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, POST" {
				t.Errorf("another method: %d, allowed are %q", w.Code, w.Header().Get("Allow"))
			}
		}
		if len(b.cookies) != 1 || s.runs != 0 {
			t.Errorf("%d cookies, %d logins", len(b.cookies), s.runs)
		}
		w := b.press(l.URL)
		address, err := w.Result().Location()
		if err != nil || w.Code != http.StatusSeeOther || address.Host != "as.example.com" || address.Query().Get("redirect_uri") != at+"/callback" {
			t.Fatal(w.Code, address, err)
		}
		want(t, "coming back", b.get(at+"/callback?state=s1&code=c1"), http.StatusOK, "You are logged in")
		if err := l.Wait(t.Context()); err != nil || s.came.Query().Get("code") != "c1" {
			t.Error(err, s.came)
		}
		other, err := p.Open(s.login("ada", "issues"))
		if err != nil || other == l {
			t.Error("a link that was used is given to somebody", err)
		}
	})
}

// The requests of a browser may come to any node: each is served by the one that has the login, also if the browser has been at another one before.
//
// Guarantees: G-0104.4
func TestALoginAtAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make(map[string]*Pages)
		forwarded := 0
		for _, name := range []string{"a", "b"} {
			nodes[name] = New(at, name, func(node string) http.Handler {
				if nodes[node] == nil {
					return nil
				}
				forwarded++
				return nodes[node]
			})
			t.Cleanup(nodes[name].Close)
		}
		b := &browser{t: t}
		for i, c := range []struct{ of, at string }{{"a", "b"}, {"b", "b"}, {"b", "a"}, {"a", "a"}} {
			s := &site{state: "s"}
			l, err := nodes[c.of].Open(s.login("ada", "issues"))
			if err != nil {
				t.Fatal(err)
			}
			b.pages, forwarded = nodes[c.at], 0
			b.get(l.URL)
			b.cookies = b.cookies[len(b.cookies)-1:] // the newer one replaces the other
			b.press(l.URL)
			want(t, "coming back", b.get(at+"/callback?state=s&code=c"), http.StatusOK, "You are logged in")
			if err := l.Wait(t.Context()); err != nil || forwarded != map[bool]int{true: 0, false: 3}[c.of == c.at] {
				t.Errorf("%d: %v, %d requests were forwarded", i, err, forwarded)
			}
		}
		want(t, "a node that is not there", b.get(at+"/c."+newSecret()), http.StatusNotFound, noLink)
	})
}

// Whatever else arrives gets one answer, and changes nothing: the user can go on.
//
// Guarantees: G-0102.1, G-0102.2
func TestHostileRequests(t *testing.T) {
	fresh := func(t *testing.T, p *Pages, l *Link) *browser { // that was shown the page
		b := &browser{t: t, pages: p}
		b.get(l.URL)
		return b
	}
	for name, attack := range map[string]func(t *testing.T, p *Pages, l *Link, own *browser) *httptest.ResponseRecorder{
		"a guessed link": func(t *testing.T, p *Pages, _ *Link, own *browser) *httptest.ResponseRecorder {
			return own.get(at + "/" + newSecret())
		},
		"a guessed link, pressed": func(t *testing.T, p *Pages, _ *Link, own *browser) *httptest.ResponseRecorder {
			return own.press(at + "/" + newSecret())
		},
		"no link": func(t *testing.T, p *Pages, _ *Link, own *browser) *httptest.ResponseRecorder {
			return own.get(at + "/")
		},
		"the name in place of the link": func(t *testing.T, p *Pages, l *Link, own *browser) *httptest.ResponseRecorder {
			return own.get(at + "/" + l.ID)
		},
		"a link used twice": func(t *testing.T, p *Pages, l *Link, own *browser) *httptest.ResponseRecorder { return own.get(l.URL) },
		"a link used twice, pressed": func(t *testing.T, p *Pages, l *Link, own *browser) *httptest.ResponseRecorder {
			return own.press(l.URL)
		},
		"the link in another browser": func(t *testing.T, p *Pages, l *Link, _ *browser) *httptest.ResponseRecorder {
			return (&browser{t: t, pages: p}).get(l.URL)
		},
		"another browser that comes back": func(t *testing.T, p *Pages, _ *Link, _ *browser) *httptest.ResponseRecorder {
			other, err := p.Open((&site{state: "s2"}).login("bob", "issues"))
			if err != nil {
				t.Fatal(err)
			}
			return fresh(t, p, other).get(at + "/callback?state=s1&code=theirs")
		},
		"a browser without a cookie": func(t *testing.T, p *Pages, _ *Link, _ *browser) *httptest.ResponseRecorder {
			return (&browser{t: t, pages: p}).get(at + "/callback?state=s1&code=theirs")
		},
		"two cookies": func(t *testing.T, p *Pages, _ *Link, own *browser) *httptest.ResponseRecorder {
			return (&browser{t: t, pages: p, cookies: append(own.cookies, own.cookies...)}).get(at + "/callback?state=s1&code=theirs")
		},
		"a forged state": func(t *testing.T, _ *Pages, _ *Link, own *browser) *httptest.ResponseRecorder {
			return own.get(at + "/callback?state=s2&code=theirs")
		},
		"no state": func(t *testing.T, _ *Pages, _ *Link, own *browser) *httptest.ResponseRecorder {
			return own.get(at + "/callback?code=theirs")
		},
		"no query": func(t *testing.T, _ *Pages, _ *Link, own *browser) *httptest.ResponseRecorder {
			return own.get(at + "/callback")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{state: "s1"}
				p, l := opened(t, s)
				own := fresh(t, p, l)
				own.press(l.URL)
				var refused []string
				p.Refused = func(_ *http.Request, user, why string) { refused = append(refused, user+": "+why) }
				got := attack(t, p, l, own)
				if len(refused) != 1 || refused[0] != ": "+noSuchLink && refused[0] != ": "+noComing || strings.Contains(refused[0], "s1") {
					t.Errorf("who runs the gateway hears of %q", refused)
				}
				if nothing := own.get(at + "/" + newSecret()); got.Code != nothing.Code || got.Body.String() != nothing.Body.String() || got.Code != http.StatusNotFound {
					t.Errorf("%d %s", got.Code, got.Body)
				}
				want(t, "the user himself", own.get(at+"/callback?state=s1&code=mine"), http.StatusOK, "You are logged in")
				if err := l.Wait(t.Context()); err != nil || s.runs != 1 || s.came.Query().Get("code") != "mine" {
					t.Error(err, s.runs, s.came)
				}
				want(t, "a second time", own.get(at+"/callback?state=s1&code=mine"), http.StatusNotFound, "There is no such login")
			})
		})
	}
}

// No other site can begin a login, nor a browser that was not shown what it is about. The link works afterwards.
//
// Guarantees: G-0102.2
func TestFormsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{state: "s1"}
		p, l := opened(t, s)
		var refused []string
		p.Refused = func(_ *http.Request, user, why string) { refused = append(refused, user+": "+why) }
		b := &browser{t: t, pages: p}
		want(t, "without having seen it", b.press(l.URL), http.StatusForbidden, "Allow cookies")
		b.get(l.URL)
		want(t, "another site", b.do(http.MethodPost, l.URL, http.Header{"Sec-Fetch-Site": {"cross-site"}}), http.StatusForbidden, "")
		want(t, "another origin", b.do(http.MethodPost, l.URL, http.Header{"Origin": {"https://evil.example.com"}}), http.StatusForbidden, "")
		want(t, "PUT", b.do(http.MethodPut, l.URL, nil), http.StatusMethodNotAllowed, "")
		want(t, "a form that comes back", b.press(at+"/callback?state=s1&code=c"), http.StatusMethodNotAllowed, "")
		if s.runs != 0 {
			t.Error("it was begun")
		}
		if want := []string{"ada: " + otherBrowser, "ada: " + otherSite, "ada: " + otherSite}; !slices.Equal(refused, want) {
			t.Errorf("who runs the gateway hears of %q, want %q", refused, want)
		}
		if w := b.do(http.MethodPost, l.URL, http.Header{"Origin": {"https://tools.example.com"}}); w.Code != http.StatusSeeOther {
			t.Errorf("its own origin, without metadata of fetch: %d", w.Code)
		}
	})
}

// A link and a login that nobody finishes end after ten minutes, and tell who waits.
//
// Guarantees: G-0102.1, G-0102.3
func TestNobodyLogsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{state: "s1"}
		p, l := opened(t, s)
		b := &browser{t: t, pages: p}
		b.get(l.URL)
		begun := time.Now()
		if err := l.Wait(t.Context()); !errors.Is(err, ErrExpired) || time.Since(begun) != Life {
			t.Error(err, time.Since(begun))
		}
		want(t, "an expired link", b.get(l.URL), http.StatusNotFound, noLink)
		want(t, "an expired link, pressed", b.press(l.URL), http.StatusNotFound, noLink)
		used, err := p.Open(s.login("ada", "issues"))
		if err != nil {
			t.Fatal(err)
		}
		pass(Life - time.Second)
		b.press(used.URL)
		begun = time.Now()
		if err := used.Wait(t.Context()); !errors.Is(err, ErrExpired) || time.Since(begun) != Life {
			t.Error(err, time.Since(begun))
		}
		want(t, "coming back too late", b.get(at+"/callback?state=s1&code=c"), http.StatusNotFound, noLink)
		old, err := p.Open(s.login("ada", "issues"))
		if err != nil {
			t.Fatal(err)
		}
		pass(Life/2 + time.Second)
		if next, err := p.Open(s.login("ada", "issues")); next == old || err != nil {
			t.Error("a link is given to somebody although its end is near", err)
		}
	})
}

// A login that fails says so to the browser without a reason, and to who waits with one. One that succeeds ends the others of this user at this server, and no more.
//
// Guarantees: G-0102.1
func TestHowALoginEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the secret reason")
		s, good := &site{state: "s1", err: why}, &site{state: "s2"}
		p, l := opened(t, s)
		b := &browser{t: t, pages: p}
		b.get(l.URL)
		b.press(l.URL)
		first, _ := p.Open(good.login("ada", "issues"))
		w := b.get(at + "/callback?state=s1&code=c")
		want(t, "a login that failed", w, http.StatusBadGateway, failed)
		if err := l.Wait(t.Context()); !errors.Is(err, why) || strings.Contains(w.Body.String(), "secret") {
			t.Error(err)
		}
		never := (&site{}).login("ada", "issues")
		never.Wants = "nothing"
		broken, _ := p.Open(never)
		want(t, "a login that cannot begin", b.press(broken.URL), http.StatusBadGateway, failed)
		want(t, "one that was open when another one failed", b.press(first.URL), http.StatusSeeOther, "")
		second, _ := p.Open(good.login("ada", "issues"))
		others := []*Link{}
		more := good.login("ada", "issues")
		more.Wants = "write"
		for _, of := range []Login{good.login("bob", "issues"), good.login("ada", "wiki"), more} {
			other, err := p.Open(of)
			if err != nil {
				t.Fatal(err)
			}
			others = append(others, other)
		}
		b.get(at + "/callback?state=s2&code=c")
		if first == second || first.Wait(t.Context()) != nil || second.Wait(t.Context()) != nil {
			t.Error("a login has not ended the other one")
		}
		for _, other := range others {
			select {
			case <-other.done:
				t.Errorf("the login of %s at %s has ended", other.login.User, other.login.Server)
			default:
			}
		}
		p.Close()
		if err := others[0].Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := p.Open(good.login("ada", "issues")); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// A browser that comes back several times at once is let in once.
//
// Guarantees: G-0102.1
func TestAStateIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			p, l := opened(t, &site{state: "s1"})
			b := &browser{t: t, pages: p}
			b.get(l.URL)
			b.press(l.URL)
			var in atomic.Int64
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					if (&browser{t: t, pages: p, cookies: b.cookies}).get(at+"/callback?state=s1&code=c").Code == http.StatusOK {
						in.Add(1)
					}
				})
			}
			group.Wait()
			if in.Load() != 1 {
				t.Fatalf("it was let in %d times", in.Load())
			}
		}
	})
}

// A browser that does not wait until it is known where it has to go ends the login, and who waits for that need not wait for ten minutes.
//
// Guarantees: G-0102.1
func TestABrowserThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(at, "", nil)
		defer p.Close()
		l, err := p.Open(Login{User: "ada", Server: "issues", Run: func(ctx context.Context, _ Visit) error {
			<-ctx.Done() // the server does not answer
			return ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		b := &browser{t: t, pages: p}
		b.get(l.URL)
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, l.URL, nil)
		r.AddCookie(b.cookies[0])
		p.ServeHTTP(httptest.NewRecorder(), r)
		begun := time.Now()
		if err := l.Wait(t.Context()); !errors.Is(err, errLeft) || time.Since(begun) != 0 {
			t.Error(err, time.Since(begun))
		}
		stays, err := p.Open(l.login)
		if err != nil {
			t.Fatal(err)
		}
		b.press(stays.URL)
		if err := stays.Wait(t.Context()); !errors.Is(err, ErrExpired) || time.Since(begun) != Life {
			t.Errorf("who waits for the server ends with %v after %v", err, time.Since(begun))
		}
	})
}

// A user has 16 logins open, and all have 1,024. Those that have ended take no room.
//
// Guarantees: G-0102.3
func TestHowManyLoginsAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(at, "", nil)
		defer p.Close()
		s := &site{state: "s"}
		name := func(kind string, i int) string { return kind + strings.Repeat("x", i) }
		for range 2 {
			for user := range mostOfAll / mostOfUser {
				for i := range mostOfUser {
					if _, err := p.Open(s.login(name("u", user), name("s", i))); err != nil {
						t.Fatal(user, i, err)
					}
				}
				if _, err := p.Open(s.login(name("u", user), "one more")); !errors.Is(err, ErrFull) {
					t.Fatal(user, err)
				}
			}
			if _, err := p.Open(s.login("another user", "s")); !errors.Is(err, ErrFull) {
				t.Error(err)
			}
			pass(Life)
			synctest.Wait()
			if len(p.open)+len(p.unused)+len(p.states) != 0 {
				t.Errorf("%d, %d and %d are left", len(p.open), len(p.unused), len(p.states))
			}
		}
	})
}

func pass(d time.Duration) { <-time.NewTimer(d).C }
