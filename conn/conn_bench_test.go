package conn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// BenchmarkCall measures a round trip in memory, for an acceptor that was begun with Run and for
// one that was begun with Start.
func BenchmarkCall(b *testing.B) {
	for _, mode := range []struct {
		name   string
		accept accepting
	}{{"run", runAccepted}, {"start", startAccepted}} {
		for _, callers := range []int{1, 64, 1000, 4096} {
			b.Run(fmt.Sprintf("%s/%d", mode.name, callers), func(b *testing.B) {
				client := serveInMemory(b, mode.accept, handler{"echo": echo})
				benchmarkCalls(b, client, callers)
			})
		}
	}
}

func benchmarkCalls(b *testing.B, client *conn.Conn, callers int) {
	request := conn.Request{Method: "echo", Params: json.RawMessage(`{"text":"sixty-four bytes of payload, more or less, as tools get them"}`)}
	work := make(chan struct{}, callers)
	b.ReportAllocs()
	b.ResetTimer()
	var working sync.WaitGroup
	for range callers {
		working.Go(func() {
			for range work {
				if _, err := client.Call(b.Context(), request); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	working.Wait()
}

// BenchmarkConnect measures a connection in memory from New to the end of both
// sides.
func BenchmarkConnect(b *testing.B) {
	connect := connecting(b)
	b.ReportAllocs()
	for b.Loop() {
		connect()
	}
}

// connecting returns a function that makes a connection in memory, and ends it.
func connecting(t testing.TB) (connect func()) {
	var running sync.WaitGroup
	network := inmem.New(func(link transport.Link) {
		startAccepted(&running, conn.Accept(link, conn.Options{}))
	}, inmem.Options{})
	return func() {
		client := conn.New(network, conn.Options{})
		running.Go(func() { client.Run(context.Background()) })
		if err := client.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		client.Stop()
		running.Wait()
	}
}

// An accepting runs an acceptor, and lets the group wait for its end.
type accepting func(*sync.WaitGroup, *conn.Conn)

func runAccepted(running *sync.WaitGroup, c *conn.Conn) {
	running.Go(func() { c.Run(context.Background()) })
}

func startAccepted(running *sync.WaitGroup, c *conn.Conn) {
	running.Add(1)
	if err := c.Start(context.Background(), func(error) { running.Done() }); err != nil {
		panic(err)
	}
}

// BenchmarkIdlePair measures the memory of an initiator and an acceptor that are connected in
// memory, have made a call and are idle.
func BenchmarkIdlePair(b *testing.B) {
	for name, accept := range map[string]accepting{"run": runAccepted, "start": startAccepted} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				keepIdle(b, accept)
			}
		})
	}
}

func keepIdle(b *testing.B, accept accepting) {
	const many = 2000
	var running sync.WaitGroup
	defer running.Wait()
	network := inmem.New(func(link transport.Link) {
		accept(&running, conn.Accept(link, conn.Options{Handler: handler{"echo": echo}}))
	}, inmem.Options{})
	heap, stack, goroutines := inUse()
	for range many {
		client := conn.New(network, conn.Options{})
		running.Go(func() { client.Run(context.Background()) })
		defer client.Stop()
		if _, err := client.Call(b.Context(), conn.Request{Method: "echo", WaitForReady: true}); err != nil {
			b.Fatal(err)
		}
	}
	heapNow, stackNow, goroutinesNow := inUse()
	b.ReportMetric((heapNow+stackNow-heap-stack)/many, "B/pair")
	b.ReportMetric((heapNow-heap)/many, "heap-B/pair")
	b.ReportMetric((stackNow-stack)/many, "stack-B/pair")
	b.ReportMetric((goroutinesNow-goroutines)/many, "goroutines/pair")
}

// inUse returns what the process uses once idle Conns have given up the memory that only work
// needs: a Conn does so 100 ms after the last event, and a stack shrinks at each collection.
func inUse() (heap, stack, goroutines float64) {
	<-time.NewTimer(time.Second).C
	for range 2 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc), float64(stats.StackInuse), float64(runtime.NumGoroutine())
}

// serveInMemory connects an initiator to one acceptor. Both end with the test.
func serveInMemory(b testing.TB, accept accepting, h handler) *conn.Conn {
	return serveInMemoryWith(b, accept, h, conn.Options{})
}

func serveInMemoryWith(b testing.TB, accept accepting, h handler, o conn.Options) *conn.Conn {
	var running sync.WaitGroup
	served := o
	served.Handler = h
	client := conn.New(inmem.New(func(link transport.Link) {
		accept(&running, conn.Accept(link, served))
	}, inmem.Options{QueueFrames: 8192}), o)
	running.Go(func() { client.Run(b.Context()) })
	b.Cleanup(func() { client.Stop(); running.Wait() })
	if err := client.AwaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	return client
}
