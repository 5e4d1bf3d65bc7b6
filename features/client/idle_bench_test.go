package client_test

import (
	"context"
	"encoding/json"
	"flag"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

var idlePairs = flag.Int("pairs", 2000, "how many pairs BenchmarkIdlePair keeps idle at a time")

// idlePairKinds are the ways to make a pair: the server's side has its own goroutine,
// or none while it is idle.
var idlePairKinds = []struct {
	name, version string
	accept        bool
	goroutines    int
	heap          int // maximum, in bytes
}{
	{"accepted", protocol.LatestLegacy, true, 0, 5_810},
	{"accepted, modern", protocol.Latest, true, 0, 5_810},
	{"served", protocol.LatestLegacy, false, 1, 6_200},
}

// BenchmarkIdlePair measures what an idle client and server cost together when they are
// connected in memory: a session of one Client, run by one Supervisor, and the session
// of one Server, after one call.
func BenchmarkIdlePair(b *testing.B) {
	for _, kind := range idlePairKinds {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				keepIdle(b, *idlePairs, kind.version, kind.accept).report(b)
			}
		})
	}
}

// keepIdle makes pairs, and returns what each uses while it is idle.
func keepIdle(t testing.TB, pairs int, version string, accept bool) use {
	var serving sync.WaitGroup
	defer serving.Wait()
	s := echoServer(false)
	defer s.Close(context.Background())
	over := inmem.New(func(link transport.Link) {
		if accept {
			s.Accept(link)
			return
		}
		serving.Go(func() { s.ServeLink(context.Background(), link) })
	}, inmem.Options{})
	all := supervisor.New(supervisor.Options{})
	defer all.Stop(context.Background())
	c := client.New(clientInfo, client.Options{ProtocolVersion: version, Supervisor: all})
	sessions := make([]*client.Session, pairs)
	before := inUse()
	for i := range sessions {
		sessions[i] = callOnce(t, c, over)
	}
	after := inUse()
	runtime.KeepAlive(sessions)
	return after.since(before, pairs)
}

func callOnce(t testing.TB, c *client.Client, over transport.Transport) *client.Session {
	t.Helper()
	session, err := c.Connect(t.Context(), over)
	if err != nil {
		t.Fatal(err)
	}
	params := &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)}
	if _, err := session.CallTool(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	return session
}

// use is what the process uses at one moment: bytes and goroutines.
type use struct{ heap, stack, goroutines int }

// inUse measures after everything that only work needs is gone: a Conn gives that up
// 100 ms after its last event, and a stack shrinks at each collection.
func inUse() use {
	<-time.NewTimer(time.Second).C
	for range 2 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return use{int(stats.HeapAlloc), int(stats.StackInuse), runtime.NumGoroutine()}
}

// since returns the difference to before for each of many pairs.
func (u use) since(before use, many int) use {
	per := func(n int) int { return (n + many/2) / many }
	return use{per(u.heap - before.heap), per(u.stack - before.stack), per(u.goroutines - before.goroutines)}
}

func (u use) report(b *testing.B) {
	b.ReportMetric(float64(u.heap+u.stack), "B/pair")
	b.ReportMetric(float64(u.heap), "heap-B/pair")
	b.ReportMetric(float64(u.stack), "stack-B/pair")
	b.ReportMetric(float64(u.goroutines), "goroutines/pair")
}
