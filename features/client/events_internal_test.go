package client

import (
	"runtime"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// A change of the queue while settle looks at the session is not missed. Otherwise Close
// would wait for it until its context ends.
func TestAChangeWhileSettleLooksIsNotMissed(t *testing.T) {
	s := &session{}
	s.events.session = s
	s.restore.watching = true
	s.peer.Store(&peer{incarnation: &conn.Incarnation{}})
	status := conn.Status{State: conn.Ready} // of a server that the program does not know of

	s.restore.mu.Lock() // unsettled waits in the midst of its work
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
		t.Error("the change was missed")
	}
}
