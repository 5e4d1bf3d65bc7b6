package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// Options configure a Server. The zero value of each field means its default.
type Options struct {
	// Conn configures the connection of each peer: bounds, timeouts, hooks, log. A
	// panic in a tool, or in another callback of the program, is logged through
	// slog.Default(), unless Conn.Log or Conn.Hooks.Panic is set; see
	// conn.Tuning.Log for how to turn that off. The server also logs what it cannot
	// restore of a session.
	Conn conn.Tuning

	// Instructions tell a model how to use the server.
	Instructions string

	// ProtocolVersions are the revisions that the server supports. Default:
	// protocol.Versions.
	ProtocolVersions []string

	// PageSize is the number of entries on one page of a list. Default, also below
	// 1: 100. At most protocol.MaxPageItems.
	PageSize int

	// Middleware wraps the handling of all messages, in both directions. The first
	// one is the outermost.
	Middleware []Middleware

	// Audit is called exactly once for each request from a client, with how it has ended, and
	// also for those that no middleware sees: pings, malformed messages, unknown methods, and
	// what was cancelled, denied, or refused because of overload. It sees each message of a
	// batch, and what an HTTP handler has refused before a session exists; see
	// transport.Auditor. Notifications and responses that are accepted have no record. The
	// record of a call that has become a task comes when the task has begun.
	//
	// If the request was served, ctx is that of its handler, so RequestFrom(ctx) has its
	// params. Otherwise ctx has the values of the HTTP request, if there was one. Audit runs
	// before the answer is sent, and delays it, or the whole connection. So return soon, for
	// instance with the record in a bounded queue. Audit may be called concurrently, and must
	// not use the connection. A panic of Audit loses that record and nothing else; it
	// is reported to Conn.Hooks.Panic and the log.
	Audit func(ctx context.Context, r Record)

	// SessionContext returns a context whose values are visible to every handler of a
	// legacy session. The server calls it once for each session, when the client
	// initializes it. The ctx ends with the session.
	SessionContext func(ctx context.Context, s *Session) context.Context

	// Visible reports whether the client of a request may see a feature. A hidden
	// feature is not listed, and a call to it fails as if it did not exist. Decide by
	// the caller's identity, never by the session. Nil: everybody sees everything.
	Visible func(ctx context.Context, f Feature) bool

	// OnSubscribe decides whether a client may subscribe to changes of a resource:
	// nil means yes. Setting OnSubscribe advertises subscriptions. If they are
	// advertised by Capabilities.Resources alone, a client may subscribe to the
	// resources that it may read. It is called again for a subscription of a session that is
	// continued here (Session.Restored). The Origin in ctx is then that of the request that
	// continues the session, and the method is "notifications/initialized". It is not called
	// if there is no room: what all sessions are subscribed to may take 1/48 of MaxMemory, which
	// clients share; the response is then jsonrpc.CodeOverloaded.
	OnSubscribe func(ctx context.Context, uri string) error

	// OnUnsubscribe is called when a subscription ends, also when the client has
	// disconnected. Unless a legacy client has asked for the end, the context ends
	// after Conn.DrainGrace, or shortly before the deadline of Server.Close.
	OnUnsubscribe func(ctx context.Context, uri string)

	// OnRootsChanged is called when the roots of a legacy client have changed.
	OnRootsChanged func(ctx context.Context, s *Session)

	// ListTTL is how long modern clients may cache the lists of features. If Visible
	// is set, a client may not share a cached list with others. 0: clients do not
	// cache lists.
	ListTTL time.Duration

	// Node is the name of this node, if several nodes serve one endpoint: the same as
	// Router.Node of the streamable.Handler, with the same restrictions. The states of calls
	// that Wait and the ids of tasks then begin with it, so that their node can be found.
	// Clients can read it. "": this node is the only one, or nobody forwards such requests.
	Node string

	// Changes carries changes of lists, resources and tasks between the nodes that serve one
	// endpoint, so that a client learns of them whichever node it listens to. After a
	// Change with Missed, each client is told that everything it listens to may have
	// changed, within 5 s. Default: a client learns only of the changes on its own node.
	Changes Changes

	// Tasks permits tool calls to become tasks. Nil: there are no tasks.
	Tasks *TaskOptions

	// MaxMemory is what the server and a streamable.Handler may keep for all clients together, in
	// bytes: bodies, unread messages, events, tasks and requests that wait. Default: 384 MiB. Options that
	// limit one of these have a fixed part of it as their default; see docs/limits.md. It does not count
	// what handlers use, and 4 KiB for each session.
	MaxMemory int

	// LogRate is the maximum number of log messages that one client gets each second,
	// and also in one burst; see Logger. The server drops more, and reports with the
	// next message how many it dropped. The limit applies to each session, and in
	// 2026-07-28 to each request. 0: 100. Negative: no limit.
	LogRate int

	// Asking limits the calls of features that ask their client.
	Asking AskingOptions

	// Fallback serves unknown methods and notifications. Its params are a
	// json.RawMessage. Nil: the server answers unknown requests with -32601.
	Fallback Handler

	// Capabilities are advertised in addition to those that follow from the features,
	// for instance extensions, experimental capabilities, and tools that are added later.
	Capabilities protocol.ServerCapabilities
}

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
	info    protocol.Implementation
	rawInfo json.RawMessage             // info in encoded form
	rawMeta json.RawMessage             // the _meta of most modern results; it contains info
	known   atomic.Pointer[knownClient] // the modern client whose _meta was decoded last
	options Options
	handle  Handler // the middleware, and then innermost
	nowhere transport.Origin
	rounds  rounds
	tasks   taskMethods
	turns   *turn.Scheduler[sender] // of the work for requests that do not come with another one

	adding     sync.Mutex                                 // held while methods or extensions changes
	methods    atomic.Pointer[map[string]*method]         // copied when it changes
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
	if o.PageSize < 1 {
		o.PageSize = 100
	}
	o.PageSize = min(o.PageSize, protocol.MaxPageItems)
	o.MaxMemory = cmp.Or(max(o.MaxMemory, 0), 384<<20)
	o.LogRate = cmp.Or(o.LogRate, 100)
	o.ProtocolVersions = slices.Clone(o.ProtocolVersions)
	if len(o.ProtocolVersions) == 0 {
		o.ProtocolVersions = protocol.Versions()
	}
	for _, version := range o.ProtocolVersions {
		if !slices.Contains(protocol.Versions(), version) {
			panic(fmt.Sprintf("server: ProtocolVersions: %q is not known", version))
		}
	}
	if o.Conn.Wheel == nil {
		o.Conn.Wheel = new(conn.Wheel)
	}
	o.Conn = o.Conn.Shared()
	raw, err := protocol.Marshal(info)
	if err != nil { // strings and lists of strings can always be encoded
		panic(fmt.Sprintf("server: %v", err))
	}
	s := &Server{info: info, rawInfo: raw, rawMeta: []byte(`{"` + protocol.MetaServerInfo + `":` + string(raw) + "}"), options: o}
	if err := nodename.Check(o.Node); err != nil {
		panic(fmt.Sprintf("server: Node: %v", err))
	}
	s.turns = turn.New[sender](runtime.GOMAXPROCS(0))
	s.rounds.init(s, o.Asking)
	s.tasks.init(s, o.Tasks)
	s.tools.server, s.resources.server, s.prompts.server, s.completions.server = s, s, s, s
	s.capabilities.server, s.sessions.server, s.subscriptions.server = s, s, s
	s.subscriptions.Hub = changes.NewHub(newSubscriptionRoom(s.options.MaxMemory / 48))
	s.sessions.live = make(map[*peer]struct{})
	s.sessions.ctx, s.sessions.cancel = context.WithCancel(context.Background())
	methods := s.table()
	s.methods.Store(&methods)
	s.handle = s.wrap(o.Middleware)
	s.joinNodes()
	return s
}

