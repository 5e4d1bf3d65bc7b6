package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
)

// A server that has answered is started again by each call that finds it dead, however often it is killed. One that dies before it answers is
// started by calls once in five seconds.
//
// Guarantees: G-0088.12
func TestCallsWakeWhatWorks(t *testing.T) {
	lively(t, `{}`, gateway.Options{}, func(t *testing.T, f *fleet) {
		server.AddTool(f.servers["a"], protocol.Tool{Name: "die"}, func(context.Context, struct{}) (string, error) {
			f.kill("a", true)
			return "", nil
		})
		session := f.client(protocol.LatestLegacy, client.Options{})
		pass(time.Second) // the new tool is known
		began := time.Now()
		for i := range 10 {
			f.kill("a", true)
			f.is("a", admin.Backoff, false)
			callWho(t, session, "a")
			if took := time.Since(began); took > 0 {
				t.Fatalf("kill %d: it was answered after %v", i+1, took)
			}
		}
		before := f.starts("a")
		for range 100 {
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "a__die"})
			if err != nil || !result.IsError {
				t.Fatalf("a call that kills its server: %v, %v", result, err)
			}
			f.is("a", admin.Backoff, false)
			pass(100 * time.Millisecond)
		}
		if n := f.starts("a") - before; n < 2 || n > 3 { // the first call found it alive
			t.Errorf("in ten seconds calls have started it %d times", n)
		}
	})
}
