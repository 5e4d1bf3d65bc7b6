package main

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/command"
	"github.com/bowline-mcp/bowline/telemetry/otel/auditlog"
)

// newTraceExporter returns what sends traces by OTLP over HTTP. It refuses OTLP's other protocols.
func newTraceExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	if err := checkProtocol("--otlp", "TRACES"); err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	return exporter, nil
}

// sendTrail begins to send an audit trail as logs by OTLP over HTTP.
func sendTrail(ctx context.Context, about *resource.Resource) (command.Sending, error) {
	if err := checkProtocol("--audit-otlp", "LOGS"); err != nil {
		return nil, err
	}
	exporter, err := otlploghttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("--audit-otlp: %w", err)
	}
	return auditlog.New(exporter, auditlog.Options{Resource: about}), nil
}

// checkProtocol refuses what nobody here speaks: who has set it would wait in vain for what is sent to an endpoint that speaks it.
func checkProtocol(flag, signal string) error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if set := os.Getenv(name); set != "" && set != "http/protobuf" {
			return fmt.Errorf("%s is %q, but %s supports only http/protobuf", name, set, flag)
		}
	}
	return nil
}
