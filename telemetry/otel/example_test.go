package otel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// A program gives its providers, with the exporters that it wants, to New. Here they have
// none.
func Example() {
	tel, err := otel.New(otel.Options{
		MeterProvider:  metric.NewMeterProvider(),
		TracerProvider: trace.NewTracerProvider(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	options := client.Options{Conn: conn.Tuning{Name: "weather"}}
	tel.Instrument(&options)
	c := client.New(protocol.Implementation{Name: "program", Version: "1"}, options)
	defer c.Close(context.Background())
	defer tel.Watch(c.Samples)() // the present state of each connection
}
