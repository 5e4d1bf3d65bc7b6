// Package sloglog logs telemetry events with log/slog, one structured line for each
// event.
//
//	o := client.Options{Conn: conn.Tuning{Hooks: sloglog.Hooks(slog.Default())}}
//
// The lines, their levels and their fields are the same as those of telemetry/zaplog.
package sloglog

import (
	"context"
	"log/slog"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/internal/lines"
)

// Hooks returns hooks that write to the logger. If the level of a line is disabled, only
// the check of the level takes time. For lines about a request, the logger's handler gets
// the context of the request.
func Hooks(logger *slog.Logger) telemetry.Hooks { return lines.Hooks(sink{logger}) }

// sink writes lines with slog.
type sink struct{ logger *slog.Logger }

func (s sink) Enabled(ctx context.Context, level slog.Level) bool {
	return s.logger.Enabled(ctx, level)
}

func (s sink) Write(ctx context.Context, level slog.Level, message string, attrs []slog.Attr) {
	s.logger.LogAttrs(ctx, level, message, attrs...)
}
