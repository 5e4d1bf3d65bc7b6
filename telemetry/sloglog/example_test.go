package sloglog_test

import (
	"errors"
	"log/slog"
	"os"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/sloglog"
)

// The hooks are handed to a connection as conn.Tuning.Hooks, which calls them.
// Here the program calls them itself, to show the lines.
func ExampleHooks() {
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	hooks := sloglog.Hooks(slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: noTime})))

	hooks.Violation(telemetry.Violation{Conn: "weather", Epoch: 1, Reason: telemetry.ViolationNotJSON, Shape: "unknown", Size: 12, Err: errors.New("not JSON")})
	hooks.Shed(telemetry.Shed{Conn: "weather", Method: "notifications/message"})
	// Output:
	// level=WARN msg="protocol violation" conn=weather epoch=1 reason="not JSON" shape=unknown size=12 error="not JSON"
	// level=WARN msg="notification shed" conn=weather method=notifications/message
}
