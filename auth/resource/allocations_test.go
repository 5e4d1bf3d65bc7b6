//go:build !race

package resource_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// TestACheckedCallCostsLittle checks that a call with a cached token costs at most two allocations
// more than a call without a check.
//
// Guarantees: G-0046.5
func TestACheckedCallCostsLittle(t *testing.T) {
	g, as := newGuard(t, nil, authtest.Options{})
	token := as.Issue("ada", "read")
	cost := func(check func(*http.Request) (streamable.Caller, *streamable.Denial)) float64 {
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "echo"}, func(context.Context, struct{}) (string, error) { return "x", nil })
		h := streamable.NewHandler(s, streamable.HandlerOptions{Check: check})
		defer h.Shutdown(t.Context(), nil)
		call := func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(echo))
			r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"}, "Authorization": {"Bearer " + token}}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		call()
		least := testing.AllocsPerRun(50, call)
		for range 10 { // other goroutines allocate too
			least = min(least, testing.AllocsPerRun(50, call))
		}
		return least
	}
	plain, checked := cost(nil), cost(g.Check)
	t.Logf("%v allocations without a check, %v with one", plain, checked)
	if checked > plain+2 {
		t.Errorf("a check adds %v allocations", checked-plain)
	}
}

const echo = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
