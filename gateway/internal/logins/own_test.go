package logins

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Standing logins of a user, of which one cannot be ended.
type standing struct {
	at    []string
	ended []string
	stuck string
}

func (s *standing) owner(user string) Owner {
	return Owner{User: user, At: func(context.Context) []string { return slices.Clone(s.at) }, End: func(_ context.Context, server string) error {
		if server == s.stuck {
			return errors.New("the secret reason")
		}
		s.ended = append(s.ended, server)
		s.at = slices.DeleteFunc(s.at, func(name string) bool { return name == server })
		return nil
	}}
}

// choose presses the button of a server, as a browser does.
func (b *browser) choose(address, server string, header http.Header) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.send(b.t.Context(), address, url.Values{"server": {server}}.Encode(), header)
}

// send sends a form.
func (b *browser) send(ctx context.Context, address, form string, header http.Header) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, values := range header {
		r.Header[name] = values
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	b.pages.ServeHTTP(w, r)
	return w
}

var sameOrigin = http.Header{"Sec-Fetch-Site": {"same-origin"}}

// ownPages returns pages with the link of a user to his logins, and what was refused there.
func ownPages(t *testing.T, s *standing) (p *Pages, l *OwnLink, refused *[]string) {
	t.Helper()
	p, refused = New(at, "", nil), new([]string)
	p.Refused = func(_ *http.Request, user, why string) { *refused = append(*refused, user+": "+why) }
	t.Cleanup(p.Close)
	l, err := p.Own(s.owner("ada"))
	if err != nil {
		t.Fatal(err)
	}
	return p, l, refused
}

// A user sees his logins, and ends those that he chooses, and no other. To look changes nothing.
//
// Guarantees: G-0102.14
func TestAUserEndsHisLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &standing{at: []string{"issues", "wiki", "<b>"}, stuck: "wiki"}
		p, l, refused := ownPages(t, s)
		if again, err := p.Own(s.owner("ada")); again != l || err != nil {
			t.Error("another link, although nobody has used the first one", err)
		}
		b := &browser{t: t, pages: p}
		for range 2 {
			w := b.get(l.URL)
			want(t, "the page", w, http.StatusOK, "Logins of ada")
			if text := w.Body.String(); !strings.Contains(text, `value="issues"`) || !strings.Contains(text, `value="wiki"`) || strings.Contains(text, "<b><b>") || len(s.ended) > 0 {
				t.Error(text, s.ended)
			}
		}
		want(t, "a login", b.choose(l.URL, "issues", sameOrigin), http.StatusOK, ended)
		want(t, "once more", b.choose(l.URL, "issues", sameOrigin), http.StatusOK, notThere)
		want(t, "at no server", b.choose(l.URL, "x", sameOrigin), http.StatusOK, notThere)
		want(t, "a form that is too long", b.send(t.Context(), l.URL, "x="+strings.Repeat("x", longestForm)+"&server=<b>", sameOrigin), http.StatusOK, notThere)
		w := b.choose(l.URL, "wiki", http.Header{"Origin": {"https://tools.example.com"}})
		if want(t, "one that stays", w, http.StatusBadGateway, notEnded); strings.Contains(w.Body.String(), "secret") {
			t.Error(w.Body)
		}
		if text := b.get(l.URL).Body.String(); strings.Contains(text, "issues") || !strings.Contains(text, "wiki") || !slices.Equal(s.ended, []string{"issues"}) || len(*refused) > 0 {
			t.Error(text, s.ended, *refused)
		}
		s.at = nil
		want(t, "no login", b.get(l.URL), http.StatusOK, "There is no login")
	})
}

// What a user has chosen to end ends, also if the browser does not wait for that. The end of the gateway cuts it, and so do 30 seconds.
//
// Guarantees: G-0102.14
func TestAUserWhoLeavesWhileALoginEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(at, "", nil)
		cut := make(chan error, 2)
		l, err := p.Own(Owner{User: "ada", At: func(context.Context) []string { return []string{"issues"} }, End: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			cut <- ctx.Err()
			return ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		b := &browser{t: t, pages: p}
		b.get(l.URL)
		ctx, leave := context.WithCancel(t.Context())
		go b.send(ctx, l.URL, "server=issues", sameOrigin)
		synctest.Wait()
		leave()
		synctest.Wait()
		if len(cut) > 0 {
			t.Errorf("it was cut: %v", <-cut)
		}
		pass(endTime)
		synctest.Wait()
		if len(cut) == 0 {
			t.Fatalf("it goes on for more than %v", endTime)
		}
		if err := <-cut; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v it ends with %v", endTime, err)
		}
		go b.send(t.Context(), l.URL, "server=issues", sameOrigin)
		synctest.Wait()
		p.Close()
		synctest.Wait()
		if len(cut) == 0 {
			t.Error("the end of the gateway does not cut it")
		}
	})
}

