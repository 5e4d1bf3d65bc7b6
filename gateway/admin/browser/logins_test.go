//go:build browser && unix

package browser

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/gateway/internal/logins"
	"github.com/chromedp/chromedp"
)

// elsewhereOnThisMachine listens, if there is another address than that of loopback: a browser trusts that one, and tells it more than other addresses without TLS.
func elsewhereOnThisMachine(t *testing.T, loopback net.Listener) net.Listener {
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		of, ok := a.(*net.IPNet)
		if !ok || of.IP.IsLoopback() || of.IP.To4() == nil {
			continue
		}
		if other, err := net.Listen("tcp", net.JoinHostPort(of.IP.String(), "0")); err == nil {
			loopback.Close()
			return other
		}
	}
	return loopback
}

// In a browser, a user goes from the page of a login to another site and comes back, with the cookie of the page. A form of that other site begins nothing, and what the page
// shows of users and servers does nothing.
//
// Guarantees: G-0102.1, G-0102.2
func TestTheLoginPage(t *testing.T) {
	var pages *logins.Pages
	gateway := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pages.ServeHTTP(w, r) }))
	gateway.Listener = elsewhereOnThisMachine(t, gateway.Listener)
	gateway.Start()
	defer gateway.Close()
	pages = logins.New(gateway.URL+"/login", "", nil)
	defer pages.Close()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("redirect_uri"); to != "" {
			http.Redirect(w, r, to+"?"+url.Values{"state": {r.URL.Query().Get("state")}, "code": {"c"}}.Encode(), http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%s"><button>win</button></form>`, r.URL.Query().Get("link"))
	}))
	defer elsewhere.Close()
	other := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) // another site, for a browser

	came := make(chan string, 1)
	link, err := pages.Open(logins.Login{User: "ada " + hostile, Server: "issues", Place: "api.example.com", Run: func(ctx context.Context, visit logins.Visit) error {
		at, err := visit(ctx, func(_ context.Context, redirect string) (*url.URL, error) {
			return url.Parse(other + "/authorize?" + url.Values{"state": {"s"}, "redirect_uri": {redirect}}.Encode())
		})
		if err == nil {
			came <- at.Query().Get("code")
		}
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, &place{t: t, at: strings.TrimPrefix(gateway.URL, "http://")})
	complaints := b.listen()
	b.do(chromedp.Navigate(link.URL))
	b.await(`document.querySelector("button")`)
	if text := see[string](b, `document.body.innerText`); !strings.Contains(text, "Log in at issues") || !strings.Contains(text, hostile) || see[string](b, `document.title`) == "taken" {
		t.Errorf("the page says %q", text)
	}
	if all := complaints(); len(all) > 0 {
		t.Errorf("the browser complains: %q", all)
	}
	b.do(chromedp.Navigate(other + "/?link=" + url.QueryEscape(link.URL)))
	b.do(chromedp.Click("button"))
	b.await(`document.body.innerText.includes("There is no such login")`)
	b.do(chromedp.Navigate(link.URL))
	b.do(chromedp.Click("button"))
	b.await(`document.body.innerText.includes("You are logged in")`)
	if err := link.Wait(b.ctx); err != nil || <-came != "c" {
		t.Error(err)
	}
	b.do(chromedp.Navigate(link.URL))
	b.await(`document.body.innerText.includes("it was used already")`)
}
