package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/dialect"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A peer is the other side of one link: a legacy client, or any number of modern
// clients.
type peer struct {
	server    *Server
	conn      *conn.Conn
	dialect   dialect.Dialect
	session   atomic.Pointer[Session]     // nil before initialize
	changes   changes                     // for the legacy client
	questions atomic.Int32                // that the legacy client has not answered
	leaving   atomic.Uint32               // what the end of the session waits for
	known     atomic.Pointer[knownClient] // the modern client whose _meta was decoded last
}

func (s *Server) newPeer(link transport.Link) *peer {
	p := &peer{server: s}
	p.dialect.Batching = slices.Contains(s.options.ProtocolVersions, protocol.Version20250326)
	p.dialect.Immediate = len(s.options.Middleware) == 0 && s.options.SessionContext == nil && s.options.Fallback == nil
	p.changes.send = p.sendChanges
	options := s.options.Conn
	options.Dialect, options.Handler = &p.dialect, connHandler{p}
	p.conn = conn.Accept(link, options)
	return p
}

// spoke records the revision of a modern request. The revision of a session does not
// change.
func (p *peer) spoke(version string) {
	if p.session.Load() == nil {
		p.dialect.Spoke(version)
	}
}

// guarded runs code of the program on a goroutine whose panics the Conn does not recover.
// It reports a panic, and returns a *reportedPanic.
func (p *peer) guarded(where string, f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			panicked := &conn.PanicError{Value: value, Stack: debug.Stack()}
			p.conn.ReportPanic(where, panicked)
			err = &reportedPanic{panicked}
		}
	}()
	return f()
}

// These are what the end of a session may have to wait for.
const (
	aNotification = iota + 1
	onUnsubscribe
)

// end releases everything that belongs to the peer's session.
func (p *peer) end() {
	p.leaving.Store(aNotification)
	uris := p.changes.end()
	p.leaving.Store(onUnsubscribe)
	session := p.session.Load()
	if session == nil {
		return
	}
	if session.cancel != nil {
		session.cancel()
	}
	p.unsubscribed(context.Background(), uris...)
}

// A Session is the session of one legacy client, from initialize until its link ends.
// Modern clients have none. Handlers find it in Request.Session.
type Session struct {
	peer    *peer
	client  Client
	named   sync.Once
	id      string                            // generated when it is needed
	offered *protocol.ServerCapabilities      // shared, so it is read-only
	level   atomic.Pointer[protocol.LogLevel] // nil: the client wants no log messages
	logs    logBudget
	ctx     context.Context // of Options.SessionContext; nil without
	cancel  context.CancelFunc
}

// ID returns a random text that identifies the session in logs. It is not the HTTP
// session id.
func (s *Session) ID() string {
	s.named.Do(func() { s.id = rand.Text() })
	return s.id
}

// Client returns the client of the session.
func (s *Session) Client() *Client { return &s.client }

// Close ends the session. Running calls may finish until ctx ends; see
// conn.Conn.Close.
func (s *Session) Close(ctx context.Context) error { return s.peer.conn.Close(ctx) }

// ElicitationComplete tells the client that its user has finished on the page of a
// question with mode "url"; see Ask. The id is the ElicitationID of that question.
// Only clients of 2025-11-25 that open pages support this. For any other client
// nothing is sent, and the error matches ErrUnsupported.
func (s *Session) ElicitationComplete(ctx context.Context, id string) error {
	info, _ := protocol.MethodInfo(protocol.NotificationElicitationComplete)
	if !info.In(s.client.ProtocolVersion) || !s.client.Capabilities.Has(info.ClientCapability) {
		return fmt.Errorf("server: %s: %w", info.Name, ErrUnsupported)
	}
	return s.peer.tell(ctx, info.Name, &protocol.ElicitationCompleteParams{ElicitationID: id})
}

// initialize negotiates a revision (2025-11-25 basic/lifecycle). A link has at most one
// session.
func (c *call) initialize(_ context.Context, params *protocol.InitializeParams) (*protocol.InitializeResult, error) {
	s, p := c.peer.server, c.peer
	supported := s.options.ProtocolVersions
	version := protocol.Negotiate(params.ProtocolVersion, supported)
	switch {
	case params.ProtocolVersion == "":
		return nil, refuse(jsonrpc.CodeInvalidParams, "initialize: protocolVersion is missing")
	case version == "":
		return nil, refuse(jsonrpc.CodeInvalidRequest, "this server has no initialize, since it speaks only %s", strings.Join(supported, ", "))
	}
	result := s.tasks.offerList(c, &s.introduction(version).result)
	session := &Session{
		peer:    p,
		client:  Client{ProtocolVersion: version, Info: params.ClientInfo, Capabilities: params.Capabilities},
		offered: &result.Capabilities,
	}
	if !p.session.CompareAndSwap(nil, session) {
		return nil, refuse(jsonrpc.CodeInvalidRequest, "the session is initialized already")
	}
	if s.options.SessionContext != nil {
		ctx, cancel := context.WithCancel(context.Background())
		session.cancel, session.ctx = cancel, s.options.SessionContext(ctx, session)
	}
	p.dialect.Negotiated(version, nil)
	p.changes.offer(session.offered)
	return result, nil
}

// An introduction is the result of initialize for most clients, as long as the server has
// the same kinds of features. Sessions share it, so it is read-only.
type introduction struct {
	features features
	result   protocol.InitializeResult
	encoded  json.RawMessage // nil if that is impossible
}

// introduction returns what the server says of itself in a legacy revision. Middleware may
// change its result, so it gets one of its own.
func (s *Server) introduction(version string) *introduction {
	now := s.has()
	last := s.introduced.Load()
	if last != nil && last.features == now && last.result.ProtocolVersion == version {
		return last
	}
	last = &introduction{features: now, result: protocol.InitializeResult{
		ProtocolVersion: version, Capabilities: *s.offers(false), ServerInfo: s.info, Instructions: s.options.Instructions,
	}}
	if len(s.options.Middleware) == 0 {
		last.encoded, _ = protocol.Marshal(&last.result) // encode reports the error to each client
		s.introduced.Store(last)
	}
	return last
}

// encodeIntroduced encodes the result of initialize, unless it is an introduction.
func encodeIntroduced(encodeResult func(*call, []byte, any) ([]byte, error)) func(*call, []byte, any) ([]byte, error) {
	return func(c *call, dst []byte, result any) ([]byte, error) {
		last := c.peer.server.introduced.Load()
		if last != nil && result == any(&last.result) && last.encoded != nil {
			return append(dst, last.encoded...), nil
		}
		return encodeResult(c, dst, result)
	}
}

// discover describes the server (2026-07-28 server/discover).
func (c *call) discover(context.Context, *protocol.DiscoverParams) (*protocol.DiscoverResult, error) {
	options := &c.peer.server.options
	return &protocol.DiscoverResult{
		SupportedVersions: slices.Clone(options.ProtocolVersions),
		Capabilities:      *c.offered,
		Instructions:      options.Instructions,
	}, nil
}
