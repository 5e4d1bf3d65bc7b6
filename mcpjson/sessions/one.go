package sessions

import (
	"context"
	"errors"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcpjson"
)

// Stop, Start and Restart are for a person who acts on one server by hand. They wait for an Apply that is under way, and the next Apply
// for them: no session is started or ended twice.

// Stop ends the session of one server, as client.Session.Close does, and keeps it ended until Start or Restart, or until
// Apply finds other settings for it. It fails if the file that was applied last has no such server.
func (s *Set) Stop(ctx context.Context, name string) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	server, err := s.known(name)
	if err != nil {
		return err
	}
	// Also if it does not run: it may be one that could not be started, and that the next Apply would try again.
	s.held[name] = server
	return s.endOne(ctx, name)
}

// Start starts a server that was stopped, or whose session has ended, with the settings of the file that was applied
// last. If the server runs, nothing happens.
func (s *Set) Start(ctx context.Context, name string) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	server, err := s.known(name)
	if e := s.entry(name); err != nil || e != nil && e.isRunning() {
		return err
	}
	return errors.Join(s.endOne(ctx, name), s.startOne(ctx, server))
}

// Restart ends the session of one server, as client.Session.Close does, and starts another. The error may be about the
// old session only: the new one is started whatever that did.
func (s *Set) Restart(ctx context.Context, name string) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	server, err := s.known(name)
	if err != nil {
		return err
	}
	return errors.Join(s.endOne(ctx, name), s.startOne(ctx, server))
}

// known returns a new value for a server of the file: the transport of the old one may have been given a login.
func (s *Set) known(name string) (*mcpjson.Server, error) {
	if s.isClosed() {
		return nil, client.ErrClosed
	}
	return s.file.Server(name)
}

// endOne ends a session, if there is one.
func (s *Set) endOne(ctx context.Context, name string) error {
	e := s.entry(name)
	if e == nil {
		return nil
	}
	return s.closeSessions(ctx, map[string]*entry{name: e})
}

// startOne starts a server, although the context may have ended while the old session was closed. It does not wait until the server is ready.
func (s *Set) startOne(ctx context.Context, server *mcpjson.Server) error {
	return s.start(context.WithoutCancel(ctx), server)
}
