package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/dialect"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
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
	dialect    dialect.Legacy
	supervisor *supervisor.Supervisor
	own        bool // the supervisor is this session's
	child      *supervisor.Child
	server     atomic.Pointer[protocol.InitializeResult] // of the latest handshake
}

// CallOptions apply to the calls of a view of a session, see Session.With.
type CallOptions struct {
	// Timeout ends a call without an answer. Zero: the connection's default of
	// 30 s. Negative: only the context bounds it.
	Timeout time.Duration

	// WaitForReady waits for a server, until the context ends, instead of
	// failing at once while there is none.
	WaitForReady bool

	// OnProgress is told how far a call has come: on the calling goroutine,
	// before the method returns. Nil: no progress is asked for.
	OnProgress func(*protocol.ProgressParams)
}

// With returns the same session with other options for its calls.
func (s *Session) With(o CallOptions) *Session { return &Session{session: s.session, options: o} }

// Conn is the connection underneath, for its status and its counts.
func (s *Session) Conn() *conn.Conn { return s.conn }

// Server is what the server said of itself in the latest handshake.
func (s *Session) Server() protocol.InitializeResult { return *s.server.Load() }

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
	if s.own {
		return s.supervisor.Stop(context.Background())
	}
	return nil
}

// Ping asks the server for a sign of life.
func (s *Session) Ping(ctx context.Context, params *protocol.PingParams) error {
	_, err := call[json.RawMessage](ctx, s, protocol.MethodPing, orNew(params))
	return err
}

// requestParams are params that can carry a progress token.
type requestParams interface {
	SetMeta(key string, value json.RawMessage)
}

// orNew is a copy of params to change, or empty params for nil.
func orNew[P any](params *P) *P {
	if params == nil {
		return new(P)
	}
	copied := *params
	return &copied
}

// call makes one request: encode, wait, decode, all on the calling goroutine.
func call[R any](ctx context.Context, s *Session, method string, params requestParams) (*R, error) {
	request := conn.Request{
		Method: method, ID: s.conn.NextID(),
		Timeout: s.options.Timeout, WaitForReady: s.options.WaitForReady,
	}
	if s.options.OnProgress != nil {
		params.SetMeta(protocol.MetaProgressToken, jsonrpc.IntegerID(request.ID).Append(nil))
		request.OnProgress = s.onProgress
	}
	var err error
	if request.Params, err = protocol.Marshal(params); err != nil {
		return nil, fmt.Errorf("client: %s: %w", method, err)
	}
	raw, err := s.conn.Call(ctx, request)
	if err != nil {
		return nil, err
	}
	result := new(R)
	if err := protocol.Unmarshal(raw, result); err != nil {
		return nil, &ResultError{Method: method, Err: err}
	}
	return result, nil
}

func (s *Session) onProgress(params json.RawMessage) {
	var progress protocol.ProgressParams
	if protocol.Unmarshal(params, &progress) == nil { // malformed progress is ignored, as the specification asks
		s.options.OnProgress(&progress)
	}
}

// A ResultError is a result that does not fit its method: the call was made
// and answered, and the answer cannot be read.
type ResultError struct {
	Method string
	Err    error
}

func (e *ResultError) Error() string {
	return fmt.Sprintf("client: %s: the result cannot be read: %v", e.Method, e.Err)
}

func (e *ResultError) Unwrap() error { return e.Err }

// A CapabilityError is a call to a server that does not offer its feature. It
// was not sent.
type CapabilityError struct {
	Method     string
	Capability string
}

func (e *CapabilityError) Error() string {
	return fmt.Sprintf("client: %s: the server does not offer %q", e.Method, e.Capability)
}

// ServeRequest implements conn.Handler: this client offers nothing to servers yet.
func (s *session) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + in.Method}
}

// ServeNotification implements conn.Handler.
func (s *session) ServeNotification(context.Context, *conn.Incoming) {}
