package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
)

// These limit Connect if its context has no deadline (ADR-0037).
const (
	refusedPatience = 5 * time.Second  // every attempt was refused by the machine itself
	connectPatience = 15 * time.Second // otherwise
	installPatience = time.Minute      // a child lives and has sent no message
)

// errNoDeadline ends a Connect whose context has no deadline.
type errNoDeadline struct{ after time.Duration }

func (e errNoDeadline) Error() string { return fmt.Sprintf("no server within %v", e.after) }

// Is makes the error match context.DeadlineExceeded, as that of a deadline would.
func (errNoDeadline) Is(target error) bool { return target == context.DeadlineExceeded }

// patienceFor returns how long a Connect without a deadline waits in all, as far as the
// status shows. Two attempts always have time, if the program has set InitTimeout.
func (s *session) patienceFor(status conn.Status) time.Duration {
	least := 2 * s.client.options.Conn.InitTimeout
	switch trying := status.State != conn.Backoff; {
	case trying && s.child && !status.Heard:
		return max(installPatience, least)
	case !trying && !s.notRefused.Load():
		return max(refusedPatience, least)
	default:
		return max(connectPatience, least)
	}
}

// awaitFirst waits for the first server.
func (s *session) awaitFirst(ctx context.Context) error {
	began := time.Now()
	if !s.patient && s.openFirst(ctx) && s.conn.State() == conn.Ready {
		return nil
	}
	_, limited := ctx.Deadline()
	var timer *time.Timer
	var expired <-chan time.Time // nil if the context has a deadline
	if !limited {
		timer = time.NewTimer(connectPatience)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		status := s.conn.Status()
		failed := &ConnectError{Name: s.conn.Name(), Attempts: int(status.Epoch), Since: began, Last: status.LastFailure}
		if s.hasMet(ctx, status, failed) {
			if failed.Err == nil {
				return nil
			}
			return failed
		}
		if !limited {
			left := time.Until(began.Add(s.patienceFor(status)))
			if left <= 0 {
				failed.Err = errNoDeadline{time.Since(began).Round(100 * time.Millisecond)}
				return failed
			}
			timer.Reset(left)
		}
		select {
		case <-status.Changed():
		case <-expired: // a child may have sent something meanwhile, so look again
		case <-ctx.Done():
			failed.Err = context.Cause(ctx)
			return failed
		}
	}
}

// hasMet reports whether there is a server, or waiting for the first one does not help. It then says in failed why, and
// wakes a session whose server died because of the probe.
func (s *session) hasMet(ctx context.Context, status conn.Status, failed *ConnectError) bool {
	switch {
	case status.State == conn.Ready, s.patient && s.peer.Load() != nil:
		return true
	case status.State == conn.Closing && status.Reason.Kind == conn.Stopped && ctx.Err() != nil: // openFirst has stopped the session
		failed.Err = context.Cause(ctx)
		return true
	case status.State == conn.Closing:
		failed.Last, failed.Err = status.Reason, status.Reason
		return true
	case status.State != conn.Backoff:
		return false
	case s.again.Load():
		s.conn.Wake()
		return false
	case s.patient && isHopeless(status.LastFailure): // another session has ended then
		failed.Err = status.LastFailure
		return true
	}
	return false
}

// openFirst makes the first attempt to connect on this goroutine, if the transport lets it.
// If ctx ends meanwhile, it stops the session and reports false.
func (s *session) openFirst(ctx context.Context) bool {
	if ctx.Done() == nil {
		s.conn.Control().Open()
		return true
	}
	unwatch := context.AfterFunc(ctx, s.conn.Stop)
	s.conn.Control().Open()
	return unwatch()
}

// final is conn.Tuning.Final. A failure that is not final may go away before the Conn
// tries again.
func (s *session) final(why conn.Reason) bool {
	s.again.Store(false)
	if !isRefused(why.Err) {
		s.notRefused.Store(true)
	}
	if s.isFinal(why) {
		return true
	}
	if p := s.peer.Load(); p == nil || p.Epoch() != s.conn.Status().Epoch { // this attempt has not been ready
		s.client.outages.Add(s.endpoint, &s.outage, s.conn, why)
	}
	return false
}

// isFinal reports whether a failure ends the session. While Connect waits for its first
// server, a failure is final if waiting does not help (ADR-0037). Afterwards the server
// may be in the middle of an update.
func (s *session) isFinal(why conn.Reason) bool {
	switch own := s.client.options.Conn.Final; {
	case s.diedOfProbe(why):
		return false
	case s.client.options.FailFast:
		return true
	case !s.patient && s.peer.Load() == nil && isHopeless(why):
		return true
	default:
		return own != nil && own(why)
	}
}

// diedOfProbe reports whether an incarnation was lost because its server crashed on
// server/discover, or did not answer it in time. The next attempt does not send it, and
// Connect does not wait before that attempt. If the server was modern before, it was
// lost for another reason.
func (s *session) diedOfProbe(why conn.Reason) bool {
	if why.Kind == conn.CrashLooping {
		errors.As(why.Err, &why)
	}
	switch why.Kind {
	case conn.Exited, conn.LinkBroken, conn.PeerEnded, conn.InitTimedOut:
	default:
		return false
	}
	if latest := s.peer.Load(); latest != nil && latest.Modern() || !s.probing.CompareAndSwap(true, false) {
		return false
	}
	s.legacy.Store(true)
	s.again.Store(true)
	return true
}
