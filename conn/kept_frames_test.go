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

// Neither a call that waits for its answer holds the frame that the link has taken, nor the
// memory that it leaves to others, nor the request of a handler that has let go of its
// params.
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
	params := make(json.RawMessage, size) // one for all
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
	const bound = size + calls*size/8 // params, and what else there is
	if kept := int64(heap() - before); kept > bound {
		t.Errorf("%d calls that wait hold %d kB", calls, kept>>10)
	}
	close(end)
	callers.Wait()
	if kept := int64(heap() - before); kept > bound {
		t.Errorf("%d calls that are over hold %d kB", calls, kept>>10)
	}
	c.Stop()
	served.Wait()
	runtime.KeepAlive(params)
}
