package sessions

import (
	"context"
	"errors"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcpjson"
)

// Stop, Start and Restart act on one server. They wait for an Apply only if that acts on the same server, and so does it for them: no session is
// started or ended twice.

// Stop ends the session of one server and its copies, as client.Session.Close does, and keeps it ended until Start or Restart, or until
// Apply finds other settings for it. It fails if the file that was applied last has no such server.
func (s *Set) Stop(ctx context.Context, name string) error {
	defer s.acting.begin(name)()
	server, err := s.known(name)
	if err != nil {
		return err
	}
	// Also if it does not run: it may be one that could not be started, and that the next Apply would try again.
	s.hold(server)
	return s.endAll(ctx, name)
}

// StopIf does what Stop does, but for copies, which go on, if the server has a session, and still returns true. It is for a program that ends servers by itself, such as
// one that nobody uses: by its turn, that may have changed.
// While still is asked, nobody else starts or ends the session of this server; it must not call the Set. So who finds in the same
// lock that the server is to end, and calls Start, gets the one after it.
func (s *Set) StopIf(ctx context.Context, name string, still func() bool) error {
	defer s.acting.begin(name)()
	server, err := s.known(name)
	e := s.entry(name)
	if err != nil || e == nil || !still() {
		return err
	}
	s.hold(server)
	return s.closeSessions(ctx, map[string]*entry{name: e})
}

// Start starts a server that was stopped, or whose session has ended, with the settings of the file that was applied
// last. If the server runs, nothing happens.
func (s *Set) Start(ctx context.Context, name string) error {
	defer s.acting.begin(name)()
	server, err := s.known(name)
	e := s.entry(name)
	if err != nil || e != nil && e.isRunning() {
		return err
	}
	if e != nil {
		err = s.closeSessions(ctx, map[string]*entry{name: e})
	}
	return errors.Join(err, s.startOne(ctx, server))
}

// Restart ends the session of one server and its copies, as client.Session.Close does, and starts another. The error may be about the
// old session only: the new one is started whatever that did.
func (s *Set) Restart(ctx context.Context, name string) error {
	defer s.acting.begin(name)()
	server, err := s.known(name)
	if err != nil {
		return err
	}
	return errors.Join(s.endAll(ctx, name), s.startOne(ctx, server))
}

// known returns a server of the file that was applied last. The caller has the turn of that server, so Close, which wants all turns, has either
// not begun or is noticed here: nothing is started after it.
func (s *Set) known(name string) (*mcpjson.Server, error) {
	if s.isClosed() {
		return nil, client.ErrClosed
	}
	return s.read(name)
}

// endAll ends the session with a server and its copies, if there are any.
func (s *Set) endAll(ctx context.Context, name string) error {
	ending := s.copiesOf(name)
	if e := s.entry(name); e != nil {
		ending[name] = e
	}
	return s.closeSessions(ctx, ending)
}

// startOne starts a server, although the context may have ended while the old session was closed. It does not wait until the server is ready.
func (s *Set) startOne(ctx context.Context, server *mcpjson.Server) error {
	return s.start(context.WithoutCancel(ctx), server)
}
