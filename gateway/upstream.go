package gateway

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/internal/life"
	"github.com/bowline-mcp/bowline/gateway/internal/limits"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// wakeInterval is between two calls that wake the same server, if it has answered none meanwhile. Calls must not make a broken server start
// in a loop.
const wakeInterval = 5 * time.Second

// An upstream is a server of the file. It does not change: the next file makes another.
type upstream struct {
	entry
	*traffic
}

// A traffic is what clients do with a server, and what its child says. It outlives a file that does not change how the server runs.
type traffic struct {
	use      life.Use
	notifier *notifier
	record
	pid    atomic.Int64           // of the last child
	failed atomic.Pointer[string] // why it was not started; nil: it was
	stderr admin.Tail
	behind atomic.Pointer[[]string] // the gateways behind it; nil: none
	ring   atomic.Bool              // this gateway is one of them, or was since the server was connected
	asked  limits.Server
	woken  atomic.Int64 // when a call woke it last, in nanoseconds; 0: it has answered a call since

	mu    sync.Mutex
	level sentLevel
}

// count keeps a request in the report while it runs. Who looks is told of its begin and its end, and not in between: a call of an hour costs
// the page two events.
func (u *traffic) count(ctx context.Context, method string, params json.RawMessage) (done func(answered bool)) {
	u.use.Hold()
	end := u.begin(ctx, method, params)
	u.notifier.notify()
	return func(answered bool) {
		u.use.Release(true)
		end(answered)
		u.notifier.notify()
	}
}

// mayWake reports whether a call may wake the server at this time, which it then does.
func (u *traffic) mayWake(now time.Time) bool {
	last := u.woken.Load()
	return now.UnixNano()-last >= int64(wakeInterval) && u.woken.CompareAndSwap(last, now.UnixNano())
}

// hasAnswered notes that the server works: if it dies now, that is no reason to let calls wait.
func (u *traffic) hasAnswered() {
	if u.woken.Load() != 0 {
		u.woken.Store(0)
	}
}

// note keeps why a server was not started, for the report; nil: it was.
func (u *traffic) note(failed error) {
	if failed == nil {
		u.failed.Store(nil)
		return
	}
	why := failed.Error()
	u.failed.Store(&why)
}

// observe makes a child tell what the report says of it. Other transports have neither a process nor a standard error.
func (u *traffic) observe(to transport.Transport) {
	if child, ok := to.(*stdio.Command); ok {
		child.Stderr = u
		child.Started = func(pid int) { u.pid.Store(int64(pid)) }
	}
}

// Write implements io.Writer for the standard error of its child. It never waits, so it cannot delay the child.
func (u *traffic) Write(text []byte) (int, error) {
	defer u.notifier.notify()
	return u.stderr.Write(text)
}

// A sentLevel is the log level that a server knows.
type sentLevel struct {
	session *client.Session
	level   protocol.LogLevel
	changes int // of levels, then
}

// next returns the level that the server is to be told; "": it knows.
func (t sentLevel) next(session *client.Session, wanted protocol.LogLevel, changes int, ofCall protocol.LogLevel) protocol.LogLevel {
	if t.session != session {
		t = sentLevel{}
	}
	level := moreVerbose(wanted, ofCall)
	if t.changes == changes {
		level = moreVerbose(t.level, level)
	}
	if level == "" && t.level != "" {
		level = protocol.LogEmergency // there is no level without messages
	}
	if level == t.level {
		return ""
	}
	return level
}
