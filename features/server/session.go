package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/dialect"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A peer is the other side of one link: a legacy client, or any number of modern
// clients.
// It is in the server's sessions from the opening of its link until leave has returned, and has at most one session.
type peer struct {
	server    *host
	conn      *conn.Conn
	dialect   dialect.Dialect
	session   atomic.Pointer[Session]     // nil before initialize
	keeping   *keeping                    // nil unless the link is a transport.Keeper
	changes   changes.Listener            // for the legacy client
	questions atomic.Int32                // how many questions the legacy client has not answered
	leaving   atomic.Uint32               // what the end of the session waits for
	known     atomic.Pointer[knownClient] // the modern client whose _meta was decoded last
}

func (s *host) newPeer(link transport.Link) *peer {
	p := &peer{server: s, keeping: newKeeping(link)}
	p.dialect.Serving = true
	p.dialect.Batching = slices.ContainsFunc(s.options.ProtocolVersions, func(version string) bool { return revision.Has(version, revision.Batches) })
	// The loop of the Conn serves an initialize itself then, and nothing else of the link goes on meanwhile. So not
	// if code of the program may run for it, or for a restored session.
	p.dialect.Immediate = len(s.options.Middleware) == 0 && s.options.Audit == nil && s.options.SessionContext == nil && s.options.Fallback == nil &&
		!p.keeping.restores()
	// Before the Conn exists, whose messages may begin the notifications.
	p.changes.Use(p.sendChanges)
	options := conn.Options{Tuning: s.options.Conn}
	options.Dialect, options.Handler = &p.dialect, connHandler{p}
	if s.options.Audit != nil {
		options.Handler = &audited{connHandler: connHandler{p}}
	}
	p.conn = conn.Accept(link, options)
	return p
}

// setVersion records the revision of a modern request. The revision of a session does not
// change.
func (p *peer) setVersion(version string) {
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
			p.conn.Control().ReportPanic(where, panicked)
			err = &reportedPanic{panicked}
		}
	}()
	return f()
}

// These are what the end of a session may have to wait for. Zero is anything else.
const (
	aNotification = iota + 1
	onUnsubscribe
)

// end releases everything that belongs to the peer's session.
// It is called once, when the Conn has ended, and on a goroutine that may wait if there is anything to wait for.
// In this order: no change is sent any more; the room of subscriptions is given back; requests that have ended
// subscriptions have told the program; the program hears of the rest, with the values of the session's context, which has
// ended by then.
func (p *peer) end() {
	p.leaving.Store(aNotification)
	uris := p.changes.End()
	p.server.hub.GiveAll(&p.changes)
	p.leaving.Store(onUnsubscribe)
	defer p.leaving.Store(0)
	p.changes.AwaitHolds()
	session := p.session.Load()
	if session == nil {
		return
	}
	if given := session.given.Load(); given != nil {
		given.cancel()
	}
	if len(uris) == 0 {
		return
	}
	ctx, cancel := p.server.afterwards(session.context())
	defer cancel()
	p.unsubscribed(ctx, uris...)
}

// A Session is the session of one legacy client, from initialize until its link ends.
// Modern clients have none. Handlers find it in Request.Session.
type Session struct {
	peer    *peer
	client  *Client                           // shared with sessions whose clients say the same
	id      atomic.Pointer[string]            // nil until it is needed
	offered *protocol.ServerCapabilities      // shared, so it is read-only
	level   atomic.Pointer[protocol.LogLevel] // nil: the client wants no log messages
	logs    atomic.Pointer[logBudget]         // nil before the first log message
	roots   atomic.Pointer[toldRoots]         // nil: the client has to be asked
	given   atomic.Pointer[sessionContext]    // nil without Options.SessionContext
}

// A sessionContext is what Options.SessionContext returned for a session, and ends it.
type sessionContext struct {
	context.Context
	cancel context.CancelFunc
}

// context returns the context of the session: its values are those of Options.SessionContext, once that has returned.
func (s *Session) context() context.Context {
	if given := s.given.Load(); given != nil {
		return given.Context
	}
	return context.Background()
}

// ID returns a random text that identifies the session in logs. It is not the HTTP
// session id.
func (s *Session) ID() string {
	if id := s.id.Load(); id != nil {
		return *id
	}
	// Of several goroutines that ask first, one sets it, and all return that.
	id := rand.Text()
	s.id.CompareAndSwap(nil, &id)
	return *s.id.Load()
}

// Client returns the client of the session. Do not change it: sessions whose clients say
// the same share it.
func (s *Session) Client() *Client { return s.client }

// Restored reports whether the session began in an earlier process, or on another node, and is
// continued here (streamable.HandlerOptions.Sessions). What the program knows of a session is
// not restored, nor are calls and questions that were in flight. The log level is restored,
// and so are the subscriptions to resources that OnSubscribe, or else Visible, still allows:
// 256 of them at most, with 16 KiB of URIs. If there were more, any of them may be lost. The
// client is then told that every list it was offered, and every resource it subscribed to, may
// have changed.
func (s *Session) Restored() bool { return s.peer.keeping.restores() }

// Close ends the session. Running calls may finish until ctx ends; see
// conn.Conn.Close.
func (s *Session) Close(ctx context.Context) error { return s.peer.conn.Close(ctx) }

