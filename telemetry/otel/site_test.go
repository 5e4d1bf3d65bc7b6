package otel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/telemetry/sloglog"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// crashVariable names the file that the child removes to crash. A process that has it
// is the server of a site.
const crashVariable = "BOWLINE_OTEL_CRASH"

// secret is in each token, header, argument, result and variable of a site, and may be
// in nothing that is told of it.
const secret = "s3cr3t"

// inVain is a question that the program fails to answer.
const inVain = "Anybody?"

func TestMain(m *testing.M) {
	if crash := os.Getenv(crashVariable); crash != "" {
		if err := serveSite(crash); err != nil {
			panic(err)
		}
		return
	}
	testenv.Once()
	testenv.SideBySide(8)
	goleak.VerifyTestMain(m)
}

// A site is a client and a server with all of their telemetry.
type site struct {
	*client.Session
	client *client.Client
	spans  *tracetest.InMemoryExporter // of both sides
	reader *metric.ManualReader
	traces *sdktrace.TracerProvider
	meters *metric.MeterProvider
	logs   lockedBuffer
	ran    chan struct{} // takes one when a handler begins to wait

	arm      func()      // has the tool "crash" end its server the next time
	armed    atomic.Bool // by arm, if the server is in this process
	crash    func(context.Context)
	sessions sync.Map // the session ids that the server gave over HTTP
	ended    func()   // ends both sides; what they tell is complete after it
}

// A lockedBuffer takes what several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// logged returns hooks that write all lines.
func logged(to io.Writer) telemetry.Hooks {
	return sloglog.Hooks(slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug - 100})))
}

type arguments struct {
	Secret string `json:"secret,omitempty"`
}

// newServer returns the server of a site. Ran is called when a handler begins to wait;
// crash may end the server. Within are further middleware.
func newServer(told *otel.Telemetry, logs io.Writer, ran func(), crash func(context.Context), within ...server.Middleware) *server.Server {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
		Conn:       conn.Tuning{Hooks: telemetry.Tee(told.ServerHooks(), logged(logs))},
		Middleware: append([]server.Middleware{told.Server()}, within...),
	})
	server.AddTool(s, protocol.Tool{Name: "add"}, func(context.Context, arguments) (string, error) { return secret + "-result", nil })
	server.AddTool(s, protocol.Tool{Name: "fail"}, func(_ context.Context, a arguments) (string, error) { return "", errors.New("no " + a.Secret) })
	server.AddTool(s, protocol.Tool{Name: "hang"}, func(ctx context.Context, _ arguments) (string, error) {
		ran()
		<-ctx.Done()
		return "", ctx.Err()
	})
	server.AddTool(s, protocol.Tool{Name: "crash"}, func(ctx context.Context, _ arguments) (string, error) {
		crash(ctx)
		return "back", ctx.Err()
	})
	server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ arguments) (string, error) {
		if _, err := server.Roots(ctx); err != nil {
			return "", err
		}
		if _, err := server.Sample(ctx, &protocol.CreateMessageParams{MaxTokens: 1}); err != nil {
			return "", err
		}
		return "asked", server.Confirm(ctx, "Well?")
	}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	server.AddTool(s, protocol.Tool{Name: "ask_in_vain"}, func(ctx context.Context, _ arguments) (string, error) {
		return "asked", server.Confirm(ctx, inVain)
	}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	server.AddPrompt(s, protocol.Prompt{Name: "greet"}, func(context.Context, arguments) (string, error) { return "hello", nil })
	server.AddResource(s, protocol.Resource{Name: "one", URI: "mem://one"}, func(context.Context) (string, error) { return secret + "-content", nil })
	return s
}

// runs notes that a handler waits.
func (s *site) runs() {
	select {
	case s.ran <- struct{}{}:
	default:
	}
}

