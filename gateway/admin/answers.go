package admin

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
)

// done answers a request that acts: a program with an empty response, and a form with the page. What has failed is no fault of the door, but of how
// the gateway is just now, so it is a conflict: a program that tries again later may succeed.
func done(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNoServer):
		fail(w, r, http.StatusNotFound, err)
	case err != nil:
		fail(w, r, http.StatusConflict, err)
	case isForm(r):
		http.Redirect(w, r, "/", http.StatusSeeOther)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// fail answers with an error: as JSON, or as text if a person has sent a form.
func fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	if isForm(r) {
		say(w, status, err.Error())
		return
	}
	answer(w, status, struct {
		Error string `json:"error"`
	}{err.Error()})
}

// answer sends JSON. It encodes before it sends, since a status cannot be taken back.
func answer(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}

// say answers a person, or a probe that looks at the status only.
func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(text + "\n"))
}

// isForm reports whether a person has pressed a button of the page. Programs send no form.
func isForm(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/x-www-form-urlencoded"
}
