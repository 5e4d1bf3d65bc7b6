package gateway

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/internal/life"
	"github.com/bowline-mcp/bowline/gateway/internal/limits"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// An upstream is a server of the file. It does not change: the next file makes another.
type upstream struct {
	entry
	*traffic
	pool   *pool.Pool[*connection] // of those who do not share one. It belongs to all that were called so
	states *states                 // which do as well: who has called one before must hear of another one
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
	shared connection // that all clients use, or nobody but the gateway itself for its lists
	excess excess
}

// count keeps a request in the report while it runs. Who looks is told of its begin and its end, and not in between: a call of an hour costs
// the page two events.
func (u *traffic) count(ctx context.Context, method string, params json.RawMessage) (done func(answered bool)) {
	end := u.begin(ctx, method, params)
	u.notifier.notify()
	return func(answered bool) {
		end(answered)
		u.notifier.notify()
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

// observe makes a child tell what the report says of it. Other transports have neither a process nor a standard error. The
// process that is reported is that of the shared connection, and not one of an owner.
func (u *traffic) observe(to transport.Transport, shared bool) {
	child, ok := to.(*stdio.Command)
	if !ok {
		return
	}
	child.Stderr = u
	if shared {
		child.Started = func(pid int) { u.pid.Store(int64(pid)) }
	}
}

// Write implements io.Writer for the standard error of its child. It never waits, so it cannot delay the child.
func (u *traffic) Write(text []byte) (int, error) {
	defer u.notifier.notify()
	return u.stderr.Write(text)
}

// connections returns the shared one and those of owners, the oldest first.
func (u *upstream) connections() []*connection {
	return append([]*connection{&u.shared}, u.ofOwners()...)
}

// ofOwners returns the connections that not all clients share, the oldest first.
func (u *upstream) ofOwners() (all []*connection) {
	places, _ := u.pool.All()
	for _, p := range places {
		all = append(all, p.Value)
	}
	return all
}

// connection returns that of an owner, or nil.
func (u *upstream) connection(as string) *connection {
	for _, c := range u.ofOwners() {
		if c.as == as {
			return c
		}
	}
	return nil
}
