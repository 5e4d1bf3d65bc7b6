package conn_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// What a handler has begun ends with it: its context is over by the time its
// answer is sent.
func TestHandlersContextEndsWithIt(t *testing.T) {
	served := make(chan context.Context, 1)
	client := serveInMemory(t, runAccepted, handler{"m": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
		served <- ctx
		return nil, ctx.Err()
	}})
	if _, err := client.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
		t.Fatal(err)
	}
	if ctx := <-served; ctx.Err() == nil {
		t.Fatal("the context goes on")
	}
}
