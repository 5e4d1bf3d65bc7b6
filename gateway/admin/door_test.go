package admin

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Who may do what: at the socket everything, over TCP only with the token what acts or shows what servers have written,
// and the rest too unless the door is open. A request of another site, or for another host, does nothing.
//
// Guarantees: G-0091.1, G-0091.2
func TestWhoMayDoWhat(t *testing.T) {
	for _, c := range []struct {
		what               string
		method, target     string
		change             []func(*http.Request)
		local, open, close int // statuses
	}{
		{"alive", "GET", "/livez", nil, 200, 200, 200},
		{"ready", "GET", "/readyz", nil, 200, 200, 200},
		{"report", "GET", "/v1/report", nil, 200, 200, 401},
		{"report with the token", "GET", "/v1/report", do(token), 200, 200, 200},
		{"report with another", "GET", "/v1/report", do(with("Authorization", "Bearer t0kem")), 200, 200, 401},
		{"stderr", "GET", "/v1/stderr/files", nil, 200, 401, 401},
		{"stderr with the token", "GET", "/v1/stderr/files", do(token), 200, 200, 200},
		{"stderr of nobody", "GET", "/v1/stderr/nobody", do(token), 404, 404, 404},
		{"restart", "POST", "/v1/servers/files/restart", nil, 204, 401, 401},
		{"restart with the token", "POST", "/v1/servers/files/restart", do(token), 204, 204, 204},
		{"restart of nobody", "POST", "/v1/servers/nobody/restart", do(token), 404, 404, 404},
		{"another action", "POST", "/v1/servers/files/delete", do(token), 404, 404, 404},
		{"reload", "POST", "/v1/reload", do(token), 204, 204, 204},
		{"reload without", "POST", "/v1/reload", nil, 204, 401, 401},
		{"end, which only the user of the machine does", "POST", "/v1/end", do(token), 204, 404, 404},
		{"GET that acts", "GET", "/v1/servers/files/restart", do(token), 405, 405, 405},
		{"GET that reloads", "GET", "/v1/reload", do(token), 405, 405, 405},
		{"PUT", "PUT", "/v1/report", do(token), 405, 405, 405},
		{"nothing", "GET", "/v1/nothing", do(token), 404, 404, 404},
		{"another host", "GET", "/v1/report", do(token, host("evil.example.com")), 200, 403, 403},
		{"an address, which needs no name", "GET", "/v1/report", do(token, host("192.0.2.7:8081")), 200, 200, 200},
		{"an address with a zone", "GET", "/v1/report", do(token, host("[fe80::1%eth0]:8081")), 200, 200, 200},
		{"a host that was named, in other letters", "GET", "/v1/report", do(token, host("Tools.Example.COM")), 200, 200, 200},
		{"a host that was named", "GET", "/v1/report", do(token, host("tools.example.com:443")), 200, 200, 200},
		{"another origin", "POST", "/v1/reload", do(token, with("Origin", "http://evil.example.com")), 204, 403, 403},
		{"another port", "POST", "/v1/reload", do(token, with("Origin", "http://localhost:9999")), 204, 403, 403},
		{"no origin", "POST", "/v1/reload", do(token, with("Origin", "null")), 204, 403, 403},
		{"its own origin", "POST", "/v1/reload", do(token, with("Origin", "http://localhost:8081")), 204, 204, 204},
		{"another site", "POST", "/v1/reload", do(token, with("Sec-Fetch-Site", "cross-site")), 204, 403, 403},
		{"what another site loads", "GET", "/v1/report", do(token, with("Sec-Fetch-Site", "cross-site"), with("Sec-Fetch-Mode", "no-cors"), with("Sec-Fetch-Dest", "image")), 200, 403, 403},
		{"what another port loads", "GET", "/v1/report", do(token, with("Sec-Fetch-Site", "same-site"), with("Sec-Fetch-Mode", "no-cors"), with("Sec-Fetch-Dest", "empty")), 200, 403, 403},
		{"a frame of another site", "GET", "/v1/report", do(token, with("Sec-Fetch-Site", "cross-site"), with("Sec-Fetch-Mode", "navigate"), with("Sec-Fetch-Dest", "iframe")), 200, 403, 403},
		{"a link of another site", "GET", "/v1/report", do(token, with("Sec-Fetch-Site", "cross-site"), with("Sec-Fetch-Mode", "navigate"), with("Sec-Fetch-Dest", "document")), 200, 200, 200},
		{"an address that a person has typed", "GET", "/v1/report", do(token, with("Sec-Fetch-Site", "none")), 200, 200, 200},
		{"another host that acts", "POST", "/v1/reload", do(token, host("evil.example.com")), 204, 403, 403},
		{"an origin that is none", "POST", "/v1/reload", do(token, with("Origin", "http://%")), 204, 403, 403},
		{"its own page", "POST", "/v1/reload", do(token, with("Sec-Fetch-Site", "same-origin"), with("Sec-Fetch-Mode", "cors"), with("Sec-Fetch-Dest", "empty")), 204, 204, 204},
		{"a form of another site", "POST", "/v1/reload", do(token, with("Sec-Fetch-Site", "cross-site"), with("Sec-Fetch-Mode", "navigate"), with("Sec-Fetch-Dest", "document")), 204, 403, 403},
		{"a document that another site loads", "GET", "/v1/report", do(token, with("Sec-Fetch-Site", "cross-site"), with("Sec-Fetch-Mode", "no-cors"), with("Sec-Fetch-Dest", "document")), 200, 403, 403},
		{"the token under another scheme", "GET", "/v1/report", do(with("Authorization", "Basic t0ken")), 200, 200, 401},
		{"the token without a scheme", "GET", "/v1/report", do(with("Authorization", "t0ken")), 200, 200, 401},
		{"another cookie", "GET", "/v1/report", do(with("Cookie", plainCookie+"=t0ken")), 200, 200, 401},
		{"another cookie, for what servers have written", "GET", "/v1/stderr/files", do(with("Cookie", plainCookie+"=t0ken")), 200, 401, 401},
		{"a form without a cookie", "POST", "/v1/reload", do(form("form=x")), 303, 401, 401},
	} {
		f := newFake(files())
		d := New(f)
		for name, door := range map[string]struct {
			handler http.Handler
			want    int
		}{"local": {d.Local(), c.local}, "open": {serveWeb(t, f, true), c.open}, "closed": {serveWeb(t, f, false), c.close}} {
			before := len(f.did())
			got := ask(door.handler, c.method, c.target, c.change...)
			if got.Code != door.want {
				t.Errorf("%s, %s: got %d %s, want %d", c.what, name, got.Code, got.Body, door.want)
			}
			if acted := len(f.did()) > before; acted != (got.Code == 204 || got.Code == 303) {
				t.Errorf("%s, %s: %d, and acted: %v", c.what, name, got.Code, acted)
			}
			if got.Code == 401 && got.Result().Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s, %s: it does not say how", c.what, name)
			}
		}
	}
}

