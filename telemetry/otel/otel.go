// Package otel records OpenTelemetry traces and metrics of Bowline's connections, clients
// and servers. It is a separate module, so programs that do not import it do not download
// OpenTelemetry.
//
// Instrument adds hooks and middleware to the options of a client, and InstrumentServer to
// those of a server. They record what happens: calls, requests, losses. Watch records the
// present state of a client, a server or another part. Use Hooks, ServerHooks, Client and
// Server if you set the options yourself.
//
// docs/observability explains each metric. Spans and the metrics mcp.* use the names and
// attributes of the semantic conventions for MCP. Names of Bowline's own begin with
// "bowline.". Tokens, headers and results are never recorded. Arguments are recorded only
// if Options.Arguments is set.
package otel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/telemetry"
)

// Options configure a Telemetry. The zero value of each field means its default.
type Options struct {
	// MeterProvider creates the instruments. Nil: no metrics.
	MeterProvider metric.MeterProvider

	// TracerProvider creates the spans. Nil: no spans, and no trace context is sent.
	TracerProvider trace.TracerProvider

	// Propagator reads and writes the trace context. Nil: propagation.TraceContext,
	// which leaves out baggage, because that is user data. Use a Propagator that
	// includes propagation.Baggage to send and accept it.
	Propagator propagation.TextMapPropagator

	// Arguments returns what to record of a tool's arguments in its spans. The result
	// is cut after 4 KiB, and bytes that are not UTF-8 are left out. Nil: arguments are
	// not recorded.
	Arguments func(tool string, raw json.RawMessage) []byte

	// ResourceInName adds the URI of a resource to the names of spans.
	ResourceInName bool

	// JoinToolSpans is for programs that trace the execution of tools themselves. If the
	// context of a call to a tool has a recording span whose gen_ai.operation.name is
	// execute_tool, the call is no CLIENT span of its own: its attributes, retries and error
	// go to that span, and the server's span becomes its child. Only spans whose attributes
	// can be read are joined, such as those of the OpenTelemetry SDK.
	JoinToolSpans bool

	// BySupervisor is for programs with more than 200 connections. Those beyond have no series
	// of their own. They are added up by their supervisor, with the label bowline.supervisor
	// instead of bowline.conn. Without it, and for connections that no named supervisor has,
	// there is one sum.
	BySupervisor bool

	// FineBuckets puts buckets from 0.1 ms to 5 ms in front of those of the
	// conventions for MCP, whose smallest is 10 ms: calls to a near server are faster.
	FineBuckets bool
}

const scope = "github.com/bowline-mcp/bowline/telemetry/otel"

// A Telemetry records spans and metrics. It has no goroutine. It is safe for concurrent
// use.
type Telemetry struct {
	options    Options
	tracer     trace.Tracer // nil: no spans
	propagator propagation.TextMapPropagator
	isStandard bool                           // propagator is propagation.TraceContext
	metrics    *metrics                       // nil: no metrics
	networks   table[string, *network]        // by endpoint
	patterns   table[patternKey, *pattern]    // what an operation does often, it allocates once
	first      [slots]atomic.Pointer[pattern] // for each slot the first pattern that got it, which is found without hashing its key
	carriers   sync.Pool                      // of *carrier
	born       time.Time

	mu      sync.Mutex
	sources []*source // the functions given to Watch

	collecting sync.Mutex // locked before mu
	crowd      *crowd
	parts      *parts
}

// New returns a Telemetry. It fails if the MeterProvider cannot create an instrument.
func New(o Options) (*Telemetry, error) {
	t := &Telemetry{options: o, propagator: o.Propagator, born: time.Now(), crowd: newCrowd(o.BySupervisor), parts: newParts()}
	if t.propagator == nil {
		t.propagator = propagation.TraceContext{}
	}
	t.isStandard = t.propagator == propagation.TraceContext{}
	if o.TracerProvider != nil {
		t.tracer = o.TracerProvider.Tracer(scope)
	}
	if o.MeterProvider == nil {
		return t, nil
	}
	var err error
	if t.metrics, err = newMetrics(o.MeterProvider.Meter(scope), o.FineBuckets, t.observe); err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	return t, nil
}

// metrics are the instruments of what happens.
type metrics struct {
	clientDuration, serverDuration metric.Float64Histogram
	clientSession, serverSession   metric.Float64Histogram
	attempts, losses, lostCalls    metric.Int64Counter
	received, shed, missed, panics metric.Int64Counter
	stuck, violations              metric.Int64Counter
	refusedTraces                  metric.Int64Counter
	outages, tries, queued, stalls metric.Float64Histogram

	operations                   *prepared[[12]string]
	sessions                     *prepared[[5]string]
	byResult, byReason, byMethod *prepared[[2]string]
	byWhere, byCause, byStallWhy *prepared[[2]string]
	byConn                       *prepared[[1]string]

	names names
}

