//go:build !race

package otel_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A told client tells OpenTelemetry of its calls as the rows of docs/benchmarks.md do.
// The zero value tells nothing.
type told struct {
	hooks, middleware bool
	sampler           trace.Sampler // nil: no traces
	through           bool          // without telemetry, but with middleware that does nothing
	modern            bool          // in the newest revision
}

var toldClients = map[string]told{
	"unwatched":   {},
	"through":     {through: true},
	"hooks":       {hooks: true},
	"metrics":     {hooks: true, middleware: true},
	"not sampled": {hooks: true, middleware: true, sampler: trace.NeverSample()},
	"sampled":     {hooks: true, middleware: true, sampler: trace.AlwaysSample()},
}

// call returns what makes one call in memory.
func (w told) call(tb testing.TB) func() {
	o := otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))}
	if w.sampler != nil {
		o.TracerProvider = trace.NewTracerProvider(trace.WithSampler(w.sampler))
	}
	t, err := otel.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	options := client.Options{ProtocolVersion: protocol.LatestLegacy}
	if w.modern {
		options.ProtocolVersion = protocol.Latest
	}
	if w.hooks {
		options.Conn = conn.Tuning{Hooks: t.Hooks()}
	}
	if w.middleware {
		options.Middleware = []client.Middleware{t.Client()}
	}
	if w.through {
		options.Middleware = []client.Middleware{func(next client.Handler) client.Handler {
			return func(ctx context.Context, r *client.Request) (any, error) { return next(ctx, r) }
		}}
	}
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, in struct{ Message string }) (string, error) { return in.Message, nil })
	tb.Cleanup(func() { s.Close(context.Background()) })
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, options).Connect(tb.Context(), inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { session.Close(context.Background()) })
	params := &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"Message":"a"}`)}
	return func() {
		if _, err := session.CallTool(context.Background(), params); err != nil {
			tb.Fatal(err)
		}
	}
}

// Metrics allocate nothing for a call: what a client with middleware allocates more is the
// client's, whatever the middleware does.
//
// Guarantees: G-0047.5
func TestMetricsOfACallAllocateNothing(t *testing.T) {
	through := testing.AllocsPerRun(2000, told{through: true}.call(t))
	if measured := testing.AllocsPerRun(2000, toldClients["metrics"].call(t)); measured > through {
		t.Errorf("%v allocations with metrics, %v with middleware that does nothing", measured, through)
	}
}

// A call that is watched allocates no more than this beyond one that is not. The race
// detector allocates too.
//
// Guarantees: G-0064.1
func TestWatchedCallAllocates(t *testing.T) {
	for _, modern := range []bool{false, true} {
		unwatched := testing.AllocsPerRun(2000, told{modern: modern}.call(t))
		for name, most := range map[string]float64{"hooks": 0, "metrics": 0, "not sampled": 6, "sampled": 13} {
			watched := toldClients[name]
			watched.modern = modern
			if more := testing.AllocsPerRun(2000, watched.call(t)) - unwatched; more > most {
				t.Errorf("%s, modern %t: %v allocations more, of %v at most", name, modern, more, most)
			}
		}
	}
}

func BenchmarkWatchedCall(b *testing.B) {
	for name, w := range toldClients {
		b.Run(name, func(b *testing.B) {
			call := w.call(b)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

// BenchmarkBeyondUnwatched reports how much longer the median call takes than one that is not
// watched. The clients take turns, so that other load on the machine slows all of them down.
func BenchmarkBeyondUnwatched(b *testing.B) {
	const callsInARow = 300
	names := slices.Sorted(maps.Keys(toldClients))
	for _, modern := range []bool{false, true} {
		b.Run(map[bool]string{false: protocol.LatestLegacy, true: protocol.Latest}[modern], func(b *testing.B) {
			calls, took := make(map[string]func()), make(map[string][]time.Duration)
			for _, name := range names {
				w := toldClients[name]
				w.modern = modern
				calls[name] = w.call(b)
			}
			for b.Loop() {
				for _, name := range names {
					for range callsInARow {
						began := time.Now()
						calls[name]()
						took[name] = append(took[name], time.Since(began))
					}
				}
			}
			median := func(name string) float64 {
				slices.Sort(took[name])
				return float64(took[name][len(took[name])/2])
			}
			for _, name := range names {
				if name == "unwatched" {
					b.ReportMetric(median(name), "ns/unwatched")
				} else {
					b.ReportMetric(median(name)-median("unwatched"), "more-ns/"+strings.ReplaceAll(name, " ", "-"))
				}
			}
			b.ReportMetric(0, "ns/op") // of a whole turn
		})
	}
}
