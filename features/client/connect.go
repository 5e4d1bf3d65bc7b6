package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client/internal/cache"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport"
)

// New returns a client that introduces itself to servers as info. It starts no
// goroutine and opens no connection.
func New(info protocol.Implementation, o Options) *Client {
	version := protocol.Latest
	if protocol.IsModern(o.ProtocolVersion) {
		version = o.ProtocolVersion
	}
	if o.Conn.Wheel == nil {
		o.Conn.Wheel = new(conn.Wheel)
	}
	if o.Conn.Gate == nil {
		o.Conn.Gate = new(conn.Gate)
	}
	o.Conn = o.Conn.Shared()
	if o.MaxRounds <= 0 {
		o.MaxRounds = 10
	}
	c := &Client{
		info: info, options: o, chain: chain(o.Middleware), traces: len(o.Middleware) > 0 || o.Conn.Hooks.RequestStarted != nil,
		context: protocol.RequestContext{ProtocolVersion: version, ClientCapabilities: o.capabilities(false), ClientInfo: &info},
		table:   table{requests, questions, notifications},
		since:   time.Now(),
	}
	c.meta = sync.OnceValues(c.encodeMeta)
	c.silent = sync.OnceValues(c.encodeSilent)
	c.discover, c.initialize = sync.OnceValues(c.encodeDiscover), sync.OnceValues(c.encodeInitialize)
	return c
}

func (c *Client) encodeMeta() (m requestMeta, err error) {
	if m.members, err = c.context.Members(); err == nil {
		m.meta, err = protocol.Marshal(&c.context)
	}
	return m, err
}

func (c *Client) encodeDiscover() (json.RawMessage, error) {
	said, err := c.meta()
	if err != nil {
		return nil, err
	}
	return protocol.Append(nil, new(protocol.DiscoverParams), said.meta)
}

// encodeInitialize asks for the newest legacy revision, unless the options name one.
func (c *Client) encodeInitialize() (json.RawMessage, error) {
	version := protocol.LatestLegacy
	if protocol.IsLegacy(c.options.ProtocolVersion) {
		version = c.options.ProtocolVersion
	}
	return protocol.Marshal(protocol.InitializeParams{
		ProtocolVersion: version, Capabilities: c.options.capabilities(true), ClientInfo: c.info,
	})
}

// Connect starts a session over t and returns when it is ready. Connect fails
// immediately if waiting would not help: the child process exited, the executable is
// missing, access is denied (401, 403), the certificate is not trusted, the URL is
// not an MCP endpoint, or there is no common revision. After any other failure, such
// as a refused connection, a 5xx status or a timeout, Connect tries again with
// backoff until ctx ends. If ctx has no deadline, Connect gives up after 15 s; after 5 s
// if every attempt was refused by the machine itself (connection refused, no such host);
// and after 60 s while a child process runs and has sent no message, because it may
// install itself first. If Options.Conn.InitTimeout is set, each of these is at least
// twice that.
//
// Connect fails with a *ConnectError, which says how often it tried, since when, and
// why the last attempt failed. If the transport knows that it cannot work
// (transport.Checked), or ctx has ended, Connect fails before it tries. After a
// failure nothing is left running, except a registry.Store that ignores its context.
// The context limits only Connect itself, not the session. Connect panics if the
// transport is nil.
//
// Once a session has been ready, none of these failures ends it, unless
// Options.Conn.Final reports true for the reason. Use Start for a server that may
// come later.
func (c *Client) Connect(ctx context.Context, t transport.Transport) (*Session, error) {
	s, err := c.begin(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("client: connect: %w", err)
	}
	if err := s.awaitFirst(ctx); err != nil {
		s.Stop()
		_ = s.release()
		return nil, err
	}
	s.restore.Begin(host{s.session}, serverOf(s.peer.Load()))
	s.given.Store(true)
	return s, nil
}

// Start starts a session over t under the given name. It does not wait for the
// server, which may come later. Until then calls fail, or wait if
// CallOptions.WaitForReady is set. Session.AwaitReady waits for the server. The
// session ends when somebody calls Close or Stop, or when its Supervisor,
// Options.Conn.Final or Options.FailFast ends it. The first event that OnEvent
// receives is a Restored for the first server.
//
// Start fails with a *supervisor.DuplicateError if another session of the Client or
// the Supervisor has the name, with the error of the Supervisor's Registry, and if
// the transport knows that it cannot work (transport.Checked). The context limits
// only how long Start itself waits: for the Registry and, under a Strategy in which
// children depend on each other, for children that are starting. Start panics if the
// transport is nil.
func (c *Client) Start(ctx context.Context, name string, t transport.Transport) (*Session, error) {
	if c.isTaken(name) {
		return nil, fmt.Errorf("client: start: %w", &supervisor.DuplicateError{ID: name})
	}
	s, err := c.run(ctx, name, t, true)
	if err != nil {
		return nil, fmt.Errorf("client: start: %w", err)
	}
	s.restore.Begin(host{s.session}, nil)
	s.given.Store(true)
	return s, nil
}