// Wait waits until the session has ended. It returns nil after Close, or if the client has ended the session properly.
// Otherwise it returns a conn.Reason, which says why the session ended. It may return slightly before Server.Sessions has lost
// the session.
func (s *Session) Wait() error {
	<-s.peer.conn.Done()
	switch reason := s.peer.conn.Status().Reason; reason.Kind {
	case conn.Stopped, conn.Drained, conn.PeerEnded:
		return nil
	default:
		return reason
	}
}

// Ping asks the client for an answer that says nothing else, and waits for it: until ctx ends, and for Options.Conn.RequestTimeout at
// most. Over HTTP the question reaches a client that listens on the stream of its session. No middleware sees it.
func (s *Session) Ping(ctx context.Context) error {
	_, err := s.peer.conn.Call(ctx, conn.Request{Method: protocol.MethodPing})
	if err != nil {
		return fmt.Errorf("server: %s: %w", protocol.MethodPing, err)
	}
	return nil
}

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

// Roots returns the roots of the client, outside of a call. The server asks the client, and waits for as long as a question may take, or until ctx ends.
// If the client has declared that it reports changes (roots.listChanged), it is asked here once, and again after such a report; up to 4 KiB of roots are kept, and what calls were told is not. If the client has not declared roots,
// nothing is sent, and the error matches ErrUnsupported. Over HTTP the question reaches a client that listens on the stream of its session.
func (s *Session) Roots(ctx context.Context) ([]protocol.Root, error) {
	if s.client.Capabilities.Roots == nil {
		return nil, fmt.Errorf("server: %s: %w", protocol.MethodListRoots, ErrUnsupported)
	}
	if !s.client.Capabilities.Roots.ListChanged {
		return s.askForRoots(ctx)
	}
	// Before the client is asked: if it reports a change meanwhile, its answer may be the old roots.
	changes := s.peer.dialect.RootsChanges()
	if told := s.roots.Load(); told != nil && told.changes == changes {
		return copyOf(told.roots), nil
	}
	// Several callers may ask at the same time: whoever waited for the question of another one would fail with that one's context.
	roots, err := s.askForRoots(ctx)
	if err == nil && sizeOfRoots(roots) <= mostToldRoots {
		s.roots.Store(&toldRoots{copyOf(roots), changes})
	}
	return roots, err
}

// askForRoots asks the client for its roots, outside of a call.
func (s *Session) askForRoots(ctx context.Context) ([]protocol.Root, error) {
	p := s.peer
	defer p.questions.Add(-1)
	if p.questions.Add(1) > mostQuestions {
		return nil, fmt.Errorf("%w: the client has %d open questions", ErrUnanswered, mostQuestions)
	}
	ctx, cancel := p.server.askingCalls.Bound(ctx)
	defer cancel(nil)
	result, err := p.server.handle(ctx, &Request{
		Method: protocol.MethodListRoots, Params: &protocol.ListRootsParams{}, Client: s.client, Session: s, Origin: &p.server.noOrigin,
		Outgoing: true, peer: p, sent: new(int64),
	})
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	answer, ok := result.(*protocol.ListRootsResult)
	if !ok {
		return nil, &AnswerError{Key: protocol.MethodListRoots, Err: fmt.Errorf("it is a %T", result)}
	}
	return answer.Roots, nil
}

// toldRoots are the roots that a legacy client has told. They do not change.
type toldRoots struct {
	roots   []protocol.Root
	changes uint32 // how often the client had reported other roots before it was asked
}

// mostToldRoots limits how much of its roots a session keeps, in bytes: a client must not store things at the server.
const mostToldRoots = 4 << 10

// copyOf returns roots that the program may change.
func copyOf(roots []protocol.Root) []protocol.Root {
	roots = slices.Clone(roots)
	for i := range roots {
		roots[i].Meta = maps.Clone(roots[i].Meta)
	}
	return roots
}

// sizeOfRoots returns about how much memory roots take, in bytes.
func sizeOfRoots(roots []protocol.Root) (size int) {
	const fields = 40 // of a Root, besides its texts
	for _, root := range roots {
		size += fields + len(root.URI) + len(root.Name) + sizeOfMeta(root.Meta)
	}
	return size
}

func sizeOfMeta(m protocol.Meta) (size int) {
	for name, value := range m {
		size += len(name) + len(value)
	}
	return size
}

// TaskStatus tells the client of a change of a task that it has started, for a program that serves the methods of tasks itself
// (Options.Route). Only clients of 2025-11-25 are told so. For any other client nothing is sent, and the error matches ErrUnsupported.
func (s *Session) TaskStatus(ctx context.Context, params *protocol.TaskStatusParams) error {
	info, _ := protocol.MethodInfo(protocol.NotificationTaskStatus)
	if !info.In(s.client.ProtocolVersion) {
		return fmt.Errorf("server: %s: %w", info.Name, ErrUnsupported)
	}
	return s.peer.tell(ctx, info.Name, params)
}

// logBudget returns the budget of the session's client.
// All messages to the client count, whichever request they belong to.
func (s *Session) logBudget() *logBudget {
	if budget := s.logs.Load(); budget != nil {
		return budget
	}
	s.logs.CompareAndSwap(nil, new(logBudget))
	return s.logs.Load()
}
