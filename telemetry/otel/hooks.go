package otel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// background is the context of measurements that belong to no call.
var background = context.Background()

func (t *Telemetry) measuring(client bool) telemetry.Hooks {
	m := t.metrics
	session := m.serverSession
	if client {
		session = m.clientSession
	}
	return telemetry.Hooks{
		Retried: func(ctx context.Context, e telemetry.Retried) {
			m.tries.Record(ctx, e.Duration.Seconds(), m.byCause.of([2]string{e.Conn, e.Cause}).record...)
		},
		RequestStopped: func(ctx context.Context, e telemetry.RequestStopped) {
			m.tries.Record(ctx, e.Last.Seconds(), m.byCause.of([2]string{e.Conn, e.Cause}).record...)
		},
		ServeStopped: func(ctx context.Context, e telemetry.ServeStopped) {
			m.queued.Record(ctx, e.Queued.Seconds(), m.byConn.of([1]string{e.Conn}).record...)
		},
		Transition: func(e telemetry.Transition) {
			failed := failedKind(e)
			switch {
			case e.From == "ready":
				session.Record(background, e.Lasted.Seconds(), m.sessions.of(t.sessionValues(e, failed)).record...)
				if failed != "" {
					m.losses.Add(background, 1, m.byReason.of([2]string{e.Conn, failed}).add...)
				}
			case e.To == "ready":
				m.attempts.Add(background, 1, m.byResult.of([2]string{e.Conn, "ready"}).add...)
			case failed != "" && (e.From == "starting" || e.From == "initializing"):
				m.attempts.Add(background, 1, m.byResult.of([2]string{e.Conn, failed}).add...)
			}
		},
		Gap: func(e telemetry.Gap) {
			m.outages.Record(background, e.Duration.Seconds(), m.byReason.of([2]string{e.Conn, e.Kind}).record...)
			m.lostCalls.Add(background, int64(e.Calls), m.byConn.of([1]string{e.Conn}).add...)
		},
		NotificationReceived: func(e telemetry.NotificationReceived) {
			m.received.Add(background, 1, m.byMethod.of([2]string{e.Conn, listed(e.Method)}).add...)
		},
		Shed: func(e telemetry.Shed) {
			m.shed.Add(background, 1, m.byMethod.of([2]string{e.Conn, listed(e.Method)}).add...)
		},
		Stalled: func(e telemetry.Stalled) {
			if e.Over {
				m.stalls.Record(background, e.Duration.Seconds(), m.byStallWhy.of([2]string{e.Conn, e.Why}).record...)
			}
		},
		Missed: func(e telemetry.Missed) {
			m.missed.Add(background, 1, m.byConn.of([1]string{e.Conn}).add...)
		},
		Stuck: func(e telemetry.Stuck) {
			m.stuck.Add(background, 1, m.byMethod.of([2]string{e.Conn, listed(e.Method)}).add...)
		},
		Violation: func(e telemetry.Violation) {
			m.violations.Add(background, 1, m.byReason.of([2]string{e.Conn, string(e.Reason)}).add...)
		},
		Panic: func(e telemetry.Panic) {
			m.panics.Add(background, 1, m.byWhere.of([2]string{e.Conn, shorten(e.Where)}).add...)
		},
	}
}

// sessionValues returns the attributes of a session that has ended.
func (t *Telemetry) sessionValues(e telemetry.Transition, failed string) [5]string {
	v := [5]string{failed, e.Version}
	if e.HTTP != "" {
		v[2] = overHTTP.protocol
	}
	if e.Endpoint != "" {
		way := t.networkOf(e.Endpoint)
		v[3], v[4] = way.address, way.port
	}
	return v
}

// failedKind returns why a connection was lost, or an attempt to connect has failed. It
// returns "" for other transitions, and for a connection that ends in good order.
func failedKind(e telemetry.Transition) string {
	switch e.To {
	case "backoff", "starting":
		return e.Kind
	case "closing":
		switch e.Kind {
		case "stopped", "drained", "peer ended":
			return ""
		}
		return e.Kind
	default:
		return ""
	}
}

// listed returns the method if the protocol has it, and otherwise "_OTHER".
func listed(method string) string {
	if _, known := protocol.MethodInfo(method); known {
		return method
	}
	return other
}

// stopped returns a hook that also adds the number of attempts and the delivery to the span
// of a call.
func stopped(measure func(context.Context, telemetry.RequestStopped)) func(context.Context, telemetry.RequestStopped) {
	return func(ctx context.Context, e telemetry.RequestStopped) {
		if measure != nil {
			measure(ctx, e)
		}
		if span := trace.SpanFromContext(ctx); span.IsRecording() {
			span.SetAttributes(keyAttempts.Int(e.Attempts), keyDelivery.String(e.Delivery))
		}
	}
}

// retried returns a hook that also adds an attempt that is retried to the span of its call.
func retried(measure func(context.Context, telemetry.Retried)) func(context.Context, telemetry.Retried) {
	return func(ctx context.Context, e telemetry.Retried) {
		if measure != nil {
			measure(ctx, e)
		}
		span := trace.SpanFromContext(ctx)
		if !span.IsRecording() {
			return
		}
		span.AddEvent("retry", trace.WithAttributes(
			keyAttempt.Int(e.Attempt), keyCause.String(e.Cause), keyDelivery.String(e.Delivery), keyEpoch.Int64(int64(e.Epoch)),
		))
	}
}
