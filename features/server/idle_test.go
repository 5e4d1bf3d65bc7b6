//go:build !race

package server_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// An idle legacy session over HTTP stays below the documented ceiling, which leaves
// about 7 % for differences between runs. The race detector adds memory for each
// session, so the test does not run with it.
//
// Guarantees: G-0063.4
func TestMemoryOfAnIdleSession(t *testing.T) {
	testenv.Crowd(t)
	testenv.Bubble(t, func(t *testing.T) {
		const many, most = 1000, 2_300
		h := streamable.NewHandler(newServer(server.Options{}), streamable.HandlerOptions{})
		defer h.Close(0)
		open := func() (bytes, goroutines int) {
			before, goroutinesBefore := inUse()
			for range many {
				openSession(t, h)
			}
			now, goroutinesNow := inUse()
			return (now - before) / many, goroutinesNow - goroutinesBefore
		}
		open() // allocates what the handler and the runtime keep for all sessions
		if bytes, goroutines := open(); bytes > most || goroutines != 0 {
			t.Errorf("%d bytes and %d goroutines, want %d bytes at most", bytes, goroutines, most)
		} else {
			t.Log(bytes)
		}
	})
}
