package conn_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// BenchmarkCall measures a round trip in memory: both actors, a handler's
// goroutine, and the envelopes both ways.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name    string
		callers int
	}{{"one caller", 1}, {"64 callers", 64}} {
		b.Run(c.name, func(b *testing.B) {
			client := serveInMemory(b, handler{"echo": echo})
			request := conn.Request{Method: "echo", Params: json.RawMessage(`{"text":"sixty-four bytes of payload, more or less, as tools get them"}`)}
			work := make(chan struct{}, c.callers)
			b.ReportAllocs()
			b.ResetTimer()
			var callers sync.WaitGroup
			for range c.callers {
				callers.Go(func() {
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
			callers.Wait()
		})
	}
}

// serveInMemory connects an initiator to one acceptor, both gone at the end.
func serveInMemory(b testing.TB, h handler) *conn.Conn {
	var running sync.WaitGroup
	client := conn.New(inmem.New(func(link transport.Link) {
		server := conn.Accept(link, conn.Options{Handler: h})
		running.Go(func() { server.Run(b.Context()) })
	}, inmem.Options{}), conn.Options{})
	running.Go(func() { client.Run(b.Context()) })
	b.Cleanup(func() { client.Stop(); running.Wait() })
	if err := client.AwaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	return client
}
