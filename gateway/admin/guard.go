package admin

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/network"
)

// Web says who may use a door at a TCP address.
type Web struct {
	// Token is what must be shown to act, as Authorization: Bearer, or once in the page. Empty: nobody can act here.
	Token string

	// Open lets everybody read who can connect, but for what servers have written and what requests are about. Set it for a loopback address only.
	Open bool

	// URL is where browsers find the page, with a slash at its end. Empty: no code is given for it, as without a Token.
	URL string

	// NoTry keeps the page from calling tools.
	NoTry bool

	// Hosts are the names under which the door is reached, beside localhost and IP addresses. A request for another name
	// is refused: a page of another site may have sent it (DNS rebinding).
	Hosts []string

	// Audit hears of each request that has shown a wrong token or code, and of each that would have acted and was refused. Whoever reaches the address decides how many these are: Write of an
	// audit.Trail bounds how many it keeps. Nil: nobody does.
	Audit func(context.Context, audit.Record)
}

// A guard decides what a request may do at one door.
type guard struct {
	local bool // whoever comes through this door is the user
	web   Web
}

const (
	// plainCookie and secureCookie hold a secret made of the token, so that a person shows the token only once.
	// Browsers take a cookie with the prefix of the second only from this host, over TLS.
	plainCookie, secureCookie = "bowline-admin", "__Host-bowline-admin"
	formField                 = "form" // proves that the page was read, and not only its cookie sent

	loginPath = "/login/" // a code follows
)

// checked refuses what another site may have sent, whatever it asks for, and says what browsers may do with answers: load nothing from elsewhere,
// run nothing that stands in the page, show it in no frame of another site, where clicks could be stolen, and keep no copy of it.
func (g guard) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers hide the origin of a form from its own site, too
		header.Set("Cache-Control", "no-store")
		if !g.local && !g.isHost(r.Host) {
			g.kept(r, "the request is for a host that is not served here")
			say(w, http.StatusForbidden, "nothing is served here for the host "+quoted(r.Host)+": use an IP address, or the name that this address was opened with")
			return
		}
		if !g.local && !fromHere(r) {
			g.kept(r, "the request comes from another site")
			say(w, http.StatusForbidden, "the request comes from another site")
			return
		}
		if g.guesses(r) { // also where everybody may read: the answer shows whether the token was right
			g.denied(r, "a wrong token")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next.ServeHTTP(w, r)
	})
}

// isHost takes the port as given: behind a forwarded port it is another one. An address is no name that somebody else could let lead here.
func (g guard) isHost(host string) bool {
	name := network.NameOf(host)
	_, err := netip.ParseAddr(name)
	return err == nil || strings.EqualFold(name, "localhost") || slices.ContainsFunc(g.web.Hosts, func(known string) bool { return strings.EqualFold(known, name) })
}

// fromHere reports whether a browser says that this door's own page has sent the request, or no browser has. Older browsers send no
// Sec-Fetch-Site, and none sends an Origin with what a page loads as an image: so both are looked at.
func fromHere(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" && !isLink(r) {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	from, err := url.Parse(origin)
	return err == nil && from.Host == r.Host
}

// isLink reports whether a person follows a link. Another site may have one, but may load nothing from here: it could not read that, but
// each stream would take a seat.
func isLink(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// reads guards what the door shows to everybody if it is open.
func (g guard) reads(next http.HandlerFunc) http.Handler {
	return g.gate(next, g.web.Open, unauthorized)
}

// shows guards what servers have written.
func (g guard) shows(next http.HandlerFunc) http.Handler { return g.gate(next, false, unauthorized) }

// gate lets those pass who know the token, or everybody if it is open.
func (g guard) gate(next http.HandlerFunc, open bool, refuse http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !open && !g.knows(r) {
			refuse(w, r)
			return
		}
		next(w, r)
	})
}

