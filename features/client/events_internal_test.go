package client

import (
	"runtime"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// settle sees a change of the queue that happens while it looks at the session.
// Otherwise Close would wait for that change until its context ends.
func TestSettleMissesNoChange(t *testing.T) {
	s := &session{}
	s.events.session = s
	s.restore.watching = true
	s.peer.Store(&peer{incarnation: &conn.Incarnation{}})
	status := conn.Status{State: conn.Ready} // the program has no event of this server yet

	s.restore.mu.Lock() // makes unsettled wait in the middle of its work
	result := make(chan (<-chan struct{}))
	go func() { result <- s.events.unsettled(status) }()
	for range 10_000 {
		runtime.Gosched()
	}
	s.events.mu.Lock()
	s.events.notify()
	s.events.mu.Unlock()
	s.restore.mu.Unlock()

	changed := <-result
	select {
	case <-changed:
	default:
		t.Error("settle missed the change")
	}
}
