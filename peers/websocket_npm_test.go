//go:build npm

package peers

import (
	"context"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/websocket"
)

// TestTypeScriptOverWebSocket has the client of the TypeScript SDK call a tool over its WebSocket transport, which its version 2 has no more.
//
// Guarantees: G-0108.1
func TestTypeScriptOverWebSocket(t *testing.T) {
	if err := typeScriptV1.install(); err != nil {
		t.Fatal(err)
	}
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "greet"}, func(context.Context, struct{}) (string, error) { return "Hello.", nil })
	h := websocket.NewHandler(s, websocket.HandlerOptions{})
	srv := httptest.NewServer(h)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	url := "ws" + strings.TrimPrefix(srv.URL, "http")
	out, err := exec.CommandContext(ctx, "node", "--experimental-websocket", "--no-warnings", "websocket.mjs", typeScriptV1.folder(), typeScriptV1.name, url, "greet").CombinedOutput()
	if err != nil || string(out) != "Hello.\n" {
		t.Errorf("the client printed %q: %v", out, err)
	}
	if err := h.Shutdown(ctx, nil); err != nil {
		t.Error(err)
	}
}
