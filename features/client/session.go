package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client/internal/cache"
	"github.com/bowline-mcp/bowline/features/client/internal/restore"
	"github.com/bowline-mcp/bowline/features/internal/dialect"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

// A Session is a handle for one server. It stays valid while the server crashes and
// comes back, until the program closes it. It is safe for concurrent use.
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
	own        bool // the session has its own supervisor
	start      start
	patient    bool                 // the session was created by Start, so it waits for its first server
	mirrors    bool                 // the transport mirrors arguments
	child      bool                 // the transport starts the server as a process
	given      atomic.Bool          // the program has the session
	peer       atomic.Pointer[peer] // the present or last server; nil until the session has been ready
	legacy     atomic.Bool          // the server supports no modern revision
	probing    atomic.Bool          // the client is finding out whether the server is modern
	endpoint   string               // the location of its server; "" if unknown
	again      atomic.Bool          // a server died because of the probe, and Connect need not wait
	notRefused atomic.Bool          // an attempt failed otherwise than by isRefused
	tools      toolNotes
	forms      sync.Mutex // held while a form is compiled
	events     eventQueue
	restore    restore.Restorer
	outage     restore.Outage
	cache      cache.Cache[*peer]
	raw        atomic.Pointer[rawCalls] // nil until the first
}

// A start is the part of Connect and Start that hands the session to its supervisor. The
// client lists the session before that, so Close may come meanwhile. The lock of the client
// guards it.
type start struct {
	abort   context.CancelCauseFunc // nil if the session has its own supervisor, which does not wait
	child   *supervisor.Child       // nil until the start is over, and if it failed
	aborted bool
	over    bool
	ended   chan struct{} // closed when the start is over; nil if nobody waits for that
}

// Status describes the connection of a session: its state, the reason, since when,
// and when it will try again.
type Status = conn.Status

// SessionOf returns the session that a Conn belongs to, with Options.Calls. Use it
// after you have found the Conn by its name, for instance in a registry.Registry. It
// reports false for nil, for a Conn that no Client created, and for one whose Connect
// or Start has not returned yet. Closing the session ends it for everybody.
func SessionOf(c *conn.Conn) (*Session, bool) {
	if c == nil {
		return nil, false
	}
	s, ok := c.Control().Owner().(*session)
	if !ok || !s.given.Load() {
		return nil, false
	}
	return &Session{session: s, options: s.client.options.Calls}, true
}

// With returns a view of the same session whose calls have the options o. They
// replace all options of this view; to change only some, start from Calls.
func (s *Session) With(o CallOptions) *Session { return &Session{session: s.session, options: o} }

// Calls returns the options of this view, for With.
func (s *Session) Calls() CallOptions {
	o := s.options
	o.pages = nil
	return o
}

// Pin returns a view of the session whose calls are bound to the present server
// session. After that server session has ended, calls fail with ErrStale and are not
// sent. If there is no server now, calls fail with ErrStale immediately.
func (s *Session) Pin() *Session {
	view := s.With(s.options)
	status := s.conn.Status()
	if view.options.Epoch = status.Epoch; status.State != conn.Ready {
		view.options.Epoch = math.MaxUint64 // no server session has this number
	}
	return view
}

// Name returns the name of the session: see Options.Conn.
func (s *Session) Name() string { return s.conn.Name() }

// Endpoint returns the location of the server (transport.Traits), or "" if the
// transport does not know it.
func (s *Session) Endpoint() string { return s.endpoint }

// Status returns the present status. It may be outdated by the time Status returns.
func (s *Session) Status() Status { return s.conn.Status() }

// AwaitReady waits until the server is ready. It fails if the session ends, or with
// the cause of ctx if ctx ends first.
func (s *Session) AwaitReady(ctx context.Context) error { return s.conn.AwaitReady(ctx) }

// Wake makes a session that waits for its next attempt to connect try again immediately.
// Call it when you know that the server is back, or after a login: pass it to OnLogin of
// an auth.Authorizer. In other states it does nothing. Wake does not wait.
func (s *Session) Wake() { s.conn.Wake() }