func newMetrics(meter metric.Meter, fine bool, observe func([]metric.Float64Observable, metric.Observer)) (*metrics, error) {
	var failed []error
	bounds := durations
	if fine {
		bounds = slices.Concat(fineDurations, durations)
	}
	histogram := func(name, help string) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...))
		failed = append(failed, err)
		return h
	}
	counter := func(name, help string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithDescription(help))
		failed = append(failed, err)
		return c
	}
	exceeded := counter("bowline.debug.sets.exceeded", "Measurements whose labels became _OTHER, because their instrument had 1,000 sets of labels.")
	m := &metrics{
		clientDuration: histogram(clientDuration, "The duration of the MCP request or notification as observed on the sender from the time it was sent until the response or ack is received."),
		serverDuration: histogram(serverDuration, "MCP request or notification duration as observed on the receiver from the time it was received until the result or ack is sent."),
		clientSession:  histogram(clientSessionDuration, "The duration of the MCP session as observed on the MCP client."),
		serverSession:  histogram(serverSessionDuration, "The duration of the MCP session as observed on the MCP server."),
		attempts:       counter("bowline.conn.attempts", "Attempts to connect, by result."),
		losses:         counter("bowline.conn.losses", "Ready connections that were lost, by reason."),
		lostCalls:      counter("bowline.conn.lost_calls", "Calls that ended with a loss."),
		received:       counter("bowline.notifications.received", "Notifications of the peer, by method."),
		shed:           counter("bowline.notifications.shed", "Notifications of the peer that were dropped, by method."),
		missed:         counter("bowline.liveness.missed", "Probes that the peer has not answered in time."),
		panics:         counter("bowline.panics", "Panics of the program's code, by place."),
		stuck:          counter("bowline.serve.stuck", "Handlers that kept running after their context had ended, by method."),
		violations:     counter("bowline.violations", "Frames of the peer that were not valid messages, by reason."),
		refusedTraces:  counter("bowline.debug.trace.refused", "Trace contexts of peers that were malformed."),
		outages:        histogram("bowline.conn.outage.duration", "From a loss to the next ready, by reason."),
		tries:          histogram("bowline.call.attempt.duration", "Attempts of calls, by cause."),
		queued:         histogram("bowline.serve.queue.duration", "How long requests waited for a handler."),
		stalls:         histogram("bowline.conn.stall.duration", "How long a connection did not read from its peer."),

		operations: prepare[[12]string](exceeded, keyMethod, keyTool, keyPrompt, keyOperation, keyErrorType, keyStatusCode, keyProtocolVersion,
			keyTransport, keyProtocolName, keyProtocolHTTP, keyServerAddress, keyServerPort),
		sessions: prepare[[5]string](exceeded, keyErrorType, keyProtocolVersion, keyProtocolName, keyServerAddress, keyServerPort),
		byResult: prepare[[2]string](exceeded, keyConn, keyResult), byReason: prepare[[2]string](exceeded, keyConn, keyReason), byMethod: prepare[[2]string](exceeded, keyConn, keyMethod),
		byWhere: prepare[[2]string](exceeded, keyConn, keyWhere), byCause: prepare[[2]string](exceeded, keyConn, keyCause), byStallWhy: prepare[[2]string](exceeded, keyConn, keyWhy),
		byConn: prepare[[1]string](exceeded, keyConn),
	}
	m.operations.few = 1 // the method: MCP has few of them
	read, err := newObservables(meter)
	failed = append(failed, err)
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	all := make([]metric.Observable, len(read))
	for i := range read {
		all[i] = read[i]
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		observe(read, o)
		return nil
	}, all...)
	return m, err
}

// Instrument adds Hooks and Client to the options of a client: the hooks after those that
// the options have, and the middleware first. Call it once for each client, before
// client.New.
//
// What a connection logs by default, it still logs: if Conn.Log is nil, and the options'
// own hooks do not take all of that (conn.Tuning.Log), Instrument sets Conn.Log to
// slog.Default().
func (t *Telemetry) Instrument(o *client.Options) {
	keepLog(&o.Conn)
	o.Conn.Hooks = telemetry.Tee(o.Conn.Hooks, t.Hooks())
	o.Middleware = slices.Concat([]client.Middleware{t.Client()}, o.Middleware)
}

// InstrumentServer adds ServerHooks and Server to the options of a server, as Instrument
// does for a client. Call it once for each server, before server.New.
func (t *Telemetry) InstrumentServer(o *server.Options) {
	keepLog(&o.Conn)
	o.Conn.Hooks = telemetry.Tee(o.Conn.Hooks, t.ServerHooks())
	o.Middleware = slices.Concat([]server.Middleware{t.Server()}, o.Middleware)
}

// keepLog sets the log of a connection that gets hooks which count, but log nothing.
func keepLog(o *conn.Tuning) {
	if own := &o.Hooks; o.Log == nil && (own.Panic == nil || own.Transition == nil || own.Stuck == nil || own.Violation == nil) {
		o.Log = slog.Default()
	}
}

// Hooks returns hooks for the connections of a client (conn.Tuning.Hooks). They record
// metrics, and add the retries of a call to its span. They log nothing; with them a
// connection logs only if you set conn.Tuning.Log, as Instrument does.
func (t *Telemetry) Hooks() telemetry.Hooks { return t.hooks(true) }

// ServerHooks returns hooks for the connections of a server.
func (t *Telemetry) ServerHooks() telemetry.Hooks { return t.hooks(false) }

func (t *Telemetry) hooks(client bool) telemetry.Hooks {
	var h telemetry.Hooks
	if t.metrics != nil {
		h = t.measuring(client)
	}
	if t.tracer != nil {
		h.Retried, h.RequestStopped = retried(h.Retried), stopped(h.RequestStopped)
	}
	return h
}
