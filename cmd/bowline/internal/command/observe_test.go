package command

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// watched runs `bowline serve --http --metrics` during a test, and returns both URLs.
// Interrupt sends it a signal, and ended waits for its end.
func watched(t *testing.T, more ...string) (url, admin string, interrupt func(), ended func() (status int, rest string)) {
	t.Helper()
	cmd := command(t, append([]string{"serve", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}, more...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
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
		t.Fatalf("the server has not printed its address: %v", lines.Err())
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

// TestPrometheusReadsThePageOfAGateway reads the page that package admin compares with its own, whatever servers and tools are called.
//
// Guarantees: G-0091.23
func TestPrometheusReadsThePageOfAGateway(t *testing.T) {
	page, err := os.Open("../../../../gateway/admin/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		t.Fatal(err)
	}
	calls := make(map[string]float64)
	for _, m := range families["bowline_gateway_tool_calls_total"].GetMetric() {
		var of []string
		for _, l := range m.Label {
			of = append(of, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(of)
		calls[strings.Join(of, ",")] = m.Counter.GetValue()
	}
	for tool, want := range map[string]float64{"(other)": 15, "read": 17} {
		if got := calls["delivery=sent,outcome=answered,server=files,tool="+tool]; got != want {
			t.Errorf("%v calls of %s, want %v", got, tool, want)
		}
	}
	if got := calls["delivery=not sent,outcome=not answered,server=files,tool=odd\"\n} 1\\"]; got != 16 || len(calls) != 4 {
		t.Errorf("%v", calls)
	}
}

// callsByTool adds up the histogram of served calls.
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

// TestMetricsAgreeWithTheCalls checks that the metrics count the calls, and contain no argument.
func TestMetricsAgreeWithTheCalls(t *testing.T) {
	url, admin, _, _ := watched(t)
	want := map[string]uint64{}
	for range 3 {
		bowline(t, "", "call", "echo", "message=s3cret", "--url", url+"?key=s3cret", "--header", "X-Api-Key: s3cret").want(t, 0, "s3cret", "")
		want["echo"]++
	}
	bowline(t, "", "call", "fail", "message=s3cret", "--url", url).want(t, process.ExitToolFailed, "", "s3cret")
	want["fail tool_error"]++
	status, _ := get(t, strings.TrimSuffix(url, endpointPath)+"/none")
	if status != http.StatusNotFound {
		t.Errorf("another path has status %d", status)
	}
	families := scrape(t, admin)
	if diff := cmp.Diff(want, callsByTool(families)); diff != "" {
		t.Errorf("calls by tool and error (-made +counted):\n%s", diff)
	}
	for _, name := range []string{"bowline_build_info", "bowline_conn_attempts_total", "bowline_http_sessions", "bowline_conns", "bowline_bytes_received_total", "bowline_serve_queue_duration_seconds", "process_open_fds", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds", "go_goroutines", "go_memstats_heap_alloc_bytes"} {
		if families[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	if families["bowline_conn_up"] != nil { // a server's clients come and go
		t.Error("the metrics report connections of clients as up or down")
	}
	if _, page := get(t, admin+"/metrics"); strings.Contains(page, "s3cret") {
		t.Errorf("an argument is on the page:\n%s", page)
	}
}

// TestMetricsAreForHostsOfThisMachine checks that a page in a browser cannot read the metrics under
// a name that it has rebound to this machine.
func TestMetricsAreForHostsOfThisMachine(t *testing.T) {
	_, admin, _, _ := watched(t)
	port := admin[strings.LastIndexByte(admin, ':'):]
	for host, want := range map[string]int{
		"evil.test": http.StatusForbidden, "evil.test" + port: http.StatusForbidden, "localhost.evil.test": http.StatusForbidden, "192.0.2.1": http.StatusForbidden,
		"127.0.0.1" + port: http.StatusOK, "localhost": http.StatusOK, "LOCALHOST" + port: http.StatusOK, "[::1]" + port: http.StatusOK,
	} {
		for _, path := range []string{"/metrics", "/livez", "/readyz"} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Host = host
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s with the Host %s has status %d, want %d", path, host, response.StatusCode, want)
			}
		}
	}
}

// TestReadyUntilItDrains checks that after a signal, while calls finish, the server is live and
// not ready.
func TestReadyUntilItDrains(t *testing.T) {
	t.Parallel()
	url, admin, interrupt, ended := watched(t)
	for path, want := range map[string]string{"/livez": "live\n", "/readyz": "ready\n"} {
		if status, body := get(t, admin+path); status != http.StatusOK || body != want {
			t.Errorf("%s: status %d, %q", path, status, body)
		}
	}
	call := command(t, "call", "slow", "seconds=3", "steps=30", "--verbose", "--url", url)
	stderr, err := call.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
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

// TestScrapersThatNeverRead checks that clients that do not read delay neither other clients nor
// the end. An address without a host is on this machine only.
func TestScrapersThatNeverRead(t *testing.T) {
	_, admin, interrupt, ended := watched(t, "--metrics", ":0")
	if !strings.HasPrefix(admin, "http://127.0.0.1:") {
		t.Errorf("metrics are at %s", admin)
	}
	for range 10 {
		silent, err := net.Dial("tcp", strings.TrimPrefix(admin, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		if _, err := io.WriteString(silent, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 100)); err != nil {
			t.Fatal(err)
		}
	}
	status := 0
	for deadline := time.Now().Add(hangGuard); status != http.StatusOK && time.Now().Before(deadline); {
		status, _ = get(t, admin+"/metrics") // 503 while too many scrape
	}
	if status != http.StatusOK {
		t.Errorf("metrics have the status %d", status)
	}
	interrupt()
	if status, rest := ended(); status != 0 {
		t.Errorf("the server has ended with status %d: %s", status, rest)
	}
}

func TestWhatCannotBeWatched(t *testing.T) {
	for _, args := range [][]string{{"--metrics", "9090"}, {"--metrics", "127.0.0.1:99999"}} {
		bowline(t, "", append([]string{"serve", "--stdio"}, args...)...).want(t, process.ExitUsage, "", args[1][len(args[1])-4:])
	}
}
