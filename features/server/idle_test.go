//go:build !race

package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// The ceiling leaves the runtime some 7 % to differ by from run to run. The race detector
// keeps much beside the session, so it is not asked.
//
// Guarantees: G-0063.4
func TestIdleSessionTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, most = 1000, 2_600
		h := streamable.NewHandler(newServer(server.Options{}), streamable.HandlerOptions{MaxClientSessions: 2*many + 1})
		defer h.Close(0)
		open := func() (bytes, goroutines int) {
			before, goroutinesBefore := inUse()
			for range many {
				openSession(t, h)
			}
			now, goroutinesNow := inUse()
			return (now - before) / many, goroutinesNow - goroutinesBefore
		}
		open() // what the handler and the runtime keep for many sessions is there now
		if bytes, goroutines := open(); bytes > most || goroutines != 0 {
			t.Errorf("%d bytes, of %d at most, and %d goroutines", bytes, most, goroutines)
		} else {
			t.Log(bytes)
		}
	})
}