func newSite(t *testing.T, over, version string, options otel.Options) *site {
	t.Helper()
	s := &site{spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader(), ran: make(chan struct{}, 1)}
	s.traces = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	s.meters = metric.NewMeterProvider(metric.WithReader(s.reader))
	options.TracerProvider, options.MeterProvider = s.traces, s.meters
	told, err := otel.New(options)
	if err != nil {
		t.Fatal(err)
	}
	var to transport.Transport
	closeServer := func() {}
	if over == "stdio" {
		to = s.child(t)
	} else {
		peer := newServer(told, &s.logs, s.runs, func(ctx context.Context) {
			if s.armed.Swap(false) {
				s.crash(ctx)
				<-ctx.Done()
			}
		})
		s.arm = func() { s.armed.Store(true) }
		s.crash = func(ctx context.Context) { server.RequestFrom(ctx).Conn().Stop() }
		to, closeServer = inmem.New(peer.Accept, inmem.Options{}), func() { peer.Close(context.Background()) }
		if over == "http" || over == "http2" {
			var endpoint func()
			to, endpoint = s.overHTTP(peer, version, over == "http2")
			closeServer = func() { endpoint(); peer.Close(context.Background()) }
		}
	}
	s.client = client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		ProtocolVersion: version, Middleware: []client.Middleware{told.Client()},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Content: protocol.SamplingContents{protocol.Text(secret)}, Model: "m"}, nil
		},
		Elicit: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			if p.Message == inVain {
				return nil, errors.New("nobody is there")
			}
			return &protocol.ElicitResult{Action: protocol.ElicitDecline}, nil
		},
		Conn: conn.Tuning{Name: "weather", Hooks: s.hooks(told), BackoffMin: time.Millisecond},
	})
	forget := told.Watch(s.client.Samples)
	s.ended = sync.OnceFunc(func() {
		s.client.Close(context.Background())
		closeServer()
	})
	t.Cleanup(func() { s.ended(); forget() })
	if s.Session, err = s.client.Connect(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range s.Prompts(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// hooks are those of a client of the site.
func (s *site) hooks(told *otel.Telemetry) telemetry.Hooks {
	return telemetry.Tee(told.Hooks(), logged(&s.logs))
}

// overHTTP serves over real sockets. A crash is what a server that is restarted does:
// its connections break amid the answers, and the next server knows none of the
// sessions. Without sessions, the broken connection alone ends what was served with it.
// HTTP/2 comes with TLS.
func (s *site) overHTTP(peer *server.Server, version string, two bool) (to transport.Transport, closeAll func()) {
	var present atomic.Pointer[streamable.Handler]
	present.Store(streamable.NewHandler(peer, streamable.HandlerOptions{}))
	listener := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		present.Load().ServeHTTP(w, r)
		if id := w.Header().Get("Mcp-Session-Id"); id != "" {
			s.sessions.Store(id, true)
		}
	}))
	var calling *http.Client
	if listener.EnableHTTP2 = two; two {
		listener.StartTLS()
		calling = listener.Client()
	} else {
		listener.Start()
	}
	var closing sync.WaitGroup
	s.crash = func(ctx context.Context) {
		before := present.Swap(streamable.NewHandler(peer, streamable.HandlerOptions{}))
		listener.CloseClientConnections()
		closing.Go(func() { // Close waits for who calls this
			if version == protocol.Latest {
				<-ctx.Done()
			}
			before.Close(0)
		})
	}
	to = &streamable.Client{URL: listener.URL + "/?key=" + secret + "-query", HTTP: calling, Header: http.Header{
		"Authorization": {"Bearer " + secret + "-token"}, "X-Api-Key": {secret + "-key"},
	}}
	return to, func() { closing.Wait(); present.Load().Close(0); listener.Close() }
}

// child runs this test as the server, in a process of its own. Its spans and all else
// that it tells come by its standard error.
func (s *site) child(t *testing.T) transport.Transport {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	crash := filepath.Join(t.TempDir(), "crash")
	s.arm = func() {
		if err := os.WriteFile(crash, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	return &stdio.Command{
		Path:   self,
		Env:    []string{crashVariable + "=" + crash, "API_TOKEN=" + secret + "-variable", "GORACE=atexit_sleep_ms=0"},
		Stderr: &childLines{t: t, site: s},
	}
}

// everything returns all that was told of the site, by both sides.
func (s *site) everything(t *testing.T) string {
	t.Helper()
	spans, err := json.Marshal(s.spans.GetSpans())
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := json.Marshal(s.collect(t))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s\n%s\n%s", spans, metrics, s.logs.String())
}

// secrets ends the site, and returns where what was told of it has a token, a header,
// an argument, a result, a variable or a session id.
func (s *site) secrets(t *testing.T) (found []string) {
	t.Helper()
	s.ended()
	all := s.everything(t)
	find := func(secret string) {
		if i := strings.Index(all, secret); i >= 0 {
			found = append(found, all[max(i-200, 0):min(i+100, len(all))])
		}
	}
	find(secret)
	s.sessions.Range(func(id, _ any) bool { find(id.(string)); return true })
	return found
}

func (s *site) collect(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}
