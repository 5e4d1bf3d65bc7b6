package zaplog

import (
	"context"
	"log/slog"
	"slices"

	"go.uber.org/zap/zapcore"
)

// Core returns a zapcore.Core that passes every entry on to a slog.Logger. With
// server.Logger or Session.Logger, a program that uses zap can log to its MCP client:
//
//	log := zap.New(zapcore.NewTee(own.Core(), zaplog.Core(ctx, server.Logger(ctx))))
//
// The slog.Logger decides which levels are enabled. For an MCP client, DPanic becomes
// "critical", Panic "alert" and Fatal "emergency". Fields become attributes. If the zap
// logger has a name, it becomes the attribute "logger". Callers and stacks are left out,
// because a client should not see details of the program. Sync does nothing. The
// slog.Handler gets ctx.
func Core(ctx context.Context, to *slog.Logger) zapcore.Core { return &core{ctx: ctx, to: to} }

type core struct {
	ctx    context.Context
	to     *slog.Logger
	fields []zapcore.Field // the fields given to With
}

// Enabled implements zapcore.LevelEnabler.
func (c *core) Enabled(level zapcore.Level) bool { return c.to.Enabled(c.ctx, slogLevel(level)) }

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.ctx, c.to, append(slices.Clone(c.fields), fields...)}
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

// Write implements zapcore.Core.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	members := zapcore.NewMapObjectEncoder()
	for _, field := range c.fields {
		field.AddTo(members)
	}
	for _, field := range fields {
		field.AddTo(members)
	}
	if e.LoggerName != "" {
		members.Fields["logger"] = e.LoggerName
	}
	record := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, 0)
	for name, value := range members.Fields {
		record.AddAttrs(slog.Any(name, value))
	}
	return c.to.Handler().Handle(c.ctx, record)
}

// Sync implements zapcore.Core.
func (*core) Sync() error { return nil }

// slogLevel puts the levels of zap that slog lacks where package server looks for
// those of MCP.
func slogLevel(level zapcore.Level) slog.Level {
	switch {
	case level < zapcore.InfoLevel:
		return slog.LevelDebug
	case level < zapcore.WarnLevel:
		return slog.LevelInfo
	case level < zapcore.ErrorLevel:
		return slog.LevelWarn
	case level < zapcore.DPanicLevel:
		return slog.LevelError
	case level < zapcore.PanicLevel:
		return slog.LevelError + 4
	case level < zapcore.FatalLevel:
		return slog.LevelError + 8
	default:
		return slog.LevelError + 12
	}
}
