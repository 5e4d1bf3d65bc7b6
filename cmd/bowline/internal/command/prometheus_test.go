//go:build prometheus

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/bundled"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/monitor"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.yaml.in/yaml/v3"
)

// These tests need Debian's prometheus: .ci/run telemetry installs it and runs them.

func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	check := exec.CommandContext(t.Context(), "promtool", args...)
	check.Stdin = strings.NewReader(stdin)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestPromtoolTakesThePage checks the page of all metrics.
func TestPromtoolTakesThePage(t *testing.T) {
	promtool(t, everyMetric(t), "check", "metrics")
}

// TestPromtoolTakesTheRules checks the alerts, and each query of the dashboard as a rule.
func TestPromtoolTakesTheRules(t *testing.T) {
	promtool(t, "", "check", "rules", observability+"alerts.yaml")
	type rule struct{ Record, Expr string }
	var rules []rule
	for i, query := range queries(t) {
		rules = append(rules, rule{fmt.Sprintf("query:%d", i), query})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "queries", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", file)
}

// TestPromtoolTestsTheAlerts runs the tests of the alerts.
func TestPromtoolTestsTheAlerts(t *testing.T) {
	promtool(t, "", "test", "rules", observability+"alerts_test.yaml")
}

// TestPrometheusCountsTheCalls checks that a real Prometheus, which scrapes the command, returns
// the number of calls.
func TestPrometheusCountsTheCalls(t *testing.T) {
	mcp, admin, _, _ := watched(t)
	want := map[string]string{"echo": "3", "fail tool_error": "1"}
	for range 3 {
		bowline(t, "", "call", "echo", "message=hello", "--url", mcp).want(t, 0, "hello", "")
	}
	bowline(t, "", "call", "fail", "message=x", "--url", mcp).want(t, process.ExitToolFailed, "", "x")
	p := scraping(t, admin)
	p.tells(t, want, `sum by (gen_ai_tool_name, error_type) (mcp_server_operation_duration_seconds_count{mcp_method_name="tools/call"})`, "gen_ai_tool_name", "error_type")
	p.tells(t, map[string]string{"bowline": "1"}, `sum by (job) (up)`, "job")
}

// TestPrometheusTellsTheReport checks that Prometheus returns the same about connections, of which
// one is down, as the report of the supervisor.
func TestPrometheusTellsTheReport(t *testing.T) {
	page, meters := monitor.NewPage(resource.Empty())
	told, err := otel.New(otel.Options{MeterProvider: meters})
	if err != nil {
		t.Fatal(err)
	}
	all := supervisor.New(supervisor.Options{Name: "all"})
	defer all.Stop(context.Background())
	defer told.Watch(all.Samples)()
	var sessions []*client.Session
	for _, name := range []string{"near", "away"} {
		c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
			Supervisor: all, Conn: conn.Tuning{Name: name, Hooks: told.Hooks(), BackoffMin: time.Hour, BackoffMax: time.Hour},
		})
		tools := bundled.New(bundled.Options{})
		defer tools.Close(context.Background())
		session, err := c.Connect(t.Context(), inmem.New(tools.Accept, inmem.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"message":"x"}`)}); err != nil {
				t.Fatal(err)
			}
		}
		if sessions = append(sessions, session); name == "near" {
			continue
		}
		if err := tools.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for status := range session.Changes(t.Context()) {
			if status.State == conn.Backoff {
				break
			}
		}
	}
	admin := httptest.NewServer(page)
	defer admin.Close()

	up, states, calls := map[string]string{}, map[string]string{}, map[string]string{}
	for _, child := range all.Report().Children {
		up[child.ID] = strconv.Itoa(map[bool]int{true: 1}[child.Connection.State == conn.Ready])
		states[child.ID+" "+string(child.Connection.State)] = "1"
	}
	for _, session := range sessions {
		calls[session.Name()] = strconv.FormatUint(session.Conn().Stats().Calls, 10)
	}
	if !cmp.Equal(up, map[string]string{"near": "1", "away": "0"}) {
		t.Fatalf("the report has %v", up)
	}
	p := scraping(t, admin.URL)
	p.tells(t, up, `bowline_conn_up`, "bowline_conn")
	p.tells(t, states, `bowline_conn_state`, "bowline_conn", "bowline_state")
	p.tells(t, calls, `sum by (bowline_conn) (bowline_calls_total) + on (bowline_conn) bowline_calls_in_flight`, "bowline_conn")
	p.tells(t, map[string]string{"all running": "2"}, `bowline_supervisor_children`, "bowline_supervisor", "bowline_state")
	p.tells(t, map[string]string{"away": "1"}, `sum by (bowline_conn) (bowline_conn_losses_total)`, "bowline_conn")
}

// TestPrometheusAnswersTheFiveQuestions runs the queries of README.md. One server works, and has a
// slow tool; the other was lost.
func TestPrometheusAnswersTheFiveQuestions(t *testing.T) {
	page, meters := monitor.NewPage(resource.Empty())
	told, err := otel.New(otel.Options{MeterProvider: meters})
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		Conn:       conn.Tuning{Hooks: told.Hooks(), BackoffMin: time.Hour, BackoffMax: time.Hour},
		Middleware: []client.Middleware{told.Client()},
	})
	defer c.Close(context.Background())
	defer told.Watch(c.Samples)()
	sessions, stop := map[string]*client.Session{}, map[string]func(context.Context) error{}
	for _, name := range []string{"near", "away"} {
		tools := bundled.New(bundled.Options{})
		defer tools.Close(context.Background())
		if sessions[name], err = c.Start(t.Context(), name, inmem.New(tools.Accept, inmem.Options{})); err == nil {
			err = sessions[name].AwaitReady(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range sessions[name].Tools(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		stop[name] = tools.Close
	}
	call := func(tool, arguments string) {
		t.Helper()
		if _, err := sessions["near"].CallTool(t.Context(), &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)}); err != nil {
			t.Fatal(err)
		}
	}
	both := func() {
		call("echo", `{"message":"x"}`)
		call("slow", `{"seconds":0.3,"steps":1}`)
	}
	admin := httptest.NewServer(page)
	defer admin.Close()
	p, ask := scraping(t, admin.URL), answers(t)
	both()
	p.tells(t, map[string]string{"echo": "1", "slow": "1"}, `sum by (gen_ai_tool_name) (mcp_client_operation_duration_seconds_count{mcp_method_name="tools/call"})`, "gen_ai_tool_name")
	both() // Prometheus sees no increase in what was not there before
	if err := stop["away"](t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := map[string]string{}
	for name, session := range sessions {
		for status := range session.Changes(t.Context()) {
			if name == "near" || status.State == conn.Backoff {
				break
			}
		}
		for cause, byDelivery := range session.Conn().Stats().Settled {
			for delivery, n := range byDelivery {
				ended[name+" "+cause.String()+" "+delivery.String()] = strconv.FormatUint(n, 10)
			}
		}
	}
	p.tells(t, map[string]string{"near": "1", "away": "0"}, ask[0], "bowline_conn")
	p.tells(t, map[string]string{"away peer ended": "1"}, ask[1], "bowline_conn", "bowline_reason")
	p.tells(t, map[string]string{"near": "0", "away": "1"}, "("+ask[2]+") > bool 0", "bowline_conn")
	p.tells(t, ended, ask[3], "bowline_conn", "bowline_cause", "bowline_delivery")
	p.tells(t, map[string]string{"echo": "0", "slow": "1"}, "("+ask[4]+") > bool 0.2", "gen_ai_tool_name")
}

// A scraper is the URL of the API of a running Prometheus.
type scraper string

// scraping runs a Prometheus that scrapes an address, until the end of the test.
func scraping(t *testing.T, admin string) scraper {
	t.Helper()
	folder := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 200ms}\nscrape_configs: [{job_name: bowline, static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(admin, "http://"))
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	// Prometheus does not say which port it was given. Nobody else is given one of these.
	address := fmt.Sprint("127.0.0.1:", 20_000+rand.N(10_000))
	said := new(strings.Builder)
	server := exec.Command("prometheus", "--config.file", filepath.Join(folder, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(folder, "data"), "--web.listen-address", address)
	server.Stderr = said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // it was killed
		if t.Failed() {
			t.Log(said)
		}
	})
	return scraper("http://" + address)
}

// tells waits until a query returns these values, by the values of the labels.
func (p scraper) tells(t *testing.T, want map[string]string, query string, labels ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	var got map[string]string
	for !cmp.Equal(want, got) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s (-want +got):\n%s", query, cmp.Diff(want, got))
		case <-poll.C:
			got = p.ask(t, query, labels)
		}
	}
}

// ask returns the values of a query by those of the labels, or nil while Prometheus does not
// answer.
func (p scraper) ask(t *testing.T, query string, labels []string) map[string]string {
	t.Helper()
	response, err := http.Get(string(p) + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any // when, and what
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, r := range answer.Data.Result {
		var by []string
		for _, label := range labels {
			by = append(by, r.Metric[label])
		}
		values[strings.TrimSpace(strings.Join(by, " "))] = fmt.Sprint(r.Value[1])
	}
	return values
}
