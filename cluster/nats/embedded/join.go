package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// lookEvery is how often a process that has no connection looks for the server.
const lookEvery = 50 * time.Millisecond

// Join returns an Engine for a cluster. It starts the server of the folder in this process, or
// connects to the process that has it. When that one ends, one of the others starts the server
// within 2 s, and every Engine reconnects by itself. With Seeds, Join waits until enough servers
// have found each other, and says every 10 s for which. The caller closes the Engine, which also ends the server if it runs in
// this process.
//
// If the server cannot be reached until ctx ends, the error matches cluster.ErrUnavailable.
func Join(ctx context.Context, o Options) (cluster.Engine, error) {
	o, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("embedded: join: %w", err)
	}
	m := &member{options: o, folder: o.folder()}
	m.stop = func() {}
	m.busy.Add(1)
	defer m.busy.Add(-1)
	if len(o.Seeds) > 0 {
		saying, stop := context.WithCancel(context.Background())
		m.stop = stop
		m.saying.Go(func() { m.sayWaiting(saying) })
	}
	token, err := m.token(ctx)
	if err == nil {
		m.Engine, err = nats.Connect(ctx, nats.Options{
			URLs: []string{"nats://127.0.0.1"}, Cluster: o.Cluster, Token: token, Dial: m.dial, Log: o.Log,
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded: join: %w", blame(err, m.folder)), m.closeServer())
	}
	return m, nil
}

// A member is an Engine that may have the server with it.
type member struct {
	cluster.Engine
	options Options
	folder  string // of the server

	mu     sync.Mutex
	server *Server // nil: it runs elsewhere
	closed bool

	busy   atomic.Int32       // what waits for servers: Join, and buckets that are being opened
	stop   context.CancelFunc // ends saying
	saying sync.WaitGroup
}

// token returns the token of the server, which it starts if nobody else does.
func (m *member) token(ctx context.Context) (string, error) {
	for {
		if err := m.takeOver(); err != nil && !errors.Is(err, ErrHeld) {
			return "", err
		}
		s, err := readState(m.folder)
		if err == nil || !errors.Is(err, errNoState) {
			return s.Token, err
		}
		if err := wait.Sleep(ctx, lookEvery); err != nil {
			return "", fmt.Errorf("%w: %w", cluster.ErrUnavailable, err)
		}
	}
}

// takeOver starts the server if nobody runs it.
func (m *member) takeOver() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.server != nil || m.closed {
		return nil
	}
	s, err := start(m.options)
	if err != nil {
		return err
	}
	m.server = s
	m.options.log().Info("the NATS server of the cluster runs in this process", "folder", m.folder)
	return nil
}

// dial connects to the server, wherever it runs, and starts it if nobody else does. The address is
// that of nobody.
func (m *member) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		conn, err := m.dialOnce(ctx)
		if err == nil {
			return conn, nil
		}
		if paused := wait.Sleep(ctx, lookEvery); paused != nil {
			return nil, err
		}
	}
}

func (m *member) dialOnce(ctx context.Context) (net.Conn, error) {
	if err := m.takeOver(); err != nil && !errors.Is(err, ErrHeld) {
		return nil, err
	}
	m.mu.Lock()
	own := m.server
	m.mu.Unlock()
	if own != nil {
		return own.server.InProcessConn()
	}
	return dialFolder(ctx, m.folder)
}

// LocalAddress implements cluster.Engine.
func (m *member) LocalAddress() string {
	if len(m.options.Seeds) == 0 {
		return m.Engine.LocalAddress()
	}
	host, _, _ := net.SplitHostPort(m.options.Self) // it was checked
	return host
}

// Close ends the connection, and then the server.
func (m *member) Close() error { return errors.Join(m.Engine.Close(), m.closeServer()) }

func (m *member) closeServer() error {
	m.stop()
	m.saying.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.server == nil {
		return nil
	}
	return m.server.Close()
}
