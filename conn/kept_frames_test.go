package conn_test

import (
	"context"
	"encoding/json"
	"runtime"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// While a call waits for its answer, neither side keeps its frame in memory: not the caller once the
// link has taken it, and not the handler's side once the handler has set its Params to nil. Nor
// does the memory that ended calls leave for reuse.
func TestCallDoesNotHoldItsFrame(t *testing.T) {
	const calls, size = 32, 1 << 20
	var served, callers sync.WaitGroup
	end, begun := make(chan struct{}), make(chan struct{}, calls)
	held := handler{"hold": func(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
		in.Params = nil
		begun <- struct{}{}
		<-end
		return json.RawMessage("{}"), nil
	}}
	c := conn.New(inmem.New(func(link transport.Link) {
		startAccepted(&served, conn.Accept(link, conn.Options{Handler: held}))
	}, inmem.Options{}), conn.Options{})
	if err := c.Start(t.Context(), func(error) {}); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := heap()
	params := make(json.RawMessage, size) // shared by all calls
	for i := range params {
		params[i] = ' '
	}
	copy(params, "{}")
	for range calls {
		callers.Go(func() {
			if _, err := c.Call(t.Context(), conn.Request{Method: "hold", Params: params}); err != nil {
				t.Error(err)
			}
		})
	}
	for range calls {
		<-begun
	}
	const bound = size + calls*size/8 // the params, and what else the process allocates
	if kept := int64(heap() - before); kept > bound {
		t.Errorf("%d pending calls hold %d kB, want %d kB at most", calls, kept>>10, bound>>10)
	}
	close(end)
	callers.Wait()
	if kept := int64(heap() - before); kept > bound {
		t.Errorf("%d ended calls hold %d kB, want %d kB at most", calls, kept>>10, bound>>10)
	}
	c.Stop()
	served.Wait()
	runtime.KeepAlive(params)
}
