package bench

import (
	"context"

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
