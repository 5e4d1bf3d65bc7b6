package otel

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
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

// For who serves a request, a code that blames the caller is no failure. For the caller
// every code is.
//
// Guarantees: G-0047.2
func TestCodesThatBlameTheCaller(t *testing.T) {
	for code, blames := range map[int64]bool{
		-32700: true, -32600: true, -32601: true, -32602: true, -32002: true,
		-32603: false, -32000: false, -32001: false, -32021: false, -32022: false, 1: false,
	} {
		err := &jsonrpc.Error{Code: code, Message: "no"}
		f, text := failureServed(t.Context(), nil, err), fmt.Sprint(code)
		if wants := map[bool]string{false: text}[blames]; f.kind != wants || f.code != text {
			t.Errorf("%d: served with %+v, want error.type %q", code, f, wants)
		}
		if f := failureOf(nil, err); f.kind != text || f.code != text {
			t.Errorf("%d: called with %+v", code, f)
		}
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
