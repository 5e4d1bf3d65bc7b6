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

// A call and its answer allocate no more than this on both sides of a wire in
// memory, the two frames and what the handler's context takes included. The race
// detector allocates too, so it is not asked.
func TestCallAllocates(t *testing.T) {
	if allocated := allocatedByCall(t, conn.Options{}); allocated > 7 {
		t.Fatalf("%v allocations, of 7 at most", allocated)
	}
}

// A call among a thousand allocates about as much as one alone: nobody pays for waiting,
// and no buffer is made for each turn.
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
		t.Errorf("%.1f allocations of 8 at most, %.0f bytes of 1000", allocs, bytes)
	}
}

// A call on a connection that was idle takes the memory that another has given up: what
// it allocates beyond any call's is a goroutine for the handler, and timers.
func TestCallAfterIdleTimeAllocates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := serveInMemoryWith(t, startAccepted, handler{"echo": echo}, conn.Options{Wheel: new(conn.Wheel)})
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
			if i >= calls { // until then there is nothing to take
				allocs, bytes = allocs+after.Mallocs-before.Mallocs, bytes+after.TotalAlloc-before.TotalAlloc
			}
		}
		t.Logf("%d allocations, %d bytes", allocs/calls, bytes/calls)
		if allocs/calls > 15 || bytes/calls > 1200 {
			t.Errorf("%d allocations of 15 at most, %d bytes of 1200", allocs/calls, bytes/calls)
		}
	})
}

// A connection allocates no more than this on both sides, from New to its end.
func TestConnectAllocates(t *testing.T) {
	if allocated := testing.AllocsPerRun(500, connecting(t)); allocated > 106 {
		t.Fatalf("%v allocations, of 106 at most", allocated)
	}
}

// Hooks of calls that allocate nothing themselves cost no allocation.
func TestHooksAllocateNothing(t *testing.T) {
	var told atomic.Int64
	hooks := telemetry.Hooks{
		RequestStarted: func(ctx context.Context, _ telemetry.RequestStarted) context.Context { told.Add(1); return ctx },
		RequestStopped: func(context.Context, telemetry.RequestStopped) { told.Add(1) },
		ServeStopped:   func(context.Context, telemetry.ServeStopped) { told.Add(1) },
	}
	without, with := allocatedByCall(t, conn.Options{}), allocatedByCall(t, conn.Options{Hooks: hooks})
	if with > without || told.Load() < 6000 {
		t.Fatalf("%v allocations, and %v without hooks; %d events", with, without, told.Load())
	}
}

// allocatedByCall is how much a call allocates on both sides, which have the options.
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
