package logins

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/nodename"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// callback is the name of the page to which browsers are sent back. No secret of a link is as short.
const callback = "callback"

const (
	endTime     = 30 * time.Second // for one login of a user to end
	longestForm = 4 << 10
)

// document is what a browser shows. Nothing but what the gateway itself knows is in it, and it runs no script. If it cannot be written, the browser has left.
func document(w http.ResponseWriter, title string, body ...g.Node) {
	_ = h.Doctype(h.HTML(h.Lang("en"),
		h.Head(h.Meta(h.Charset("utf-8")), h.Meta(h.Name("viewport"), h.Content("width=device-width")), h.TitleEl(g.Text(title))),
		h.Body(body...))).Render(w)
}

// begin asks the user to log in.
func (l Login) begin(w http.ResponseWriter) {
	whom, whose := g.Text("you"), g.Text("uses this gateway without a login of its own")
	asked := "Close this page if you have not asked a program for this."
	if l.User != "" {
		user := h.B(g.Text(l.User))
		whom, whose = user, g.Group{user, g.Text(" uses")}
		asked = "Close this page if you have not asked a program for this, or if you are not " + l.User + "."
	}
	title := "Log in at " + l.Server
	document(w, title, h.H1(g.Text(title)),
		h.P(g.Text("A program wants to use "), h.B(g.Text(l.Server)), g.Text(" ("+l.Place+") for "), whom,
			g.Text(", through this gateway. If you go on, you log in there. Every program that "), whose, g.Text(" may act there with your login then.")),
		h.P(h.B(g.Text(asked))),
		h.Form(h.Method("post"), h.Button(g.Text("Go on to log in"))))
}

// own shows which logins there are, and what has become of the last form.
func own(w http.ResponseWriter, user, done string, at []string) {
	heading, whose := "Logins", g.Node(nil)
	if user != "" {
		heading, whose = "Logins of "+user, g.Group{g.Text("of "), h.B(g.Text(user))}
	}
	list := h.P(g.Text("There is no login at a server."))
	if len(at) > 0 {
		list = g.Group{
			h.P(g.Text("This gateway has a login "), whose,
				g.Text(" at these servers. If you end one, programs that use this gateway no longer act there, until somebody logs in again.")),
			h.Ul(g.Map(at, func(server string) g.Node {
				return h.Li(h.Form(h.Method("post"), h.B(g.Text(server)), g.Text(" "), h.Button(h.Name("server"), h.Value(server), g.Text("End the login at "+server))))
			})),
		}
	}
	document(w, "Your logins", h.H1(g.Text(heading)), g.If(done != "", h.P(h.Role("status"), h.B(g.Text(done)))), list)
}

// These are all that a browser is told. What does not tell more tells nothing to those who try.
const (
	noLink  = "There is no such login, or it was used already. Ask the program for another one."
	failed  = "You are not logged in. Go back to the program, which says why."
	done    = "You are logged in, and the program goes on. You can close this page."
	another = "Allow cookies of this site, and open the link again."

	ended    = "The login is ended."
	notThere = "There is no such login any more."
	notEnded = "The login was not ended, or not everywhere. Ask who runs the gateway: its audit trail says why."
)

// These are why a request is refused, for who runs the gateway.
const (
	otherSite    = "the form is of another site"
	otherBrowser = "the link is of another browser, or the browser has no cookie"
	noSuchLink   = "there is no such link"
	noComing     = "no login of this browser waits for this state"
)

// ServeHTTP serves the page of a link, whose form begins the login, and the page to which the browser comes back. To look at the first one changes nothing: programs that
// show links open them, too.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	if to := p.elsewhere(r, name); to != nil {
		to.ServeHTTP(w, r)
		return
	}
	protect(w.Header())
	// The link says whether it leads to a login or to those that there are: nobody can make one of the other from it.
	l, _ := p.own.look(name, "", false)
	own := l != nil
	switch reads := r.Method == http.MethodGet || r.Method == http.MethodHead; {
	case reads && name == callback:
		p.finish(w, r)
	case reads && own:
		p.showOwn(w, r, name)
	case reads:
		p.show(w, r, name)
	case r.Method == http.MethodPost && own:
		p.endOwn(w, r, name)
	case r.Method == http.MethodPost && name != callback:
		p.start(w, r, name)
	default:
		w.Header().Set("Allow", "GET, POST")
		say(w, http.StatusMethodNotAllowed, noLink)
	}
}

// protect sets the headers of every page: nothing else may be in it, or around it, and nobody keeps it.
func protect(header http.Header) {
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "same-origin") // with "no-referrer" the form would have no origin: without TLS nothing else shows that it is of this page
	header.Set("X-Content-Type-Options", "nosniff")
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

// say shows a text.
func say(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	document(w, "Login", h.P(g.Text(text)))
}

// refuse tells a browser nothing but a text, and who runs the gateway of whose page it was, if it was somebody's, and why.
func (p *Pages) refuse(w http.ResponseWriter, r *http.Request, status int, text, user, why string) {
	if p.Refused != nil {
		p.Refused(r, user, why)
	}
	say(w, status, text)
}