// At the address of probes nobody gets more than those, whatever token comes along.
//
// Guarantees: G-0091.22
func TestProbesAlone(t *testing.T) {
	f := newFake(files())
	d := New(f)
	serveWeb(t, f, true)
	for target, want := range map[string]int{
		"GET /livez": 200, "GET /readyz": 200, "GET /readyz?server=nobody": 404, "GET /metrics": 200, "POST /livez": 405, "GET /": 404, "GET /v1/report": 404, "GET /v1/events": 404, "GET /v1/audit": 404,
		"GET /servers/files": 404, "POST /v1/servers/files/restart": 404, "POST /v1/reload": 404, "POST /v1/end": 404, "GET /login/x": 404, "GET /page.js": 404,
	} {
		method, path, _ := strings.Cut(target, " ")
		if got := ask(d.Probes(), method, path, token); got.Code != want {
			t.Errorf("%s: %d %s", target, got.Code, got.Body)
		}
	}
	if len(f.did()) > 0 {
		t.Errorf("it did %q", f.did())
	}
}

func do(all ...func(*http.Request)) []func(*http.Request) { return all }

// Without a token nobody can act over TCP, whatever is sent.
//
// Guarantees: G-0091.1
func TestWithoutAToken(t *testing.T) {
	f := newFake(files())
	h := New(f).Web(Web{Open: true})
	empty := guard{}
	for _, change := range []func(*http.Request){with("Authorization", "Bearer "), with("Cookie", plainCookie+"="+empty.secret("cookie")), form("form=" + empty.secret("form"))} {
		if got := ask(h, "POST", "/v1/reload", change); got.Code != 401 || len(f.did()) > 0 {
			t.Errorf("got %d, %v", got.Code, f.did())
		}
	}
}

