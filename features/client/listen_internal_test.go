package client

import (
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// A server may be replaced by another that is ready before anybody has looked.
func TestServerThatWasReplacedIsNotThereStill(t *testing.T) {
	met := &meeting{incarnation: new(conn.Incarnation)} // of epoch 0
	for status, want := range map[conn.Status]bool{
		{State: conn.Ready, Epoch: 0}:   true,
		{State: conn.Ready, Epoch: 1}:   false,
		{State: conn.Backoff, Epoch: 0}: false,
	} {
		if met.current(status) != want {
			t.Errorf("%s of epoch %d: got %t", status.State, status.Epoch, !want)
		}
	}
}
