package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Whoever has the token, or the socket, ends the login of a user whatever the user's name is; nobody else does, and the button is where there is a login.
//
// Guarantees: G-0091.1, G-0091.3, G-0102.13
func TestLogoutAtTheDoor(t *testing.T) {
	f := newFake(files())
	f.detail.Connections = []Connection{{User: "https://as.example ann&co", Login: true}, {User: "bob"}, {Login: true}}
	h := serveWeb(t, f, true)
	token := with("Authorization", "Bearer t0ken")
	if got := page(h, "/servers/files"); strings.Contains(got, "log out") {
		t.Error("without the token there is a button")
	}
	got := ask(h, "GET", "/servers/files", token).Body.String()
	for _, want := range []string{`name="user" value="https://as.example ann&amp;co"><button aria-label="log out https://as.example ann&amp;co">`, `name="user" value=""><button aria-label="log out the user">`} {
		if !strings.Contains(got, want) || strings.Count(got, `action="/v1/logout/files"`) != 2 {
			t.Errorf("the page lacks %s: %s", want, got)
		}
	}
	path, end := serve(t, f)
	defer end()
	if err := Dial(path).Logout(t.Context(), "files", "https://as.example ann&co"); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		path   string
		by     func(*http.Request)
		status int
	}{
		{"/v1/logout/files?user=", token, http.StatusNoContent},
		{"/v1/logout/files?user=ann", form(""), http.StatusUnauthorized},
		{"/v1/logout/files", token, http.StatusBadRequest},
		{"/v1/logout/files?user=ann&user=bob", token, http.StatusBadRequest},
		{"/v1/logout/files?user=%zz", token, http.StatusBadRequest},
	} {
		if got := ask(h, "POST", c.path, c.by); got.Code != c.status {
			t.Errorf("%s: %d", c.path, got.Code)
		}
	}
	if got := ask(h, "GET", "/v1/logout/files?user=ann", token); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("a GET that acts: %d", got.Code)
	}
	if did := f.did(); !slices.Equal(did, []string{`logout files "https://as.example ann&co"`, `logout files ""`}) {
		t.Errorf("did %q", did)
	}
}
