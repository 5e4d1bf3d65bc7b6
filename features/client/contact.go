package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A ConnectError reports that Connect found no server. It matches ErrUnavailable, and
// unwraps to Err and to Last: errors.Is and errors.As find a *transport.ExitError, for
// instance, or exec.ErrNotFound.
type ConnectError struct {
	Name     string    // the name of the session
	Attempts int       // how many times the session tried to connect
	Since    time.Time // when the session began to connect
	Last     Reason    // why the last attempt failed; zero if none has failed yet
	Err      error     // why Connect gave up: Last, or the cause of the context's end
}

func (e *ConnectError) Error() string {
	attempts := fmt.Sprintf("%d attempts since %s", e.Attempts, e.Since.Format(time.TimeOnly))
	if e.Attempts == 1 {
		attempts = "1 attempt since " + e.Since.Format(time.TimeOnly)
	}
	last := "the server has not answered"
	if e.Last.Kind != "" {
		last = e.Last.Error()
	}
	switch final := errors.As(e.Err, new(Reason)); {
	case final && e.Attempts == 1:
		return "client: connect: " + last
	case final:
		return fmt.Sprintf("client: connect: %s, after %s", last, attempts)
	default:
		return fmt.Sprintf("client: connect: %s; gave up after %s: %v", last, attempts, e.Err)
	}
}

// Unwrap returns Err and Last.
func (e *ConnectError) Unwrap() []error { return []error{e.Err, e.Last} }

// MarshalJSON writes the error's text, and its fields in words.
func (e *ConnectError) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Error    string    `json:"error"`
		Name     string    `json:"name,omitempty"`
		Attempts int       `json:"attempts"`
		Since    time.Time `json:"since"`
		Last     Reason    `json:"last,omitzero"`
	}{e.Error(), e.Name, e.Attempts, e.Since, e.Last})
}

// Is reports whether target is ErrUnavailable; ErrDenied, if the server denied
// access or needs a login; or ErrTimedOut, if Connect ran out of time.
func (e *ConnectError) Is(target error) bool {
	switch target {
	case ErrUnavailable:
		return true
	case ErrDenied:
		return isDenied(e.Last)
	case ErrTimedOut:
		return errors.Is(e.Err, context.DeadlineExceeded)
	default:
		return false
	}
}

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

// isRefused reports whether the machine itself refused a connection: nothing listens at
// the address, or there is no such host.
func isRefused(err error) bool {
	const onWindows = syscall.Errno(10061) // WSAECONNREFUSED
	var lookup *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, onWindows) || errors.As(err, &lookup) && lookup.IsNotFound
}

// awaitFirst waits for the first server.
func (s *session) awaitFirst(ctx context.Context) error {
	began := time.Now()
	if s.openFirst(ctx) && s.conn.State() == conn.Ready {
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
		switch status.State {
		case conn.Ready:
			return nil
		case conn.Closing:
			if status.Reason.Kind == conn.Stopped && ctx.Err() != nil { // openFirst has stopped the session
				failed.Err = context.Cause(ctx)
				return failed
			}
			failed.Last, failed.Err = status.Reason, status.Reason
			return failed
		case conn.Backoff:
			if s.again.CompareAndSwap(true, false) {
				s.conn.Wake()
			}
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

// openFirst makes the first attempt to connect on this goroutine, if the transport lets it.
// If ctx ends meanwhile, it stops the session and reports false.
func (s *session) openFirst(ctx context.Context) bool {
	if ctx.Done() == nil {
		s.conn.Open()
		return true
	}
	unwatch := context.AfterFunc(ctx, s.conn.Stop)
	s.conn.Open()
	return unwatch()
}

// final is conn.Options.Final. A failure that is not final may go away before the Conn
// tries again.
func (s *session) final(why conn.Reason) bool {
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

// isHopeless reports whether a server could not be reached for a reason that waiting
// does not remove.
func isHopeless(why conn.Reason) bool {
	if why.Kind == conn.CrashLooping {
		errors.As(why.Err, &why)
	}
	switch why.Kind {
	case conn.ExecutableMissing, conn.Incompatible, conn.AuthRequired, conn.Exited, conn.Malformed, conn.Oversized:
		return true
	}
	var fault *jsonrpc.Error
	var status *transport.StatusError
	switch {
	case errors.As(why.Err, &status):
		return !mayPass(status.Status)
	case errors.As(why.Err, &fault): // the server refused initialize
		return fault.Code == jsonrpc.CodeMethodNotFound || fault.Code == jsonrpc.CodeInvalidParams || fault.Code == jsonrpc.CodeInvalidRequest
	case errors.As(why.Err, new(*transport.StartError)):
		var passing interface{ Temporary() bool }
		return !errors.As(why.Err, &passing) || !passing.Temporary()
	default:
		return errors.Is(why.Err, transport.ErrUntrusted) || errors.As(why.Err, new(*ResultError)) || endedUnanswered(why.Err)
	}
}

// mayPass reports whether an HTTP server that answers with this status may later work as
// an MCP server: it is overloaded, starting or failing.
func mayPass(status int) bool {
	switch status {
	case 408, 425, 429:
		return true
	case 501, 505: // the server does not support POST, or this version of HTTP
		return false
	default:
		return status >= 500
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
