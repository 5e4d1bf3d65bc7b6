package main

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// newTraceExporter returns what sends traces by OTLP over HTTP. It refuses OTLP's other protocols.
func newTraceExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if set := os.Getenv(name); set != "" && set != "http/protobuf" {
			return nil, fmt.Errorf("%s is %q, but --otlp supports only http/protobuf", name, set)
		}
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return exporter, nil
}
