package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

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
	latest     atomic.Pointer[meeting] // nil until the session has been ready
	legacy     atomic.Bool             // the server was found to know no modern revision
	probing    atomic.Bool             // that is being found out
	watch      watch
	watching   sync.WaitGroup // of the watch's goroutines
}

// CallOptions apply to the calls of a view of a session, see Session.With.
type CallOptions struct {
	// Timeout ends a call without an answer. Zero: Options.Conn.RequestTimeout,
	// whose default is 30 s. Negative: only the context bounds it. It begins
	// when the request is made: the wait for ready has the context alone.
	Timeout time.Duration

	// ProgressRestarts asks for progress, and has each notification of it begin
	// the timeout anew, but never beyond MaxTimeout after the call was made.
	ProgressRestarts bool

	// MaxTimeout bounds a call whose progress restarts its timeout. Zero: ten
	// times the timeout.
	MaxTimeout time.Duration

	// WaitForReady waits for a server, until the context ends, instead of
	// failing at once while there is none.
	WaitForReady bool

	// OnProgress is told how far a call has come: on the calling goroutine,
	// before the method returns. While it runs only the newest progress is
	// kept. What is malformed, or does not say how far, is ignored. Nil: no
	// progress is asked for.
	OnProgress func(*protocol.ProgressParams)
}

// With returns the same session with other options for its calls.
func (s *Session) With(o CallOptions) *Session { return &Session{session: s.session, options: o} }

// Conn is the connection underneath, for its status and its counts.
func (s *Session) Conn() *conn.Conn { return s.conn }

// Server is what the server has said of itself last.
func (s *Session) Server() Server { return s.latest.Load().server }

// Close lets calls in flight finish, takes no new ones, and ends the session.
// At the end of ctx it ends it at once, and returns the context's cause.
func (s *Session) Close(ctx context.Context) error {
	return errors.Join(s.conn.Close(ctx), s.release())
}

// stop ends the session at once.
func (s *session) stop() error {
	s.conn.Stop()
	return s.release()
}

// release waits for the goroutine that ran the connection.
func (s *session) release() error {
	<-s.child.Done()
	s.watch.stop()
	s.watching.Wait()
	if s.own {
		return s.supervisor.Stop(context.Background())
	}
	return nil
}

// Ping asks the server for a sign of life: by ping in the legacy revisions, by
// server/discover in the modern ones, which have no ping.
func (s *Session) Ping(ctx context.Context, params *protocol.PingParams) error {
	if err := s.await(ctx, protocol.MethodPing); err != nil {
		return err
	}
	method := protocol.MethodPing
	if latest := s.latest.Load(); latest != nil && latest.modern() {
		method = protocol.MethodDiscover
	}
	_, err := call(ctx, s, s.conn, method, orNew(params), anything)
	return err
}
