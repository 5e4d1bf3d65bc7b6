package admin

import (
	"regexp"
	"strings"
	"testing"
)

// Prometheus reads what the report says. Whoever may read the report may read that, and what a server is called cannot make it another page.
//
// Guarantees: G-0091.19
func TestMetrics(t *testing.T) {
	s := files()
	s.Calls, s.P50, s.P99, s.Answered, s.Unanswered, s.Waited, s.Restarts = 2, 1.5, 20, 7, 1, 0.5, 3
	f := newFake(s, ServerReport{Name: "odd\"\n} 1\\", State: Backoff})
	f.report.Refused, f.report.Clients = 4, []ClientReport{{Program: "c"}}
	f.report.Questions = []Question{{Server: "files"}}
	h := serveWeb(t, f, true)
	got := ask(h, "GET", "/metrics")
	if kind := got.Header().Get("Content-Type"); got.Code != 200 || kind != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("%d, %s", got.Code, kind)
	}
	body := got.Body.String()
	for _, want := range []string{
		"ready 1", "applied_timestamp_seconds 1.7957808e+09", "clients 1", "questions_waiting 1", "questions_refused_total 4",
		`server_state{server="files",state="ready"} 1`, `server_state{server="files",state="backoff"} 0`, `server_state{server="odd\"\n} 1\\",state="backoff"} 1`,
		`server_restarts_total{server="files"} 3`, `requests_in_flight{server="files"} 2`, `requests_unanswered_total{server="files"} 1`,
		`request_duration_seconds{server="files",quantile="0.5"} 0.0015`, `request_duration_seconds{server="files",quantile="0.99"} 0.02`,
		`request_duration_seconds_sum{server="files"} 0.5`, `request_duration_seconds_count{server="files"} 7`,
		`tools{server="files"} 12`, `listed_timestamp_seconds{server="files"} 0`,
	} {
		if !strings.Contains(body, "\nbowline_gateway_"+want+"\n") {
			t.Errorf("it does not have %s", want)
		}
	}
	line := regexp.MustCompile(`^(# (HELP|TYPE) bowline_gateway_[a-z_]+ .*|bowline_gateway_[a-z_]+(\{[a-z]+="([^"\\\n]|\\.)*"(,[a-z]+="([^"\\\n]|\\.)*")*\})? [0-9.e+-]+)$`)
	for _, l := range strings.Split(strings.TrimSuffix(body, "\n"), "\n") {
		if !line.MatchString(l) {
			t.Errorf("no line of such a page: %q", l)
		}
	}
	if got := ask(serveWeb(t, f, false), "GET", "/metrics"); got.Code != 401 {
		t.Errorf("a closed door: %d", got.Code)
	}
}
