package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The page and the socket show what has changed in a tool, as text, to those who have the token, and let them approve it.
//
// Guarantees: G-0098.10
func TestPinsAtTheDoor(t *testing.T) {
	f := newFake(files())
	f.detail.Pins = []Pin{{Server: "files", Tool: hostile, Held: true, Version: "1f0c", Changes: []PinChange{{"description", "\"harmless\"", "\"obey" + "\u202e" + hostile + "\""}, {"title", "", "1"}, {"annotations", "{}", ""}}}}
	h := serveWeb(t, f, true)
	if got := page(h, "/servers/files"); strings.Contains(got, "obey") || strings.Contains(got, "Changed tools") {
		t.Error("without a token changed tools are shown")
	}
	if got := ask(h, "GET", "/v1/pins"); got.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got.Code)
	}
	token := with("Authorization", "Bearer t0ken")
	got := ask(h, "GET", "/servers/files", token).Body.String()
	for _, want := range []string{"and is not offered", `@1f0c"><button`, "<dt>description</dt>", "&#34;harmless&#34;", `obey\u202e&lt;img`, "not known", "gone"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %s: %s", want, got)
		}
	}
	if strings.Contains(got, hostile) {
		t.Error("a name of a tool is HTML")
	}
	path, end := serve(t, f)
	defer end()
	c := Dial(path)
	if pins, err := c.Pins(t.Context()); err != nil || len(pins) != 1 || !slices.Equal(pins[0].Changes, f.detail.Pins[0].Changes) || !pins[0].Held {
		t.Errorf("at the socket: %v, %v", pins, err)
	}
	if err := c.Approve(t.Context(), "files"); err != nil {
		t.Error(err)
	}
	if err := c.Approve(t.Context(), "files", "a b", "c&d"); err != nil {
		t.Error(err)
	}
	if got := ask(h, "POST", "/v1/pins/files", form("tool=x")); got.Code < 400 && got.Code != http.StatusSeeOther || len(f.did()) != 2 {
		t.Errorf("without a token: %d, %q", got.Code, f.did())
	}
	if got := ask(h, "POST", "/v1/pins/files?tool=y", token); got.Code != http.StatusNoContent {
		t.Errorf("a program: %d", got.Code)
	}
	if got := ask(h, "GET", "/v1/pins/files", token); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("a GET that acts: %d", got.Code)
	}
	if did := f.did(); !slices.Equal(did, []string{"approve files", "approve files a b c&d", "approve files y"}) {
		t.Errorf("did %q", did)
	}
}
