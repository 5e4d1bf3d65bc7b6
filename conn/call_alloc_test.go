//go:build !race

package conn_test

import (
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// A call and its answer allocate no more than this on both sides of a wire in
// memory, the two frames and what the handler's context takes included. The race
// detector allocates too, so it is not asked.
func TestCallAllocates(t *testing.T) {
	client := serveInMemory(t, runAccepted, handler{"echo": echo})
	request := conn.Request{Method: "echo", Params: json.RawMessage(`{"text":"a"}`)}
	allocated := testing.AllocsPerRun(2000, func() {
		if _, err := client.Call(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	})
	if allocated > 11 {
		t.Fatalf("%v allocations, of 11 at most", allocated)
	}
}
