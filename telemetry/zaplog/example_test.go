package zaplog_test

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/zaplog"
)

// The hooks are handed to a connection as conn.Tuning.Hooks, which calls them.
// Here the program calls them itself, to show the lines.
func ExampleHooks() {
	logger := zap.NewExample()
	hooks := zaplog.Hooks(logger)

	hooks.Violation(telemetry.Violation{Conn: "weather", Epoch: 1, Reason: telemetry.ViolationNotJSON, Shape: "unknown", Size: 12, Err: errors.New("not JSON")})
	hooks.LateReply(telemetry.Reply{Conn: "weather", Epoch: 2, ID: 41})
	// Output:
	// {"level":"warn","msg":"protocol violation","conn":"weather","epoch":1,"reason":"not JSON","shape":"unknown","size":12,"error":"not JSON"}
	// {"level":"debug","msg":"late reply","conn":"weather","epoch":2,"id":41}
}

// A client whose connections log with zap.
func ExampleHooks_client() {
	logger := zap.Must(zap.NewProduction())
	defer logger.Sync()
	c := client.New(protocol.Implementation{Name: "program", Version: "1.0"}, client.Options{
		Conn: conn.Tuning{Name: "weather", Hooks: zaplog.Hooks(logger)},
	})
	defer c.Close(context.Background())
}
