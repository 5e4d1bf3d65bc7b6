package main

import (
	"bufio"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// watched runs `bowline serve --http --metrics` for the length of a test, and returns
// the URLs of both. Interrupt asks it to end, and ended waits for that.
func watched(t *testing.T, more ...string) (url, admin string, interrupt func(), ended func() (status int, rest string)) {
	t.Helper()
	cmd := command(t, append([]string{"serve", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}, more...)...)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for url == "" && lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), "metrics at "); ok {
			admin = strings.TrimSuffix(after, "/metrics")
		}
		_, url, _ = strings.Cut(lines.Text(), "serving ")
	}
	interrupt = func() { cmd.Process.Signal(os.Interrupt) }
	ended = sync.OnceValues(func() (int, string) {
		rest := new(strings.Builder)
		for lines.Scan() {
			rest.WriteString(lines.Text() + "\n")
		}
		return exitStatus(t, cmd.Wait()), rest.String()
	})
	t.Cleanup(func() {
		interrupt()
		ended()
	})
	if url == "" || admin == "" {
		t.Fatalf("the server has not said where it is: %v", lines.Err())
	}
	return url, admin, interrupt, ended
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// scrape reads the page as Prometheus does.
func scrape(t *testing.T, admin string) map[string]*dto.MetricFamily {
	t.Helper()
	status, page := get(t, admin+"/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v:\n%s", status, err, page)
	}
	return families
}

// callsByTool adds up the histogram of what was served.
func callsByTool(families map[string]*dto.MetricFamily) map[string]uint64 {
	calls := map[string]uint64{}
	for _, m := range families["mcp_server_operation_duration_seconds"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["mcp_method_name"] == "tools/call" {
			calls[strings.TrimSpace(labels["gen_ai_tool_name"]+" "+labels["error_type"])] += m.Histogram.GetSampleCount()
		}
	}
	return calls
}

// TestMetricsAgreeWithTheCalls that were made, and no argument is in them.
func TestMetricsAgreeWithTheCalls(t *testing.T) {
	url, admin, _, _ := watched(t)
	want := map[string]uint64{}
	for range 3 {
		bowline(t, "", "call", "echo", "message=s3cret", "--url", url).want(t, 0, "s3cret", "")
		want["echo"]++
	}
	bowline(t, "", "call", "fail", "message=s3cret", "--url", url).want(t, exitToolFailed, "", "s3cret")
	want["fail tool_error"]++
	status, _ := get(t, strings.TrimSuffix(url, endpointPath)+"/none")
	if status != http.StatusNotFound {
		t.Errorf("another path has status %d", status)
	}
	families := scrape(t, admin)
	if diff := cmp.Diff(want, callsByTool(families)); diff != "" {
		t.Errorf("calls by tool and error (-made +counted):\n%s", diff)
	}
	for _, name := range []string{"bowline_build_info", "bowline_conn_attempts_total", "bowline_http_sessions", "bowline_conns", "bowline_bytes_received_total", "bowline_serve_queue_duration_seconds", "process_open_fds", "go_goroutines"} {
		if families[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	if families["bowline_conn_up"] != nil { // a server's clients come and go
		t.Error("connections of clients are said to be up or away")
	}
	if _, page := get(t, admin+"/metrics"); strings.Contains(page, "s3cret") {
		t.Errorf("an argument is on the page:\n%s", page)
	}
}

// TestReadyUntilItDrains: while calls finish after a signal, the server lives and is
// not ready.
func TestReadyUntilItDrains(t *testing.T) {
	url, admin, interrupt, ended := watched(t)
	for path, want := range map[string]string{"/livez": "live\n", "/readyz": "ready\n"} {
		if status, body := get(t, admin+path); status != http.StatusOK || body != want {
			t.Errorf("%s: status %d, %q", path, status, body)
		}
	}
	call := command(t, "call", "slow", "seconds=3", "steps=1000", "--verbose", "--url", url)
	said, err := call.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "progress: ") {
	}
	interrupt()
	// Interrupt is on its way: the server drains once it has it, for as long as the call takes.
	status, body := http.StatusOK, ""
	for status == http.StatusOK {
		status, body = get(t, admin+"/readyz")
	}
	if status != http.StatusServiceUnavailable || body != "draining\n" {
		t.Errorf("status %d, %q", status, body)
	}
	if status, _ := get(t, admin+"/livez"); status != http.StatusOK {
		t.Errorf("/livez has status %d", status)
	}
	for lines.Scan() {
	}
	if status := exitStatus(t, call.Wait()); status != 0 {
		t.Errorf("the call has ended with status %d", status)
	}
	if status, rest := ended(); status != 0 {
		t.Errorf("the server has ended with status %d: %s", status, rest)
	}
}

// TestTracesAreSent by OTLP as the variables say, and one that cannot be sent is told.
func TestTracesAreSent(t *testing.T) {
	var mu sync.Mutex
	got := map[string]int{} // by path and content type
	var spans strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path+" "+r.Header.Get("Content-Type")+" "+r.Header.Get("X-Tenant")]++
		spans.Write(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	url, _, interrupt, ended := watched(t, "--otlp")
	bowline(t, "", "call", "echo", "message=s3cret", "--url", url).want(t, 0, "s3cret", "")
	interrupt()
	if status, rest := ended(); status != 0 || rest != "" {
		t.Errorf("the server has ended with status %d: %s", status, rest)
	}
	mu.Lock()
	defer mu.Unlock()
	if paths := maps.Clone(got); len(paths) != 1 || paths["/v1/traces application/x-protobuf blue"] == 0 {
		t.Errorf("the collector was asked for %v", paths)
	}
	for _, want := range []string{"tools/call echo", "gen_ai.tool.name", "service.name", "deployment.environment"} {
		if !strings.Contains(spans.String(), want) {
			t.Errorf("no %q was sent", want)
		}
	}
	if strings.Contains(spans.String(), "s3cret") {
		t.Error("an argument was sent")
	}
}

func TestTracesThatCannotBeSent(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", gone.URL)
	url, _, interrupt, ended := watched(t, "--otlp")
	bowline(t, "", "call", "echo", "message=hello", "--url", url).want(t, 0, "hello\n", "")
	interrupt()
	if status, rest := ended(); status != 0 || !strings.Contains(rest, "traces") {
		t.Errorf("the server has ended with status %d: %s", status, rest)
	}
}

func TestWhatCannotBeWatched(t *testing.T) {
	for _, args := range [][]string{{"--metrics", "9090"}, {"--metrics", "127.0.0.1:99999"}} {
		bowline(t, "", append([]string{"serve", "--stdio"}, args...)...).want(t, exitUsage, "", args[1][len(args[1])-4:])
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	bowline(t, "", "serve", "--stdio", "--otlp").want(t, exitUsage, "", "OTEL_EXPORTER_OTLP_PROTOCOL")
}