// What a server has written is shown to those who know the token only: it may hold arguments and results.
//
// Guarantees: G-0091.1
func TestWhatServersWriteIsNotForEverybody(t *testing.T) {
	f := newFake(files(), ServerReport{Name: "web", State: Backoff, Reason: "crash-looping: it said secret", LastFailure: "exited: it said secret", Users: []string{"secret user"}}, ServerReport{Name: "asleep", State: Stopped, OnDemand: true},
		ServerReport{Name: "idle", State: Stopped, OnDemand: true, Reason: "starts on demand", LastFailure: "secret of a handshake", Notices: []string{"tools: secret is listed twice"}})
	f.report.Questions = []Question{{Server: "files", Method: "elicitation/create", Target: "file:///secret", Program: "c"}}
	f.report.Clients = []ClientReport{{Program: "c", User: "secret client"}}
	h := serveWeb(t, f, true)
	if got := ask(h, "GET", "/v1/report").Body.String(); strings.Contains(got, "secret") || !strings.Contains(got, `"pid":4711`) || !strings.Contains(got, `"reason":"crash-looping"`) ||
		strings.Count(got, `["`+withToken+`"]`) != 1 || strings.Count(got, `"lastFailure":"`+withToken+`"`) != 1 || strings.Count(got, "elicitation/create") != 1 {
		t.Errorf("everybody gets %s", got)
	}
	if got := page(h, "/"); strings.Contains(got, "secret") || !strings.Contains(got, "last failure: exited") {
		t.Errorf("everybody sees %s", got)
	}
	if got := ask(h, "GET", "/v1/report", token).Body.String(); !strings.Contains(got, "secret argument") || !strings.Contains(got, `"user":"secret client"`) {
		t.Errorf("with the token: %s", got)
	}
	if f.report.Servers[0].Stderr == "" || f.report.Questions[0].Target == "" || f.report.Clients[0].User == "" || f.report.Servers[3].Notices[0] == withToken {
		t.Error("the report of the gateway was changed")
	}
}

// An action that fails says why, and a reload of a broken file too.
//
// Guarantees: G-0091.3
func TestActionsSayWhyTheyFail(t *testing.T) {
	f := newFake(files(), ServerReport{Name: "a/b c"})
	h := New(f).Local()
	f.broken = errBroken
	for _, target := range []string{"/v1/servers/files/stop", "/v1/reload"} {
		if got := ask(h, "POST", target); got.Code != 409 || !strings.Contains(got.Body.String(), `{"error":"the file has mistakes"}`) {
			t.Errorf("%s: %d %s", target, got.Code, got.Body)
		}
	}
	f.broken = nil
	for _, action := range []Action{Start, Wake, Restart, Stop} {
		if got := ask(h, "POST", "/v1/servers/a%2Fb%20c/"+string(action)); got.Code != 204 {
			t.Errorf("%s: %d %s", action, got.Code, got.Body)
		}
	}
	if want := []string{"stop files", "reload", "start a/b c", "wake a/b c", "restart a/b c", "stop a/b c"}; !slices.Equal(f.did(), want) {
		t.Errorf("did %q, want %q", f.did(), want)
	}
}

