//go:build !race

package conn_test

import (
	"context"
	"encoding/json"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
)

// A call and its answer make at most this many allocations on both sides of a link in memory,
// including the two frames and the context of the handler. The race detector allocates, too, so
// this file is not built with it.
func TestCallAllocates(t *testing.T) {
	if allocated := allocatedByCall(t, conn.Options{}); allocated > 7 {
		t.Fatalf("%v allocations, want 7 at most", allocated)
	}
}

// One of a thousand concurrent calls allocates about as much as a single one: waiting allocates
// nothing, and turns share their buffers.
func TestCallOfACrowdAllocates(t *testing.T) {
	const callers, calls = 1000, 20
	client := serveInMemoryWith(t, runAccepted, handler{"echo": echo}, conn.Options{})
	round := func() {
		var calling sync.WaitGroup
		for range callers {
			calling.Go(func() {
				for range calls {
					if _, err := client.Call(t.Context(), conn.Request{Method: "echo", Params: json.RawMessage(`{"text":"a"}`)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		calling.Wait()
	}
	round()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	round()
	runtime.ReadMemStats(&after)
	allocs := float64(after.Mallocs-before.Mallocs) / (callers * calls)
	bytes := float64(after.TotalAlloc-before.TotalAlloc) / (callers * calls)
	t.Logf("%.1f allocations, %.0f bytes", allocs, bytes)
	if allocs > 8 || bytes > 1000 {
		t.Errorf("%.1f allocations and %.0f bytes, want 8 and 1000 at most", allocs, bytes)
	}
}

// A call on an idle connection takes the memory that an earlier one has given up. Besides what
// every call allocates, it allocates only a goroutine for the handler, and timers.
func TestCallAfterIdleTimeAllocates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := serveInMemoryWith(t, startAccepted, handler{"echo": echo}, conn.Options{Tuning: conn.Tuning{Wheel: new(conn.Wheel)}})
		request := conn.Request{Method: "echo", Params: json.RawMessage(`{"text":"a"}`)}
		const calls = 200
		var allocs, bytes uint64
		for i := range 2 * calls {
			idle := time.NewTimer(time.Second)
			<-idle.C
			synctest.Wait()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := client.Call(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			runtime.ReadMemStats(&after)
			if i >= calls { // earlier calls find no memory to reuse
				allocs, bytes = allocs+after.Mallocs-before.Mallocs, bytes+after.TotalAlloc-before.TotalAlloc
			}
		}
		t.Logf("%d allocations, %d bytes", allocs/calls, bytes/calls)
		if allocs/calls > 15 || bytes/calls > 1200 {
			t.Errorf("%d allocations and %d bytes, want 15 and 1200 at most", allocs/calls, bytes/calls)
		}
	})
}

// A connection makes at most this many allocations on both sides, from New to its end.
func TestConnectAllocates(t *testing.T) {
	if allocated := testing.AllocsPerRun(500, connecting(t)); allocated > 106 {
		t.Fatalf("%v allocations, want 106 at most", allocated)
	}
}

// Hooks that allocate nothing themselves add no allocation to a call.
func TestHooksAllocateNothing(t *testing.T) {
	var reported atomic.Int64
	hooks := telemetry.Hooks{
		RequestStarted: func(ctx context.Context, _ telemetry.RequestStarted) context.Context { reported.Add(1); return ctx },
		RequestStopped: func(context.Context, telemetry.RequestStopped) { reported.Add(1) },
		ServeStopped:   func(context.Context, telemetry.ServeStopped) { reported.Add(1) },
	}
	without, with := allocatedByCall(t, conn.Options{}), allocatedByCall(t, conn.Options{Tuning: conn.Tuning{Hooks: hooks}})
	if with > without || reported.Load() < 6000 {
		t.Fatalf("%v allocations with hooks, %v without; %d events, want 6000 at least", with, without, reported.Load())
	}
}

// allocatedByCall returns how many allocations a call makes on both sides, which both have the options.
func allocatedByCall(t *testing.T, o conn.Options) float64 {
	t.Helper()
	client := serveInMemoryWith(t, runAccepted, handler{"echo": echo}, o)
	request := conn.Request{Method: "echo", Params: json.RawMessage(`{"text":"a"}`)}
	return testing.AllocsPerRun(2000, func() {
		if _, err := client.Call(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	})
}
