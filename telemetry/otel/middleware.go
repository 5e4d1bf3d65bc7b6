package otel

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Client returns middleware for client.Options.Middleware. It records one CLIENT span for
// each call, over all its attempts and rounds, and adds the trace context to the messages
// of the call. For each question from the server it records a SERVER span, whose parent
// is the span that the server names. Put this middleware first, so that the spans
// include the other middleware.
func (t *Telemetry) Client() client.Middleware {
	return func(next client.Handler) client.Handler {
		return func(ctx context.Context, r *client.Request) (any, error) {
			if r.Notification {
				if !r.Incoming && t.tracer != nil {
					ctx = t.inject(ctx, trace.SpanFromContext(ctx))
				}
				return next(ctx, r)
			}
			op := of(r.Method, r.Params, r.Session.Server().ProtocolVersion, t.networkOf(r.Session.Endpoint()))
			if r.Incoming {
				way := r.Network()
				op.network, op.http = op.network.withoutServer(), versionOf(way.HTTP)
				return t.serve(ctx, op, r.Params, func(ctx context.Context) (any, error) { return next(ctx, r) },
					served{id: r.QuestionID(), session: way.Session, question: true})
			}
			return t.call(ctx, op, r, next)
		}
	}
}

// call makes a call of a client, with a span, and measures it. The version of HTTP is known only afterwards.
func (t *Telemetry) call(ctx context.Context, op operation, r *client.Request, next client.Handler) (any, error) {
	began, pattern := t.now(), t.patternOf(&op, r.Session.Name(), trace.SpanKindClient)
	var span trace.Span
	if t.tracer != nil {
		ctx, span = t.start(ctx, pattern, trace.SpanKindClient, trace.Link{})
		t.recordArguments(span, &op, r.Params)
		ctx = t.inject(ctx, span)
	}
	result, err := next(ctx, r)
	f := failureOf(result, err)
	way := r.Network()
	op.http = versionOf(way.HTTP)
	if span != nil {
		endCall(span, f, callEnd{jsonrpc.IntegerID(r.ID()), r.Epoch(), op.http, way.Session, err})
	}
	if m := t.metrics; m != nil {
		m.names.learn(result)
		m.record(ctx, m.clientDuration, &op, pattern, f, m.names.knows(op.target(), pattern), t.now()-began)
	}
	return result, err
}

// now returns the time since New. It reads no clock if there are no metrics.
func (t *Telemetry) now() time.Duration {
	if t.metrics == nil {
		return 0
	}
	return time.Since(t.born)
}

// A callEnd contains what is known of a call only at its end.
type callEnd struct {
	id    jsonrpc.ID
	epoch uint64 // the epoch of the server that was called last; 0 if unknown
	http  string // the version of HTTP that the server uses; "" if it does not use HTTP

	session string // its id; "" for none
	err     error
}

// endCall ends the span of a call.
func endCall(span trace.Span, f failure, end callEnd) {
	if span.IsRecording() {
		tellSession(span, end.session)
		known := make([]attribute.KeyValue, 0, 4)
		if sent, _ := end.id.Int64(); sent != 0 {
			known = append(known, keyRequestID.String(end.id.String()))
		}
		if end.epoch != 0 {
			known = append(known, keyEpoch.Int64(int64(end.epoch)))
		}
		if end.http != "" {
			known = append(known, keyProtocolHTTP.String(end.http))
		}
		var call *conn.CallError
		if errors.As(end.err, &call) {
			known = append(known, keyDelivery.String(call.Delivery.String()))
		}
		span.SetAttributes(known...)
	}
	f.end(span)
}

// Server returns middleware for server.Options.Middleware. It records one SERVER span for
// each request from a client. Its parent is the span that the _meta of the request names.
// If the context already contains a span, such as that of the HTTP request, the SERVER
// span links to it. For each question to a client, Server records a CLIENT span. It adds
// the trace context to everything that the server sends.
func (t *Telemetry) Server() server.Middleware {
	return func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			if r.Notification {
				if r.Outgoing && t.tracer != nil {
					ctx = t.inject(ctx, trace.SpanFromContext(ctx))
				}
				return next(ctx, r)
			}
			by, http := from(r.Origin)
			op := of(r.Method, r.Params, r.Client.ProtocolVersion, by)
			op.http = http
			if !r.Outgoing {
				return t.serve(ctx, op, r.Params, func(ctx context.Context) (any, error) { return next(ctx, r) }, served{id: r.ID(), by: r})
			}
			return t.ask(ctx, op, r, next)
		}
	}
}

