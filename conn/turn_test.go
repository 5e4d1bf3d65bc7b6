package conn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// Both sides of a pipe call each other from many goroutines, and handlers call back, so each loop works on
// goroutines of the other side. Every call gets its own answer.
//
// Guarantees: G-0048.1, G-0048.3
func TestLoopsWorkOnEachOthersGoroutines(t *testing.T) {
	const callers, calls = 16, 100
	back := func(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
		return in.Call(ctx, conn.Request{Method: "echo", Params: in.Params})
	}
	h := handler{"echo": echo, "back": back}
	p := connect(t, h, conn.Options{Handler: h, Tuning: conn.Tuning{Credit: 3}})
	p.ready()
	if err := p.servers[0].AwaitReady(t.Context()); err != nil { // the client may be ready before the server
		t.Fatal(err)
	}
	var calling sync.WaitGroup
	for side, from := range map[string]*conn.Conn{"client": p.client, "server": p.servers[0]} {
		for caller := range callers {
			calling.Go(func() {
				for i := range calls {
					want := fmt.Sprintf(`["%s",%d,%d]`, side, caller, i)
					method := []string{"echo", "back"}[i%2]
					got, err := from.Call(t.Context(), conn.Request{Method: method, Params: json.RawMessage(want)})
					if err != nil || string(got) != want {
						t.Errorf("%s: got %s, %v; want %s", method, got, err, want)
						return
					}
					if err := from.Notify(t.Context(), "note", nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	calling.Wait()
}
