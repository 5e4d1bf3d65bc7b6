//go:build prometheus

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// TestPromtoolTakesThePage of all metrics.
func TestPromtoolTakesThePage(t *testing.T) {
	promtool(t, everyMetric(t), "check", "metrics")
}

// TestPromtoolTakesTheRules: the alerts, and each query of the dashboard as a rule.
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

// TestPromtoolTestsTheAlerts with series for which they are raised, and not.
func TestPromtoolTestsTheAlerts(t *testing.T) {
	promtool(t, "", "test", "rules", observability+"alerts_test.yaml")
}

// TestPrometheusCountsTheCalls: a real Prometheus scrapes the command, and its query API
// tells the calls that were made.
func TestPrometheusCountsTheCalls(t *testing.T) {
	mcp, admin, _, _ := watched(t)
	want := map[string]string{"echo": "3", "fail tool_error": "1"}
	for range 3 {
		bowline(t, "", "call", "echo", "message=hello", "--url", mcp).want(t, 0, "hello", "")
	}
	bowline(t, "", "call", "fail", "message=x", "--url", mcp).want(t, exitToolFailed, "", "x")

	folder := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 200ms}\nscrape_configs: [{job_name: bowline, static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(admin, "http://"))
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := listen("", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil { // Prometheus does not say which port it was given
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	said := new(strings.Builder)
	server := exec.CommandContext(ctx, "prometheus", "--config.file", filepath.Join(folder, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(folder, "data"), "--web.listen-address", address)
	server.Stderr = said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = server.Wait() // it was killed
		if t.Failed() {
			t.Log(said)
		}
	}()
	const query = `sum by (gen_ai_tool_name, error_type) (mcp_server_operation_duration_seconds_count{mcp_method_name="tools/call"})`
	var got map[string]string
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for !cmp.Equal(want, got) {
		select {
		case <-ctx.Done():
			t.Fatalf("calls by tool and error (-made +told):\n%s", cmp.Diff(want, got))
		case <-poll.C:
			got = ask(t, "http://"+address, query)
		}
	}
	if up := ask(t, "http://"+address, `sum by (job) (up)`); !cmp.Equal(up, map[string]string{"bowline": "1"}) {
		t.Errorf("up is %v", up)
	}
}

// ask returns the values of a query by their labels; nothing while nobody answers.
func ask(t *testing.T, prometheus, query string) map[string]string {
	t.Helper()
	response, err := http.Get(prometheus + "/api/v1/query?query=" + url.QueryEscape(query))
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
		labels := strings.TrimSpace(r.Metric["job"] + r.Metric["gen_ai_tool_name"] + " " + r.Metric["error_type"])
		values[labels] = fmt.Sprint(r.Value[1])
	}
	return values
}
