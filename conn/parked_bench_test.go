package conn_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// BenchmarkParkedCall measures a round trip in memory on one of many connections that are idle
// between their calls.
func BenchmarkParkedCall(b *testing.B) {
	const many, callers = 10_000, 64
	var clients []*conn.Conn
	for range many {
		clients = append(clients, serveInMemory(b, startAccepted, handler{"echo": echo}))
	}
	request := conn.Request{Method: "echo", Params: json.RawMessage(`{"text":"sixty-four bytes of payload, more or less, as tools get them"}`)}
	round := func(calls int) {
		work := make(chan *conn.Conn)
		var working sync.WaitGroup
		for range callers {
			working.Go(func() {
				for client := range work {
					if _, err := client.Call(b.Context(), request); err != nil {
						b.Error(err)
					}
				}
			})
		}
		for i := range calls {
			work <- clients[i%many]
		}
		close(work)
		working.Wait()
	}
	round(many)
	b.ReportAllocs()
	b.ResetTimer()
	round(b.N)
}
