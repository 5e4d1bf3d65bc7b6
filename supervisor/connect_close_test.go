package supervisor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// heldStore gives names, and takes its time to take them back, whatever its context says.
type heldStore struct {
	deadStore
	until chan struct{}
}

func (h heldStore) Claim(context.Context, registry.Claim) (registry.Release, error) {
	return func(context.Context) error { <-h.until; return nil }, nil
}

// Close of a Conn does not wait for the Store, which is code of the program's.
//
// Guarantees: G-0054.4
func TestCloseDoesNotWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := heldStore{until: make(chan struct{})}
		s := supervisor.New(supervisor.Options{Registry: registry.New(registry.Options{Store: store})})
		var accepted sync.WaitGroup
		c := conn.New(inmem.New(func(link transport.Link) {
			accepted.Go(func() { _ = conn.Accept(link, conn.Options{}).Run(t.Context()) })
		}, inmem.Options{}), conn.Options{Name: "c"})
		connect(t, s, c)
		await(t, c)
		synctest.Wait()
		began := time.Now()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v", took)
		}
		close(store.until)
		stop(t, s)
		accepted.Wait()
	})
}