// AwaitFirst waits until a session that Start has started has been ready, for as long as
// Connect waits: it fails with a *ConnectError when Connect would. The session goes on
// then, and waits for its first server. A session of Connect has had its first: AwaitFirst
// returns nil.
func (s *Session) AwaitFirst(ctx context.Context) error {
	if !s.patient {
		return nil
	}
	return s.awaitFirst(ctx)
}

// run starts a connection in the supervisor. If patient is set, the session does not end
// while its first server is missing.
func (c *Client) run(ctx context.Context, name string, t transport.Transport, patient bool) (*Session, error) {
	if wanted := c.options.ProtocolVersion; wanted != "" && !protocol.IsLegacy(wanted) && !protocol.IsModern(wanted) {
		return nil, fmt.Errorf("protocol version %q is not supported", wanted)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if checked, ok := transport.As[transport.Checked](t); ok {
		if err := checked.Check(); err != nil {
			return nil, err
		}
	}
	traits := transport.TraitsOf(t)
	s := &session{
		client: c, supervisor: c.options.Supervisor, patient: patient,
		mirrors: traits.MirrorsArguments, endpoint: traits.Endpoint, child: traits.StartsProcess,
	}
	s.restore.SetDefault(c.options.LogLevel)
	s.cache.Limit = cmp.Or(c.options.CacheBytes, cache.DefaultBytes)
	if s.supervisor == nil {
		s.supervisor, s.own = supervisor.New(supervisor.Options{Name: name}), true
	}
	o := conn.Options{Owner: s, Dialect: &s.dialect, Handler: handler{s}, Handshake: s.handshake, Tuning: c.options.Conn}
	o.Name, o.Final = name, s.final
	if s.conn = conn.New(t, o); !patient {
		s.conn.Control().LeaveOpening()
	}
	s.events.session = s
	if !s.own { // Connect may wait for the Registry of that supervisor
		ctx, s.start.abort = context.WithCancelCause(ctx)
		defer s.start.abort(nil)
	}
	if err := c.add(s); err != nil {
		return nil, err
	}
	child, err := s.supervisor.Connect(ctx, s.conn)
	if aborted := s.endStart(child); err != nil {
		c.remove(s)
		return nil, err
	} else if aborted {
		return nil, ErrClosed
	}
	return &Session{session: s, options: c.options.Calls}, nil
}

// begin starts a connection under the client's name or, without one, the name of its
// transport. If another session has that name, begin adds a suffix.
func (c *Client) begin(ctx context.Context, t transport.Transport) (s *Session, err error) {
	name := c.options.Conn.Name
	if name == "" {
		name = transport.TraitsOf(t).Name
	}
	if !c.isTaken(name) {
		s, err = c.run(ctx, name, t, false)
		if err == nil || !errors.As(err, new(*supervisor.DuplicateError)) {
			return s, err
		}
	}
	for {
		s, err = c.run(ctx, c.suffixed(name), t, false)
		if !errors.As(err, new(*supervisor.DuplicateError)) && !errors.As(err, new(*registry.TakenError)) {
			return s, err
		}
	}
}

// suffixed returns the name with a suffix that no child of the client's supervisor and
// no session of this client has. Other clients may have used many suffixes. So suffixed
// skips used ones in ever longer steps, and then halves the steps to go back.
func (c *Client) suffixed(base string) string {
	name := func(suffix int64) string { return fmt.Sprintf("%s-%d", base, suffix) }
	taken := func(suffix int64) bool {
		return isRun(c.options.Supervisor, name(suffix)) || c.isTaken(name(suffix))
	}
	free, step := c.nextSuffix(base), int64(1)
	for ; taken(free); step *= 2 {
		free += step
	}
	for below := step / 2; below > 0; below /= 2 {
		if !taken(free - below) {
			free -= below
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suffixes[base] = max(c.suffixes[base], free)
	return name(free)
}

// nextSuffix returns the suffix after the last one for a name.
func (c *Client) nextSuffix(base string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suffixes == nil {
		c.suffixes = make(map[string]int64)
	}
	c.suffixes[base] = max(c.suffixes[base]+1, 2)
	return c.suffixes[base]
}

// isRun reports whether a child with that name has not terminated.
func isRun(s *supervisor.Supervisor, name string) bool {
	if s == nil {
		return false
	}
	child, listed := s.Child(name)
	return listed && !wait.IsClosed(child.Done())
}
