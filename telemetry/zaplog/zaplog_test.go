package zaplog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

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

// observed returns hooks and what they have written at that level or above.
func observed(level zapcore.Level) (telemetry.Hooks, *observer.ObservedLogs) {
	core, logs := observer.New(level)
	return zaplog.Hooks(zap.New(core)), logs
}

// A line says nothing of where in Bowline it was written, whatever the program's logger adds to its own lines.
func TestLinesHaveNoCaller(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	logger := zap.New(core, zap.Development(), zap.AddCaller(), zap.AddStacktrace(zap.DebugLevel))
	zaplog.Hooks(logger).LateReply(telemetry.Reply{Conn: "weather"})
	child := zaplog.Stderr(logger)
	if _, err := child.Write([]byte("line\n")); err != nil {
		t.Fatal(err)
	}
	if err := child.Close(); err != nil {
		t.Fatal(err)
	}
	logger.Info("own")
	for i, entry := range logs.All() {
		if own := i == 2; entry.Caller.Defined != own || (entry.Stack != "") != own {
			t.Errorf("%q has the caller %q and the stack %q", entry.Message, entry.Caller, entry.Stack)
		}
	}
	if logs.Len() != 3 {
		t.Errorf("there are %d lines, want 3", logs.Len())
	}
}

var errBroken = errors.New("broken")

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

// A refusing transport opens no link.
type refusing struct{}

func (refusing) Open(context.Context) (transport.Link, error) { return nil, errBroken }

// TestOfAConnection: the hooks fit the connection they are made for.
func TestOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks, logs := observed(zap.InfoLevel)
		c := conn.New(refusing{}, conn.Options{Tuning: conn.Tuning{Name: "weather", Hooks: hooks}})
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
