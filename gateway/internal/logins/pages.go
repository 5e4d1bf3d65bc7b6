package logins

import (
	"html/template"
	"net/http"
	"path"
	"strings"

	"github.com/bowline-mcp/bowline/internal/nodename"
)

// callback is the name of the page to which browsers are sent back. No secret of a link is as short.
const callback = "callback"

// pages are what a browser shows. Nothing but what the gateway itself knows is in them, and they run no script.
var pages = template.Must(template.New("").Parse(`{{define "begin"}}<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Log in at {{.Server}}</title>
<h1>Log in at {{.Server}}</h1>
<p>A program wants to use <b>{{.Server}}</b> ({{.Place}}) for {{if .User}}<b>{{.User}}</b>{{else}}you{{end}}, through this gateway. If you go on, you log in there. Every program that
{{if .User}}<b>{{.User}}</b> uses{{else}}uses this gateway without a login of its own{{end}} may act there with your login then.</p>
<p><b>Close this page if you have not asked a program for this{{if .User}}, or if you are not {{.User}}{{end}}.</b></p>
<form method="post"><button>Go on to log in</button></form></html>
{{end}}{{define "text"}}<!doctype html><html lang="en"><meta charset="utf-8"><title>Login</title><p>{{.}}</p></html>
{{end}}`))

// These are all that a browser is told. What does not tell more tells nothing to those who try.
const (
	noLink  = "There is no such login, or it was used already. Ask the program for another one."
	failed  = "You are not logged in. Go back to the program, which says why."
	done    = "You are logged in, and the program goes on. You can close this page."
	another = "Allow cookies of this site, and open the link again."
)

// ServeHTTP serves the page of a link, whose form begins the login, and the page to which the browser comes back. To look at the first one changes nothing: programs that
// show links open them, too.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	if to := p.elsewhere(r, name); to != nil {
		to.ServeHTTP(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "same-origin") // with "no-referrer" the form would have no origin: without TLS nothing else shows that it is of this page
	header.Set("X-Content-Type-Options", "nosniff")
	switch reads := r.Method == http.MethodGet || r.Method == http.MethodHead; {
	case reads && name == callback:
		p.finish(w, r)
	case reads:
		p.show(w, r, name)
	case r.Method == http.MethodPost && name != callback:
		p.start(w, r, name)
	default:
		header.Set("Allow", "GET, POST")
		say(w, http.StatusMethodNotAllowed, noLink)
	}
}

// elsewhere returns what forwards a request to the node that has the login: that of the link, or, when the browser comes back, of its cookie. Nobody has checked the name, but a node that has its own serves it.
func (p *Pages) elsewhere(r *http.Request, name string) http.Handler {
	node := nodename.Of(name)
	if name == callback {
		node = nodename.Of(p.cookieOf(r))
	}
	if p.reach == nil || node == "" || node == p.node {
		return nil
	}
	return p.reach(node)
}

// say shows a text. If that fails, the browser has left.
func say(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	_ = pages.ExecuteTemplate(w, "text", text)
}

// show asks whether the user means it, and gives the browser a cookie, by which it is known again.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, secret string) {
	login, ok := p.look(secret)
	if !ok {
		say(w, http.StatusNotFound, noLink)
		return
	}
	if given := p.cookieOf(r); given == "" || nodename.Of(given) != p.node { // one login at a time, if nodes differ
		cookie := p.cookie()
		cookie.Value = nodename.Join(p.node, newSecret())
		http.SetCookie(w, cookie)
	}
	_ = pages.ExecuteTemplate(w, "begin", login)
}

// start begins a login, and sends the browser away. The cookie shows that this browser was shown what the user agrees to: no other site can send the form.
func (p *Pages) start(w http.ResponseWriter, r *http.Request, secret string) {
	from := http.NewCrossOriginProtection()
	if from.AddTrustedOrigin(p.origin) != nil || from.Check(r) != nil {
		say(w, http.StatusForbidden, noLink)
		return
	}
	cookie := p.cookieOf(r)
	if _, ok := p.look(secret); ok && cookie == "" {
		say(w, http.StatusForbidden, another)
		return
	}
	l := p.begin(secret, cookie)
	if l == nil {
		say(w, http.StatusNotFound, noLink)
		return
	}
	select {
	case address := <-l.address:
		http.Redirect(w, r, address.String(), http.StatusSeeOther)
	case <-l.done:
		say(w, http.StatusBadGateway, failed)
	case <-r.Context().Done():
		p.end(l, errLeft) // nobody has got the address
	}
}

// finish lets the login of a browser go on that has come back, and says what has become of it.
func (p *Pages) finish(w http.ResponseWriter, r *http.Request) {
	l := p.comeBack(r.URL.Query().Get("state"), p.cookieOf(r), r.URL)
	if l == nil {
		say(w, http.StatusNotFound, noLink)
		return
	}
	switch err := l.Wait(r.Context()); {
	case err != nil:
		say(w, http.StatusBadGateway, failed)
	default:
		say(w, http.StatusOK, done)
	}
}

// cookie returns the cookie of a browser, without a value. It comes along when another site sends the browser back, and with no form of another site. Over TLS no
// other host can have set it.
func (p *Pages) cookie() *http.Cookie {
	c := &http.Cookie{Name: "bowline-login", Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if strings.HasPrefix(p.origin, "https:") {
		c.Name, c.Secure = "__Host-bowline-login", true
	}
	return c
}

// cookieOf returns what a browser was given, or "". Two are of nobody.
func (p *Pages) cookieOf(r *http.Request) string {
	given := r.CookiesNamed(p.cookie().Name)
	if len(given) != 1 || len(strings.TrimPrefix(given[0].Value, nodename.Join(nodename.Of(given[0].Value), ""))) != secretLength {
		return ""
	}
	return given[0].Value
}
