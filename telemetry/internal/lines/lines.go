// Package lines turns telemetry events into lines of a log, the same for every
// library: a level, a message and fields. zaplog describes them.
package lines

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/telemetry"
)

// A Sink writes lines. It is called on the goroutine of the hook.
type Sink interface {
	Enabled(context.Context, slog.Level) bool
	Write(ctx context.Context, level slog.Level, message string, fields []slog.Attr)
}

// Hooks returns hooks that write to the sink. A line whose level is disabled costs
// only the question.
func Hooks(to Sink) telemetry.Hooks {
	l := lines{to}
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
type lines struct{ to Sink }

// write leaves out fields without a key, which say nothing.
func (l lines) write(ctx context.Context, level slog.Level, message string, fields ...slog.Attr) {
	fields = slices.DeleteFunc(fields, func(f slog.Attr) bool { return f.Key == "" })
	l.to.Write(ctx, level, message, append(fields, traceOf(ctx)...))
}

// traceOf are the ids of the trace that the context belongs to, if any.
func traceOf(ctx context.Context) []slog.Attr {
	if ctx == nil {
		return nil
	}
	trace := telemetry.TraceFrom(ctx)
	if trace == nil {
		return nil
	}
	parts := strings.Split(trace.Parent, "-") // version, trace id, span id, flags
	if len(parts) < 4 || len(parts[1]) != 32 || len(parts[2]) != 16 {
		return nil
	}
	return []slog.Attr{slog.String("trace_id", parts[1]), slog.String("span_id", parts[2])}
}

func (l lines) transition(e telemetry.Transition) {
	ctx, level := context.Background(), slog.LevelInfo
	if failed(e) {
		level = slog.LevelWarn
	}
	if !l.to.Enabled(ctx, level) {
		return
	}
	next, dropped := slog.Attr{}, slog.Attr{}
	if !e.NextAttempt.IsZero() {
		next = slog.Time("next_attempt", e.NextAttempt)
	}
	if e.Dropped > 0 {
		dropped = slog.Uint64("dropped", e.Dropped)
	}
	l.write(ctx, level, "state changed", slog.String("conn", e.Conn), slog.Uint64("epoch", e.Epoch),
		slog.String("from", e.From), slog.String("to", e.To), slog.String("kind", e.Kind),
		errorField("reason", e.Reason), slog.Time("at", e.At), next, dropped)
}

// goodEnds are the kinds of reason for which a connection closes in good order.
var goodEnds = []string{"stopped", "drained", "peer ended"}

func failed(e telemetry.Transition) bool {
	return e.To == "backoff" || e.To == "closing" && !slices.Contains(goodEnds, e.Kind)
}

func (l lines) gap(e telemetry.Gap) {
	if ctx := context.Background(); l.to.Enabled(ctx, slog.LevelInfo) {
		l.write(ctx, slog.LevelInfo, e.String(), slog.String("conn", e.Conn), slog.Uint64("lost", e.Lost), slog.Uint64("epoch", e.Epoch),
			slog.String("kind", e.Kind), errorField("reason", e.Reason),
			slog.Int("calls", e.Calls), slog.Duration("duration", e.Duration))
	}
}

func (l lines) requestStarted(ctx context.Context, e telemetry.RequestStarted) context.Context {
	if l.to.Enabled(ctx, slog.LevelDebug) {
		l.write(ctx, slog.LevelDebug, "request started", slog.String("conn", e.Conn), slog.String("method", e.Method), textField("target", e.Target), slog.Int64("id", e.ID), callField(e.Correlation))
	}
	return ctx
}

func (l lines) retried(ctx context.Context, e telemetry.Retried) {
	if l.to.Enabled(ctx, slog.LevelInfo) {
		l.write(ctx, slog.LevelInfo, "request retried", slog.String("conn", e.Conn), slog.String("method", e.Method), textField("target", e.Target), slog.Int64("id", e.ID), callField(e.Correlation),
			slog.Uint64("epoch", e.Epoch), slog.Int("attempt", e.Attempt),
			slog.String("cause", e.Cause), slog.String("delivery", e.Delivery), errorField("error", e.Err))
	}
}

func (l lines) requestStopped(ctx context.Context, e telemetry.RequestStopped) {
	if l.to.Enabled(ctx, slog.LevelDebug) {
		l.write(ctx, slog.LevelDebug, "request stopped", slog.String("conn", e.Conn), slog.String("method", e.Method), textField("target", e.Target), slog.Int64("id", e.ID), callField(e.Correlation),
			slog.Int("attempts", e.Attempts), slog.String("cause", e.Cause), slog.String("delivery", e.Delivery),
			slog.Duration("duration", e.Duration), errorField("error", e.Err))
	}
}

func (l lines) serveStopped(ctx context.Context, e telemetry.ServeStopped) {
	if !l.to.Enabled(ctx, slog.LevelDebug) {
		return
	}
	code := slog.Attr{}
	if e.Code != 0 {
		code = slog.Int64("code", e.Code)
	}
	l.write(ctx, slog.LevelDebug, "request served", slog.String("conn", e.Conn), slog.Uint64("epoch", e.Epoch),
		slog.String("method", Cut(e.Method)), textField("target", e.Target), slog.String("outcome", string(e.Outcome)), code,
		slog.Duration("queued", e.Queued), slog.Duration("duration", e.Duration), errorField("error", e.Err))
}

func (l lines) notificationReceived(e telemetry.NotificationReceived) {
	if ctx := context.Background(); l.to.Enabled(ctx, slog.LevelDebug) {
		l.write(ctx, slog.LevelDebug, "notification received", slog.String("conn", e.Conn), slog.Uint64("epoch", e.Epoch),
			slog.String("method", Cut(e.Method)), slog.Int("size", e.Size))
	}
}

func (l lines) stalled(e telemetry.Stalled) {
	level, message, duration := slog.LevelWarn, "reading paused", slog.Attr{}
	if e.Over {
		level, message, duration = slog.LevelInfo, "reading resumed", slog.Duration("duration", e.Duration)
	}
	if ctx := context.Background(); l.to.Enabled(ctx, level) {
		l.write(ctx, level, message, slog.String("conn", e.Conn), slog.Uint64("epoch", e.Epoch), slog.String("why", e.Why), slog.Time("since", e.Since), duration)
	}
}

func (l lines) busyRetry(e telemetry.BusyRetry) {
	if ctx := context.Background(); l.to.Enabled(ctx, slog.LevelDebug) {
		l.write(ctx, slog.LevelDebug, "link busy", slog.String("conn", e.Conn), slog.Uint64("epoch", e.Epoch), slog.Int64("id", e.ID), slog.Int("attempts", e.Attempts))
	}
}

func (l lines) missed(e telemetry.Missed) {
	if ctx := context.Background(); l.to.Enabled(ctx, slog.LevelWarn) {
		l.write(ctx, slog.LevelWarn, "probe missed", slog.String("conn", e.Conn), slog.Uint64("epoch", e.Epoch), slog.Int("in_row", e.InRow))
	}
}

func (l lines) stuck(e telemetry.Stuck) {
	if ctx := context.Background(); l.to.Enabled(ctx, slog.LevelWarn) {
		l.write(ctx, slog.LevelWarn, "handler stuck", slog.String("conn", e.Conn), slog.Uint64("epoch", e.Epoch),
			slog.String("method", Cut(e.Method)), textField("name", e.Name))
	}
}

func (l lines) reply(message string, e telemetry.Reply) {
	if ctx := context.Background(); l.to.Enabled(ctx, slog.LevelDebug) {
		l.write(ctx, slog.LevelDebug, message, slog.String("conn", e.Conn), slog.Uint64("epoch", e.Epoch), slog.Int64("id", e.ID), textField("cause", e.Cause))
	}
}

func (l lines) violation(e telemetry.Violation) {
	if ctx := context.Background(); l.to.Enabled(ctx, slog.LevelWarn) {
		l.write(ctx, slog.LevelWarn, "protocol violation", slog.String("conn", e.Conn), slog.Uint64("epoch", e.Epoch),
			textField("reason", string(e.Reason)), textField("shape", e.Shape), slog.Int("size", e.Size), errorField("error", e.Err))
	}
}

func (l lines) shed(e telemetry.Shed) {
	if ctx := context.Background(); l.to.Enabled(ctx, slog.LevelWarn) {
		l.write(ctx, slog.LevelWarn, "notification shed", slog.String("conn", e.Conn), slog.String("method", Cut(e.Method)))
	}
}

func (l lines) panicked(e telemetry.Panic) {
	if ctx := context.Background(); l.to.Enabled(ctx, slog.LevelError) {
		l.write(ctx, slog.LevelError, "panic", slog.String("conn", e.Conn), slog.String("where", Cut(e.Where)),
			slog.String("panic", Cut(fmt.Sprint(e.Value))), slog.String("stack", string(e.Stack)))
	}
}

// errorField returns no field when err is nil.
func errorField(key string, err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.String(key, Cut(err.Error()))
}

// callField returns no field for 0.
func callField(correlation uint64) slog.Attr {
	if correlation == 0 {
		return slog.Attr{}
	}
	return slog.String("call", fmt.Sprintf("%016x", correlation))
}

// textField returns no field for no text.
func textField(key, text string) slog.Attr {
	if text == "" {
		return slog.Attr{}
	}
	return slog.String(key, Cut(text))
}

// MaxText is how many bytes of a text are logged.
const MaxText = 1024

// Cut shortens a text to MaxText bytes, and marks that with an ellipsis. Characters that
// turn the direction of what follows are replaced: they would hide the rest of a line.
func Cut(text string) string {
	if len(text) <= MaxText {
		return straight(text)
	}
	end := MaxText
	for end > MaxText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return straight(text[:end]) + "…"
}

func straight(text string) string {
	if !strings.ContainsFunc(text, turns) {
		return text
	}
	var plain strings.Builder
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if turns(r) {
			plain.WriteRune(unicode.ReplacementChar)
		} else {
			plain.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return plain.String()
}

func turns(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }
