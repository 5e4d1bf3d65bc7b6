package client

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/dialect"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

// A Session is a conversation with one server, for as long as the program
// wants it. It is safe for concurrent use.
type Session struct {
	*session
	options CallOptions
}

// session is what all views of a Session share.
type session struct {
	client     *Client
	conn       *conn.Conn
	dialect    dialect.Dialect
	supervisor *supervisor.Supervisor
	own        bool // the supervisor is this session's
	child      *supervisor.Child
	patient    bool                    // it was given to the program before there was a server
	given      atomic.Bool             // the program has it, or is about to
	latest     atomic.Pointer[meeting] // nil until the session has been ready
	legacy     atomic.Bool             // the server was found to know no modern revision
	probing    atomic.Bool             // that is being found out
	listed     listed                  // what the server has said of its tools
	changes    chan struct{}           // capacity one: a token waits while there is something to tell; nil unless the program wants to be told
}

// SessionOf is the session that a Conn belongs to, with no options for its
// calls: for those who find the Conn by its name, in a registry.Registry for
// instance. It reports false for a Conn that no Client has made, for one whose
// Connect or Start has not come to its end yet, and for nil. Whoever calls Close
// ends the session for all.
func SessionOf(c *conn.Conn) (*Session, bool) {
	if c == nil {
		return nil, false
	}
	s, ok := c.Owner().(*session)
	if !ok || !s.given.Load() {
		return nil, false
	}
	return &Session{session: s}, true
}

// With returns the same session with other options for its calls.
func (s *Session) With(o CallOptions) *Session { return &Session{session: s.session, options: o} }

// Conn is the connection underneath, for its status and its counts.
func (s *Session) Conn() *conn.Conn { return s.conn }

// Server is what the server has said of itself last: nothing, in a notification
// that came before it did.
func (s *Session) Server() Server {
	if met := s.latest.Load(); met != nil {
		return met.server
	}
	return Server{}
}

// Close lets calls in flight finish, takes no new ones, and ends the session.
// What has not finished at ctx's deadline, or after Options.Conn.DrainGrace (5 s)
// when there is none, is stopped: the error says how much, and matches
// context.DeadlineExceeded. At the end of ctx it ends the session at once, and
// returns the context's cause. Code of the program's that ignores the end of its
// context is named in a *conn.StuckError.
func (s *Session) Close(ctx context.Context) error {
	err := s.conn.Close(ctx)
	if errors.Is(err, conn.ErrNotRunning) { // its supervisor is to run it again: nothing is in flight
		err = nil
	}
	return errors.Join(err, s.release())
}

// stop ends the session at once.
func (s *session) stop() error {
	s.conn.Stop()
	return s.release()
}

// release waits for the goroutine that ran the connection, or takes it off a
// supervisor that waits to run it, and says what code of the program's still
// runs.
func (s *session) release() error {
	err := s.child.Stop(context.Background())
	if errors.As(err, new(*supervisor.StuckError)) {
		return err
	}
	var left error // why the connection has ended besides is told by the Conn
	if stuck := new(conn.StuckError); errors.As(err, &stuck) {
		left = stuck
	}
	if s.own {
		left = errors.Join(left, s.supervisor.Stop(context.Background()))
	}
	return left
}

// Ping asks the server for a sign of life: by ping in the legacy revisions, by
// server/discover in the modern ones, which have no ping. The question is for
// the server that is there, and is not put to the next one.
func (s *Session) Ping(ctx context.Context, params *protocol.PingParams) error {
	if err := s.await(ctx, protocol.MethodPing); err != nil {
		return err
	}
	method, met := protocol.MethodPing, s.latest.Load()
	if met == nil {
		now := s.conn.Status()
		why := &conn.StateError{State: now.State, Reason: now.Reason}
		return &conn.CallError{Method: method, Cause: conn.Refused, Delivery: conn.NotSent, Err: why}
	}
	if met.modern() {
		method = protocol.MethodDiscover
	}
	_, _, err := call(ctx, s.boundTo(met), method, params, nothing, anything)
	return err
}

// boundTo is the view of a session for calls that are safe to repeat, to one
// server that was met. One that is for another epoch stays so.
func (s *Session) boundTo(met *meeting) *Session {
	bound := s.safe()
	bound.options.Epoch = cmp.Or(bound.options.Epoch, met.incarnation.Epoch())
	return bound
}

// safe is the view of a session for calls that are safe to repeat.
func (s *Session) safe() *Session {
	view := s.With(s.options)
	view.options.Repeatable = true
	return view
}

// await waits for a server if the call is to: how it is asked is known only then.
func (s *Session) await(ctx context.Context, method string) error {
	if !s.options.WaitForReady {
		return nil
	}
	if err := s.conn.AwaitReady(ctx); err != nil {
		return &conn.CallError{Method: method, Cause: waitEnded(ctx), Delivery: conn.NotSent, Err: err}
	}
	return nil
}

// waitEnded is why a wait for ready has ended: the context, or else the session.
func waitEnded(ctx context.Context) conn.Cause {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return conn.TimedOut
	case ctx.Err() != nil:
		return conn.Cancelled
	default:
		return conn.ShutDown
	}
}
