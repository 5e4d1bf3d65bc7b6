package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/dialect"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A session is one link being served: a legacy client, or any number of modern
// ones.
type session struct {
	server  *Server
	conn    *conn.Conn
	dialect dialect.Dialect
	agreed  atomic.Pointer[agreement] // nil before initialize

	mu      sync.Mutex
	listens bool           // the legacy client has said that it is initialized
	changed bool           // it is to be told that the tools have changed
	tells   bool           // it is being told
	telling sync.WaitGroup // of the goroutine that tells it; there is one at a time
}

// An agreement is what the handshake has settled for a whole legacy session.
type agreement struct {
	client  Client
	offered protocol.ServerCapabilities
}

// toolsChanged has a legacy client told, some time soon, that the tools have
// changed. Changes that come meanwhile, or before the client has said that it is
// initialized, are told as one.
func (s *session) toolsChanged() {
	if agreed := s.agreed.Load(); agreed == nil || agreed.offered.Tools == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = true
	s.beginToTell()
}

// initialized begins what may not overtake the answer to initialize
// (2025-11-25 basic/lifecycle).
func (s *session) initialized() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listens = true
	s.beginToTell()
}

// beginToTell is called with the mutex held.
func (s *session) beginToTell() {
	if s.listens && s.changed && !s.tells {
		s.tells = true
		s.telling.Go(s.tell)
	}
}

// tell ends once there is nothing to tell. What has no way to the client is
// lost: it lists the tools when it wants to know.
func (s *session) tell() {
	for s.hasChanged() {
		err := s.conn.Notify(context.Background(), protocol.NotificationToolsListChanged, nil)
		if errors.Is(err, transport.ErrBusy) { // the Conn gives up a link that stays so
			s.toolsChanged()
		}
	}
}

func (s *session) hasChanged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.changed
	s.changed, s.tells = false, changed
	return changed
}
