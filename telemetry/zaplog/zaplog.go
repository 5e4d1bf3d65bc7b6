// Package zaplog logs telemetry events with go.uber.org/zap, one structured line
// per event. telemetry/sloglog writes the same lines with log/slog.
//
// # Lines
//
//	message                level                     fields
//	state changed          info; warn for a failure  conn epoch from to kind reason at next_attempt dropped
//	back after 2.1 s, …    info                      conn lost epoch kind reason calls duration
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
//	handler stuck          warn                      conn epoch method name
//	late reply             debug                     conn epoch id cause
//	unknown reply          debug                     conn epoch id
//	protocol violation     warn                      conn epoch reason shape size error
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
//	reason        string    the reason in full, or that of a violation as one of a few values; absent when there is none
//	at            time      when the state changed
//	next_attempt  time      when the backoff ends; absent otherwise
//	dropped       uint      how many events no hook has seen so far; absent when 0
//	calls         int       how many calls ended with the loss
//	method        string    of the request or notification
//	target        string    the tool or prompt that it is about; absent when there is none
//	size          int       bytes of its params, or of a frame that is no message
//	shape         string    what a frame that is no message seems to be
//	call          string    the same for all attempts of a call
//	id            int       of the request; 0 when it cannot be one of ours
//	attempt       int       number of the attempt that failed, from 1
//	attempts      int       how often the call, or sending the frame, was tried
//	cause         string    how the request ended; absent when that is forgotten
//	delivery      string    whether the peer may have executed the request
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
//	name          string    the tool or prompt of a handler that is stuck
//	trace_id      string    of the trace that a request belongs to; absent without one
//	span_id       string    of the span within it
//
// Text that may come from a peer is cut after 1,024 bytes, at a character.
package zaplog

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/internal/lines"
)

// Hooks returns hooks that write to the logger. If the level of a line is disabled,
// only the check of the level takes time. The caller owns the logger and must sync it.
// Lines have no caller and no stack of their own, since those would be of this package.
func Hooks(logger *zap.Logger) telemetry.Hooks { return lines.Hooks(sink{anonymous(logger)}) }

// anonymous returns the logger without what it adds of its caller.
func anonymous(logger *zap.Logger) *zap.Logger {
	return logger.WithOptions(zap.WithCaller(false), zap.AddStacktrace(zapcore.InvalidLevel))
}

// sink writes lines with zap.
type sink struct{ logger *zap.Logger }

// levels maps the levels of package lines to those of zap.
var levels = map[slog.Level]zapcore.Level{
	slog.LevelDebug: zapcore.DebugLevel, slog.LevelInfo: zapcore.InfoLevel,
	slog.LevelWarn: zapcore.WarnLevel, slog.LevelError: zapcore.ErrorLevel,
}

func (s sink) Enabled(_ context.Context, level slog.Level) bool {
	return s.logger.Core().Enabled(levels[level])
}

func (s sink) Write(_ context.Context, level slog.Level, message string, attrs []slog.Attr) {
	line := s.logger.Check(levels[level], message)
	if line == nil {
		return
	}
	fields := make([]zap.Field, len(attrs))
	for i, a := range attrs {
		fields[i] = field(a)
	}
	line.Write(fields...)
}

// field keeps the type of the attribute.
func field(a slog.Attr) zap.Field {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		return zap.String(a.Key, v.String())
	case slog.KindInt64:
		return zap.Int64(a.Key, v.Int64())
	case slog.KindUint64:
		return zap.Uint64(a.Key, v.Uint64())
	case slog.KindDuration:
		return zap.Duration(a.Key, v.Duration())
	case slog.KindTime:
		return zap.Time(a.Key, v.Time())
	default:
		return zap.Any(a.Key, v.Any())
	}
}
