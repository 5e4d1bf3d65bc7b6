// Package sharing lets several MCP clients use one link to a server that speaks to one client, such
// as a process on its standard streams.
//
// A Server has one connection to the server and one to each client. The connections map ids,
// progress tokens and cancellations, in both directions. Everything else passes unchanged, but for
// this:
//
//   - The first client opens the session. Those that come later get the same answer to initialize,
//     or are refused if their capabilities are others than the server was told. Their
//     server/discover is passed on to a server of a modern revision.
//   - A notification of the server goes to all clients, and one of a subscription
//     (subscriptions/listen) to the client that made it.
//   - A resource stays subscribed until all clients that subscribed to it have unsubscribed. The
//     log level is the most verbose that a client has asked for.
//   - A request of the server goes to the client that has calls in flight, or to the only client.
//     If several have, it is refused, because nobody knows whose user it is for.
//
// A client whose connection takes no more notifications is cut off, so that it does not slow the
// others.
//
// # Goroutines
//
// A Server has none of its own: it works on those of its connections.
package sharing

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// Options configure a Server.
type Options struct {
	// Name names the server in errors and telemetry.
	Name string

	// May returns nil if a request may be passed to the server now, and otherwise why not.
	// It is asked before each request, and must not block. Default: it always may.
	May func() error

	// Log receives what the connections log. Default: slog.Default().
	Log *slog.Logger
}

// maxClients limits the clients of one server. A cluster has fewer nodes.
const maxClients = 1024

// A Server is one link to a server, and the clients that share it. It ends when the link does. Its
// methods may be called from any goroutine.
type Server struct {
	options Options
	link    transport.Link
	conn    *conn.Conn
	ready   chan struct{} // closed when the first client has opened a session
	done    chan struct{} // closed when the link and the connection have ended
	reason  error         // why; set before done is closed

	mu         sync.Mutex
	ended      bool // no further client is served
	clients    map[*sharer]struct{}
	opened     *session // the legacy session; nil before there is one
	isReady    bool
	level      protocol.LogLevel               // that the server was told; "" if none
	subscribed map[string]map[*sharer]struct{} // who has subscribed to a resource
	listenings map[int64]*listening            // subscriptions/listen under way, by the server's id
	left       sync.WaitGroup                  // the connections to clients

	changing turn // for what all clients share: subscriptions and the log level
}

// A session is what the first client and a legacy server have agreed on.
type session struct {
	capabilities string // of the client, in canonical form
	result       json.RawMessage
}

// New returns a Server for a link that was just opened, and owns the link.
func New(link transport.Link, o Options) *Server {
	s := &Server{
		options: o, link: link, ready: make(chan struct{}), done: make(chan struct{}),
		clients: map[*sharer]struct{}{}, subscribed: map[string]map[*sharer]struct{}{}, listenings: map[int64]*listening{},
		changing: make(turn, 1),
	}
	s.conn = conn.New(&once{link: link}, conn.Options{
		Dialect: dialect{}, Handler: upward{s},
		Tuning: conn.Tuning{
			Name: o.Name, Log: o.Log,
			Final:    func(conn.Reason) bool { return true }, // there is only one link
			Liveness: -1,                                     // the clients probe the server
			// The server may have as many requests under way as all clients together.
			MaxServing: maxServing, SendSlots: 1 << 16,
		},
	})
	s.conn.Control().LeaveOpening()
	if err := s.conn.Start(context.Background(), s.over); err != nil {
		panic(err) // it was not started before
	}
	s.conn.Control().Open() // it is ready now
	return s
}

// maxServing is how many requests of one client are passed on at the same time. More wait.
const maxServing = 1024

// A once is a transport with one link, which is open.
type once struct{ link transport.Link }

// Traits implements transport.Describer.
func (o *once) Traits() transport.Traits { return transport.Traits{OpensAtOnce: true} }

// Open implements transport.Transport.
func (o *once) Open(context.Context) (transport.Link, error) {
	if o.link == nil {
		return nil, transport.ErrClosed
	}
	link := o.link
	o.link = nil
	return link, nil
}

// over handles the end of the connection to the server.
func (s *Server) over(error) {
	s.reason = transport.ErrClosed
	if why := s.conn.Status().Reason; why.Err != nil {
		s.reason = why.Err // what the link has said
	}
	s.mu.Lock()
	s.ended = true // so nobody is added while Close waits for those who are there
	s.mu.Unlock()
	close(s.done)
	for _, c := range s.all() {
		c.conn.Stop()
	}
}

// Ready returns a channel that is closed when the first client has opened a session. Others that
// are served before may be refused.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Done returns a channel that is closed when the link to the server has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Reason returns why the link has ended, after Done.
func (s *Server) Reason() error { return s.reason }

