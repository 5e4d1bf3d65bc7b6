package command

import (
	"context"
	"log/slog"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/sloglog"
)

// requestHooks log each request and notification, of clients and to servers, at the level debug. An error may quote arguments and results, so the log
// says how a request has ended, but has no error. At a higher level there is nothing for hooks to log.
func requestHooks(log *slog.Logger, level slog.Level) telemetry.Hooks {
	if level > slog.LevelDebug {
		return telemetry.Hooks{}
	}
	all := sloglog.Hooks(log)
	return telemetry.Hooks{
		RequestStarted:       all.RequestStarted,
		NotificationReceived: all.NotificationReceived,
		RequestStopped: func(ctx context.Context, e telemetry.RequestStopped) {
			e.Err = nil
			all.RequestStopped(ctx, e)
		},
		ServeStopped: func(ctx context.Context, e telemetry.ServeStopped) {
			e.Err = nil
			all.ServeStopped(ctx, e)
		},
	}
}
