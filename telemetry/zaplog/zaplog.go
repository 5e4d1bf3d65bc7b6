// Package zaplog logs telemetry events with go.uber.org/zap, one structured line
// per event.
//
// # Lines
//
//	message                level                     fields
//	state changed          info; warn for a failure  conn epoch from to kind reason at next_attempt dropped
//	ready again            info                      conn lost epoch kind reason calls duration
//	request started        debug                     conn method target id
//	request retried        info                      conn method target id epoch attempt cause delivery error
//	request stopped        debug                     conn method target id attempts cause delivery duration error
//	request served         debug                     conn epoch method target outcome code queued duration error
//	notification received  debug                     conn epoch method size
//	notification shed      warn                      conn method
//	reading paused         warn                      conn epoch why since
//	reading resumed        info                      conn epoch why since duration
//	link busy              debug                     conn epoch id attempts
//	probe missed           warn                      conn epoch in_row
//	late reply             debug                     conn epoch id cause
//	unknown reply          debug                     conn epoch id
//	protocol violation     warn                      conn epoch error
//	panic                  error                     conn where panic stack
//	stderr                 info                      line (see Stderr)
//
// A change of state is a failure when it leads to backoff. One that leads to
// closing is a failure unless the program stopped or closed the connection, or the
// peer ended it in good order.
//
// # Fields
//
//	conn          string    the connection's name
//	epoch         uint      the incarnation, from 1
//	lost          uint      the incarnation that was lost
//	from, to      string    states
//	kind          string    the reason, as one of a few values
//	reason        string    the reason in full; absent when there is none
//	at            time      when the state changed
//	next_attempt  time      when the backoff ends; absent otherwise
//	dropped       uint      how many events no hook has seen so far; absent when 0
//	calls         int       how many calls ended with the loss
//	method        string    of the request or notification
//	target        string    the tool or prompt that it is about; absent when there is none
//	size          int       bytes of its params
//	id            int       of the request; 0 when it cannot be one of ours
//	attempt       int       number of the attempt that failed, from 1
//	attempts      int       how often the call, or sending the frame, was tried
//	cause         string    how the request ended; absent when that is forgotten
//	delivery      string    whether the peer may have received the request
//	outcome       string    what became of a request of the peer's
//	code          int       of the error that the peer was sent; absent when there was none
//	queued        duration  how long a request of the peer's waited for its handler
//	duration      duration  of the request, its handler, the gap or the stall
//	why           string    what the connection waits for while it does not read
//	since         time      when the stall began
//	in_row        int       how many probes in a row were not answered
//	error         string    what went wrong; absent when nothing did
//	where         string    the method whose handler panicked, or what else did
//	panic         string    the value of the panic
//	line          string    one line of a child's standard error
//	stack         string    the stack of the goroutine that panicked
//
// Text that may come from a peer is cut after 1,024 bytes, at a character.
package zaplog

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bowline-mcp/bowline/telemetry"
)

// Hooks returns hooks that write to the logger. A line whose level is disabled
// costs only the check. The caller owns the logger and must sync it.
func Hooks(logger *zap.Logger) telemetry.Hooks {
	l := lines{logger}
	return telemetry.Hooks{
		RequestStarted:       l.requestStarted,
		Retried:              l.retried,
		RequestStopped:       l.requestStopped,
		ServeStopped:         l.serveStopped,
		Transition:           l.transition,
		Gap:                  l.gap,
		NotificationReceived: l.notificationReceived,
		Shed:                 l.shed,
		Stalled:              l.stalled,
		BusyRetry:            l.busyRetry,
		Missed:               l.missed,
		Stuck:                l.stuck,
		LateReply:            func(r telemetry.Reply) { l.reply("late reply", r) },
		UnknownReply:         func(r telemetry.Reply) { l.reply("unknown reply", r) },
		Violation:            l.violation,
		Panic:                l.panicked,
	}
}

// lines writes one line per event.
type lines struct{ logger *zap.Logger }

func (l lines) transition(e telemetry.Transition) {
	level := zapcore.InfoLevel
	if failed(e) {
		level = zapcore.WarnLevel
	}
	line := l.logger.Check(level, "state changed")
	if line == nil {
		return
	}
	fields := []zap.Field{
		zap.String("conn", e.Conn), zap.Uint64("epoch", e.Epoch),
		zap.String("from", e.From), zap.String("to", e.To), zap.String("kind", e.Kind),
		errorField("reason", e.Reason), zap.Time("at", e.At),
	}
	if !e.NextAttempt.IsZero() {
		fields = append(fields, zap.Time("next_attempt", e.NextAttempt))
	}
	if e.Dropped > 0 {
		fields = append(fields, zap.Uint64("dropped", e.Dropped))
	}
	line.Write(fields...)
}

// goodEnds are the kinds of reason for which a connection closes in good order.
var goodEnds = []string{"stopped", "drained", "peer ended"}

func failed(e telemetry.Transition) bool {
	return e.To == "backoff" || e.To == "closing" && !slices.Contains(goodEnds, e.Kind)
}

func (l lines) gap(e telemetry.Gap) {
	if line := l.logger.Check(zapcore.InfoLevel, "ready again"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.Uint64("lost", e.Lost), zap.Uint64("epoch", e.Epoch),
			zap.String("kind", e.Kind), errorField("reason", e.Reason),
			zap.Int("calls", e.Calls), zap.Duration("duration", e.Duration))
	}
}

