package server

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/dialect"
	"github.com/bowline-mcp/bowline/protocol"
)

// A session is one link being served: a legacy client, or any number of modern
// ones.
type session struct {
	server  *Server
	conn    *conn.Conn
	dialect dialect.Dialect
	agreed  atomic.Pointer[agreement] // nil before initialize

	mu      sync.Mutex
	changed bool           // the client is to be told that the tools have changed
	telling sync.WaitGroup // of the goroutine that tells it; there is one at a time
	tells   bool
}

// An agreement is what the handshake has settled for a whole legacy session.
type agreement struct {
	client  Client
	offered protocol.ServerCapabilities
}

// toolsChanged has a legacy client told, some time soon, that the tools have
// changed. Changes that come meanwhile are told as one.
func (s *session) toolsChanged() {
	if agreed := s.agreed.Load(); agreed == nil || agreed.offered.Tools == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed = true; !s.tells {
		s.tells = true
		s.telling.Go(s.tell)
	}
}

// tell ends once there is nothing to tell. What has no way to the client is
// lost: it lists the tools when it wants to know.
func (s *session) tell() {
	for s.hasChanged() {
		_ = s.conn.Notify(context.Background(), protocol.NotificationToolsListChanged, nil)
	}
}

func (s *session) hasChanged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.changed
	s.changed, s.tells = false, changed
	return changed
}
