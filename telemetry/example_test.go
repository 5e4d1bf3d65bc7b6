package telemetry_test

import (
	"context"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// counting are Hooks of a program of its own: they count the calls that failed.
func counting(failed *int) telemetry.Hooks {
	return telemetry.Hooks{RequestStopped: func(_ context.Context, e telemetry.RequestStopped) {
		if e.Err != nil {
			*failed++
		}
	}}
}

// The hooks are handed to a connection as conn.Tuning.Hooks, which calls them.
// Here the program calls them itself, to show what they do.
func ExampleHooks() {
	hooks := telemetry.Hooks{
		Transition: func(e telemetry.Transition) { fmt.Printf("%s is %s: %s\n", e.Conn, e.To, e.Kind) },
		Gap: func(e telemetry.Gap) {
			fmt.Printf("%s was away for %v, and lost %d calls\n", e.Conn, e.Duration, e.Calls)
		},
	}

	hooks.Transition(telemetry.Transition{Conn: "weather", From: "ready", To: "backoff", Kind: "exited"})
	hooks.Transition(telemetry.Transition{Conn: "weather", From: "initializing", To: "ready", Kind: "handshaken"})
	hooks.Gap(telemetry.Gap{Conn: "weather", Lost: 1, Epoch: 2, Calls: 3, Duration: 1200 * time.Millisecond})
	// Output:
	// weather is backoff: exited
	// weather is ready: handshaken
	// weather was away for 1.2s, and lost 3 calls
}

// Tee combines hooks that do not know each other.
func ExampleTee() {
	failed := 0
	hooks := telemetry.Tee(counting(&failed), telemetry.Hooks{
		RequestStopped: func(_ context.Context, e telemetry.RequestStopped) {
			fmt.Println(e.Method, e.Target, "ended:", e.Cause)
		},
	})

	hooks.RequestStopped(context.Background(), telemetry.RequestStopped{
		Method: "tools/call", Target: "forecast", Cause: "timed out", Delivery: "unknown", Err: context.DeadlineExceeded,
	})
	fmt.Println(failed, "failed")
	// Output:
	// tools/call forecast ended: timed out
	// 1 failed
}

// A tracer adds the trace context of its span in RequestStarted. The client sends it to the
// server.
func ExampleWithTrace() {
	tracer := telemetry.Hooks{RequestStarted: func(ctx context.Context, _ telemetry.RequestStarted) context.Context {
		return telemetry.WithTrace(ctx, telemetry.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	}}

	ctx := tracer.RequestStarted(context.Background(), telemetry.RequestStarted{Method: "tools/call"})
	fmt.Println(telemetry.TraceFrom(ctx).Parent)
	// Output: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
}
