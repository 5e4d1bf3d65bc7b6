package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A Server offers features to any number of clients, of every revision, over any
// number of links. It is safe for concurrent use. Features may be added, replaced and
// removed while it serves; clients that asked for changes are told, at most once in
// 10 ms for each list.
//
// A modern client sees the features that exist when it asks. For a legacy client, the
// capabilities are fixed when the session is initialized. If there was no tool at
// that time, tools/list and tools/call are answered with -32601 for the rest of the
// session. The same holds for resources and prompts. A client of either kind may rely on
// what it learned when it connected, and never ask for tools; Bowline's does. So a server
// that adds its first tool later sets Options.Capabilities.Tools, with ListChanged, from
// the beginning.
type Server struct {
	host
	rounds rounds
	tasks  taskMethods

	adding     sync.Mutex                                 // held while methods or extensions changes
	extensions atomic.Pointer[map[string]json.RawMessage] // settings by name; copied when it changes

	capabilities  capabilities
	sessions      sessions
	subscriptions subscriptions
	tools         tools
	resources     resources
	prompts       prompts
	completions   completions
}

// New returns a server that introduces itself to clients as info. It panics if o
// names an unknown revision, or if its fields contradict each other.
func New(info protocol.Implementation, o Options) *Server {
	// The server does not change its options any more, so they are read without a lock.
	o = o.withDefaults()
	raw, err := protocol.Marshal(info)
	if err != nil { // strings and lists of strings can always be encoded
		panic(fmt.Sprintf("server: %v", err))
	}
	s := new(Server)
	s.owner = s
	s.info, s.rawInfo, s.rawMeta, s.options = info, raw, []byte(`{"`+protocol.MetaServerInfo+`":`+string(raw)+"}"), o
	if err := nodename.Check(o.Node); err != nil {
		panic(fmt.Sprintf("server: Node: %v", err))
	}
	s.turns = turn.New[sender](runtime.GOMAXPROCS(0))
	// The order matters. Tasks take their number of rounds from the rounds, and the table checks Options.Route by
	// them. What serves the methods needs the hub, which connect makes. The other nodes come last: they may report a
	// change before Subscribe has returned.
	s.rounds.init(&s.host, o.Asking)
	s.tasks.init(s, o.Tasks)
	s.connect()
	methods := s.table()
	s.methods.Store(&methods)
	s.handle = s.wrap(o.Middleware)
	s.joinNodes()
	return s
}

// connect gives each feature what it needs of the others. They are parts of the server and know it,
// but peers, calls and requests know only the host: what they need of a feature is a function
// there.
func (s *Server) connect() {
	s.tools.server, s.resources.server, s.prompts.server, s.completions.server = s, s, s, s
	s.capabilities.server, s.sessions.server, s.subscriptions.server = s, s, s
	s.hub = changes.NewHub(newSubscriptionRoom(s.options.MaxMemory / 48))
	s.subscriptions.Hub = s.hub
	s.sessions.live = make(map[*peer]struct{})
	s.ctx, s.sessions.cancel = context.WithCancel(context.Background())
	s.host.capabilities, s.maySubscribe, s.taskStatus = &s.capabilities, s.subscriptions.maySubscribe, s.tasks.statusOf
}

// Run serves the one peer behind a transport, and is all that the main function of a
// server on standard input and output needs. It ends when the peer has closed the
// connection, when the connection is lost, and when ctx ends, which a signal may do:
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	err := s.Run(ctx, &stdio.Server{})
//
// In every case Run closes the server as Close does, so that running calls may finish for
// Options.Conn.DrainGrace. It returns nil if everything has ended in good order, and
// otherwise the errors of Serve and Close.
func (s *Server) Run(ctx context.Context, t transport.Transport) error {
	// The end of ctx begins an orderly end, and must not cancel the calls at once. Close runs once: whoever comes
	// second waits for it.
	running := context.WithoutCancel(ctx)
	closed := sync.OnceValue(func() error { return s.Close(running) })
	link, err := t.Open(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("server: open: %w", err), closed())
	}
	defer context.AfterFunc(ctx, func() { _ = closed() })()
	if err = s.ServeLink(running, link); errors.Is(err, ErrClosed) && ctx.Err() != nil {
		err = nil // ctx has ended before the peer came
	}
	return errors.Join(err, closed())
}

