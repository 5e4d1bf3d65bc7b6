package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/gateway/audit"
)

// Each wrong token or code that is shown at an address has a record, and so has whatever would have acted and was refused. What only looks has none,
// nobody has one at the socket, and in no record is what was shown.
//
// Guarantees: G-0099.18
func TestRefusalsAtTheDoorHaveRecords(t *testing.T) {
	cookie := with("Cookie", plainCookie+"="+guard{web: Web{Token: "t0ken"}}.secret("cookie"))
	wrong := with("Authorization", "Bearer guess")
	for _, c := range []struct {
		what, method, target string
		change               []func(*http.Request)
		want                 []string // what the records say
	}{
		{"a wrong token to look", "GET", "/v1/report", do(wrong), []string{"GET /v1/report: a wrong token"}},
		{"a wrong token to act", "POST", "/v1/servers/files/stop?guess", do(wrong), []string{"POST /v1/servers/files/stop: a wrong token"}},
		{"an empty token", "POST", "/v1/reload", do(with("Authorization", "bearer ")), []string{"POST /v1/reload: a wrong token"}},
		{"no token to act", "POST", "/v1/logout/files", do(form("user=guess")), []string{"POST /v1/logout/files: no token"}},
		{"a wrong cookie to act", "POST", "/v1/reload", do(with("Cookie", plainCookie+"=guess")), []string{"POST /v1/reload: no token"}},
		{"a form of another page", "POST", "/v1/reload", do(form("form=guess"), cookie), []string{"POST /v1/reload: the form is not one of the page"}},
		{"a wrong token in the form", "POST", "/login", do(form("token=guess")), []string{"POST /login: a wrong token"}},
		{"a wrong code", "GET", "/login/guess", nil, []string{"GET /login/: a wrong or used code"}},
		{"another site that acts", "POST", "/v1/reload", do(token, with("Origin", "https://guess.example")), []string{"POST /v1/reload: the request comes from another site"}},
		{"another host that acts", "POST", "/v1/reload", do(token, host("guess.example")), []string{"POST /v1/reload: the request is for a host that is not served here"}},
		{"another site that looks", "GET", "/v1/report", do(with("Origin", "https://guess.example")), nil},
		{"another host that looks", "GET", "/v1/report", do(host("guess.example")), nil},
		{"another host that looks at less", "HEAD", "/v1/report", do(host("guess.example")), nil},
		{"no token to look", "GET", "/v1/audit", nil, nil},
		{"another scheme", "GET", "/v1/report", do(with("Authorization", "Basic guess")), nil},
		{"the token", "POST", "/v1/reload", do(token), nil},
		{"the token in the form", "POST", "/login", do(form("token=t0ken")), nil},
	} {
		var got []string
		d := New(newFake(files()))
		web := d.Web(Web{Token: "t0ken", Open: true, Audit: func(_ context.Context, r audit.Record) {
			if got = append(got, r.Name+": "+r.Reason); r.Event != "admin door" || r.Outcome != "denied" || r.Address == "" || r.Principal != "" || r.Time.IsZero() {
				t.Errorf("%s: %+v", c.what, r)
			}
		}})
		ask(web, c.method, c.target, c.change...)
		if !slices.Equal(got, c.want) || strings.Contains(strings.Join(got, ""), "guess") {
			t.Errorf("%s: the records are %q, want %q", c.what, got, c.want)
		}
		before := len(got)
		if ask(d.Local(), c.method, c.target, c.change...); len(got) != before {
			t.Errorf("%s: the socket has a record", c.what)
		}
	}
}
