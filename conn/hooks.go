package conn

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/bowline-mcp/bowline/conn/internal/hookqueue"
	"github.com/bowline-mcp/bowline/telemetry"
)

// A reporter calls the hooks of a Conn and writes to its log.
type reporter struct {
	options  *Tuning
	name     string // the name of the Conn
	counters *counters
}

// tell calls a hook on this goroutine. If the hook panics, it loses that event.
func (r reporter) tell(hook func()) {
	defer func() {
		if recover() != nil {
			r.counters.droppedEvents.Add(1)
		}
	}()
	hook()
}

// log returns where to log what a hook may take as well, or nil.
func (r reporter) log(hooked bool) *slog.Logger {
	if r.options.Log != nil || hooked {
		return r.options.Log
	}
	return slog.Default()
}

// reportPanic tells the hook and the log of a panic in code of the program. It passes
// each of the two calls to tell.
func (r reporter) reportPanic(where string, panicked *PanicError, tell func(func())) {
	e := telemetry.Panic{Conn: r.name, Where: where, Value: panicked.Value, Stack: panicked.Stack}
	hook := r.options.Hooks.Panic
	if hook != nil {
		tell(func() { hook(e) })
	}
	if log := r.log(hook != nil); log != nil {
		tell(func() { logPanic(log, e) })
	}
}

// ReportPanic does what that of a Conn does, for a panic in a callback that no Conn has to do with.
func (t *Tuning) ReportPanic(where string, panicked *PanicError) {
	r := reporter{t, t.Name, new(counters)}
	r.reportPanic(where, panicked, r.tell)
}

// asPanic returns the panic that an error is, or nil.
func asPanic(err error) *PanicError {
	panicked, _ := err.(*PanicError) //nolint:errorlint // a wrapped panic was already reported where it happened
	return panicked
}

// A hookQueue makes the calls of the hooks of a Conn beside the loop, and limits what is logged.
type hookQueue struct {
	hookqueue.Queue
	violations violations // only the loop uses it
}

// violations limits how many frames that were no messages are logged.
type violations struct {
	next     instant // when the next one may be logged
	unlogged int     // how many were not, since the last that was
}

// betweenViolations is the time between two frames that are logged. A child that prints its
// log to standard output would otherwise fill that of the program.
const betweenViolations = 10 * time.Second

// mayLog reports whether to log a frame that was no message, and counts it if not.
func (v *violations) mayLog(now instant) bool {
	if now < v.next {
		v.unlogged++
		return false
	}
	v.next = now + betweenViolations
	return true
}

// take returns how many were not logged, and forgets that.
func (v *violations) take() (unlogged int) {
	unlogged, v.unlogged = v.unlogged, 0
	return unlogged
}

func logViolation(log *slog.Logger, e telemetry.Violation, unlogged int) {
	more := slog.Attr{}
	if unlogged > 0 {
		more = slog.Int("unlogged", unlogged)
	}
	log.Warn("bowline: a frame is no valid message", named(e.Conn), "direction", "received", "reason", string(e.Reason),
		"shape", e.Shape, "size", e.Size, "error", shorten(e.Err.Error()), more)
}

func logPanic(log *slog.Logger, e telemetry.Panic) {
	log.Error("bowline: panic", named(e.Conn), "where", e.Where, "panic", shorten(fmt.Sprint(e.Value)), "stack", string(e.Stack))
}

func logStuck(log *slog.Logger, e telemetry.Stuck) {
	name := slog.Attr{}
	if e.Name != "" {
		name = slog.String("name", shorten(e.Name))
	}
	log.Warn("bowline: a handler goes on although its context has ended", named(e.Conn), "method", shorten(e.Method), name)
}

// named is the attribute that names a connection; a connection without a name has
// none.
func named(conn string) slog.Attr {
	if conn == "" {
		return slog.Attr{}
	}
	return slog.String("conn", conn)
}