// Ready is the State of a session that has a server.
const Ready = conn.Ready

// Changes yields a Status whenever the session becomes ready or stops being ready,
// beginning with the present one. It ends when ctx or the session ends. Changes never
// skips a loss, even if a new server is ready before the loop continues; it then
// yields the loss first, with its Reason. Several losses during one iteration count as
// one. Changes runs on the caller's goroutine. It does not wait until subscriptions are
// restored on a new server; see Restored for that.
func (s *Session) Changes(ctx context.Context) iter.Seq[Status] {
	return func(yield func(Status) bool) {
		var last Status
		for status := s.Status(); status.State != conn.Closing; status = s.Status() {
			ready, wasReady := status.State == Ready, last.State == Ready
			if ready && wasReady && status.Epoch != last.Epoch {
				lost := last
				lost.State, lost.Reason, lost.LastFailure = conn.Backoff, status.LastFailure, status.LastFailure
				lost.Since = status.Since
				if !yield(lost) {
					return
				}
				wasReady = false
			}
			news := status
			if wasReady && !ready {
				news.Reason = status.LastFailure // status may be that of the next attempt already
			}
			if (ready != wasReady || last.State == "") && !yield(news) {
				return
			}
			last = status
			select {
			case <-status.Changed():
			case <-ctx.Done():
				return
			}
		}
	}
}

// Conn returns the connection of the session, for its counters and for advanced use.
func (s *Session) Conn() *conn.Conn { return s.conn }

// Client returns the client that created the session, for handlers that several clients share.
func (s *Session) Client() *Client { return s.client }

// Server describes the present server, or the last one while there is none. It
// returns the zero Server before the first server was ready.
func (s *Session) Server() Server {
	if p := s.peer.Load(); p != nil {
		return p.server
	}
	return Server{}
}

// Wait waits until the session has ended. It returns nil after Close or Stop, or if
// the server ended the session properly. Otherwise it returns why the session ended.
func (s *Session) Wait() error {
	child := s.awaitStart(false)
	if child == nil {
		return ErrClosed
	}
	<-child.Done()
	err := child.Err()
	if errors.Is(err, supervisor.ErrStopped) {
		return nil
	}
	return err
}

// Close refuses new calls, lets running calls finish, and ends the session. At the
// deadline of ctx, or after Options.Conn.DrainGrace (5 s) if ctx has none, Close
// stops what is still running. Its error then says how much that was, and matches
// context.DeadlineExceeded. If ctx ends for another reason, Close ends the session
// immediately and returns the context's cause. If a handler or hook of the program
// ignores the end of its context, a *conn.StuckError names it.
//
// Within the same time limit, Close delivers to OnEvent every event that has come in, also
// during the calls that it lets finish, and the Restored of a server that has just come back.
// SchemaRefused and NotAnswered say what may be lost of them.
func (s *Session) Close(ctx context.Context) error {
	if s.events.wanted() {
		grace := cmp.Or(max(s.client.options.Conn.DrainGrace, 0), 5*time.Second)
		settling, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		if waited := s.events.settle(settling); waited {
			ctx = settling
		}
		s.events.beginDrain()
	}
	err := s.conn.Close(ctx)
	if errors.Is(err, conn.ErrNotRunning) { // the supervisor is about to run the Conn again, so nothing is in flight
		err = nil
	}
	return errors.Join(err, s.release())
}

// Stop ends the session and all its calls immediately. Soon after, everything that
// belongs to the session has ended, including a child process. Stop does not wait for
// that; use Wait. Stop may be called from any goroutine, and more than once.
func (s *Session) Stop() { s.conn.Stop() }

// isOver reports whether the session has ended for good.
func (s *session) isOver() bool { return wait.IsClosed(s.conn.Done()) }