// Close ends the link to the server within a grace, as transport.Link.Close does, and then all
// clients. It returns the error of the link.
func (s *Server) Close(grace time.Duration) error {
	err := s.link.Close(grace)
	s.conn.Stop() // it has nothing to do but to notice
	<-s.done
	s.left.Wait()
	return err
}

// Drain lets the requests under way end, for at most until ctx ends, and refuses others as not
// executed. Then it ends all clients, and the link to the server within the grace. An error says
// what was cut short.
func (s *Server) Drain(ctx context.Context, grace time.Duration) error {
	s.mu.Lock()
	s.ended = true
	errs := make(chan error, len(s.clients))
	n := len(s.clients)
	for c := range s.clients {
		go func() { errs <- c.conn.Close(ctx) }()
	}
	s.mu.Unlock()
	var err error
	for range n {
		if closed := <-errs; !errors.Is(closed, conn.ErrNotRunning) {
			err = errors.Join(err, closed)
		}
	}
	return errors.Join(err, s.Close(grace))
}

// Serve serves a client over a link, which it owns. If the server has ended, or has too many
// clients, it closes the link. The channel is closed when the link was closed.
func (s *Server) Serve(link transport.Link) (over <-chan struct{}) {
	c := &sharer{server: s}
	c.conn = conn.Accept(link, conn.Options{
		Dialect: dialect{}, Handler: c,
		Tuning: conn.Tuning{
			Name: s.options.Name, Log: s.options.Log, MaxServing: maxServing,
			DrainGrace: 24 * time.Hour, // the context of Drain says how long
		},
	})
	if !s.enter(c) {
		_ = link.Close(0) // nothing was sent
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if err := c.conn.Start(context.Background(), func(error) { s.leave(c) }); err != nil {
		panic(err) // it was not started before
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		c.conn.Stop()
	}
	return c.conn.Done()
}

// enter remembers a client, if there is room for it. It leaves in the end.
func (s *Server) enter(c *sharer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.clients) >= maxClients {
		return false
	}
	s.clients[c] = struct{}{}
	s.left.Add(1)
	return true
}

// leave forgets a client whose connection has ended.
func (s *Server) leave(c *sharer) {
	s.mu.Lock()
	delete(s.clients, c)
	for uri, by := range s.subscribed {
		if delete(by, c); len(by) == 0 {
			delete(s.subscribed, uri)
		}
	}
	s.mu.Unlock()
	s.left.Done()
}

// opens notes that a client has opened a session.
func (s *Server) opens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isReady {
		s.isReady = true
		close(s.ready)
	}
}

// hasSubscribers reports whether a client but this one has subscribed to a resource.
func (s *Server) hasSubscribers(uri string, but *sharer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.subscribed[uri] {
		if c != but {
			return true
		}
	}
	return false
}

func (s *Server) setSubscribed(uri string, c *sharer, to bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, served := s.clients[c]
	switch by := s.subscribed[uri]; {
	case to && served && by == nil:
		s.subscribed[uri] = map[*sharer]struct{}{c: {}}
	case to && served:
		by[c] = struct{}{}
	case !to:
		if delete(by, c); len(by) == 0 {
			delete(s.subscribed, uri)
		}
	}
}

// levelWith returns the most verbose level if a client asks for one, and the one that the server
// was told.
func (s *Server) levelWith(asking *sharer, level protocol.LogLevel) (wanted, told protocol.LogLevel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted = level
	for c := range s.clients {
		if c != asking && c.level != "" && c.level.Severity() < wanted.Severity() {
			wanted = c.level
		}
	}
	return wanted, s.level
}

// Local returns a link for a client of this process. It stands for the link to the server: it is
// lost for the same reason, and its Close ends the server.
func (s *Server) Local() transport.Link {
	near, far := inmem.Pipe(inmem.Options{})
	s.Serve(far)
	return &local{near, s}
}

// A local is a link to a Server in this process.
type local struct {
	transport.Link
	server *Server
}

// LinkTraits implements transport.LinkDescriber. The server's link says when bytes come in,
// from whomever they are for.
func (l *local) LinkTraits() transport.LinkTraits {
	now := transport.LinkTraitsOf(l.server.link)
	return transport.LinkTraits{RecordsReads: now.RecordsReads, LastRead: now.LastRead}
}

// Bind implements transport.Link.
func (l *local) Bind(to transport.Receiver) { l.Link.Bind(&explaining{to, l.server}) }

// Close implements transport.Link.
func (l *local) Close(grace time.Duration) error {
	return errors.Join(l.server.Close(grace), l.Link.Close(grace))
}

// An explaining receiver gets the reason of the server's loss in place of that of its own link.
type explaining struct {
	transport.Receiver
	server *Server
}

// Lost implements transport.Receiver.
func (e *explaining) Lost(loss transport.Loss) {
	if wait.IsClosed(e.server.Done()) {
		loss.Reason = e.server.Reason()
	}
	e.Receiver.Lost(loss)
}