func (l lines) requestStarted(ctx context.Context, e telemetry.RequestStarted) context.Context {
	if line := l.logger.Check(zapcore.DebugLevel, "request started"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.String("method", e.Method), targetField(e.Target), zap.Int64("id", e.ID))
	}
	return ctx
}

func (l lines) retried(_ context.Context, e telemetry.Retried) {
	if line := l.logger.Check(zapcore.InfoLevel, "request retried"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.String("method", e.Method), targetField(e.Target), zap.Int64("id", e.ID),
			zap.Uint64("epoch", e.Epoch), zap.Int("attempt", e.Attempt),
			zap.String("cause", e.Cause), zap.String("delivery", e.Delivery), errorField("error", e.Err))
	}
}

func (l lines) requestStopped(_ context.Context, e telemetry.RequestStopped) {
	if line := l.logger.Check(zapcore.DebugLevel, "request stopped"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.String("method", e.Method), targetField(e.Target), zap.Int64("id", e.ID),
			zap.Int("attempts", e.Attempts), zap.String("cause", e.Cause), zap.String("delivery", e.Delivery),
			zap.Duration("duration", e.Duration), errorField("error", e.Err))
	}
}

func (l lines) serveStopped(_ context.Context, e telemetry.ServeStopped) {
	line := l.logger.Check(zapcore.DebugLevel, "request served")
	if line == nil {
		return
	}
	code := zap.Skip()
	if e.Code != 0 {
		code = zap.Int64("code", e.Code)
	}
	line.Write(zap.String("conn", e.Conn), zap.Uint64("epoch", e.Epoch), zap.String("method", cut(e.Method)), targetField(e.Target),
		zap.String("outcome", string(e.Outcome)), code, zap.Duration("queued", e.Queued), zap.Duration("duration", e.Duration), errorField("error", e.Err))
}

func (l lines) notificationReceived(e telemetry.NotificationReceived) {
	if line := l.logger.Check(zapcore.DebugLevel, "notification received"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.Uint64("epoch", e.Epoch), zap.String("method", cut(e.Method)), zap.Int("size", e.Size))
	}
}

func (l lines) stalled(e telemetry.Stalled) {
	level, message, duration := zapcore.WarnLevel, "reading paused", zap.Skip()
	if e.Over {
		level, message, duration = zapcore.InfoLevel, "reading resumed", zap.Duration("duration", e.Duration)
	}
	if line := l.logger.Check(level, message); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.Uint64("epoch", e.Epoch), zap.String("why", e.Why), zap.Time("since", e.Since), duration)
	}
}

func (l lines) busyRetry(e telemetry.BusyRetry) {
	if line := l.logger.Check(zapcore.DebugLevel, "link busy"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.Uint64("epoch", e.Epoch), zap.Int64("id", e.ID), zap.Int("attempts", e.Attempts))
	}
}

func (l lines) missed(e telemetry.Missed) {
	if line := l.logger.Check(zapcore.WarnLevel, "probe missed"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.Uint64("epoch", e.Epoch), zap.Int("in_row", e.InRow))
	}
}

func (l lines) stuck(e telemetry.Stuck) {
	if line := l.logger.Check(zapcore.WarnLevel, "handler stuck"); line != nil {
		name := zap.Skip()
		if e.Name != "" {
			name = zap.String("name", cut(e.Name))
		}
		line.Write(zap.String("conn", e.Conn), zap.Uint64("epoch", e.Epoch), zap.String("method", cut(e.Method)), name)
	}
}

func (l lines) reply(message string, e telemetry.Reply) {
	if line := l.logger.Check(zapcore.DebugLevel, message); line != nil {
		cause := zap.Skip()
		if e.Cause != "" {
			cause = zap.String("cause", e.Cause)
		}
		line.Write(zap.String("conn", e.Conn), zap.Uint64("epoch", e.Epoch), zap.Int64("id", e.ID), cause)
	}
}

func (l lines) violation(e telemetry.Violation) {
	if line := l.logger.Check(zapcore.WarnLevel, "protocol violation"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.Uint64("epoch", e.Epoch), errorField("error", e.Err))
	}
}

func (l lines) shed(e telemetry.Shed) {
	if line := l.logger.Check(zapcore.WarnLevel, "notification shed"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.String("method", cut(e.Method)))
	}
}

func (l lines) panicked(e telemetry.Panic) {
	if line := l.logger.Check(zapcore.ErrorLevel, "panic"); line != nil {
		line.Write(zap.String("conn", e.Conn), zap.String("where", cut(e.Where)),
			zap.String("panic", cut(fmt.Sprint(e.Value))), zap.ByteString("stack", e.Stack))
	}
}

// errorField returns no field when err is nil.
func errorField(key string, err error) zap.Field {
	if err == nil {
		return zap.Skip()
	}
	return zap.String(key, cut(err.Error()))
}

// targetField returns no field for no target.
func targetField(target string) zap.Field {
	if target == "" {
		return zap.Skip()
	}
	return zap.String("target", cut(target))
}

// maxText is how many bytes of a text are logged.
const maxText = 1024

// cut shortens a text to maxText bytes, and marks that with an ellipsis.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for end > maxText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
