package client

import (
	"errors"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// outages lists the sessions that could not reach their servers, by endpoint
// (transport.Traits). When one session finds its server, the others of the same
// endpoint try again immediately, instead of waiting for the end of their backoff, which
// is up to 30 s. The Gate limits how many of them connect at the same time.
//
// A session never tries early twice in a row. So a server that answers some sessions and
// refuses others gets at most twice as many attempts as with backoff alone.
type outages struct {
	mu      sync.Mutex
	waiting map[string]map[*session]uint64 // the attempt that failed, by endpoint and session
}

// add records a failed attempt, if the endpoint may be unreachable.
func (o *outages) add(s *session, why conn.Reason) {
	attempt := s.conn.Status().Epoch
	if p := s.peer.Load(); s.endpoint == "" || p != nil && p.incarnation.Epoch() == attempt || !isOutage(why) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.woken == attempt {
		return
	}
	if o.waiting == nil {
		o.waiting = make(map[string]map[*session]uint64)
	}
	if o.waiting[s.endpoint] == nil {
		o.waiting[s.endpoint] = make(map[*session]uint64)
	}
	o.waiting[s.endpoint][s] = attempt
}

// end makes all sessions that wait for an endpoint try again.
func (o *outages) end(endpoint string) {
	o.mu.Lock()
	waiting := o.waiting[endpoint]
	delete(o.waiting, endpoint)
	for s, attempt := range waiting {
		s.woken = attempt + 1
	}
	o.mu.Unlock()
	for s := range waiting {
		s.conn.Wake()
	}
}

// forget removes a session that has ended.
func (o *outages) forget(s *session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.waiting[s.endpoint], s); len(o.waiting[s.endpoint]) == 0 {
		delete(o.waiting, s.endpoint)
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
