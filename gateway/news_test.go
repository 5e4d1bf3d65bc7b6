package gateway_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
)

// A session that has made no request yet is told of each change: nobody has decided what it sees.
//
// Guarantees: G-0098.19
func TestNewsForASessionThatHasAskedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := two()
		f := newFleetFor(t, protocol.Latest, servers, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"policy":[{"who":"token ada","allow":["a/*"]}]}}`))
		var told atomic.Int64
		f.identity = "token bob"
		f.client(protocol.LatestLegacy, client.Options{CacheBytes: -1, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, is := e.(*client.ToolsChanged); is {
				told.Add(1)
			}
		}})
		for _, name := range []string{"zero", "one"} { // with the first one comes what the servers had at their start
			told.Store(0)
			server.AddTool(servers["a"], protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
			pass(10 * time.Second)
			synctest.Wait()
		}
		if n := told.Load(); n != 1 {
			t.Errorf("it was told %d times", n)
		}
	})
}
