//go:build npm

package peers

import (
	"context"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
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

var wsPackage = npmPackage{name: "ws", version: "8.23.0", short: "ws"}

// TestTypeScriptServerOverWebSocket calls a tool of a server of the TypeScript SDK, whose WebSockets are those of package ws, with a short message and one that is
// sent in many pieces. The server pings while it has a call.
//
// Guarantees: G-0108.1
func TestTypeScriptServerOverWebSocket(t *testing.T) {
	for _, p := range []npmPackage{typeScriptV1, wsPackage} {
		if err := p.install(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "node", "websocket_server.mjs", typeScriptV1.folder(), typeScriptV1.name, wsPackage.folder())
	input, lines := startNode(t, command)
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{FailFast: true})
	session, err := c.Connect(ctx, &websocket.Client{URL: lines.Text()})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"short", strings.Repeat("long", 1<<18)} {
		if got, err := client.Call[string](ctx, session, "echo", map[string]string{"text": text}); err != nil || got != text {
			t.Errorf("got %d bytes of %d: %v", len(got), len(text), err)
		}
	}
	if err := session.Close(ctx); err != nil {
		t.Error(err)
	}
	if lines.Scan(); lines.Text() != "closed 1000" {
		t.Errorf("the server has seen %q", lines.Text())
	}
	input.Close()
	lines.Scan() // until the server has ended
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}
