package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// An upstream is a server of the file. It does not change: the next file makes another.
type upstream struct {
	entry
	*traffic
}

// A traffic is what clients do with a server, and what its child says. It outlives a file that does not change how the server runs.
type traffic struct {
	eye    *eye
	calls  atomic.Int64           // in flight
	pid    atomic.Int64           // of the last child
	failed atomic.Pointer[string] // why it was not started; nil: it was
	stderr admin.Tail

	mu    sync.Mutex
	woken time.Time // when a call woke it last
}

// count counts a call while it runs.
func (u *traffic) count() (done func()) {
	u.calls.Add(1)
	u.eye.wake()
	return func() {
		u.calls.Add(-1)
		u.eye.wake()
	}
}

// note keeps why a server was not started, for the report; "": it was.
func (u *traffic) note(why string) {
	if why == "" {
		u.failed.Store(nil)
		return
	}
	u.failed.Store(&why)
}

// listen makes a child tell what the report says of it. Other transports have neither a process nor a standard error.
func (u *traffic) listen(to transport.Transport) {
	if child, ok := to.(*stdio.Command); ok {
		child.Stderr = u
		child.Started = func(pid int) { u.pid.Store(int64(pid)) }
	}
}

// Write implements io.Writer for the standard error of its child. It never waits, so it cannot delay the child.
func (u *traffic) Write(text []byte) (int, error) {
	defer u.eye.wake()
	return u.stderr.Write(text)
}
