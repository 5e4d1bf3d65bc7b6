package zaplog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/mcptest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/zaplog"
)

// A tool that logs with zap logs to its client, in both eras.
func TestCoreLogsToTheClient(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "log"}, func(ctx context.Context, _ struct{}) (string, error) {
		var own bytes.Buffer
		mine := zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg"}), zapcore.AddSync(&own), zap.DebugLevel)
		log := zap.New(zapcore.NewTee(mine, zaplog.Core(ctx, server.Logger(ctx)))).Named("worker").With(zap.Int("job", 7))
		log.Debug("quiet")
		log.Warn("slow", zap.Duration("took", time.Second), zap.Error(errors.New("oh")), zap.Namespace("in"), zap.Strings("tags", []string{"a"}))
		log.DPanic("odd")
		return own.String(), log.Sync()
	})
	type message struct {
		level protocol.LogLevel
		data  string
	}
	messages := make(chan message, 10)
	o := mcptest.Options{Client: client.Options{LogLevel: protocol.LogInfo, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		if m, ok := e.(*client.LogMessage); ok {
			var data map[string]any
			if err := json.Unmarshal(m.Data, &data); err != nil {
				t.Error(err)
			}
			sorted, err := json.Marshal(data)
			if err != nil {
				t.Error(err)
			}
			messages <- message{m.Level, string(sorted)}
		}
	}}}
	mcptest.Eras(t, s, o, func(t *testing.T, session *client.Session) {
		if session.Server().ProtocolVersion != protocol.Latest {
			if err := session.SetLogLevel(t.Context(), protocol.LogInfo); err != nil {
				t.Fatal(err)
			}
		}
		own, err := client.Call[string](t.Context(), session, "log", nil)
		if err != nil || !bytes.Contains([]byte(own), []byte("quiet")) {
			t.Errorf("our own log is %s, %v", own, err)
		}
		got := []message{<-messages, <-messages}
		if want := []message{
			{protocol.LogWarning, `{"error":"oh","in":{"tags":["a"]},"job":7,"logger":"worker","msg":"slow","took":"1s"}`},
			{protocol.LogCritical, `{"job":7,"logger":"worker","msg":"odd"}`},
		}; !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

func TestLevelsOfTheCore(t *testing.T) {
	var levels []slog.Level
	to := slog.New(levelsOf{&levels})
	c := zaplog.Core(t.Context(), to)
	for level := zapcore.DebugLevel; level <= zapcore.FatalLevel; level++ {
		if err := c.Write(zapcore.Entry{Level: level}, nil); err != nil {
			t.Error(err)
		}
	}
	if want := []slog.Level{-4, 0, 4, 8, 12, 16, 20}; !slices.Equal(levels, want) {
		t.Errorf("got %d, want %d", levels, want)
	}
	if c.Enabled(zapcore.DebugLevel) || !c.Enabled(zapcore.InfoLevel) {
		t.Error("the slog.Logger decides which entries it takes")
	}
}

type levelsOf struct{ all *[]slog.Level }

func (l levelsOf) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l levelsOf) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l levelsOf) WithGroup(string) slog.Handler                    { return l }
func (l levelsOf) Handle(_ context.Context, r slog.Record) error {
	*l.all = append(*l.all, r.Level)
	return nil
}
