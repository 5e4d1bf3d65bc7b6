package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	logcollector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A logCollector takes logs by OTLP over HTTP, and reads them.
type logCollector struct {
	*httptest.Server

	mu       sync.Mutex
	requests map[string]bool // path, content type and tenant
	services map[string]bool
	records  []*logspb.LogRecord
	text     strings.Builder // all that came
}

func newLogCollector(t *testing.T) *logCollector {
	t.Helper()
	c := &logCollector{requests: map[string]bool{}, services: map[string]bool{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request logcollector.ExportLogsServiceRequest
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, proto.Unmarshal(body, &request)); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests[r.URL.Path+" "+r.Header.Get("Content-Type")+" "+r.Header.Get("X-Tenant")] = true
		c.text.Write(body)
		for _, from := range request.ResourceLogs {
			c.services[textAttributes(from.Resource.Attributes)["service.name"]] = true
			for _, scope := range from.ScopeLogs {
				c.records = append(c.records, scope.LogRecords...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		answer, err := proto.Marshal(&logcollector.ExportLogsServiceResponse{})
		if _, failed := w.Write(answer); errors.Join(err, failed) != nil {
			t.Error(err, failed)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// recorded starts `bowline up` with an audit trail and users with tokens, and returns it, the path of the trail, and a token.
func recorded(t *testing.T, flags ...string) (g *serve, path, token string) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	said, err := bowline(t, "token", "add", "ada").Output()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path = filepath.Join(dir, "audit.jsonl")
	text, err := json.Marshal(map[string]any{
		"mcpServers": map[string]any{"own": map[string]any{"command": self, "args": []string{"serve", "--stdio"}, "env": map[string]string{role: "command"}}},
		"bowline":    map[string]any{"audit": map[string]any{"file": path}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"up", file, "--http", "127.0.0.1:0", "--admin", "off", "--auth", "tokens"}, flags...)
	return start(t, args...).await(), path, strings.TrimSpace(string(said))
}

// callEcho calls a tool of a gateway with a token, as the command does, and returns what it prints.
func callEcho(t *testing.T, url, token, message string) (string, error) {
	t.Helper()
	said, err := bowline(t, "call", "own__echo", "message="+message, "--url", url, "--header", "Authorization: Bearer "+token).Output()
	return string(said), err
}

// callTraced calls a tool of a gateway, and names a span in which it does that.
func callTraced(t *testing.T, url, token, parent string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	to := &streamable.Client{URL: url, Header: http.Header{"Authorization": {"Bearer " + token}}}
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{}).Connect(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	meta := protocol.Meta{protocol.MetaTraceparent: []byte(`"` + parent + `"`)}
	if _, err := session.CallTool(ctx, &protocol.CallToolParams{RequestParams: protocol.RequestParams{Meta: meta}, Name: "own__echo", Arguments: []byte(`{"message":"s3cret"}`)}); err != nil {
		t.Error(err)
	}
}

// numberOf returns an attribute that is a number.
func numberOf(all []*commonpb.KeyValue, key string) int64 {
	for _, a := range all {
		if a.Key == key {
			return a.Value.GetIntValue()
		}
	}
	return 0
}

// What a gateway writes to its audit trail is sent as logs by OTLP, too, in the same order, with the user and what became of a call, and to the last record.
// No argument, result or token is. A call that was traced has the ids of its trace and span as OTLP has them.
//
// Guarantees: G-0099.15, G-0099.17
func TestTheTrailIsSent(t *testing.T) {
	got := newLogCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
	g, path, token := recorded(t, "--audit-otlp")
	if said, err := callEcho(t, g.url, token, "s3cret"); err != nil || said != "s3cret\n" {
		t.Errorf("the call has printed %q: %v", said, err)
	}
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	callTraced(t, g.url, token, "00-"+trace+"-"+span+"-01")
	if said, err := callEcho(t, g.url, "bowline_forged", "s3cret"); err == nil {
		t.Errorf("a forged token: %q", said)
	}
	g.interrupt()
	if status, rest := g.ended(); status != 0 || strings.Contains(rest, "not sent") {
		t.Errorf("it has ended with status %d: %s", status, rest)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if len(got.requests) != 1 || !got.requests["/v1/logs application/x-protobuf blue"] || len(got.services) != 1 || !got.services["bowline"] {
		t.Errorf("the collector got %v of %v", got.requests, got.services)
	}
	want := testenv.JSONLines[audit.Record](t, path)
	if len(got.records) != len(want) {
		t.Fatalf("%d records were sent, and %d written", len(got.records), len(want))
	}
	called, denied, traced := 0, 0, 0
	for i, r := range got.records {
		has := textAttributes(r.Attributes)
		if w := want[i]; numberOf(r.Attributes, "bowline.audit.n") != int64(w.Number) || has["user.id"] != w.Principal || has["bowline.audit.outcome"] != w.Outcome ||
			has["bowline.audit.event"] != w.Event || r.TimeUnixNano != uint64(w.Time.UnixNano()) || has["bowline.audit.args"] != w.Arguments {
			t.Errorf("%v was sent as %v", w, r)
		}
		if w := want[i]; hex.EncodeToString(r.TraceId) != w.Trace || hex.EncodeToString(r.SpanId) != w.Span {
			t.Errorf("%v was sent with the trace %x and the span %x", w, r.TraceId, r.SpanId)
		}
		if want[i].Trace == trace && want[i].Span == span && has["gen_ai.tool.name"] == "own__echo" {
			traced++
		}
		if has["gen_ai.tool.name"] == "own__echo" && has["user.id"] == "token ada" && has["bowline.audit.server"] == "own" && r.EventName == "bowline.audit.request" {
			called++
		}
		if has["bowline.audit.outcome"] == "denied" && r.SeverityNumber == logspb.SeverityNumber_SEVERITY_NUMBER_WARN {
			denied++
		}
	}
	if called != 2 || traced != 1 || denied == 0 {
		t.Errorf("%d calls, of which %d are traced, and %d denied requests: %v", called, traced, denied, got.records)
	}
	for _, secret := range []string{"s3cret", token, "forged"} {
		if strings.Contains(got.text.String(), secret) {
			t.Errorf("%q was sent", secret)
		}
	}
}

// Without a collector calls are answered, the trail is written, and the end says how many records nobody got.
//
// Guarantees: G-0099.16
func TestATrailThatCannotBeSent(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", gone.URL)
	g, path, token := recorded(t, "--audit-otlp")
	if said, err := callEcho(t, g.url, token, "hello"); err != nil || said != "hello\n" {
		t.Errorf("the call has printed %q: %v", said, err)
	}
	g.interrupt()
	status, rest := g.ended()
	all := testenv.JSONLines[audit.Record](t, path)
	if status != 0 || !strings.Contains(rest, "the audit trail was not sent to its end") || all[len(all)-1].Event != audit.EventStopped {
		t.Errorf("it has ended with status %d: %s, and the trail is %v", status, rest, all)
	}
}

// A trail that cannot be sent because of what the user has said is refused before anything is started.
//
// Guarantees: G-0099.16
func TestATrailThatIsNotSent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mcp.json")
	for text, want := range map[string]string{`{"mcpServers":{}}`: `"audit"`, `{"mcpServers":{},"bowline":{"audit":{"file":"a.jsonl"}}}`: "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL"} {
		t.Setenv("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "grpc")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := bowline(t, "up", file, "--http", "127.0.0.1:0", "--admin", "off", "--audit-otlp").CombinedOutput()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(said), want) {
			t.Errorf("%v: %s", err, fmt.Sprintf("%s, want %s", said, want))
		}
	}
}
