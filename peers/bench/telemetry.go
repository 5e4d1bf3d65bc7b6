package bench

import (
	"context"
	"runtime"
	"slices"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A watch is what a client tells OpenTelemetry of each call.
type watch struct{ middleware, traces, sampled bool }

// watched is Bowline with a client that is watched. Nothing is exported.
func watched(w watch) implementation {
	return implementation{memory: func(revision string, o serving) dial {
		s := newBowlineServer(o)
		over := inmem.New(s.Accept, inmem.Options{QueueFrames: 8192})
		return func(ctx context.Context) (*session, error) {
			options, err := w.options(revision)
			if err != nil {
				return nil, err
			}
			return echoTool.open(ctx, client.New(bowlineInfo(), options), revision, over)
		}
	}}
}

func (w watch) options(revision string) (client.Options, error) {
	o := otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))}
	if w.traces {
		sampler := trace.NeverSample()
		if w.sampled {
			sampler = trace.AlwaysSample()
		}
		o.TracerProvider = trace.NewTracerProvider(trace.WithSampler(sampler))
	}
	sink, err := otel.New(o)
	if err != nil {
		return client.Options{}, err
	}
	options := client.Options{ProtocolVersion: revision, FailFast: true, Conn: conn.Tuning{Hooks: sink.Hooks()}}
	if w.middleware {
		options.Middleware = []client.Middleware{sink.Client()}
	}
	return options, nil
}

// How much longer a watched call takes, with the processors that Go uses and with one.
const (
	beyond      = "p50 beyond an unwatched call in s"
	beyondOnOne = "p50 beyond an unwatched call, one processor, in s"
)

// telemetryCalls measures a client, and then how much longer its calls take than those of an
// unwatched client in the same process.
func telemetryCalls(ctx context.Context, m *measurement) error {
	if err := echoCalls(memoryCalls, 1, 64)(ctx, m); err != nil {
		return err
	}
	watched, err := memoryCalls(m, ctx)
	if err != nil {
		return err
	}
	other, err := contestantNamed(bowlineTyped)
	if err != nil {
		return err
	}
	unwatched, err := m.kept(other.memory(m.revision, serving{})(ctx))
	if err != nil {
		return err
	}
	measure := func(metric string) error {
		more, err := inTurns(ctx, pick(m, 2*time.Second, 50*time.Millisecond), watched.echo(echoText), unwatched.echo(echoText))
		m.add(callers(1), metric, more.Seconds())
		return err
	}
	if err := measure(beyond); err != nil {
		return err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return measure(beyondOnOne)
}

// inTurns makes calls of two kinds in turns, so that other work on the machine slows both of
// them down. It returns how much longer the median call of the first kind takes.
func inTurns(ctx context.Context, period time.Duration, first, second call) (time.Duration, error) {
	const callsInARow = 300
	var took [2][]time.Duration
	for end := time.Now().Add(period); time.Now().Before(end); {
		for kind, echo := range [...]call{first, second} {
			for range callsInARow {
				began := time.Now()
				if err := echo(ctx); err != nil {
					return 0, err
				}
				took[kind] = append(took[kind], time.Since(began))
			}
		}
	}
	for _, all := range took {
		slices.Sort(all)
	}
	return took[0][len(took[0])/2] - took[1][len(took[1])/2], nil
}

// sdk is what stands in the way of the targets for traces.
const sdk = "the OpenTelemetry SDK takes 1.1 µs for a call whose trace is not sampled, and 2.5 µs for one that is. " +
	"[ADR-0064](adr/0064-cost-of-telemetry.md) accounts for every part."

// telemetryRow is what a call costs its client more than an unwatched one of the same process.
func telemetryRow() row {
	const name = "telemetry"
	p50, made := found(name, callers(1), median), found(name, callers(1), allocs)
	more, onOne, mallocs := found(name, callers(1), beyond), found(name, callers(1), beyondOnOne), made.minus(made.of(bowlineTyped))
	return row{
		name: name, title: "What it costs to be watched",
		about: "The echo in memory with a client that reports each call to OpenTelemetry; the server reports nothing. *Hooks* count attempts. " +
			"The middleware also measures calls by tool, and creates the spans. Nothing is exported. " +
			"*Bowline* is the client without hooks and middleware, which costs nothing (G-0024.2). *more than unwatched* compares the median " +
			"calls of two clients in one process, which make 300 calls each in turns. On one processor that is the time of the processor. " +
			"With more, the Go scheduler wakes another one in every second to fifth call, the more often the longer calls take, and what that costs " +
			"depends on whether both are threads of one core.",
		contestants: []string{bowlineTyped, bowlineHooks, bowlineMetrics, bowlineUnsampled, bowlineSampled},
		measure:     telemetryCalls,
		columns: []column{
			{"p50, 1 caller", p50, seconds, false},
			{"more than unwatched", more, seconds, false},
			{"the same on one processor", onOne, seconds, false},
			{"allocations", made, count, false},
			{"more than unwatched", mallocs, count, false},
			{"processor", found(name, callers(1), processor), seconds, false},
			{"calls/s, 64 callers", found(name, callers(64), rate), perSecond, false},
		},
		targets: []target{
			atMost(1e-6, seconds, "p50 of one caller on one processor, hooks, beyond an unwatched call", bowlineHooks, onOne),
			atMost(1e-6, seconds, "p50 of one caller on one processor, hooks and middleware, beyond an unwatched call", bowlineMetrics, onOne),
			atMost(0.5, count, "allocations of a call, hooks, beyond an unwatched call", bowlineHooks, mallocs),
			atMost(0.5, count, "allocations of a call, hooks and middleware, beyond an unwatched call", bowlineMetrics, mallocs),
			atMost(2e-6, seconds, "p50 of one caller on one processor, trace not sampled, beyond an unwatched call", bowlineUnsampled, onOne).because(sdk),
			atMost(12, count, "allocations of a call, trace not sampled, beyond an unwatched call", bowlineUnsampled, mallocs),
			atMost(4e-6, seconds, "p50 of one caller on one processor, trace sampled, beyond an unwatched call", bowlineSampled, onOne).because(sdk),
			atMost(18, count, "allocations of a call, trace sampled, beyond an unwatched call", bowlineSampled, mallocs),
		},
	}
}
