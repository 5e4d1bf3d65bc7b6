//go:build !otlp

package main

import (
	"context"
	"errors"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// errNoOTLP says how to get a command that sends traces. Every other command can do without: OTLP's
// exporter needs gRPC, which is most of what would be downloaded and compiled for the first run.
var errNoOTLP = errors.New("this bowline was built without OTLP, so --otlp sends no traces; install one that does from a clone: go install -tags otlp ./cmd/bowline")

func newTraceExporter(context.Context) (sdktrace.SpanExporter, error) { return nil, errNoOTLP }
