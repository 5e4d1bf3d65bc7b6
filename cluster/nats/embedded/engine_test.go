package embedded

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// A switchable server is one that a test stops, wipes and starts again.
type switchable struct {
	t       *testing.T
	options Options
	through func(net.Conn) net.Conn // what connections go through; nil: nothing

	mu     sync.Mutex
	server *Server
}

// newSwitchable starts a server.
func newSwitchable(t *testing.T) *switchable {
	s := &switchable{t: t, options: Options{Folder: testenv.Dir(t), Cluster: "test", Log: slog.New(slog.DiscardHandler)}}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *switchable) start() {
	server, err := Start(s.options)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = server
}

func (s *switchable) stop() {
	s.mu.Lock()
	server := s.server
	s.server = nil
	s.mu.Unlock()
	if server == nil {
		return
	}
	if err := server.Close(); err != nil {
		s.t.Error(err)
	}
}

func (s *switchable) wipe() {
	s.stop()
	if err := os.RemoveAll(filepath.Join(s.options.Folder, dataName)); err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

func (s *switchable) dial() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil, errors.New("the server is stopped")
	}
	c, err := s.server.server.InProcessConn()
	if err == nil && s.through != nil {
		c = s.through(c)
	}
	return c, err
}

// connect connects an engine through a line that a test cuts.
func (s *switchable) connect(t *testing.T) (cluster.Engine, *line) {
	t.Helper()
	l := &line{dial: s.dial}
	e, err := nats.Connect(t.Context(), nats.Options{
		URLs: []string{"nats://127.0.0.1"}, Cluster: "test", Token: s.server.state.Token, Dial: l.open, Log: s.options.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, l
}

// A line is the way to a server.
type line struct {
	dial func() (net.Conn, error)

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (l *line) open(context.Context, string, string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.New("the line is cut")
	}
	c, err := l.dial()
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

func (l *line) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut {
		for _, c := range l.conns {
			c.Close()
		}
		l.conns = nil
	}
}

// Guarantees: G-0078.1
func TestEngineContract(t *testing.T) {
	t.Parallel()
	clustertest.EngineContract(t, func(t *testing.T) clustertest.Harness {
		s := newSwitchable(t)
		var lines sync.Map
		return clustertest.Harness{
			Engine: func(t *testing.T) cluster.Engine {
				e, l := s.connect(t)
				lines.Store(e, l)
				return e
			},
			Cut: func(e cluster.Engine) func() {
				l, _ := lines.Load(e)
				l.(*line).setCut(true)
				return func() { l.(*line).setCut(false) }
			},
			Wipe: s.wipe,
		}
	})
}
