package otel

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bowline-mcp/bowline/telemetry"
)

// How spans begin is kept for a bounded number of operations, and for none that has a
// URI or a long name. Other spans begin the same way, each anew.
func TestFewBeginningsAreKept(t *testing.T) {
	told, err := New(Options{TracerProvider: noop.NewTracerProvider(), ResourceInName: true})
	if err != nil {
		t.Fatal(err)
	}
	start := func(op operation) { told.start(t.Context(), op, trace.SpanKindClient, trace.Link{}, "c") }
	start(operation{method: "resources/read", uri: "file:///a"})
	start(operation{method: "tools/call", tool: strings.Repeat("a", maxName+1)})
	if kept := len(told.beginnings.kept); kept != 0 {
		t.Errorf("%d are kept", kept)
	}
	for i := range maxSets + 10 {
		start(operation{method: "tools/call", tool: fmt.Sprint(i)})
	}
	if kept := len(told.beginnings.kept); kept != maxSets {
		t.Errorf("%d are kept, want %d", kept, maxSets)
	}
}

// What is kept of a connection is dropped with it.
func TestSeriesOfTheGoneAreDropped(t *testing.T) {
	p := newParts()
	for round := range uint64(10) {
		clear(p.seen)
		for i := range 50 {
			name := p.name(&telemetry.Sample{Name: fmt.Sprint(round, " ", i), Conn: new(telemetry.ConnSample)})
			p.of(name, round).of(labels{keyState.String("ready")})
		}
		if p.forget(round); len(p.known) != 50 {
			t.Errorf("%d series are kept", len(p.known))
		}
	}
}
