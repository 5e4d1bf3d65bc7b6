package lines_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/sloglog"
	"github.com/bowline-mcp/bowline/telemetry/zaplog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fields = map[string]any

// A line is what a logger was given.
type line struct {
	level   slog.Level
	message string
	fields  fields
}

// eachLogger runs the test with hooks that write to each library, at that level and
// above. written returns what they have written so far.
func eachLogger(t *testing.T, level slog.Level, test func(t *testing.T, hooks telemetry.Hooks, written func() []line)) {
	t.Run("zap", func(t *testing.T) {
		levels := map[slog.Level]zapcore.Level{
			slog.LevelDebug: zap.DebugLevel, slog.LevelInfo: zap.InfoLevel, slog.LevelWarn: zap.WarnLevel, slog.LevelError: zap.ErrorLevel,
		}
		core, logs := observer.New(levels[level])
		test(t, zaplog.Hooks(zap.New(core)), func() []line {
			var all []line
			for _, entry := range logs.All() {
				for s, z := range levels {
					if z == entry.Level {
						all = append(all, line{s, entry.Message, entry.ContextMap()})
					}
				}
			}
			return all
		})
	})
	t.Run("slog", func(t *testing.T) {
		h := &recorder{level: level}
		test(t, sloglog.Hooks(slog.New(h)), func() []line { return h.lines })
	})
}

// A recorder is a slog.Handler that keeps lines.
type recorder struct {
	level slog.Level
	lines []line
}

func (r *recorder) Enabled(_ context.Context, level slog.Level) bool { return level >= r.level }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler               { return r }
func (r *recorder) WithGroup(string) slog.Handler                    { return r }

func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	told := fields{}
	record.Attrs(func(a slog.Attr) bool {
		told[a.Key] = a.Value.Any()
		return true
	})
	r.lines = append(r.lines, line{record.Level, record.Message, told})
	return nil
}

var (
	at        = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	errBroken = errors.New("broken")
)

