package client_test

import (
	"context"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A silentProxy is a proxy whose connections can fall silent, like those of a host that loses
// its power: no data passes, and no end sees a close.
type silentProxy struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	conns  []net.Conn
	silent map[net.Conn]bool
	dead   bool // new connections are silent from the start
	work   sync.WaitGroup
}

func newSilentProxy(t *testing.T, to string) *silentProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &silentProxy{listener: listener, to: to, silent: make(map[net.Conn]bool)}
	h.work.Go(h.accept)
	t.Cleanup(func() {
		listener.Close()
		h.mu.Lock()
		for _, c := range h.conns {
			c.Close()
		}
		h.mu.Unlock()
		h.work.Wait()
	})
	return h
}

func (h *silentProxy) accept() {
	for {
		in, err := h.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", h.to)
		if err != nil {
			in.Close()
			continue
		}
		h.mu.Lock()
		h.conns = append(h.conns, in, out)
		h.silent[in], h.silent[out] = h.dead, h.dead
		h.mu.Unlock()
		h.work.Go(func() { h.pass(in, out) })
		h.work.Go(func() { h.pass(out, in) })
	}
}

// pass copies until one end closes. After the connection has fallen silent, it discards
// what comes.
func (h *silentProxy) pass(from, to net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		h.mu.Lock()
		silent := h.silent[from]
		h.mu.Unlock()
		if silent && err == nil {
			continue
		}
		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			if !silent {
				to.Close()
			}
			return
		}
	}
}

// silence makes all connections silent, and new ones too until restore.
func (h *silentProxy) silence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
	for _, c := range h.conns {
		h.silent[c] = true
	}
}

// restore lets new connections work again. Silent ones stay silent.
func (h *silentProxy) restore() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = false
}

// A server that disappears is detected while a call waits. The next link does not use
// the connections of the lost one.
//
// Guarantees: G-0025.1, G-0025.7
func TestHalfOpenConnectionsAreFound(t *testing.T) {
	for _, version := range []string{protocol.Version20241105, protocol.LatestLegacy, protocol.Latest} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s, begun := newServer(server.Options{}), make(chan struct{})
			server.AddTool(s, protocol.Tool{Name: "once", InputSchema: []byte(`{"type":"object"}`)},
				func(ctx context.Context, _ *protocol.CallToolParams) (*protocol.CallToolResult, error) {
					if calls.Add(1) > 1 {
						return new(protocol.CallToolResult), nil
					}
					close(begun)
					<-ctx.Done()
					return nil, ctx.Err()
				})
			handler := streamable.NewHandler(s, streamable.HandlerOptions{})
			older := sse.NewHandler(s, sse.HandlerOptions{})
			site := httptest.NewUnstartedServer(handler)
			if version == protocol.Version20241105 {
				site.Config.Handler = older
			}
			site.Start()
			t.Cleanup(site.Close)
			t.Cleanup(site.CloseClientConnections)
			t.Cleanup(func() { handler.Close(0); older.Close(0) })
			proxy := newSilentProxy(t, site.Listener.Addr().String())
			options := client.Options{ProtocolVersion: version, Conn: conn.Tuning{Liveness: 500 * time.Millisecond, BackoffMin: 200 * time.Millisecond}}
			session, err := client.New(clientInfo, options).Connect(timeoutContext(t), specification.WatchClient(t, &streamable.Client{URL: "http://" + proxy.listener.Addr().String()}))
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			outcome := make(chan error, 1)
			go func() {
				again := session.With(client.CallOptions{WaitForReady: true, Retries: 5, Repeatable: true})
				_, err := again.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "once"})
				outcome <- err
			}()
			<-begun
			proxy.silence()
			status := session.Conn().Status()
			for ; status.State == conn.Ready; status = session.Conn().Status() {
				<-status.Changed()
			}
			if why := status.LastFailure; why.Kind != conn.LivenessLost {
				t.Errorf("it was lost because of %v", why)
			}
			proxy.restore()
			if err := <-outcome; err != nil {
				t.Fatal(err)
			}
		})
	}
}