// Other browsers, other sites and guessed links end nothing, and are counted. The user himself goes on.
//
// Guarantees: G-0102.15
func TestOthersEndNoLogins(t *testing.T) {
	of := func(user, why string) string { return user + ": " + why }
	for name, c := range map[string]struct {
		attack func(p *Pages, l *OwnLink, own, other *browser) *httptest.ResponseRecorder
		status int
		text   string
		why    string
	}{
		"another browser": {func(_ *Pages, l *OwnLink, _, other *browser) *httptest.ResponseRecorder {
			return other.choose(l.URL, "wiki", sameOrigin)
		}, http.StatusNotFound, noLink, of("ada", otherBrowser)},
		"another browser that looks": {func(_ *Pages, l *OwnLink, _, other *browser) *httptest.ResponseRecorder { return other.get(l.URL) }, http.StatusNotFound, noLink, of("ada", otherBrowser)},
		"no cookie": {func(p *Pages, l *OwnLink, own, _ *browser) *httptest.ResponseRecorder {
			return (&browser{t: own.t, pages: p}).choose(l.URL, "wiki", sameOrigin)
		}, http.StatusForbidden, another, of("ada", otherBrowser)},
		"another site": {func(_ *Pages, l *OwnLink, own, _ *browser) *httptest.ResponseRecorder {
			return own.choose(l.URL, "wiki", http.Header{"Sec-Fetch-Site": {"cross-site"}})
		}, http.StatusForbidden, noLink, of("ada", otherSite)},
		"another origin": {func(_ *Pages, l *OwnLink, own, _ *browser) *httptest.ResponseRecorder {
			return own.choose(l.URL, "wiki", http.Header{"Origin": {"https://evil.example.com"}})
		}, http.StatusForbidden, noLink, of("ada", otherSite)},
		"a guessed link": {func(_ *Pages, _ *OwnLink, own, _ *browser) *httptest.ResponseRecorder {
			return own.choose(at+"/"+newSecret(), "wiki", sameOrigin)
		}, http.StatusNotFound, noLink, of("", noSuchLink)},
		"a guessed link, opened": {func(_ *Pages, _ *OwnLink, own, _ *browser) *httptest.ResponseRecorder {
			return own.get(at + "/" + newSecret())
		}, http.StatusNotFound, noLink, of("", noSuchLink)},
		"the name of the link": {func(_ *Pages, l *OwnLink, own, _ *browser) *httptest.ResponseRecorder {
			return own.choose(at+"/"+l.ID, "wiki", sameOrigin)
		}, http.StatusNotFound, noLink, of("", noSuchLink)},
		"a forged state": {func(_ *Pages, _ *OwnLink, own, _ *browser) *httptest.ResponseRecorder {
			return own.get(at + "/callback?state=forged&code=c")
		}, http.StatusNotFound, noLink, of("", noComing)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &standing{at: []string{"issues", "wiki"}}
				p, l, refused := ownPages(t, s)
				own, other := &browser{t: t, pages: p}, &browser{t: t, pages: p}
				own.get(l.URL)
				other.get(l.URL)
				want(t, "the user", own.choose(l.URL, "issues", sameOrigin), http.StatusOK, ended)
				want(t, "the attack", c.attack(p, l, own, other), c.status, c.text)
				if !slices.Equal(s.ended, []string{"issues"}) || !slices.Equal(*refused, []string{c.why}) {
					t.Errorf("ended: %q, refused: %q", s.ended, *refused)
				}
				want(t, "the user goes on", own.choose(l.URL, "wiki", sameOrigin), http.StatusOK, ended)
			})
		})
	}
}

// Another site that is first neither ends a login nor takes the link away.
//
// Guarantees: G-0102.15
func TestAnotherSiteIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &standing{at: []string{"issues"}}
		p, l, _ := ownPages(t, s)
		own, other := &browser{t: t, pages: p}, &browser{t: t, pages: p}
		for range 2 { // with a cookie, too
			want(t, "who only looks", other.get(l.URL), http.StatusOK, "Logins of ada")
		}
		want(t, "another site", other.choose(l.URL, "issues", http.Header{"Sec-Fetch-Site": {"cross-site"}}), http.StatusForbidden, noLink)
		want(t, "no cookie", own.choose(l.URL, "issues", sameOrigin), http.StatusForbidden, another)
		own.get(l.URL)
		want(t, "the user", own.choose(l.URL, "issues", sameOrigin), http.StatusOK, ended)
	})
}

// A user has one link, for ten minutes; all have 1,024. Nothing is left of those that have ended.
//
// Guarantees: G-0102.14
func TestHowLongLinksToLoginsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &standing{at: []string{"issues"}}
		p, first, _ := ownPages(t, s)
		own := &browser{t: t, pages: p}
		own.get(first.URL)
		own.choose(first.URL, "none", sameOrigin)
		second, err := p.Own(s.owner("ada"))
		if err != nil || second == first {
			t.Fatal("a link that was used is given to somebody", err)
		}
		want(t, "the one before", own.get(first.URL), http.StatusNotFound, noLink)
		pass(Life/2 + time.Second)
		third, err := p.Own(s.owner("ada"))
		if err != nil || third == second {
			t.Fatal("a link is given to somebody although its end is near", err)
		}
		for i := range mostOfAll - 1 {
			if _, err := p.Own(s.owner(fmt.Sprint(i))); err != nil {
				t.Fatal(i, err)
			}
		}
		if _, err := p.Own(s.owner("one more")); !errors.Is(err, ErrFull) {
			t.Error(err)
		}
		pass(Life)
		synctest.Wait()
		want(t, "an expired link", own.choose(third.URL, "issues", sameOrigin), http.StatusNotFound, noLink)
		if len(p.own.links) > 0 || len(s.ended) > 0 {
			t.Errorf("%d links are left, ended is %q", len(p.own.links), s.ended)
		}
		if _, err := p.Own(s.owner("ada")); err != nil {
			t.Error(err)
		}
		p.Close()
		if _, err := p.Own(s.owner("ada")); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// The requests of a browser may come to any node: the one that has the link serves them.
//
// Guarantees: G-0104.4
func TestALinkToLoginsAtAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(at, "a", nil)
		b := New(at, "b", func(string) http.Handler { return a })
		t.Cleanup(a.Close)
		t.Cleanup(b.Close)
		s := &standing{at: []string{"issues"}}
		l, err := a.Own(s.owner("ada"))
		if err != nil {
			t.Fatal(err)
		}
		own := &browser{t: t, pages: b}
		own.get(l.URL)
		want(t, "over another node", own.choose(l.URL, "issues", sameOrigin), http.StatusOK, ended)
	})
}