// Serve opens the transport and serves the one peer behind it. It returns nil after
// the peer has closed the connection properly. It returns an error if the connection
// was lost. It also returns an error when ctx ends, which cancels running calls; with
// Run, they may finish. It returns ErrClosed if the server was already closed.
func (s *Server) Serve(ctx context.Context, t transport.Transport) error {
	link, err := t.Open(ctx)
	if err != nil {
		return fmt.Errorf("server: open: %w", err)
	}
	return s.ServeLink(ctx, link)
}

// ServeLink does what Serve does, for a link that is already open. The server then
// owns the link.
func (s *Server) ServeLink(ctx context.Context, link transport.Link) error {
	// The peer is registered before its Conn runs, so that Close finds every one that may serve something, and leaves
	// when nothing of the Conn runs any more.
	p := s.newPeer(link)
	if err := s.sessions.enter(p); err != nil {
		return errors.Join(err, link.Close(0))
	}
	defer s.sessions.leave(p)
	if err := p.conn.Run(ctx); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// MaxMemory returns Options.MaxMemory or its default. A streamable.Handler takes its own defaults from it.
func (s *Server) MaxMemory() int { return s.options.MaxMemory }

// Accept serves a link until the link is lost or the server is closed. It does not
// wait, and while nothing is being served it costs no goroutine. A listener, such as
// a streamable.Handler, calls it with each link. The server then owns the link.
func (s *Server) Accept(link transport.Link) {
	p := s.newPeer(link)
	leave := func(error) { s.sessions.leaveAtOnce(p) }
	if err := s.sessions.enter(p); err != nil {
		leave = func(error) {}
		p.conn.Stop() // it closes the link and serves nothing
	}
	// A new Conn can be started, and its hooks are told why it ends.
	_ = p.conn.Control().Begin(context.Background(), leave)
}

// Sessions returns the legacy sessions that are being served now, in no particular
// order.
func (s *Server) Sessions() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		for _, p := range s.sessions.all() {
			if session := p.session.Load(); session != nil && !yield(session) {
				return
			}
		}
	}
}

// Server returns the server of the session, for handlers and callbacks that several servers share.
func (s *Session) Server() *Server { return s.peer.server.owner.(*Server) }

// Close refuses new clients and calls, lets running calls finish, and ends every
// session. It returns when all sessions have ended. If ctx has no deadline, Close sets one
// itself: Options.Conn.DrainGrace from now. Requests that have not finished shortly before
// the deadline are cancelled. If ctx ends for another reason, all of them are cancelled
// immediately. If a handler waits for an answer of its client, its question fails
// immediately. When the last session has ended, nobody can ask for the result of a task: Close
// cancels the running tasks with the cause ErrClosed, and they fail.
//
// Close waits for handlers and callbacks to return until the deadline, and for each kind of
// them at least for Options.Conn.StopGrace. It returns the error of the first session that
// did not end properly, and a *conn.StuckError that names the handlers and callbacks that
// did not return.
func (s *Server) Close(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.drainGrace())
		defer cancel()
	}
	// Each step comes when nothing that still runs needs what it ends: first nobody new comes in, and the Conns begin to refuse
	// calls. Then the questions fail, since a handler that waits for its user would take all of the time. When the
	// Conns have ended, the program is told of the subscriptions. Only now nobody can ask for a task, so tasks end.
	// The other nodes come last: all of these may still have changed something.
	closed := s.sessions.close(ctx)
	s.askingCalls.Stop(ErrClosed)
	err := closed()
	grace := cmp.Or(max(s.options.Conn.StopGrace, 0), defaultStopGrace)
	stuck := s.sessions.wait(ctx, grace)
	if s.tasks.Tasks != nil {
		s.tasks.Stop(ErrClosed)
	}
	stuck = append(stuck, s.askingCalls.Wait(ctx, grace)...)
	if s.tasks.Tasks != nil {
		stuck = append(stuck, s.tasks.Wait(ctx, grace)...)
	}
	stuck = append(stuck, s.leaveNodes(ctx, grace)...)
	if len(stuck) > 0 {
		return errors.Join(err, &conn.StuckError{Tasks: stuck})
	}
	return err
}

// Samples yields the measurements of the server, for telemetry sinks: one sample for
// all its connections together, under the name in Options.Conn. Its counters never
// decrease, because they include connections that have ended.
func (s *Server) Samples() iter.Seq[telemetry.Sample] {
	return func(yield func(telemetry.Sample) bool) {
		yield(telemetry.Sample{Name: s.options.Conn.Name, Server: s.sessions.sample()})
	}
}
