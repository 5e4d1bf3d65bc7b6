package conn_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// Start may be called while the last run is still ending. The Conn then continues with the next epoch.
func TestStartAtTheEndOfTheLastRun(t *testing.T) {
	var served sync.WaitGroup
	c := conn.New(echoes(&served), conn.Options{})
	var last uint64
	for range 200 {
		c.Control().LeaveOpening()
		ctx, interrupt := context.WithCancelCause(t.Context())
		err := conn.ErrRunning
		for errors.Is(err, conn.ErrRunning) {
			err = c.Start(ctx, func(error) {})
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Control().Open()
		if err := c.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		epoch := c.Status().Epoch
		if epoch <= last {
			t.Fatalf("epoch %d after epoch %d, want a higher one", epoch, last)
		}
		last = epoch
		interrupt(conn.ErrInterrupted)
	}
	c.Stop()
	for errors.Is(c.Run(t.Context()), conn.ErrRunning) { // the run that stops may be the last or this one
	}
	<-c.Done()
	served.Wait()
}
