//go:build !race

package client_test

import (
	"context"
	"encoding/json"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A call in memory allocates at most this much in client, server and transport
// together, including its handler and its result. The race detector allocates too, so
// the test does not run with it.
//
// Guarantees: G-0049.3
func TestCallAllocates(t *testing.T) {
	structured := func(_ context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
		return &protocol.CallToolResult{StructuredContent: params.Arguments}, nil
	}
	for _, c := range []struct {
		name, version string
		add           func(*server.Server)
		most          float64
	}{
		{"raw", protocol.LatestLegacy, func(s *server.Server) {
			server.AddTool(s, protocol.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, structured)
		}, 9},
		{"typed", protocol.LatestLegacy, addEcho, 12},
		{"typed, modern", protocol.Latest, addEcho, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := server.New(serverInfo, server.Options{})
			c.add(s)
			n := &network{server: s}
			defer n.close()
			session, err := client.New(clientInfo, client.Options{ProtocolVersion: c.version}).Connect(t.Context(), n.transport())
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			params := &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)}
			allocated := testing.AllocsPerRun(2000, func() {
				if _, err := session.CallTool(context.Background(), params); err != nil {
					t.Fatal(err)
				}
			})
			if allocated > c.most {
				t.Fatalf("%v allocations, want %v at most", allocated, c.most)
			}
		})
	}
}

// A call that waits in a handler holds at most this much on both sides, including the
// stacks of the caller and of the handler. Under load, goroutines that have waited for
// a processor take over the work of several calls and add to the result, so the least
// of several measurements counts. It is 16,000 on a machine that does nothing else.
func TestMemoryOfAWaitingCall(t *testing.T) {
	testenv.Crowd(t)
	const most = 17_500
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))) // with one processor, callers always do the work of others
	var holds int64
	for range 10 {
		if holds = waitingCallHolds(t); holds <= most {
			return
		}
	}
	t.Fatalf("%d bytes for each call that waits, want %d at most", holds, most)
}

func waitingCallHolds(t *testing.T) (holds int64) {
	const many = 2000
	s := server.New(serverInfo, server.Options{Conn: conn.Tuning{MaxServing: many}})
	arrived := make(chan struct{})
	server.AddTool(s, protocol.Tool{Name: "wait", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, _ *protocol.CallToolParams) (*protocol.CallToolResult, error) {
			arrived <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
	n := &network{server: s}
	defer n.close()
	session, err := client.New(clientInfo, client.Options{}).Connect(t.Context(), n.transport())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	ctx, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	before := held()
	for range many {
		waiting.Go(func() {
			params := &protocol.CallToolParams{Name: "wait", Arguments: json.RawMessage(`{}`)}
			if _, err := session.CallTool(ctx, params); err == nil {
				t.Error("a call whose context has ended succeeded, want an error")
			}
		})
	}
	for range many {
		<-arrived
	}
	holds = (held() - before) / many
	stop()
	waiting.Wait()
	t.Logf("%d bytes for each call", holds)
	return holds
}

// held returns the memory of heap and stacks that is in use.
func held() int64 {
	for range 8 { // each collection halves the stacks that are mostly unused
		runtime.GC()
	}
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc + now.StackInuse)
}

// Connecting in memory, with initialize and Close, allocates at most this much in
// client and server together.
//
// Guarantees: G-0054.5
func TestConnectAllocates(t *testing.T) {
	for version, most := range map[string]float64{protocol.LatestLegacy: 82, protocol.Latest: 105} {
		s := echoServer(false)
		c := client.New(clientInfo, client.Options{ProtocolVersion: version})
		over := inmem.New(s.Accept, inmem.Options{})
		allocated := testing.AllocsPerRun(500, func() {
			session, err := c.Connect(context.Background(), over)
			if err == nil {
				err = session.Close(context.Background())
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if t.Logf("%s: %v allocations", version, allocated); allocated > most {
			t.Errorf("%s: %v allocations, want %v at most", version, allocated, most)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// Connecting in memory begins no goroutine.
//
// Guarantees: G-0054.5
func TestConnectBeginsNoGoroutine(t *testing.T) {
	begun := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		s := echoServer(false)
		c := client.New(clientInfo, client.Options{ProtocolVersion: version})
		over := inmem.New(s.Accept, inmem.Options{})
		const sessions = 200
		metrics.Read(begun)
		before := begun[0].Value.Uint64()
		for range sessions {
			session, err := c.Connect(context.Background(), over)
			if err == nil {
				err = session.Close(context.Background())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		metrics.Read(begun)
		if more := begun[0].Value.Uint64() - before; more > sessions/4 { // leaves room for those of the garbage collector and of timers
			t.Errorf("%s: %d goroutines began for %d sessions, want none for them", version, more, sessions)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