// acts guards what changes something. A cookie alone is not enough, since a browser sends it with whatever another page at this host asks for; the
// field of a form is known only to who could read the page.
func (g guard) acts(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		byPage := !g.local && !g.bearer(r)
		switch {
		case byPage && !g.cookie(r):
			if !g.guesses(r) { // else there is a record already
				g.denied(r, "no token")
			}
			unauthorized(w, r)
		case !readForm(w, r):
		case byPage && !equal(r.PostFormValue(formField), g.secret("form")):
			g.denied(r, "the form is not one of the page")
			fail(w, r, http.StatusForbidden, errors.New("the form is not one of this page: load the page again"))
		default:
			next(w, r)
		}
	})
}

// readForm reads what a person has entered. If ok is false, the request is answered: a form that was not read whole must not be taken for one
// that has less in it. A sender that does not end it is not waited for.
func readForm(w http.ResponseWriter, r *http.Request) (ok bool) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(writeTime)) // what has none is no connection
	err := r.ParseForm()
	switch tooLong := (*http.MaxBytesError)(nil); {
	case err == nil:
		_ = control.SetReadDeadline(time.Time{}) // else the rest is not waited for either
	case errors.As(err, &tooLong):
		fail(w, r, http.StatusRequestEntityTooLarge, fmt.Errorf("the form has more than %d bytes", maxForm))
	default:
		fail(w, r, http.StatusBadRequest, err)
	}
	return err == nil
}

func unauthorized(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="bowline admin"`)
	fail(w, r, http.StatusUnauthorized, errors.New("this needs the admin token: send it as Authorization: Bearer, or enter it on the page"))
}

// knows reports whether the request may see everything.
func (g guard) knows(r *http.Request) bool { return g.local || g.bearer(r) || g.cookie(r) }

// seen returns what of a report the request may see.
func (g guard) seen(r *http.Request, report Report) Report {
	if g.knows(r) {
		return report
	}
	return report.public()
}

// bearer reports whether a program has shown the token.
func (g guard) bearer(r *http.Request) bool {
	token, shown := shownBy(r)
	return shown && g.isToken(token)
}

// guesses reports whether a program has shown a token that is not the right one.
func (g guard) guesses(r *http.Request) bool {
	token, shown := shownBy(r)
	return shown && !g.local && !g.isToken(token)
}

func shownBy(r *http.Request) (token string, shown bool) {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, found && strings.EqualFold(scheme, "bearer")
}

// kept records that a request was kept from acting. What only looks is refused without a record: pages of other sites are full of it.
func (g guard) kept(r *http.Request, why string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		g.denied(r, why)
	}
}

// denied records a request that was refused for what it has shown, or has not. Its query may have a secret, and so may a path for a login.
func (g guard) denied(r *http.Request, why string) {
	if g.web.Audit == nil {
		return
	}
	path := r.URL.Path
	if strings.HasPrefix(path, loginPath) {
		path = loginPath
	}
	g.web.Audit(r.Context(), audit.Record{Time: time.Now(), Event: "admin door", Address: r.RemoteAddr, Name: r.Method + " " + path, Outcome: "denied", Reason: why})
}

// isToken is false for everything if there is no token, an empty one included.
func (g guard) isToken(token string) bool { return g.web.Token != "" && equal(token, g.web.Token) }

// cookie reports whether a person has shown the token before, in this browser.
func (g guard) cookie(r *http.Request) bool {
	held, err := r.Cookie(cookieName(r))
	return err == nil && g.web.Token != "" && equal(held.Value, g.secret("cookie"))
}

// cookieName takes the stronger name where browsers accept it.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return secureCookie
	}
	return plainCookie
}

// secret derives a secret from the token, which it does not tell.
func (g guard) secret(purpose string) string {
	mac := hmac.New(sha256.New, []byte(g.web.Token))
	mac.Write([]byte("bowline admin " + purpose))
	return hex.EncodeToString(mac.Sum(nil))
}

// formFor returns what the forms of a page prove that they are of it with; "": the viewer gets no form.
func (g guard) formFor(knows bool) string {
	if !knows {
		return ""
	}
	return g.secret("form")
}