// endStart records how the start ended, and reports whether release has aborted it.
func (s *session) endStart(child *supervisor.Child) (aborted bool) {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	s.start.child, s.start.over, s.start.abort = child, true, nil
	if s.start.ended != nil {
		close(s.start.ended)
	}
	return s.start.aborted
}

// awaitStart waits until the start is over, and returns its child. It returns nil if the
// start failed. If abort is set, the start fails now instead of waiting.
func (s *session) awaitStart(abort bool) *supervisor.Child {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.start.over {
		if s.start.ended == nil {
			s.start.ended = make(chan struct{})
		}
		if s.start.aborted = s.start.aborted || abort; abort && s.start.abort != nil {
			s.start.abort(ErrClosed)
		}
		ended := s.start.ended
		c.mu.Unlock()
		<-ended
		c.mu.Lock()
	}
	return s.start.child
}

// release waits for the goroutine that ran the connection, or removes the connection
// from a supervisor that waits to run it. If the session is still being started, release
// aborts that. It returns an error that names the program's
// code that is still running.
func (s *session) release() error {
	defer s.client.remove(s)
	defer s.cache.Clear()
	var err error
	if child := s.awaitStart(true); child != nil {
		err = child.Stop(context.Background())
	}
	var left error // the Conn has already returned why it ended
	if err != nil {
		if errors.As(err, new(*supervisor.StuckError)) {
			return err
		}
		if stuck := new(conn.StuckError); errors.As(err, &stuck) {
			left = stuck
		}
	}
	if s.own {
		left = errors.Join(left, s.supervisor.Stop(context.Background()))
	}
	return left
}

// ClearCache empties the session's cache; see Options.CacheBytes. Call it when the
// session changes to the credentials of another user.
func (s *Session) ClearCache() { s.cache.Clear() }

// Ping checks that the server answers: by ping in the legacy revisions, and by
// server/discover in the modern ones, which have no ping. If the server is lost, Ping
// fails and does not ask the next one.
func (s *Session) Ping(ctx context.Context) error {
	if err := s.await(ctx, protocol.MethodPing); err != nil {
		return err
	}
	p := s.peer.Load()
	if p == nil {
		return s.unavailable(protocol.MethodPing)
	}
	method := ping
	if p.Modern() {
		method = discover
	}
	_, _, err := method.call(ctx, s.boundTo(p.Epoch()), nil)
	return err
}

// unavailable returns the error of a call while there is no server, or not the one that the
// view is bound to.
func (s *Session) unavailable(method string) error {
	now := s.conn.Status()
	var why error = &conn.StateError{State: now.State, Reason: now.Reason}
	switch gone := s.isGone(now); {
	case gone && now.State == conn.Ready:
		why = ErrStale
	case gone:
		why = fmt.Errorf("%w: %w", ErrStale, why)
	}
	return explain(refusedUnsent(method, why))
}

// isGone reports whether the view is bound to a server session that has ended.
func (s *Session) isGone(now Status) bool {
	bound := s.options.Epoch
	return bound != 0 && now.State != conn.Closing && (now.Epoch != bound || now.State == conn.Backoff)
}

// boundTo returns a view whose calls are bound to one server session. If the view is
// bound already, it does not change.
func (s *Session) boundTo(epoch uint64) *Session {
	bound := s.With(s.options)
	bound.options.Epoch = cmp.Or(bound.options.Epoch, epoch)
	return bound
}

// await waits for a server if the call should wait for one, because the form of the
// request depends on the server. A call that is bound to a server session which has ended
// does not wait.
func (s *Session) await(ctx context.Context, method string) error {
	if !s.options.WaitForReady || s.isGone(s.conn.Status()) {
		return nil
	}
	if err := s.conn.AwaitReady(ctx); err != nil {
		return explain(&conn.CallError{Method: method, Cause: waitEnded(ctx), Delivery: conn.NotSent, Err: err})
	}
	return nil
}

// waitEnded returns why a wait for a server ended: because of the context, or else the
// session.
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

// view returns the session with the options of the client.
func (s *session) view() *Session { return &Session{session: s, options: s.client.options.Calls} }
