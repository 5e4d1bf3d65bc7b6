package conn_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// A Conn that is started at the very moment at which its last run ends continues where
// that has ended.
func TestStartAtTheEndOfTheLastRun(t *testing.T) {
	var served sync.WaitGroup
	c := conn.New(echoes(&served), conn.Options{})
	var last uint64
	for range 200 {
		c.LeaveOpening()
		ctx, interrupt := context.WithCancelCause(t.Context())
		err := conn.ErrRunning
		for errors.Is(err, conn.ErrRunning) {
			err = c.Start(ctx, func(error) {})
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Open()
		if err := c.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		epoch := c.Status().Epoch
		if epoch <= last {
			t.Fatalf("epoch %d follows epoch %d", epoch, last)
		}
		last = epoch
		interrupt(conn.ErrInterrupted)
	}
	c.Stop()
	for errors.Is(c.Run(t.Context()), conn.ErrRunning) { // it stops now, or when it runs again
	}
	<-c.Done()
	served.Wait()
}
