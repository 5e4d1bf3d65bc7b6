package zaplog_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/zaplog"
	"github.com/bowline-mcp/bowline/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fields = map[string]any

// observed returns hooks and what they have written at that level or above.
func observed(level zapcore.Level) (telemetry.Hooks, *observer.ObservedLogs) {
	core, logs := observer.New(level)
	return zaplog.Hooks(zap.New(core)), logs
}

var (
	at        = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	errBroken = errors.New("broken")
)

// TestLines writes one event of each kind, and compares level and fields.
func TestLines(t *testing.T) {
	for _, line := range []struct {
		name  string
		write func(telemetry.Hooks)
		level zapcore.Level
		want  fields
	}{
		{"ready", func(h telemetry.Hooks) {
			h.Transition(telemetry.Transition{Conn: "a", Epoch: 2, From: "initializing", To: "ready", Kind: "handshaken", At: at})
		}, zap.InfoLevel, fields{"conn": "a", "epoch": uint64(2), "from": "initializing", "to": "ready", "kind": "handshaken", "at": at}},
		{"backoff", func(h telemetry.Hooks) {
			h.Transition(telemetry.Transition{Conn: "a", Epoch: 2, From: "ready", To: "backoff", Kind: "link broken",
				Reason: errBroken, At: at, NextAttempt: at.Add(time.Second), Dropped: 3})
		}, zap.WarnLevel, fields{"conn": "a", "epoch": uint64(2), "from": "ready", "to": "backoff", "kind": "link broken",
			"reason": "broken", "at": at, "next_attempt": at.Add(time.Second), "dropped": uint64(3)}},
		{"ready again", func(h telemetry.Hooks) {
			h.Gap(telemetry.Gap{Conn: "a", Lost: 1, Epoch: 3, Kind: "exited", Reason: errBroken, Calls: 2, Duration: time.Second})
		}, zap.InfoLevel, fields{"conn": "a", "lost": uint64(1), "epoch": uint64(3), "kind": "exited", "reason": "broken",
			"calls": int64(2), "duration": time.Second}},
		{"request started", func(h telemetry.Hooks) {
			h.RequestStarted(t.Context(), telemetry.RequestStarted{Conn: "a", Method: "ping", ID: 7, At: at})
		}, zap.DebugLevel, fields{"conn": "a", "method": "ping", "id": int64(7)}},
		{"request retried", func(h telemetry.Hooks) {
			h.Retried(t.Context(), telemetry.Retried{Conn: "a", Method: "ping", ID: 7, Epoch: 1, Attempt: 2, Cause: "link lost", Delivery: "unknown", Err: errBroken})
		}, zap.InfoLevel, fields{"conn": "a", "method": "ping", "id": int64(7), "epoch": uint64(1), "attempt": int64(2),
			"cause": "link lost", "delivery": "unknown", "error": "broken"}},
		{"request answered", func(h telemetry.Hooks) {
			h.RequestStopped(t.Context(), telemetry.RequestStopped{Conn: "a", Method: "ping", ID: 7, Attempts: 1, Cause: "answered", Delivery: "sent", Duration: time.Second})
		}, zap.DebugLevel, fields{"conn": "a", "method": "ping", "id": int64(7), "attempts": int64(1), "cause": "answered", "delivery": "sent",
			"duration": time.Second}},
		{"request failed", func(h telemetry.Hooks) {
			h.RequestStopped(t.Context(), telemetry.RequestStopped{Conn: "a", Method: "ping", ID: 7, Attempts: 3, Cause: "link lost", Delivery: "unknown", Err: errBroken})
		}, zap.DebugLevel, fields{"conn": "a", "method": "ping", "id": int64(7), "attempts": int64(3), "cause": "link lost", "delivery": "unknown",
			"duration": time.Duration(0), "error": "broken"}},
		{"request of a tool", func(h telemetry.Hooks) {
			h.RequestStarted(t.Context(), telemetry.RequestStarted{Conn: "a", Method: "tools/call", Target: "add", ID: 7})
		}, zap.DebugLevel, fields{"conn": "a", "method": "tools/call", "target": "add", "id": int64(7)}},
		{"request served", func(h telemetry.Hooks) {
			h.ServeStopped(t.Context(), telemetry.ServeStopped{Conn: "a", Epoch: 1, Method: "tools/call", Target: "add", Outcome: telemetry.ServeAnswered,
				Queued: time.Second, Duration: time.Minute})
		}, zap.DebugLevel, fields{"conn": "a", "epoch": uint64(1), "method": "tools/call", "target": "add", "outcome": "answered",
			"queued": time.Second, "duration": time.Minute}},
		{"request refused", func(h telemetry.Hooks) {
			h.ServeStopped(t.Context(), telemetry.ServeStopped{Conn: "a", Epoch: 1, Method: "x", Outcome: telemetry.ServeFailed, Code: -32601, Err: errBroken})
		}, zap.DebugLevel, fields{"conn": "a", "epoch": uint64(1), "method": "x", "outcome": "failed", "code": int64(-32601),
			"queued": time.Duration(0), "duration": time.Duration(0), "error": "broken"}},
		{"notification received", func(h telemetry.Hooks) {
			h.NotificationReceived(telemetry.NotificationReceived{Conn: "a", Epoch: 1, Method: "log", Size: 5})
		}, zap.DebugLevel, fields{"conn": "a", "epoch": uint64(1), "method": "log", "size": int64(5)}},
		{"reading paused", func(h telemetry.Hooks) {
			h.Stalled(telemetry.Stalled{Conn: "a", Epoch: 1, Why: "handlers", Since: at})
		}, zap.WarnLevel, fields{"conn": "a", "epoch": uint64(1), "why": "handlers", "since": at}},
		{"reading resumed", func(h telemetry.Hooks) {
			h.Stalled(telemetry.Stalled{Conn: "a", Epoch: 1, Why: "handlers", Since: at, Over: true, Duration: time.Second})
		}, zap.InfoLevel, fields{"conn": "a", "epoch": uint64(1), "why": "handlers", "since": at, "duration": time.Second}},
		{"link busy", func(h telemetry.Hooks) { h.BusyRetry(telemetry.BusyRetry{Conn: "a", Epoch: 1, ID: 4, Attempts: 2}) },
			zap.DebugLevel, fields{"conn": "a", "epoch": uint64(1), "id": int64(4), "attempts": int64(2)}},
		{"probe missed", func(h telemetry.Hooks) { h.Missed(telemetry.Missed{Conn: "a", Epoch: 1, InRow: 2}) },
			zap.WarnLevel, fields{"conn": "a", "epoch": uint64(1), "in_row": int64(2)}},
		{"handler stuck", func(h telemetry.Hooks) {
			h.Stuck(telemetry.Stuck{Conn: "a", Epoch: 1, Method: "tools/call", Name: "sum"})
		},
			zap.WarnLevel, fields{"conn": "a", "epoch": uint64(1), "method": "tools/call", "name": "sum"}},
		{"late reply", func(h telemetry.Hooks) {
			h.LateReply(telemetry.Reply{Conn: "a", Epoch: 1, ID: 9, Cause: "timed out"})
		}, zap.DebugLevel, fields{"conn": "a", "epoch": uint64(1), "id": int64(9), "cause": "timed out"}},
		{"unknown reply", func(h telemetry.Hooks) { h.UnknownReply(telemetry.Reply{Conn: "a", Epoch: 1, ID: 9}) },
			zap.DebugLevel, fields{"conn": "a", "epoch": uint64(1), "id": int64(9)}},
		{"protocol violation", func(h telemetry.Hooks) { h.Violation(telemetry.Violation{Conn: "a", Epoch: 1, Err: errBroken}) },
			zap.WarnLevel, fields{"conn": "a", "epoch": uint64(1), "error": "broken"}},
		{"notification shed", func(h telemetry.Hooks) { h.Shed(telemetry.Shed{Conn: "a", Method: "log"}) },
			zap.WarnLevel, fields{"conn": "a", "method": "log"}},
		{"panic", func(h telemetry.Hooks) {
			h.Panic(telemetry.Panic{Conn: "a", Where: "tools/call", Value: errBroken, Stack: []byte("main.go:1")})
		}, zap.ErrorLevel, fields{"conn": "a", "where": "tools/call", "panic": "broken", "stack": "main.go:1"}},
	} {
		t.Run(line.name, func(t *testing.T) {
			hooks, logs := observed(zap.DebugLevel)
			line.write(hooks)
			entries := logs.All()
			if len(entries) != 1 || entries[0].Level != line.level {
				t.Fatalf("wrote %v, want one line at %s", entries, line.level)
			}
			if diff := cmp.Diff(line.want, entries[0].ContextMap()); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryHookWritesALine: none is forgotten.
func TestEveryHookWritesALine(t *testing.T) {
	hooks, logs := observed(zap.DebugLevel)
	value := reflect.ValueOf(hooks)
	for i := range value.NumField() {
		hook := value.Field(i)
		var args []reflect.Value
		for n := range hook.Type().NumIn() {
			args = append(args, reflect.Zero(hook.Type().In(n)))
		}
		hook.Call(args)
		if logs.Len() != i+1 {
			t.Fatalf("%s: there are %d lines, want %d", value.Type().Field(i).Name, logs.Len(), i+1)
		}
	}
}

// TestTheContextOfARequestIsLeftAlone: what comes behind finds its own there.
func TestTheContextOfARequestIsLeftAlone(t *testing.T) {
	hooks, _ := observed(zap.DebugLevel)
	if ctx := hooks.RequestStarted(t.Context(), telemetry.RequestStarted{}); ctx != t.Context() {
		t.Errorf("got %v", ctx)
	}
}

// TestLateAndUnknownAreToldApart: the message is what differs.
func TestLateAndUnknownAreToldApart(t *testing.T) {
	hooks, logs := observed(zap.DebugLevel)
	hooks.LateReply(telemetry.Reply{})
	hooks.UnknownReply(telemetry.Reply{})
	if late, unknown := logs.FilterMessage("late reply").Len(), logs.FilterMessage("unknown reply").Len(); late != 1 || unknown != 1 {
		t.Errorf("%d late and %d unknown, want one each", late, unknown)
	}
}

// TestClosing pins which reasons of package conn are good ends.
func TestClosing(t *testing.T) {
	for kind, level := range map[conn.ReasonKind]zapcore.Level{
		conn.Stopped: zap.InfoLevel, conn.Drained: zap.InfoLevel, conn.PeerEnded: zap.InfoLevel,
		conn.LinkBroken: zap.WarnLevel, conn.Exited: zap.WarnLevel, conn.Malformed: zap.WarnLevel, conn.OpenFailed: zap.WarnLevel,
	} {
		hooks, logs := observed(zap.DebugLevel)
		hooks.Transition(telemetry.Transition{To: string(conn.Closing), Kind: string(kind)})
		if got := logs.All()[0].Level; got != level {
			t.Errorf("closing because %s is logged at %s, want %s", kind, got, level)
		}
	}
}

// TestHostileText: no text of a peer's makes a long line, or an invalid one.
func TestHostileText(t *testing.T) {
	hooks, logs := observed(zap.DebugLevel)
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
	for _, entry := range logs.All() {
		for key, value := range entry.ContextMap() {
			text := fmt.Sprint(value)
			if len(text) > 1100 || strings.HasPrefix(text, "x") && !utf8.ValidString(text) {
				t.Errorf("%s: %s has %d bytes", entry.Message, key, len(text))
			}
		}
	}
}

// TestDisabledLevels writes nothing, and does not look at the event.
func TestDisabledLevels(t *testing.T) {
	hooks, logs := observed(zap.ErrorLevel)
	hooks.Gap(telemetry.Gap{Reason: unreadable{t}})
	hooks.Retried(t.Context(), telemetry.Retried{Err: unreadable{t}})
	hooks.RequestStopped(t.Context(), telemetry.RequestStopped{Err: unreadable{t}})
	hooks.Violation(telemetry.Violation{Err: unreadable{t}})
	hooks.Transition(telemetry.Transition{To: "backoff", Reason: unreadable{t}})
	if logs.Len() != 0 {
		t.Errorf("wrote %v", logs.All())
	}
}

// An unreadable error must not be read.
type unreadable struct{ t *testing.T }

func (e unreadable) Error() string { e.t.Error("the error was read"); return "" }

// A refusing transport opens no link.
type refusing struct{}

func (refusing) Open(context.Context) (transport.Link, error) { return nil, errBroken }

// TestOfAConnection: the hooks fit the connection they are made for.
func TestOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks, logs := observed(zap.InfoLevel)
		c := conn.New(refusing{}, conn.Options{Name: "weather", Hooks: hooks})
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		synctest.Wait()
		c.Stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		type line struct {
			level    zapcore.Level
			to, kind any
		}
		var got []line
		for _, entry := range logs.FilterField(zap.String("conn", "weather")).All() {
			told := entry.ContextMap()
			got = append(got, line{entry.Level, told["to"], told["kind"]})
		}
		want := []line{{zap.WarnLevel, "backoff", "open failed"}, {zap.InfoLevel, "closing", "stopped"}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(line{})); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	})
}