// guarded runs code of the program that belongs to no peer, and reports its panic.
func (s *Server) guarded(where string, f func()) {
	defer func() {
		if value := recover(); value != nil {
			s.options.Conn.ReportPanic(where, &conn.PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	f()
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
	leave := func(error) { p.server.sessions.leaveAtOnce(p) }
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
	closed := s.sessions.close(ctx)
	s.rounds.Stop(ErrClosed)
	err := closed()
	grace := cmp.Or(max(s.options.Conn.StopGrace, 0), defaultStopGrace)
	stuck := s.sessions.wait(ctx, grace)
	if s.tasks.Tasks != nil {
		s.tasks.Stop(ErrClosed)
	}
	stuck = append(stuck, s.rounds.Wait(ctx, grace)...)
	if s.tasks.Tasks != nil {
		stuck = append(stuck, s.tasks.Wait(ctx, grace)...)
	}
	stuck = append(stuck, s.leaveNodes(ctx, grace)...)
	if len(stuck) > 0 {
		return errors.Join(err, &conn.StuckError{Tasks: stuck})
	}
	return err
}

// These are the defaults of conn.Tuning.
const (
	defaultStopGrace  = 100 * time.Millisecond
	defaultDrainGrace = 5 * time.Second
)

func (s *Server) drainGrace() time.Duration {
	return cmp.Or(max(s.options.Conn.DrainGrace, 0), defaultDrainGrace)
}

// Samples yields the measurements of the server, for telemetry sinks: one sample for
// all its connections together, under the name in Options.Conn. Its counters never
// decrease, because they include connections that have ended.
func (s *Server) Samples() iter.Seq[telemetry.Sample] {
	return func(yield func(telemetry.Sample) bool) {
		yield(telemetry.Sample{Name: s.options.Conn.Name, Server: s.sessions.sample()})
	}
}
