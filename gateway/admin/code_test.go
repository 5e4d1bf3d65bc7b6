package admin

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A code of the socket logs one browser in, once and within a minute. At a TCP address nobody gets one, and without a token or a page there is
// nothing to be logged in to.
//
// Guarantees: G-0091.18
func TestACodeLogsInOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(newFake(files()))
		defer d.Close()
		if _, err := d.codes.issue(); !errors.Is(err, errNoPage) {
			t.Errorf("without a page: %v", err)
		}
		web, local := d.Web(Web{Token: "t0ken", URL: "http://localhost:8081/"}), d.Local()
		if got := ask(web, "POST", "/v1/code", token); got.Code != 403 {
			t.Errorf("over TCP: %d %s", got.Code, got.Body)
		}
		next := func() string {
			address, err := d.codes.issue()
			if err != nil || !strings.HasPrefix(address, "http://localhost:8081/login/") {
				t.Fatalf("%s, %v", address, err)
			}
			return strings.TrimPrefix(address, "http://localhost:8081")
		}
		use := func(what, path string, code int) {
			t.Helper()
			got := ask(web, "GET", path)
			cookies := got.Result().Cookies()
			if got.Code != code || (len(cookies) == 1) != (code == 303) || (got.Header().Get("Set-Cookie") == "") != (code == 401) {
				t.Fatalf("%s: %d, %v", what, got.Code, cookies)
			}
			if code == 303 && len(states(page(web, "/", with("Cookie", cookies[0].Name+"="+cookies[0].Value)))) != 1 {
				t.Errorf("%s: it is not logged in", what)
			}
		}
		if got := ask(local, "POST", "/v1/code"); got.Code != 200 || !strings.Contains(got.Body.String(), `"url":"http://localhost:8081/login/`) {
			t.Errorf("at the socket: %d %s", got.Code, got.Body)
		}
		first := next()
		use("the first time", first, http.StatusSeeOther)
		use("the second time", first, http.StatusUnauthorized)
		if said := page(web, first); said != usedCode+"\n" {
			t.Errorf("the second time: %s", said)
		}
		use("a code that nobody has given", "/login/x", http.StatusUnauthorized)
		late, other := next(), next()
		pass(codeTime - time.Second)
		use("in time", other, http.StatusSeeOther)
		pass(time.Second)
		before := len(d.codes.all)
		use("too late", late, http.StatusUnauthorized)
		if kept := len(d.codes.all); kept != before-1 {
			t.Errorf("of %d codes, %d are kept after one was used too late", before, kept)
		}
		gone, kept := next(), next()
		for range maxCodes - 1 {
			next()
		}
		use("one of too many", gone, http.StatusUnauthorized)
		use("the oldest of as many as hold", kept, http.StatusSeeOther)
		if got := ask(d.Web(Web{}), "GET", next()); got.Code != 401 || len(got.Result().Cookies()) != 0 {
			t.Errorf("at a door without a token: %d", got.Code)
		}
		none := New(newFake(files()))
		defer none.Close()
		without := none.Web(Web{URL: "http://localhost:8081/"})
		if address, err := none.codes.issue(); !errors.Is(err, errNoPage) {
			t.Errorf("without a token: %s, %v", address, err)
		}
		if got := ask(without, "GET", next()); got.Code != 401 {
			t.Errorf("without a token: %d", got.Code)
		}
	})
}
