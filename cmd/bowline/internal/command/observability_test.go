package command

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/bundled"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/monitor"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/inmem"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.yaml.in/yaml/v3"
)

const observability = "../../../../docs/observability/"

// everyMetric returns a page on which each metric has a value, from a call in memory, an
// event of each kind, and a sample of each kind.
func everyMetric(t *testing.T) string {
	t.Helper()
	page, meters := monitor.NewPage(resource.Empty())
	if err := monitor.ObserveProcess(meters); err != nil {
		t.Fatal(err)
	}
	return pagesOf(t, meters, page)[0]
}

// pagesOf returns pages with the same metrics.
func pagesOf(t *testing.T, meters *sdkmetric.MeterProvider, pages ...http.Handler) (texts []string) {
	t.Helper()
	sink, err := otel.New(otel.Options{MeterProvider: meters})
	if err != nil {
		t.Fatal(err)
	}
	tools := bundled.New(bundled.Options{Server: server.Options{Conn: conn.Tuning{Hooks: sink.ServerHooks()}, Middleware: []server.Middleware{sink.Server()}}})
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		Conn: conn.Tuning{Name: "near", Hooks: sink.Hooks()}, Middleware: []client.Middleware{sink.Client()},
	})
	session, err := c.Connect(t.Context(), inmem.New(tools.Accept, inmem.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "fail", Arguments: json.RawMessage(`{"message":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(context.Context) error{c.Close, tools.Close} {
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range []telemetry.Hooks{sink.Hooks(), sink.ServerHooks()} {
		h.Transition(telemetry.Transition{Conn: "far", From: "initializing", To: "ready"})
		h.Transition(telemetry.Transition{Conn: "far", From: "ready", To: "backoff", Kind: "link lost", Lasted: time.Second, Endpoint: "https://far.test/mcp"})
		h.Gap(telemetry.Gap{Conn: "far", Kind: "link lost", Calls: 1, Duration: time.Second})
		h.NotificationReceived(telemetry.NotificationReceived{Conn: "far", Method: "notifications/progress"})
		h.Shed(telemetry.Shed{Conn: "far", Method: "notifications/progress"})
		h.Stalled(telemetry.Stalled{Conn: "far", Why: "x", Over: true, Duration: time.Second})
		h.Missed(telemetry.Missed{Conn: "far"})
		h.Stuck(telemetry.Stuck{Conn: "far", Method: "tools/call"})
		h.Violation(telemetry.Violation{Conn: "far", Reason: telemetry.ViolationNotJSON})
		h.Panic(telemetry.Panic{Conn: "far", Where: "tools/call"})
	}
	forget := sink.Watch(func() iter.Seq[telemetry.Sample] {
		return slices.Values([]telemetry.Sample{
			{Name: "far", Conn: &telemetry.ConnSample{State: "ready", Stall: "x", Settled: []telemetry.Settled{{Cause: "answered", Delivery: "sent", Count: 1}}}},
			{Name: "front", Server: &telemetry.ServerSample{Conns: []telemetry.ConnsSample{{State: "ready", Count: 1}}}},
			{Name: "s", Supervisor: &telemetry.SupervisorSample{Children: []telemetry.ChildrenSample{{State: "running", Count: 1}}}},
			{Name: "g", Gate: &telemetry.GateSample{}},
			{Name: "/mcp", HTTP: &telemetry.HTTPSample{Ended: []telemetry.EndedSample{{Why: "closed", Count: 1}}, Refused: []telemetry.Refused{{Status: 400, Count: 1}}}},
			{Name: "https://far.test", Auth: &telemetry.AuthSample{
				Refreshes: []telemetry.AuthResult{{Result: "succeeded", Count: 1}}, Logins: []telemetry.AuthResult{{Result: "succeeded", Count: 1}},
				Denied: []telemetry.Refused{{Status: 401, Count: 1}}, Expires: time.Now().Add(time.Hour),
			}},
		})
	})
	defer forget()
	for _, page := range pages {
		recorder := httptest.NewRecorder()
		page.ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
		if texts = append(texts, recorder.Body.String()); recorder.Code != http.StatusOK {
			t.Fatalf("the page has the status %d: %s", recorder.Code, recorder.Body)
		}
	}
	return texts
}

// answers returns the queries in README.md for its five questions.
func answers(t *testing.T) (all []string) {
	t.Helper()
	_, after, ok := strings.Cut(string(document(t, "README.md")), "## Five questions\n")
	section, _, _ := strings.Cut(after, "\n| Label")
	for line := range strings.Lines(section) {
		if query, indented := strings.CutPrefix(line, "    "); indented {
			all = append(all, strings.TrimSpace(query))
		}
	}
	if !ok || len(all) != 5 {
		t.Fatalf("README.md answers %d questions", len(all))
	}
	return all
}

// queries are those of README.md, and those of the dashboard and of the alert rules, with the variables of the
// dashboard filled in.
func queries(t *testing.T) (all []string) {
	t.Helper()
	fill := strings.NewReplacer("$__rate_interval", "5m", "$conn", ".*", "$server", ".*")
	for _, panel := range panels(t) {
		for _, target := range panel.Targets {
			all = append(all, fill.Replace(target.Expr))
		}
	}
	var alerts struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal(document(t, "alerts.yaml"), &alerts); err != nil {
		t.Fatal(err)
	}
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			all = append(all, rule.Expr)
		}
	}
	return append(all, answers(t)...)
}

// A panel is one picture of the dashboard, with its queries.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(document(t, "grafana.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

func document(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(observability + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var (
	metricName = regexp.MustCompile(`\b(?:bowline|mcp)_[a-z_]+\b`)
	queryName  = regexp.MustCompile(`\b(?:(?:bowline|mcp|gen_ai)_[a-z_]+|error_type)\b`)
	typeLine   = regexp.MustCompile(`(?m)^# TYPE ((?:bowline|mcp)_[a-z_]+) `)
	labelName  = regexp.MustCompile(`[{,]([a-z_]+)="`)
)

// TestQueriesNameWhatThereIs checks that each metric and label in the queries of the dashboard
// and of the alerts is on the exporter's page, and that README.md explains each metric.
func TestQueriesNameWhatThereIs(t *testing.T) {
	page := everyMetric(t)
	there := map[string]bool{
		"bowline_build_info":                true, // of the command: TestMetricsAgreeWithTheCalls sees it
		"bowline_debug_trace_refused_total": true, // only with traces, of a peer whose trace context is malformed
		"bowline_debug_sets_exceeded_total": true, // only beyond 1,000 sets of labels
	}
	for _, line := range typeLine.FindAllStringSubmatch(page+pageOfAGateway(t), -1) {
		for _, suffix := range []string{"", "_bucket", "_count", "_sum"} {
			there[line[1]+suffix] = true
		}
	}
	for _, label := range labelName.FindAllStringSubmatch(page, -1) {
		there[label[1]] = true
	}
	all := queries(t)
	if len(all) < 30 {
		t.Errorf("only %d queries were found", len(all))
	}
	for _, query := range all {
		for _, name := range queryName.FindAllString(query, -1) {
			if !there[name] {
				t.Errorf("%s is not a metric, in %s", name, query)
			}
		}
	}
	for _, name := range metricName.FindAllString(string(document(t, "alerts_test.yaml")), -1) {
		if !there[name] {
			t.Errorf("the tests of the alerts have %s, which does not exist", name)
		}
	}
	readme := string(document(t, "README.md"))
	for _, line := range typeLine.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(readme, "`"+line[1]+"`") {
			t.Errorf("README.md does not explain %s", line[1])
		}
	}
	for _, name := range metricName.FindAllString(readme, -1) {
		if !there[name] {
			t.Errorf("README.md explains %s, which does not exist", name)
		}
	}
}

// pageOfAGateway returns the metrics of a gateway without servers.
func pageOfAGateway(t *testing.T) string {
	t.Helper()
	g := gateway.New(gateway.Options{})
	door := admin.New(reloading{g})
	t.Cleanup(func() {
		door.Close()
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	w := httptest.NewRecorder()
	door.Web(admin.Web{Token: "t", Open: true}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// A reloading gateway has no file.
type reloading struct{ *gateway.Gateway }

func (reloading) End() {}

func (reloading) Records() ([]audit.Record, <-chan struct{}, bool) { return nil, nil, false }

func (reloading) Reload(context.Context) error { return nil }

// TestDashboardShowsWhatIsSelected checks that each query of the dashboard selects by connection, or
// by the server's address, if its metric has that label.
func TestDashboardShowsWhatIsSelected(t *testing.T) {
	page := everyMetric(t) + `mcp_client_operation_duration_seconds_count{server_address="far.test"}` // only calls over HTTP have it
	selects := map[string]string{"bowline_conn": `bowline_conn=~"$conn"`, "server_address": `server_address=~"$server"`}
	checked := map[string]int{}
	for _, panel := range panels(t) {
		for _, target := range panel.Targets {
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
				for label, selection := range selects {
					if !regexp.MustCompile(`(?m)^` + name + `(_count)?\{([^}]*,)?` + label + `="`).MatchString(page) {
						continue
					}
					checked[label]++
					if !strings.Contains(target.Expr, selection) {
						t.Errorf("%s: %s has the label %s, and the query does not contain %s", panel.Title, name, label, selection)
					}
				}
			}
		}
	}
	if checked["bowline_conn"] < 15 || checked["server_address"] < 3 {
		t.Errorf("queries by label: %v", checked)
	}
}

// TestReadmeNamesWhatLabelsSay checks that README.md explains each cause and delivery.
func TestReadmeNamesWhatLabelsSay(t *testing.T) {
	readme := string(document(t, "README.md"))
	for _, cause := range conn.Causes() {
		if !strings.Contains(readme, "`"+cause.String()+"`") {
			t.Errorf("README.md does not explain the cause %q", cause)
		}
	}
	for _, delivery := range conn.Deliveries() {
		if !strings.Contains(readme, "`"+delivery.String()+"`") {
			t.Errorf("README.md does not explain the delivery %q", delivery)
		}
	}
}

// TestEachAlertIsTested checks that alerts_test.yaml, which promtool runs, has for each alert a
// time at which it is raised, and one at which it is not.
func TestEachAlertIsTested(t *testing.T) {
	var alerts struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	if err := yaml.Unmarshal(document(t, "alerts.yaml"), &alerts); err != nil {
		t.Fatal(err)
	}
	var tests struct {
		Tests []struct {
			Alerts []struct {
				Name   string `yaml:"alertname"`
				Raised []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(document(t, "alerts_test.yaml"), &tests); err != nil {
		t.Fatal(err)
	}
	raised, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, alert := range test.Alerts {
			if len(alert.Raised) > 0 {
				raised[alert.Name] = true
			} else {
				silent[alert.Name] = true
			}
		}
	}
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			if !raised[rule.Alert] || !silent[rule.Alert] {
				t.Errorf("%s: tested when it is raised: %v, and when it is not: %v", rule.Alert, raised[rule.Alert], silent[rule.Alert])
			}
		}
	}
}
