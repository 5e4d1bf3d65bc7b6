package admin

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/gateway/audit"
)

func page(h http.Handler, target string, change ...func(*http.Request)) string {
	return ask(h, "GET", target, change...).Body.String()
}

// states are the states of the rows, in the order of the page.
func states(page string) (all []string) {
	for _, found := range regexp.MustCompile(`data-state="([a-z]*)"`).FindAllStringSubmatch(page, -1) {
		all = append(all, found[1])
	}
	return all
}

// Trouble comes first, in file order among equals. Each state is a word and a sign, and what happens next is said.
//
// Guarantees: G-0091.8, G-0095.6, G-0097.11
func TestThePageSaysWhatIsWrong(t *testing.T) {
	f := newFake(
		ServerReport{Name: "maps", State: Stopped, Tools: 7}, files(),
		ServerReport{Name: "noted", State: Ready, Notices: []string{"the first notice", "the second notice"}},
		ServerReport{Name: "new", State: Starting, Calls: 2}, ServerReport{Name: "odd", State: Misconfigured, Mistake: "mcp.json:3:1: API_KEY is not set"},
		ServerReport{Name: "web", State: Backoff, Reason: "crash-looping: exit status 1", NextAttempt: noon, Restarts: 5, LastFailure: "exited", Stderr: "Error: no browser"},
		ServerReport{Name: "web2", State: Backoff})
	f.detail.Connections = []Connection{{User: "ann", Program: "editor 2", State: Ready, Calls: 3}, {State: Backoff, Reason: "exited: 3"}}
	f.report.Refused, f.report.AuditLost, f.report.Denied, f.report.PagesRefused = map[string]int64{RefusedUnable: 3, RefusedNoCall: 1}, 1, map[int]uint64{403: 2, 401: 30}, 5
	f.report.Mistakes, f.report.Notices, f.report.Endpoint = []string{"mcp.json:1:1: broken"}, []string{"the catalogue cannot be saved"}, "http://127.0.0.1:8080/mcp"
	f.report.Clients = []ClientReport{{Program: "claude 1.0", Revision: "2025-11-25", User: "ada (iss 1)"}}
	h := serveWeb(t, f, true)
	got := page(h, "/", token)
	if want := []string{"misconfigured", "backoff", "backoff", "starting", "ready", "ready", "stopped"}; !slices.Equal(states(got), want) {
		t.Errorf("the order is %v, want %v", states(got), want)
	}
	if strings.Index(got, ">web<") > strings.Index(got, ">web2<") {
		t.Error("equal ones are not in file order")
	}
	for _, want := range []string{
		"2 of 7 servers ready · 1 client · 2 calls in flight · 4 questions refused · <strong>⚠ 1 record of the audit trail lost</strong> · <strong>⚠ requests denied: 30 with status 401, 2 with status 403, 5 at the pages for logins</strong>", "3 servers in trouble", "http://127.0.0.1:8080/mcp", "not reloaded:</strong> mcp.json:1:1: broken", "the catalogue cannot be saved",
		`claude 1.0</strong> <span class="dim">2025-11-25</span> · ada (iss 1)`, "API_KEY is not set", "crash-looping: exit status 1 · next try at <time", "5 restarts", "last failure: exited", "stderr: <code>Error: no browser",
		`next try at <time datetime="2026-11-27T12:00:00Z" data-count="down" data-clock="`, "pid 4711", "12 tools", "the first notice and 1 more", "<strong>backoff</strong>", "✖", "●", "◌", "○", "⚠",
		`action="/v1/servers/web/wake"`, `action="/v1/servers/maps/start"`, `aria-label="restart files"`, `action="/v1/reload"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if strings.Index(got, ">noted<") > strings.Index(got, ">files<") {
		t.Error("what works without notices comes before what has some")
	}
	fmt.Fprintln(&f.tail, "a line of it")
	if one := page(h, "/servers/files", token); len(states(one)) != 1 || !strings.Contains(one, "a line of it") {
		t.Errorf("the page of one server: %s", one)
	}
	if one := page(h, "/servers/files", token); !strings.Contains(one, `<strong>ready</strong> · ann · <span class="dim">editor 2</span> · 3 calls`) || !strings.Contains(one, "a user · since") || !strings.Contains(one, "exited: 3") {
		t.Errorf("the page of a server with connections of clients: %s", one)
	}
	if one := page(h, "/servers/noted", token); !strings.Contains(one, "the second notice") {
		t.Errorf("the page of one server: %s", one)
	}
	if got := ask(h, "GET", "/servers/nobody"); got.Code != 404 {
		t.Errorf("the page of nobody: %d", got.Code)
	}
}

// Everybody sees the rows of an open door, and neither what servers have written nor a button. A door that is not open
// shows nothing but a form for the token.
//
// Guarantees: G-0091.1, G-0095.6
func TestThePageForEverybody(t *testing.T) {
	f := newFake(files())
	fmt.Fprintln(&f.tail, "secret line")
	f.detail = Detail{Changes: []Change{{State: Backoff, Reason: "exited: secret"}}, Tools: []Tool{{Name: "secret"}},
		Running:     []Request{{Method: "resources/read", Target: "file:///secret", Program: "c"}},
		Connections: []Connection{{User: "secret user", Name: "secret name", Program: "editor 2", State: Backoff, Reason: "secret reason", Calls: 3}}}
	h := serveWeb(t, f, true)
	if seen := New(f).entrance(guard{}).detail("files", false); len(seen.Tools) != 0 || len(seen.Lines) != 0 || !strings.Contains(page(h, "/servers/files"), "· exited") || !strings.Contains(page(h, "/servers/files"), "resources/read") || f.detail.Running[0].Target == "" {
		t.Errorf("everybody sees %+v", seen)
	}
	for _, target := range []string{"/", "/servers/files"} {
		got := page(h, target)
		if strings.Contains(got, "secret") || strings.Contains(got, "none is known") || strings.Contains(got, "/v1/") || !strings.Contains(got, `action="/login"`) || len(states(got)) != 1 {
			t.Errorf("%s: %s", target, got)
		}
	}
	closed := serveWeb(t, f, false)
	if got := ask(closed, "GET", "/"); got.Code != 401 || !strings.HasPrefix(got.Result().Header.Get("Content-Type"), "text/html") || strings.Contains(got.Body.String(), "files") || !strings.Contains(got.Body.String(), `action="/login"`) {
		t.Errorf("a closed door: %d %s", got.Code, got.Body)
	}
	if got := ask(closed, "GET", "/page/events"); got.Code != 401 {
		t.Errorf("its events: %d", got.Code)
	}
	if got := page(closed, "/", token); len(states(got)) != 1 {
		t.Errorf("with the token: %s", got)
	}
}

// What servers and clients write is text, wherever it stands, and what would reorder or hide text is visible.
//
// Guarantees: G-0091.9
func TestWhatOthersWriteIsText(t *testing.T) {
	const odd = hostile + "' \" </li></script><script>alert(1)</script> \x1b[2J\u202e\u2028 {{.}} javascript:alert(1)"
	f := newFake(ServerReport{Name: odd, State: State(odd), Reason: odd, LastFailure: odd + "2", Stderr: odd, Mistake: odd, Notices: []string{odd, odd}},
		ServerReport{Name: "files", State: Backoff})
	f.report.File, f.report.Endpoint, f.report.Mistakes, f.report.Notices = odd, odd, []string{odd}, []string{odd}
	f.report.Clients = []ClientReport{{Program: odd, Revision: odd, User: odd}}
	fmt.Fprintln(&f.tail, odd)
	f.records = []audit.Record{{Number: 1, Event: odd, Principal: odd, Client: odd, Method: odd, Name: odd, Server: odd, Outcome: odd, Delivery: odd, Reason: odd, Rule: odd}}
	h := serveWeb(t, f, true)
	tags := regexp.MustCompile(`<([^\s>]*)([^>]*)>`)
	attributes := regexp.MustCompile(`(?:^|\s)([^\s="]+)(?:="[^"]*")?`)
	allowed := strings.Fields("!doctype html head meta title link script body header h1 h2 p code section ul ol li main nav a div span strong br footer form input button label time pre select option")
	known := strings.Fields("html lang charset name content rel href src defer data-events id class type role tabindex data-count data-clock data-pid aria-label aria-hidden data-state method action type value autocomplete required datetime data-outcome selected")
	for _, target := range []string{"/", "/servers/files", "/servers/" + escaped(odd), "/audit", "/audit?" + (selection{Who: odd, Server: odd, Tool: odd, Outcome: odd}).query()} {
		got := page(h, target, token)
		for _, found := range tags.FindAllStringSubmatch(strings.ToLower(got), -1) {
			if !slices.Contains(allowed, strings.TrimPrefix(found[1], "/")) {
				t.Errorf("%s has %q", target, found[0])
			}
			for _, attribute := range attributes.FindAllStringSubmatch(found[2], -1) {
				if !slices.Contains(known, attribute[1]) {
					t.Errorf("%s has %q in %q", target, attribute[1], found[0])
				}
			}
		}
		if n := strings.Count(got, "<script"); n != 1 || strings.Contains(got, "<img") || strings.ContainsAny(got, "\x1b\u202e\u2028") {
			t.Errorf("%s has %d scripts, or what is not printable", target, n)
		}
		if !strings.Contains(got, "&lt;img src=x onerror=") && target != "/servers/files" || !strings.Contains(got, `\x1b[2J\u202e\u2028`) {
			t.Errorf("%s does not show the text: %s", target, got)
		}
	}
}

func escaped(name string) string { return rowOf(ServerReport{Name: name}, "").Path }

// The page loads nothing from elsewhere and runs nothing that stands in it: browsers are told so, and it has nothing of
// the kind.
//
// Guarantees: G-0091.9
func TestThePageIsStrict(t *testing.T) {
	h := serveWeb(t, newFake(files()), true)
	for target, kind := range map[string]string{"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript", "/page.svg": "image/svg+xml"} {
		got := ask(h, "GET", target)
		header := got.Result().Header // as it was when the answer began
		policy := header.Get("Content-Security-Policy")
		if got.Code != 200 || !strings.HasPrefix(header.Get("Content-Type"), kind) || !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self'") ||
			strings.Contains(policy, "unsafe") || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "same-origin" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d, %v", target, got.Code, header)
		}
		if body := got.Body.String(); len(body) < 100 || strings.Contains(body, "://") && target != "/" && target != "/page.svg" || strings.Contains(body, "style=") {
			t.Errorf("%s refers to another place, or has a style in it", target)
		}
	}
	if n := strings.Count(pageJS, "\n"); n > 80 {
		t.Errorf("the script has %d lines", n)
	}
	for _, want := range []string{"prefers-color-scheme: dark", "max-width: 52rem"} {
		if !strings.Contains(pageCSS, want) {
			t.Errorf("the stylesheet has no %s", want)
		}
	}
}

// A person shows the token once. The cookie is for this site and not for scripts, over TLS for this host only, and acts
// only together with the form of the page.
//
// Guarantees: G-0091.1
func TestAPersonLogsIn(t *testing.T) {
	f := newFake(files())
	h := serveWeb(t, f, false)
	if got := ask(h, "POST", "/login", form("token=wrong")); got.Code != 401 || got.Header().Get("Set-Cookie") != "" {
		t.Errorf("a wrong token: %d, %v", got.Code, got.Header())
	}
	in := ask(h, "POST", "/login", form("token=t0ken"))
	cookies := in.Result().Cookies()
	if in.Code != 303 || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].Secure || strings.Contains(cookies[0].Value, "t0ken") {
		t.Fatalf("logged in: %d, %v", in.Code, in.Header())
	}
	held := with("Cookie", cookies[0].Name+"="+cookies[0].Value)
	got := page(h, "/", held)
	field := regexp.MustCompile(`name="form" value="([0-9a-f]+)"`).FindStringSubmatch(got)
	if field == nil || !strings.Contains(got, "secret argument") {
		t.Fatalf("the page: %s", got)
	}
	for values, want := range map[string]int{"form=" + field[1]: 303, "form=x": 403, "": 403, "form=" + cookies[0].Value: 403} {
		if got := ask(h, "POST", "/v1/servers/files/restart", form(values), held); got.Code != want {
			t.Errorf("%q: %d %s", values, got.Code, got.Body)
		}
	}
	if got := ask(h, "POST", "/v1/servers/files/restart?form="+field[1], form(""), held); got.Code != 403 {
		t.Errorf("a field in the address, which others may see: %d", got.Code)
	}
	if !slices.Equal(f.did(), []string{"restart files"}) {
		t.Errorf("did %v", f.did())
	}
	overTLS := func(r *http.Request) { r.TLS = &tls.ConnectionState{} }
	if over := ask(h, "POST", "/login", form("token=t0ken"), overTLS).Result().Cookies(); len(over) != 1 || !over[0].Secure || !strings.HasPrefix(over[0].Name, "__Host-") {
		t.Errorf("over TLS: %v", over)
	}
}

// What changes while a page is made is on the next one, which a viewer gets without another change.
//
// Guarantees: G-0091.5
func TestAChangeWhileThePageIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(ServerReport{Name: "files", State: Starting})
		f.changes = func() {
			f.report.Servers = []ServerReport{{Name: "files", State: Ready}}
			close(f.changed)
			f.changed = make(chan struct{})
		}
		v := look(t, serveWeb(t, f, true), "/page/events")
		pass(2 * pace)
		if all := v.pages(t); len(all) != 2 || len(all[1].Parts) == 0 {
			t.Errorf("the viewer got %d pages", len(all))
		}
	})
}

// A viewer of the page gets first everything, as it stands without the script, and then what has changed, with the order. A
// server that has gone is not in the order. Many viewers cost one rendering.
//
// Guarantees: G-0091.5, G-0091.10
func TestThePageIsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []ServerReport
		for i := range 200 {
			all = append(all, ServerReport{Name: fmt.Sprintf("s%d", i), State: Ready})
		}
		f := newFake(all...)
		d := New(f)
		defer d.Close()
		e := d.entrance(guard{web: Web{Open: true, Token: "t0ken"}})
		h := e.routes()
		page(h, "/")
		pass(2 * pace)
		still := page(h, "/") // nothing has changed: it is not made again
		var viewers []*viewer
		for range 20 {
			viewers = append(viewers, look(t, h, "/page/events"))
		}
		one := look(t, h, "/page/events?server=s3")
		synctest.Wait()
		if f.reports != 1 {
			t.Errorf("%d reports for 20 viewers", f.reports)
		}
		first := viewers[0].pages(t)[0]
		if len(first.Parts) != 202 || len(first.Order) != 200 || len(states(still)) != 200 {
			t.Errorf("%d parts, %d rows", len(first.Parts), len(first.Order))
		}
		for _, p := range first.Parts {
			if !strings.Contains(still, p.HTML) {
				t.Fatalf("without the script there is no %s", p.HTML)
			}
		}
		changed := slices.Delete(slices.Clone(all), 3, 4)
		changed[100].State = Backoff
		f.set(changed...)
		pass(pace)
		second := viewers[7].pages(t)[1]
		id := rowOf(all[101], "").ID
		if len(second.Parts) != 2 || len(second.Order) != 199 || second.Order[0] != id || second.Parts[1].ID != id || second.Parts[0].ID != "head" {
			t.Errorf("after the change: %d parts, %d rows, the first is %s, want %s", len(second.Parts), len(second.Order), second.Order[0], id)
		}
		if f.reports != 2 {
			t.Errorf("%d reports", f.reports)
		}
		ofOne := one.pages(t)
		if len(ofOne) != 2 || len(ofOne[0].Order) != 1 || len(ofOne[1].Order) != 0 {
			t.Errorf("the page of the server that has gone: %+v", ofOne)
		}
	})
}

// While something changes all the time, viewers that have come at different times cost four renderings a second together. Who loads the page gets
// what holds now.
//
// Guarantees: G-0091.5, G-0091.10
func TestManyChangesCostFewRenderings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(files())
		d := New(f)
		defer d.Close()
		h := d.Web(Web{Open: true, Token: "t0ken"})
		var viewers []*viewer
		for i := range 200 {
			if f.set(ServerReport{Name: fmt.Sprintf("s%d", i), State: Ready}); i < 20 {
				viewers = append(viewers, look(t, h, "/page/events"))
			}
			pass(10 * time.Millisecond)
		}
		synctest.Wait()
		if f.reports > 10 {
			t.Errorf("%d reports in 2 s", f.reports)
		}
		if got := page(h, "/"); !strings.Contains(got, ">s199<") {
			t.Errorf("the page is old: %s", got)
		}
		for _, name := range []string{"next", "last"} {
			if f.set(ServerReport{Name: name, State: Ready}); !strings.Contains(page(h, "/"), ">"+name+"<") {
				t.Errorf("the page is not that of %s at once", name)
			}
		}
		pass(2 * pace)
		for _, v := range viewers {
			if all := v.pages(t); !strings.Contains(fmt.Sprint(all[len(all)-1].Parts), ">last<") {
				t.Errorf("the last event is old: %+v", all[len(all)-1])
			}
		}
	})
}

// pages returns the events of a viewer.
func (v *viewer) pages(t *testing.T) (all []pageEvent) {
	t.Helper()
	synctest.Wait()
	for line := range strings.Lines(v.text()) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var e pageEvent
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
	}
	return all
}