// TestLines writes one event of each kind, and compares level and fields.
func TestLines(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced := telemetry.WithTrace(t.Context(), telemetry.Trace{Parent: parent})
	for _, event := range []struct {
		name  string
		write func(telemetry.Hooks)
		level slog.Level
		want  fields
	}{
		{"ready", func(h telemetry.Hooks) {
			h.Transition(telemetry.Transition{Conn: "a", Epoch: 2, From: "initializing", To: "ready", Kind: "handshaken", At: at})
		}, slog.LevelInfo, fields{"conn": "a", "epoch": uint64(2), "from": "initializing", "to": "ready", "kind": "handshaken", "at": at}},
		{"backoff", func(h telemetry.Hooks) {
			h.Transition(telemetry.Transition{Conn: "a", Epoch: 2, From: "ready", To: "backoff", Kind: "link broken",
				Reason: errBroken, At: at, NextAttempt: at.Add(time.Second), Dropped: 3})
		}, slog.LevelWarn, fields{"conn": "a", "epoch": uint64(2), "from": "ready", "to": "backoff", "kind": "link broken",
			"reason": "broken", "at": at, "next_attempt": at.Add(time.Second), "dropped": uint64(3)}},
		{"back", func(h telemetry.Hooks) {
			h.Gap(telemetry.Gap{Conn: "a", Lost: 1, Epoch: 3, Kind: "exited", Reason: errBroken, Calls: 2, Duration: time.Second})
		}, slog.LevelInfo, fields{"conn": "a", "lost": uint64(1), "epoch": uint64(3), "kind": "exited", "reason": "broken",
			"calls": int64(2), "duration": time.Second}},
		{"request started", func(h telemetry.Hooks) {
			h.RequestStarted(t.Context(), telemetry.RequestStarted{Conn: "a", Method: "ping", ID: 7, At: at})
		}, slog.LevelDebug, fields{"conn": "a", "method": "ping", "id": int64(7)}},
		{"request retried", func(h telemetry.Hooks) {
			h.Retried(t.Context(), telemetry.Retried{Conn: "a", Method: "ping", ID: 7, Epoch: 1, Attempt: 2, Cause: "link lost", Delivery: "unknown", Err: errBroken})
		}, slog.LevelInfo, fields{"conn": "a", "method": "ping", "id": int64(7), "epoch": uint64(1), "attempt": int64(2),
			"cause": "link lost", "delivery": "unknown", "error": "broken"}},
		{"request answered", func(h telemetry.Hooks) {
			h.RequestStopped(t.Context(), telemetry.RequestStopped{Conn: "a", Method: "ping", ID: 7, Attempts: 1, Cause: "answered", Delivery: "sent", Duration: time.Second})
		}, slog.LevelDebug, fields{"conn": "a", "method": "ping", "id": int64(7), "attempts": int64(1), "cause": "answered", "delivery": "sent",
			"duration": time.Second}},
		{"request failed", func(h telemetry.Hooks) {
			h.RequestStopped(t.Context(), telemetry.RequestStopped{Conn: "a", Method: "ping", ID: 7, Attempts: 3, Cause: "link lost", Delivery: "unknown", Err: errBroken})
		}, slog.LevelDebug, fields{"conn": "a", "method": "ping", "id": int64(7), "attempts": int64(3), "cause": "link lost", "delivery": "unknown",
			"duration": time.Duration(0), "error": "broken"}},
		{"request of a tool", func(h telemetry.Hooks) {
			h.RequestStarted(t.Context(), telemetry.RequestStarted{Conn: "a", Method: "tools/call", Target: "add", ID: 7})
		}, slog.LevelDebug, fields{"conn": "a", "method": "tools/call", "target": "add", "id": int64(7)}},
		{"request served", func(h telemetry.Hooks) {
			h.ServeStopped(t.Context(), telemetry.ServeStopped{Conn: "a", Epoch: 1, Method: "tools/call", Target: "add", Outcome: telemetry.ServeAnswered,
				Queued: time.Second, Duration: time.Minute})
		}, slog.LevelDebug, fields{"conn": "a", "epoch": uint64(1), "method": "tools/call", "target": "add", "outcome": "answered",
			"queued": time.Second, "duration": time.Minute}},
		{"request refused", func(h telemetry.Hooks) {
			h.ServeStopped(t.Context(), telemetry.ServeStopped{Conn: "a", Epoch: 1, Method: "x", Outcome: telemetry.ServeFailed, Code: -32601, Err: errBroken})
		}, slog.LevelDebug, fields{"conn": "a", "epoch": uint64(1), "method": "x", "outcome": "failed", "code": int64(-32601),
			"queued": time.Duration(0), "duration": time.Duration(0), "error": "broken"}},
		{"notification received", func(h telemetry.Hooks) {
			h.NotificationReceived(telemetry.NotificationReceived{Conn: "a", Epoch: 1, Method: "log", Size: 5})
		}, slog.LevelDebug, fields{"conn": "a", "epoch": uint64(1), "method": "log", "size": int64(5)}},
		{"reading paused", func(h telemetry.Hooks) {
			h.Stalled(telemetry.Stalled{Conn: "a", Epoch: 1, Why: "handlers", Since: at})
		}, slog.LevelWarn, fields{"conn": "a", "epoch": uint64(1), "why": "handlers", "since": at}},
		{"reading resumed", func(h telemetry.Hooks) {
			h.Stalled(telemetry.Stalled{Conn: "a", Epoch: 1, Why: "handlers", Since: at, Over: true, Duration: time.Second})
		}, slog.LevelInfo, fields{"conn": "a", "epoch": uint64(1), "why": "handlers", "since": at, "duration": time.Second}},
		{"link busy", func(h telemetry.Hooks) { h.BusyRetry(telemetry.BusyRetry{Conn: "a", Epoch: 1, ID: 4, Attempts: 2}) },
			slog.LevelDebug, fields{"conn": "a", "epoch": uint64(1), "id": int64(4), "attempts": int64(2)}},
		{"probe missed", func(h telemetry.Hooks) { h.Missed(telemetry.Missed{Conn: "a", Epoch: 1, InRow: 2}) },
			slog.LevelWarn, fields{"conn": "a", "epoch": uint64(1), "in_row": int64(2)}},
		{"handler stuck", func(h telemetry.Hooks) {
			h.Stuck(telemetry.Stuck{Conn: "a", Epoch: 1, Method: "tools/call", Name: "sum"})
		},
			slog.LevelWarn, fields{"conn": "a", "epoch": uint64(1), "method": "tools/call", "name": "sum"}},
		{"late reply", func(h telemetry.Hooks) {
			h.LateReply(telemetry.Reply{Conn: "a", Epoch: 1, ID: 9, Cause: "timed out"})
		}, slog.LevelDebug, fields{"conn": "a", "epoch": uint64(1), "id": int64(9), "cause": "timed out"}},
		{"unknown reply", func(h telemetry.Hooks) { h.UnknownReply(telemetry.Reply{Conn: "a", Epoch: 1, ID: 9}) },
			slog.LevelDebug, fields{"conn": "a", "epoch": uint64(1), "id": int64(9)}},
		{"protocol violation", func(h telemetry.Hooks) {
			h.Violation(telemetry.Violation{Conn: "a", Epoch: 1, Reason: telemetry.ViolationNotJSON, Shape: "unknown", Size: 9, Err: errBroken})
		},
			slog.LevelWarn, fields{"conn": "a", "epoch": uint64(1), "reason": "not JSON", "shape": "unknown", "size": int64(9), "error": "broken"}},
		{"notification shed", func(h telemetry.Hooks) { h.Shed(telemetry.Shed{Conn: "a", Method: "log"}) },
			slog.LevelWarn, fields{"conn": "a", "method": "log"}},
		{"panic", func(h telemetry.Hooks) {
			h.Panic(telemetry.Panic{Conn: "a", Where: "tools/call", Value: errBroken, Stack: []byte("main.go:1")})
		}, slog.LevelError, fields{"conn": "a", "where": "tools/call", "panic": "broken", "stack": "main.go:1"}},
		{"request of a trace", func(h telemetry.Hooks) {
			h.RequestStarted(traced, telemetry.RequestStarted{Conn: "a", Method: "ping", ID: 7})
		}, slog.LevelDebug, fields{"conn": "a", "method": "ping", "id": int64(7),
			"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}},
		{"request of a trace that is none", func(h telemetry.Hooks) {
			h.RequestStarted(telemetry.WithTrace(t.Context(), telemetry.Trace{Parent: "00-0-0-0"}), telemetry.RequestStarted{Conn: "a", Method: "ping", ID: 7})
		}, slog.LevelDebug, fields{"conn": "a", "method": "ping", "id": int64(7)}},
	} {
		t.Run(event.name, func(t *testing.T) {
			eachLogger(t, slog.LevelDebug, func(t *testing.T, hooks telemetry.Hooks, written func() []line) {
				event.write(hooks)
				got := written()
				if len(got) != 1 || got[0].level != event.level {
					t.Fatalf("wrote %v, want one line at %s", got, event.level)
				}
				if diff := cmp.Diff(event.want, got[0].fields); diff != "" {
					t.Errorf("fields (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestEveryHookWritesALine: none is forgotten.
func TestEveryHookWritesALine(t *testing.T) {
	eachLogger(t, slog.LevelDebug, func(t *testing.T, hooks telemetry.Hooks, written func() []line) {
		value := reflect.ValueOf(hooks)
		for i := range value.NumField() {
			hook := value.Field(i)
			var args []reflect.Value
			for n := range hook.Type().NumIn() {
				args = append(args, reflect.Zero(hook.Type().In(n)))
			}
			hook.Call(args)
			if len(written()) != i+1 {
				t.Fatalf("%s: there are %d lines, want %d", value.Type().Field(i).Name, len(written()), i+1)
			}
		}
	})
}

// TestTheContextOfARequestIsLeftAlone: what comes behind finds its own there.
func TestTheContextOfARequestIsLeftAlone(t *testing.T) {
	eachLogger(t, slog.LevelDebug, func(t *testing.T, hooks telemetry.Hooks, _ func() []line) {
		if ctx := hooks.RequestStarted(t.Context(), telemetry.RequestStarted{}); ctx != t.Context() {
			t.Errorf("got %v", ctx)
		}
	})
}

// TestBackIsOneLine: the message of a gap says how long it was.
//
// Guarantees: G-0024.13
func TestBackIsOneLine(t *testing.T) {
	eachLogger(t, slog.LevelInfo, func(t *testing.T, hooks telemetry.Hooks, written func() []line) {
		hooks.Gap(telemetry.Gap{Lost: 4, Epoch: 7, Duration: 2100 * time.Millisecond})
		if got := written(); len(got) != 1 || got[0].message != "back after 2.1 s, 3 attempts" || got[0].level != slog.LevelInfo {
			t.Errorf("got %+v, want one line at INFO", got)
		}
	})
}

// TestLateAndUnknownAreToldApart: the message is what differs.
func TestLateAndUnknownAreToldApart(t *testing.T) {
	eachLogger(t, slog.LevelDebug, func(t *testing.T, hooks telemetry.Hooks, written func() []line) {
		hooks.LateReply(telemetry.Reply{})
		hooks.UnknownReply(telemetry.Reply{})
		if got := written(); len(got) != 2 || got[0].message != "late reply" || got[1].message != "unknown reply" {
			t.Errorf("wrote %v, want a late and an unknown reply", got)
		}
	})
}

// TestHostileText: no text of a peer's makes a long line, or an invalid one.
func TestHostileText(t *testing.T) {
	eachLogger(t, slog.LevelDebug, func(t *testing.T, hooks telemetry.Hooks, written func() []line) {
		long := "x" + strings.Repeat("é", 1<<20)
		hooks.Shed(telemetry.Shed{Method: long})
		hooks.Panic(telemetry.Panic{Where: long, Value: long})
		hooks.Violation(telemetry.Violation{Err: errors.New(long)})
		hooks.Transition(telemetry.Transition{Reason: errors.New(long)})
		hooks.Gap(telemetry.Gap{Reason: errors.New(long)})
		hooks.Retried(t.Context(), telemetry.Retried{Err: errors.New(long)})
		hooks.RequestStopped(t.Context(), telemetry.RequestStopped{Err: errors.New(long)})
		hooks.NotificationReceived(telemetry.NotificationReceived{Method: long})
		hooks.Shed(telemetry.Shed{Method: strings.Repeat("\x80", 4096)})
		hooks.Shed(telemetry.Shed{Method: "left\u202eright\x80" + strings.Repeat("\x80", 4096)})
		for _, entry := range written() {
			for key, value := range entry.fields {
				text := fmt.Sprint(value)
				if strings.ContainsRune(text, '\u202e') {
					t.Errorf("%s: %s turns the direction of the line", entry.message, key)
				}
				if len(text) > 1100 || strings.HasPrefix(text, "x") && !utf8.ValidString(text) {
					t.Errorf("%s: %s has %d bytes", entry.message, key, len(text))
				}
			}
		}
	})
}

// TestDisabledLevels writes nothing, and does not look at the event.
func TestDisabledLevels(t *testing.T) {
	eachLogger(t, slog.LevelError, func(t *testing.T, hooks telemetry.Hooks, written func() []line) {
		hooks.Gap(telemetry.Gap{Reason: unreadable{t}})
		hooks.Retried(t.Context(), telemetry.Retried{Err: unreadable{t}})
		hooks.RequestStopped(t.Context(), telemetry.RequestStopped{Err: unreadable{t}})
		hooks.Violation(telemetry.Violation{Err: unreadable{t}})
		hooks.Transition(telemetry.Transition{To: "backoff", Reason: unreadable{t}})
		if len(written()) != 0 {
			t.Errorf("wrote %v", written())
		}
	})
}

// An unreadable error must not be read.
type unreadable struct{ t *testing.T }

func (e unreadable) Error() string { e.t.Error("the error was read"); return "" }
