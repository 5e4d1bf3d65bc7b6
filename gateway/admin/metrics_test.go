package admin

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Prometheus reads what the report says. Whoever may read the report may read that, and what a server is called cannot make it another page.
//
// Guarantees: G-0091.19, G-0091.23, G-0097.11, G-0099.21
func TestMetrics(t *testing.T) {
	s := files()
	s.Calls, s.P50, s.P99, s.Answered, s.Unanswered, s.Waited, s.Restarts = 2, 1.5, 20, 7, 1, 0.5, 3
	s.Limited, s.Queued, s.Known = 5, 6, noon
	f := newFake(s, ServerReport{Name: "odd\"\n} 1\\", State: Backoff})
	f.report.NotEnriched, f.report.AuditLost, f.report.AuditUnsent, f.report.PagesRefused, f.report.StatesRefused = 8, 9, 10, 11, 19
	f.report.Denied = map[int]uint64{401: 12, 400: 13}
	f.report.Refused, f.report.NotOffered, f.report.Clients = map[string]int64{RefusedSeveral: 4}, 14, []ClientReport{{Program: "c"}}
	f.report.Questions = []Question{{Server: "files"}}
	f.report.Called = []ToolCalls{
		{"files", OtherTools, "answered", "sent", 15}, {"files", "odd\"\n} 1\\", "not answered", "not sent", 16}, {"files", "read", "answered", "sent", 17}, {"files", "read", "not answered", "not sent", 18},
	}
	h := serveWeb(t, f, true)
	got := ask(h, "GET", "/metrics", token)
	if kind := got.Header().Get("Content-Type"); got.Code != 200 || kind != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("%d, %s", got.Code, kind)
	}
	body := got.Body.String()
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil || body != string(want) {
		t.Errorf("the page is not testdata/metrics.txt: %v\n%s", err, body)
	}
	line := regexp.MustCompile(`^(# (HELP|TYPE) bowline_gateway_[a-z_]+ .*|bowline_gateway_[a-z_]+(\{[a-z]+="([^"\\\n]|\\.)*"(,[a-z]+="([^"\\\n]|\\.)*")*\})? [0-9.e+-]+)$`)
	for _, l := range strings.Split(strings.TrimSuffix(body, "\n"), "\n") {
		if !line.MatchString(l) {
			t.Errorf("no line of such a page: %q", l)
		}
	}
	var m metrics
	m.line("x", 1, "tool", strings.Repeat("x", 1000))
	if want := `bowline_gateway_x{tool="` + strings.Repeat("x", 1000) + `"} 1` + "\n"; m.String() != want {
		t.Errorf("a long name: %s", m.String())
	}
	m.Reset()
	m.line("x", 1, "tool", "a\xffb")
	if want := "bowline_gateway_x{tool=\"a\uFFFDb\"} 1\n"; m.String() != want {
		t.Errorf("a name that is no UTF-8: %q", m.String())
	}
	d := New(f)
	defer d.Close()
	for name, door := range map[string]http.Handler{"without the token": h, "probes": d.Probes()} {
		var calls []string
		for l := range strings.Lines(ask(door, "GET", "/metrics").Body.String()) {
			if strings.HasPrefix(l, "bowline_gateway_tool_calls_total") {
				calls = append(calls, l)
			}
		}
		if want := []string{
			`bowline_gateway_tool_calls_total{server="files",outcome="answered",delivery="sent"} 32` + "\n",
			`bowline_gateway_tool_calls_total{server="files",outcome="not answered",delivery="not sent"} 34` + "\n",
		}; !slices.Equal(calls, want) {
			t.Errorf("%s: %q", name, calls)
		}
	}
	if got := ask(serveWeb(t, f, false), "GET", "/metrics"); got.Code != 401 {
		t.Errorf("a closed door: %d", got.Code)
	}
}
