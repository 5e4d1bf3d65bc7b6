package otel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// serveSite is a server in a process of its own. It tells spans and logs as they come,
// and metrics at its end, by lines of JSON on standard error. The tool "crash" ends the
// process if there is a file of that name, once.
func serveSite(crash string) error {
	out := &lockedWriter{to: os.Stderr}
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(lineExporter{out})),
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
	})
	if err != nil {
		return err
	}
	peer := newServer(told, out, func() { out.tell(line{Ran: true}) }, func(context.Context) {
		if os.Remove(crash) == nil {
			os.Exit(3)
		}
	})
	if err := peer.Serve(context.Background(), &stdio.Server{}); err != nil {
		return err
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		return err
	}
	return out.tell(line{Metrics: &all})
}

// A line is what the child tells that is no log.
type line struct {
	Span    *spanLine
	Metrics *metricdata.ResourceMetrics
	Ran     bool // a handler begins to wait
}

// A spanLine is a span. Its events and links are not among what tests look at.
type spanLine struct {
	Name, Trace, ID, Parent, StatusText string
	Kind                                trace.SpanKind
	Status                              codes.Code
	Remote                              bool
	Attributes                          []attributeLine
}

type attributeLine struct {
	Key    string
	Number bool
	Text   string
	Value  int64
}

type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

func (w *lockedWriter) tell(l line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// A lineExporter exports spans as lines.
type lineExporter struct{ out *lockedWriter }

func (lineExporter) Shutdown(context.Context) error { return nil }

func (e lineExporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, span := range spans {
		l := &spanLine{
			Name: span.Name(), Kind: span.SpanKind(), Status: span.Status().Code, StatusText: span.Status().Description,
			Trace: span.SpanContext().TraceID().String(), ID: span.SpanContext().SpanID().String(),
			Parent: span.Parent().SpanID().String(), Remote: span.Parent().IsRemote(),
		}
		for _, a := range span.Attributes() {
			switch a.Value.Type() {
			case attribute.STRING:
				l.Attributes = append(l.Attributes, attributeLine{Key: string(a.Key), Text: a.Value.AsString()})
			case attribute.INT64:
				l.Attributes = append(l.Attributes, attributeLine{Key: string(a.Key), Number: true, Value: a.Value.AsInt64()})
			default:
				return fmt.Errorf("%s is neither text nor a number", a.Key)
			}
		}
		if err := e.out.tell(line{Span: l}); err != nil {
			return err
		}
	}
	return nil
}

// childLines is the standard error of the children of a site: all of it is kept, and the
// spans are put to those of this process.
type childLines struct {
	t    *testing.T
	site *site
	mu   sync.Mutex
	rest []byte // a line that has not ended
}

func (c *childLines) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.site.logs.Write(p); err != nil {
		return 0, err
	}
	c.rest = append(c.rest, p...)
	for {
		text, rest, whole := bytes.Cut(c.rest, []byte{'\n'})
		if !whole {
			return len(p), nil
		}
		c.rest = rest
		var l struct { // the metrics stay text
			Span *spanLine
			Ran  bool
		}
		if err := json.Unmarshal(text, &l); err != nil {
			c.t.Errorf("the child says %q", text) // a data race, or a panic
			return 0, err
		}
		if l.Ran {
			c.site.runs()
		}
		if l.Span != nil {
			if err := c.site.spans.ExportSpans(context.Background(), tracetest.SpanStubs{l.Span.stub()}.Snapshots()); err != nil {
				return 0, err
			}
		}
	}
}

func (l *spanLine) stub() tracetest.SpanStub {
	stub := tracetest.SpanStub{Name: l.Name, SpanKind: l.Kind, Status: sdktrace.Status{Code: l.Status, Description: l.StatusText}}
	traceID, _ := trace.TraceIDFromHex(l.Trace) // what is malformed is no valid parent
	own, _ := trace.SpanIDFromHex(l.ID)
	parent, _ := trace.SpanIDFromHex(l.Parent)
	stub.SpanContext = trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: own})
	stub.Parent = trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: parent, Remote: l.Remote})
	for _, a := range l.Attributes {
		if a.Number {
			stub.Attributes = append(stub.Attributes, attribute.Int64(a.Key, a.Value))
		} else {
			stub.Attributes = append(stub.Attributes, attribute.String(a.Key, a.Text))
		}
	}
	return stub
}
