package client

import (
	"context"
	"errors"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
)

type refusing struct{}

func (refusing) Open(context.Context) (transport.Link, error) { return nil, errors.New("refused") }

// A session stops its own supervisor when it ends, and does not stop a shared one.
func TestOwnSupervisorEndsWithItsSession(t *testing.T) {
	shared := supervisor.New(supervisor.Options{})
	defer shared.Stop(context.Background())
	for _, given := range []*supervisor.Supervisor{nil, shared} {
		s, err := New(protocol.Implementation{}, Options{Supervisor: given}).begin(context.Background(), refusing{})
		if err != nil {
			t.Fatal(err)
		}
		s.Stop()
		if err := s.release(); err != nil {
			t.Error(err)
		}
		_, err = s.supervisor.Start(context.Background(), supervisor.ChildSpec{Run: func(context.Context) error { return nil }})
		if own := given == nil; errors.Is(err, supervisor.ErrStopped) != own {
			t.Errorf("own %t: another child ended with %v", own, err)
		}
	}
}

// SessionOf finds the session of a Conn once the session is connected, and no session
// for any other Conn.
//
// Guarantees: G-0013.15
func TestSessionOfNeedsAConnectedSession(t *testing.T) {
	s, err := New(protocol.Implementation{}, Options{}).begin(t.Context(), refusing{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	defer s.Stop()
	for what, c := range map[string]*conn.Conn{
		"that is connecting": s.conn,
		"of nobody":          conn.New(refusing{}, conn.Options{}),
		"of another":         conn.New(refusing{}, conn.Options{Owner: s}),
		"that is nil":        nil,
	} {
		if found, ok := SessionOf(c); ok || found != nil {
			t.Errorf("a Conn %s has a session, want none", what)
		}
	}
}
