package restore

import (
	"errors"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Outages lists the sessions that could not reach their servers, by endpoint
// (transport.Traits). When one session finds its server, the others of the same
// endpoint try again immediately, instead of waiting for the end of their backoff, which
// is up to 30 s. The Gate limits how many of them connect at the same time. The zero value is
// an empty list.
//
// A session never tries early twice in a row. So a server that answers some sessions and
// refuses others gets at most twice as many attempts as with backoff alone.
type Outages struct {
	mu      sync.Mutex
	waiting map[string]map[*Outage]failedAttempt // by endpoint
}

// An Outage is the place of one session in Outages.
type Outage struct {
	woken uint64 // the last attempt that Outages began early; guarded by the lock of Outages
}

type failedAttempt struct {
	conn   *conn.Conn
	number uint64
}

// Add records a failed attempt of a Conn, if the endpoint may be unreachable. The attempt must
// not have been ready.
func (o *Outages) Add(endpoint string, s *Outage, c *conn.Conn, why conn.Reason) {
	if endpoint == "" || !isOutage(why) {
		return
	}
	failed := failedAttempt{c, c.Status().Epoch}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.woken == failed.number {
		return
	}
	if o.waiting == nil {
		o.waiting = make(map[string]map[*Outage]failedAttempt)
	}
	if o.waiting[endpoint] == nil {
		o.waiting[endpoint] = make(map[*Outage]failedAttempt)
	}
	o.waiting[endpoint][s] = failed
}

// End makes all sessions that wait for an endpoint try again.
func (o *Outages) End(endpoint string) {
	o.mu.Lock()
	waiting := o.waiting[endpoint]
	delete(o.waiting, endpoint)
	for s, failed := range waiting {
		s.woken = failed.number + 1
	}
	// No Conn works while the lock is held, because Add is called by Conns.
	o.mu.Unlock()
	for _, failed := range waiting {
		failed.conn.Wake()
	}
}

// Len returns for how many endpoints sessions wait.
func (o *Outages) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting)
}

// Forget removes a session that has ended.
func (o *Outages) Forget(endpoint string, s *Outage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.waiting[endpoint], s); len(o.waiting[endpoint]) == 0 {
		delete(o.waiting, endpoint)
	}
}

// isOutage reports whether an attempt failed because no server was there. A server that
// refuses the session, or asks it to wait, is there.
func isOutage(why conn.Reason) bool {
	if why.Kind == conn.CrashLooping {
		errors.As(why.Err, &why)
	}
	switch why.Kind {
	case conn.OpenFailed, conn.HandshakeFailed, conn.InitTimedOut, conn.LinkBroken:
	default:
		return false
	}
	var status *transport.StatusError
	if errors.As(why.Err, &status) { // 502 to 504 come from a gateway without its server
		return status.RetryAfter == 0 && status.Status >= 502 && status.Status <= 504
	}
	return !errors.As(why.Err, new(*jsonrpc.Error))
}
