package otel_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// While a collection is blocked amid the samples of a client, or of a server, calls go on: those
// that were made before, those with a new set of attributes, those of new connections, and those
// that fail. Connections are closed, and Watch and its forget return. A collection takes no lock
// that any of this needs.
//
// Guarantees: G-0047.9
func TestNothingWaitsForACollection(t *testing.T) {
	for _, of := range []string{"client", "server"} {
		t.Run(of, func(t *testing.T) {
			reader := metric.NewManualReader()
			told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
			if err != nil {
				t.Fatal(err)
			}
			var serverOptions server.Options
			told.InstrumentServer(&serverOptions)
			peer := server.New(protocol.Implementation{Name: "s", Version: "1"}, serverOptions)
			defer peer.Close(context.Background())
			for _, tool := range []string{"old", "new"} {
				server.AddTool(peer, protocol.Tool{Name: tool}, func(context.Context, struct{}) (string, error) { return "", nil })
			}
			var clientOptions client.Options
			clientOptions.Conn.Name = "weather"
			told.Instrument(&clientOptions)
			c := client.New(protocol.Implementation{Name: "c", Version: "1"}, clientOptions)
			defer c.Close(context.Background())
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			connect := func() (*client.Session, error) { return c.Connect(ctx, inmem.New(peer.Accept, inmem.Options{})) }
			call := func(session *client.Session, tool string) {
				if _, err := session.CallTool(ctx, &protocol.CallToolParams{Name: tool}); (err != nil) != (tool == "none") {
					t.Errorf("%s: %v", tool, err)
				}
			}
			first, err := connect()
			if err != nil {
				t.Fatal(err)
			}
			call(first, "old")

			amid, release := make(chan struct{}), make(chan struct{})
			arrive, free := sync.OnceFunc(func() { close(amid) }), sync.OnceFunc(func() { close(release) })
			samples := map[string]func() iter.Seq[telemetry.Sample]{"client": c.Samples, "server": peer.Samples}[of]
			forget := told.Watch(func() iter.Seq[telemetry.Sample] {
				return func(yield func(telemetry.Sample) bool) {
					for sample := range samples() {
						if !yield(sample) {
							return
						}
						arrive()
						<-release
					}
				}
			})
			collected := make(chan error, 1)
			defer func() {
				free()
				if err := <-collected; err != nil {
					t.Error(err)
				}
			}()
			go func() {
				var all metricdata.ResourceMetrics
				collected <- reader.Collect(context.Background(), &all)
			}()
			<-amid

			returned := make(chan struct{})
			go func() {
				defer close(returned)
				another, err := connect()
				if err != nil {
					t.Error(err)
					return
				}
				for _, session := range []*client.Session{first, another} {
					for _, tool := range []string{"old", "new", "none"} {
						call(session, tool)
					}
					if _, err := session.ListTools(ctx, nil); err != nil {
						t.Error(err)
					}
				}
				if err := another.Close(ctx); err != nil {
					t.Error(err)
				}
				told.Watch(c.Samples)()
				forget()
			}()
			select {
			case <-returned:
			case <-ctx.Done():
				t.Error("something waits for the collection")
			}
			free()
			<-returned
		})
	}
}