// giveCookie gives a browser a cookie, unless it has one of this node: one login at a time, if nodes differ.
func (p *Pages) giveCookie(w http.ResponseWriter, r *http.Request) {
	if given := p.cookieOf(r); given == "" || nodename.Of(given) != p.node {
		cookie := p.cookie()
		cookie.Value = nodename.Join(p.node, newSecret())
		http.SetCookie(w, cookie)
	}
}

// isFromElsewhere reports whether a form is of another site.
func (p *Pages) isFromElsewhere(r *http.Request) bool {
	from := http.NewCrossOriginProtection()
	return from.AddTrustedOrigin(p.origin) != nil || from.Check(r) != nil
}

// show asks whether the user means it, and gives the browser a cookie, by which it is known again.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, secret string) {
	login, ok := p.look(secret)
	if !ok {
		p.refuse(w, r, http.StatusNotFound, noLink, "", noSuchLink)
		return
	}
	p.giveCookie(w, r)
	login.begin(w)
}

// agreed begins the login to which the user of a browser agrees, or refuses that and returns nil. The cookie shows that this browser was shown what it is: no other
// site can send the form.
func (p *Pages) agreed(w http.ResponseWriter, r *http.Request, secret string) *Link {
	login, ok := p.look(secret)
	if p.isFromElsewhere(r) {
		p.refuse(w, r, http.StatusForbidden, noLink, login.User, otherSite)
		return nil
	}
	cookie := p.cookieOf(r)
	if ok && cookie == "" {
		p.refuse(w, r, http.StatusForbidden, another, login.User, otherBrowser)
		return nil
	}
	l := p.begin(secret, cookie)
	if l == nil {
		p.refuse(w, r, http.StatusNotFound, noLink, "", noSuchLink)
	}
	return l
}

// start begins a login, and sends the browser away.
func (p *Pages) start(w http.ResponseWriter, r *http.Request, secret string) {
	l := p.agreed(w, r, secret)
	if l == nil {
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
		p.refuse(w, r, http.StatusNotFound, noLink, "", noComing)
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

// showOwn shows a user his logins. That changes nothing but a cookie.
func (p *Pages) showOwn(w http.ResponseWriter, r *http.Request, secret string) {
	l, may := p.own.look(secret, p.cookieOf(r), false)
	switch {
	case l == nil:
		p.refuse(w, r, http.StatusNotFound, noLink, "", noSuchLink) // it has ended just now
	case !may:
		p.refuse(w, r, http.StatusNotFound, noLink, l.owner.User, otherBrowser)
	default:
		p.giveCookie(w, r)
		writeOwn(r.Context(), w, http.StatusOK, &l.owner, "")
	}
}

// mayEnd returns whose logins a form may end, or refuses it and returns nil.
func (p *Pages) mayEnd(w http.ResponseWriter, r *http.Request, secret string) *Owner {
	if p.isFromElsewhere(r) {
		var user string
		if l, _ := p.own.look(secret, "", false); l != nil {
			user = l.owner.User
		}
		p.refuse(w, r, http.StatusForbidden, noLink, user, otherSite)
		return nil
	}
	cookie := p.cookieOf(r)
	l, may := p.own.look(secret, cookie, true)
	switch {
	case l == nil:
		p.refuse(w, r, http.StatusNotFound, noLink, "", noSuchLink)
	case cookie == "":
		p.refuse(w, r, http.StatusForbidden, another, l.owner.User, otherBrowser)
	case !may:
		p.refuse(w, r, http.StatusNotFound, noLink, l.owner.User, otherBrowser)
	default:
		return &l.owner
	}
	return nil
}

// endOwn ends the login at the server that a form names. Whoever leaves before it has ended has meant it all the same.
func (p *Pages) endOwn(w http.ResponseWriter, r *http.Request, secret string) {
	of := p.mayEnd(w, r, secret)
	if of == nil {
		return
	}
	// What has begun is not cut when the browser leaves: the login might be removed then, and its tokens not be revoked.
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	ctx, cancel := context.WithTimeout(p.ctx, endTime)
	defer cancel()
	status, text := of.endAt(ctx, r.PostFormValue("server"))
	writeOwn(ctx, w, status, of, text)
}

// endAt ends the login at a server, and returns what the browser is told. A form may name anything, and a page that is shown in two
// windows may name what has ended meanwhile. Why a login does not end is told to who runs the gateway: the reason may name its authorization server.
func (o *Owner) endAt(ctx context.Context, server string) (status int, text string) {
	if !slices.Contains(o.At(ctx), server) {
		return http.StatusOK, notThere
	}
	if o.End(ctx, server) != nil {
		return http.StatusBadGateway, notEnded
	}
	return http.StatusOK, ended
}

// writeOwn shows which logins there are now.
// The store is asked again: what the page says is never what somebody has wanted, but what has become of it.
func writeOwn(ctx context.Context, w http.ResponseWriter, status int, of *Owner, done string) {
	at := of.At(ctx)
	w.WriteHeader(status)
	own(w, of.User, done, at)
}
