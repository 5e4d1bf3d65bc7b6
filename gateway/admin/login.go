package admin

import (
	"errors"
	"net/http"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// sees guards the page: who may not see it gets a form for the token, in place of an answer that only programs understand.
func (g guard) sees(next http.HandlerFunc) http.Handler { return g.gate(next, g.web.Open, askForToken) }

// askForToken answers a person who may not see the page.
func askForToken(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	w.Write(written(document("", "", tokenForm(nil))))
}

// tokenForm asks for the token, and says more behind the button.
func tokenForm(more g.Node) g.Node {
	return h.Form(h.Method("post"), h.Action("/login"),
		h.Label(g.Text("admin token "), h.Input(h.Type("password"), h.Name("token"), h.AutoComplete("off"), h.Required())), g.Text(" "),
		h.Button(g.Text("log in")), more)
}

// login takes the token of a form, and lets the browser act from then on.
func (e *entrance) login(w http.ResponseWriter, r *http.Request) {
	if !readForm(w, r) {
		return
	}
	if !e.local && !e.isToken(r.PostFormValue("token")) {
		e.denied(r, "a wrong token")
		fail(w, r, http.StatusUnauthorized, errors.New("this is not the admin token"))
		return
	}
	e.giveCookie(w, r)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// giveCookie lets the browser act until it is closed.
func (g guard) giveCookie(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: g.secret("cookie"), Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
}

// newCode tells a program of the user where a browser is logged in. At a TCP address nobody gets one: who has the token needs none.
func (e *entrance) newCode(w http.ResponseWriter, r *http.Request) {
	if !e.local {
		fail(w, r, http.StatusForbidden, errors.New("only the socket gives codes"))
		return
	}
	address, err := e.codes.issue()
	if err != nil {
		fail(w, r, http.StatusConflict, err)
		return
	}
	answer(w, http.StatusOK, codeAnswer{address})
}

// A codeAnswer is the answer to a request for a code.
type codeAnswer struct {
	URL string `json:"url"`
}

// usedCode is for a person. Who looks at command lines, as any user of a machine can, may be faster than the browser with the code in one.
const usedCode = `This address was used, or is too old: "bowline page" gives another.
If you see this at once, somebody else may have used it: then remove the file of the token, and start the gateway again.`

// useCode logs a browser in. It is the one GET that changes something, since all that a program can do with a browser is to open an
// address.
func (e *entrance) useCode(w http.ResponseWriter, r *http.Request) {
	if e.web.Token == "" || !e.codes.redeem(r.PathValue("code")) {
		e.denied(r, "a wrong or used code")
		say(w, http.StatusUnauthorized, usedCode)
		return
	}
	e.giveCookie(w, r)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
