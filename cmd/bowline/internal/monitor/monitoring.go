// Package monitor is what others see of bowline serve: a page of metrics for Prometheus, whether it lives
// and is ready, and traces.
//
// The page is served on goroutines of an HTTP server, which Close ends; none is left behind.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"runtime"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/bundled"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Flags are the flags for metrics and traces of the bundled server.
// The zero value means none.
type Flags struct {
	address string // the address of /metrics, /livez and /readyz
	otlp    bool
}

// Add adds the flags to a command.
func (o *Flags) Add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.address, "metrics", "", "offer /metrics for Prometheus, /livez and /readyz on this `ADDRESS`, such as :9090")
	flags.BoolVar(&o.otlp, "otlp", false, "send traces by OTLP over HTTP, as the variables OTEL_EXPORTER_OTLP_... say (default: to http://localhost:4318); only in the full command")
}

// A Monitoring contains what the flags ask for. Close ends them.
type Monitoring struct {
	log       io.Writer
	telemetry *otel.Telemetry // nil if there are neither metrics nor traces
	unwatch   []func()

	meters *sdkmetric.MeterProvider // nil if there are no metrics
	traces *sdktrace.TracerProvider // nil if there are no traces
	admin  *http.Server             // the HTTP server of the metrics
	served chan error               // gets the error that ended the HTTP server
}

// Traces returns what sends traces by OTLP over HTTP; nil: the command was built without it.
type Traces func(context.Context) (sdktrace.SpanExporter, error)

// Start opens what the flags ask for. When serving ends, the server is no longer ready; until
// then /readyz says its state.
func (o *Flags) Start(serving context.Context, log io.Writer, traces Traces, state func() string) (*Monitoring, error) {
	w := &Monitoring{log: log}
	switch {
	case o.address == "" && !o.otlp:
		return w, nil
	case o.otlp && traces == nil:
		return nil, process.Lean("--otlp", "OTLP's exporter")
	}
	about, err := About(serving)
	if err != nil {
		return nil, process.Usage(err)
	}
	var options otel.Options
	if o.otlp {
		exporter, err := traces(serving)
		if err != nil {
			return nil, process.Usage(err)
		}
		w.traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
		options.TracerProvider = w.traces
	}
	var page *Page
	if o.address != "" {
		page, w.meters = NewPage(about)
		options.MeterProvider = w.meters
	}
	if w.telemetry, err = otel.New(options); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if o.address != "" {
		if err := w.listen(serving, o.address, page, state); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

// About describes this process to whoever gets its telemetry.
func About(ctx context.Context) (*resource.Resource, error) {
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "bowline"), attribute.String("service.version", process.Version())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return about, nil
}

const adminTimeout = 10 * time.Second // for each request

func (w *Monitoring) listen(serving context.Context, address string, page *Page, state func() string) error {
	if err := ObserveProcess(w.meters); err != nil {
		return err
	}
	info, err := w.meters.Meter("bowline").Float64Gauge("bowline.build.info", metric.WithDescription("1, with the version of the command and of Go."))
	if err != nil {
		return err
	}
	info.Record(serving, 1, metric.WithAttributes(attribute.String("version", process.Version()), attribute.String("go", runtime.Version())))
	listener, err := process.Listen("--metrics", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, "live\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if serving.Err() != nil {
			respond(w, http.StatusServiceUnavailable, "draining\n")
			return
		}
		respond(w, http.StatusOK, state()+"\n")
	})
	w.admin = &http.Server{Handler: checkHost(mux), ReadTimeout: adminTimeout, WriteTimeout: adminTimeout, IdleTimeout: time.Minute}
	w.served = make(chan error, 1)
	go func() { w.served <- w.admin.Serve(listener) }()
	fmt.Fprintf(w.log, "bowline: metrics at http://%s/metrics\n", listener.Addr())
	return nil
}

// checkHost refuses requests that arrive on a loopback address under another name, as the MCP
// endpoint does: a browser sends them for a page that has rebound its name.
func checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if network.OnLoopback(r) && !network.IsLoopback(network.NameOf(r.Host)) {
			respond(w, http.StatusForbidden, "host not allowed: use localhost or a loopback address\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func respond(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client may have disconnected
}

// Apply makes the bundled server report its metrics and traces.
func (w *Monitoring) Apply(o *bundled.Options) {
	if w.telemetry == nil {
		return
	}
	o.Server.Conn.Name = "bowline"
	o.Server.Conn.Hooks = telemetry.Tee(o.Server.Conn.Hooks, w.telemetry.ServerHooks())
	o.Server.Middleware = append([]server.Middleware{w.telemetry.Server()}, o.Server.Middleware...)
}

// Watch registers samples with the telemetry.
func (w *Monitoring) Watch(samples func() iter.Seq[telemetry.Sample]) {
	if w.telemetry != nil {
		w.unwatch = append(w.unwatch, w.telemetry.Watch(samples))
	}
}

// Close sends the remaining spans. If that fails, the server has not failed.
func (w *Monitoring) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), process.FinishGrace)
	defer cancel()
	for _, unwatch := range w.unwatch {
		unwatch()
	}
	if w.traces != nil {
		if err := w.traces.Shutdown(ctx); err != nil {
			fmt.Fprintf(w.log, "bowline: not all traces were sent: %v\n", err)
		}
	}
	var failed error
	if w.admin != nil {
		failed = w.closePage(ctx)
	}
	if w.meters != nil {
		failed = errors.Join(failed, w.meters.Shutdown(ctx))
	}
	return failed
}

// closePage ends the HTTP server, and waits for it. A reader that does not read is not waited for.
func (w *Monitoring) closePage(ctx context.Context) (failed error) {
	if err := w.admin.Shutdown(ctx); err != nil {
		failed = w.admin.Close()
	}
	if err := <-w.served; !errors.Is(err, http.ErrServerClosed) {
		failed = errors.Join(failed, fmt.Errorf("serve metrics: %w", err))
	}
	return failed
}