// Liveness never depends on servers, and readiness only if it is asked for one.
//
// Guarantees: G-0091.4
func TestProbes(t *testing.T) {
	f := newFake(files(), ServerReport{Name: "web", State: Backoff}, ServerReport{Name: "later", State: Stopped, OnDemand: true}, ServerReport{Name: "stopped", State: Stopped})
	h := serveWeb(t, f, false)
	probes := func(when string, want map[string]int) {
		for target, status := range want {
			says := map[int]string{200: "ok\n", 404: ErrNoServer.Error() + "\n"}[status]
			if got := ask(h, "GET", target); got.Code != status || !strings.HasSuffix(got.Body.String(), says) {
				t.Errorf("%s: %s is %d %q, want %d %q", when, target, got.Code, got.Body, status, says)
			}
		}
	}
	probes("one is away", map[string]int{"/livez": 200, "/readyz": 200, "/readyz?server=files": 200, "/readyz?server=web": 503, "/readyz?server=later": 200, "/readyz?server=stopped": 503, "/readyz?server=x": 404})
	f.report.Ready = false
	probes("draining", map[string]int{"/livez": 200, "/readyz": 503, "/readyz?server=files": 503})
}

// Each answer says what it is before it begins, and a refusal is all that is said: nothing of what was refused follows it. What cannot be encoded is no
// half answer.
//
// Guarantees: G-0091.2, G-0091.3
func TestWhatAnAnswerIs(t *testing.T) {
	f := newFake(files())
	const text, program = "text/plain; charset=utf-8", "application/json"
	for _, c := range []struct {
		method, target, kind string
		change               []func(*http.Request)
		status               int
		body                 string // "": any
	}{
		{"GET", "/livez", text, nil, 200, "ok\n"},
		{"GET", "/v1/report", program, nil, 200, ""},
		{"GET", "/servers/nobody", text, nil, 404, "no such server\n"},
		{"GET", "/v1/audit", program, do(token), 404, `{"error":` + strconv.Quote(errNoTrail.Error()) + "}\n"},
		{"POST", "/v1/code", program, do(token), 403, `{"error":"only the socket gives codes"}` + "\n"},
		{"POST", "/login", text, do(form("token=wrong")), 401, "this is not the admin token\n"},
		{"POST", "/login", text, do(form("token=" + strings.Repeat("a", maxForm))), 413, "the form has more than 262144 bytes\n"},
		{"POST", "/v1/reload", program, do(token, with("Content-Type", "application/x-www-form-urlencoded; charset")), 400, `{"error":"mime: invalid media parameter"}` + "\n"},
	} {
		got := ask(serveWeb(t, f, true), c.method, c.target, c.change...)
		if kind := got.Result().Header.Get("Content-Type"); got.Code != c.status || kind != c.kind || c.body != "" && got.Body.String() != c.body {
			t.Errorf("%s %s: %d, %q\n%s", c.method, c.target, got.Code, kind, got.Body)
		}
	}
	if got := ask(New(f).Local(), "POST", "/login", form("")); got.Code != 303 {
		t.Errorf("a login at the socket, which needs no token: %d %s", got.Code, got.Body)
	}
	f.report.Servers[0].P50 = math.NaN()
	if got := ask(serveWeb(t, f, true), "GET", "/v1/report"); got.Code != 500 || got.Result().Header.Get("Content-Type") != text || !strings.HasSuffix(got.Body.String(), "NaN\n") {
		t.Errorf("a report that cannot be encoded: %d %s", got.Code, got.Body)
	}
}

// A body that is too large is not read.
//
// Guarantees: G-0091.2
func TestBodiesAreBounded(t *testing.T) {
	f := newFake(files())
	h := serveWeb(t, f, true)
	g := guard{web: Web{Token: "t0ken"}}
	for size, want := range map[int]int{10: 303, maxForm - 100: 303, maxForm: 413} {
		got := ask(h, "POST", "/v1/reload", form("x="+strings.Repeat("a", size)+"&form="+g.secret("form")), with("Cookie", plainCookie+"="+g.secret("cookie")))
		if got.Code != want {
			t.Errorf("%d bytes: %d %s", size, got.Code, got.Body)
		}
	}
}
