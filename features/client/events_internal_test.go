package client

import (
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// settle sees a change of the queue that happens while it looks at the session.
// Otherwise Close would wait for that change until its context ends.
func TestSettleMissesNoChange(t *testing.T) {
	var q eventQueue
	changed := q.unsettled(conn.Status{State: conn.Ready}, func(Status) (bool, uint64) {
		q.mu.Lock()
		q.change.Announce()
		q.mu.Unlock()
		return true, 0 // the program has no event of this server yet
	})
	select {
	case <-changed:
	default:
		t.Error("settle missed the change")
	}
}