// ask asks a question of a server, with a span, and measures it.
func (t *Telemetry) ask(ctx context.Context, op operation, r *server.Request, next server.Handler) (any, error) {
	began, pattern := t.now(), t.patternOf(&op, "", trace.SpanKindClient)
	var span trace.Span
	if t.tracer != nil {
		ctx, span = t.start(ctx, pattern, trace.SpanKindClient, trace.Link{})
		ctx = t.inject(ctx, span)
	}
	result, err := next(ctx, r)
	f := failureOf(result, err)
	if span != nil {
		endCall(span, f, callEnd{id: r.ID(), session: sessionOf(r.Origin), err: err})
	}
	if m := t.metrics; m != nil {
		m.record(ctx, m.clientDuration, &op, pattern, f, false, t.now()-began)
	}
	return result, err
}

// A served is a request from a client, or a question from a server.
type served struct {
	id       jsonrpc.ID      // the id of the request; zero for a question that came with the answer to a call
	by       *server.Request // the request of a server; nil if the client serves it
	session  string          // the id of the client's session; "" for none
	question bool
}

// tell adds to the span of a request which one it is, and whose.
func (s *served) tell(span trace.Span) {
	if !span.IsRecording() {
		return
	}
	if !s.id.IsZero() {
		span.SetAttributes(keyRequestID.String(shorten(s.id.String())))
	}
	if s.by != nil {
		tellOrigin(span, s.by.Origin)
	} else {
		tellSession(span, s.session)
	}
}

// failure returns how a request has failed, if it has. A handler that has not returned has panicked.
func (s *served) failure(ctx context.Context, op *operation, result any, err error, returned bool) failure {
	f := failureServed(ctx, result, err)
	if !returned {
		f = internalError
	}
	if f == internalError && s.question && (s.id.IsZero() || returned && op.method == protocol.MethodElicit) {
		return failure{kind: other} // no code was sent: a form is dismissed, and a call that asks fails
	}
	return f
}

// serve calls the handler of a request, with a span, and measures it.
func (t *Telemetry) serve(ctx context.Context, op operation, params any, next func(context.Context) (any, error), s served) (any, error) {
	began, pattern := t.now(), t.patternOf(&op, "", trace.SpanKindServer)
	var span trace.Span
	if t.tracer != nil {
		within, link := t.extract(ctx, params)
		ctx, span = t.start(within, pattern, trace.SpanKindServer, link)
		s.tell(span)
		t.recordArguments(span, &op, params)
	}
	var result any
	var err error
	returned := false
	defer func() { // deferred, so that it runs even if the handler panics
		f := s.failure(ctx, &op, result, err, returned)
		if span != nil {
			f.end(span)
		}
		if m := t.metrics; m != nil {
			known := s.by != nil && s.by.Target() != ""
			m.record(ctx, m.serverDuration, &op, pattern, f, known, t.now()-began)
		}
	}()
	result, err = next(ctx)
	returned = true
	return result, err
}

// maxArguments is the maximum size of the recorded arguments of a tool, in bytes.
const maxArguments = 4 << 10

func (t *Telemetry) recordArguments(span trace.Span, op *operation, params any) {
	called, ok := params.(*protocol.CallToolParams)
	if !ok || t.options.Arguments == nil || !span.IsRecording() {
		return
	}
	text := t.options.Arguments(op.tool, called.Arguments)
	// Bytes that are not UTF-8, such as half of a character that was cut, are left out: with them,
	// OTLP would refuse all spans that are sent together.
	span.SetAttributes(keyArguments.String(strings.ToValidUTF8(string(text[:min(len(text), maxArguments)]), "")))
}
