package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// ErrClosed is returned by Serve when the server was closed before.
var ErrClosed = errors.New("server: closed")

// Serve opens the transport and serves the one peer behind it. It returns when
// the peer has gone (nil after it left in good order), ctx has ended, which
// cancels what is being served, or the server was closed.
func (s *Server) Serve(ctx context.Context, t transport.Transport) error {
	link, err := t.Open(ctx)
	if err != nil {
		return fmt.Errorf("server: open: %w", err)
	}
	return s.ServeLink(ctx, link)
}

// ServeLink is Serve for a link that a listener was handed. It takes the link over.
func (s *Server) ServeLink(ctx context.Context, link transport.Link) error {
	// A session is made on a stack that is not kept, as this one is, see conn.Run.
	made := make(chan *session, 1)
	go func() { made <- s.newSession(link) }()
	peer := <-made
	leave, err := s.enter(peer)
	if err != nil {
		return errors.Join(err, link.Close(0))
	}
	defer leave()
	if err := peer.conn.Run(ctx); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// Accept serves a link until it is lost, or the server closed, and does not
// wait: while nothing is being served it costs no goroutine. It is what a
// listener, such as a streamable.Handler, calls with each link. It takes the
// link over.
func (s *Server) Accept(link transport.Link) {
	peer := s.newSession(link)
	leave, err := s.enter(peer)
	if err != nil {
		leave = func() {}
		peer.conn.Stop() // it closes the link, and serves nothing
	}
	// A new Conn can be started, and its hooks are told why it ends.
	_ = peer.conn.Start(context.Background(), func(error) { leave() })
}

func (s *Server) newSession(link transport.Link) *session {
	peer := &session{server: s}
	options := s.options.Conn
	options.Dialect, options.Handler = &peer.dialect, handler{peer}
	peer.conn = conn.Accept(link, options)
	return peer
}

// sessions are those being served.
type sessions struct {
	mu     sync.Mutex
	closed bool
	live   map[*session]struct{}
	gone   sync.WaitGroup
}

// enter notes a session until it leaves.
func (s *Server) enter(peer *session) (leave func(), err error) {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.sessions.closed {
		return nil, ErrClosed
	}
	if s.sessions.live == nil {
		s.sessions.live = make(map[*session]struct{})
	}
	s.sessions.live[peer] = struct{}{}
	s.sessions.gone.Add(1)
	deaf := s.audience.add(peer)
	return func() {
		deaf()
		peer.telling.Wait()
		s.sessions.mu.Lock()
		defer s.sessions.mu.Unlock()
		delete(s.sessions.live, peer)
		s.sessions.gone.Done()
	}, nil
}

// Close serves nobody new, lets what is being served finish, and ends every
// session. It returns when all are over. What has not finished at ctx's
// deadline, or after Options.Conn.DrainGrace when there is none, is stopped, and
// at the end of ctx all that is left. Close returns what conn.Conn.Close says of
// the first session that did not end in good order.
func (s *Server) Close(ctx context.Context) error {
	s.sessions.mu.Lock()
	s.sessions.closed = true
	var closing sync.WaitGroup
	var first atomic.Pointer[error]
	for peer := range s.sessions.live {
		closing.Go(func() {
			if err := peer.conn.Close(ctx); err != nil && !errors.Is(err, conn.ErrNotRunning) {
				first.CompareAndSwap(nil, &err)
			}
		})
	}
	s.sessions.mu.Unlock()
	closing.Wait()
	s.sessions.gone.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}
