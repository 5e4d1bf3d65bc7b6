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

// A hole is a proxy whose connections can fall silent, as those of a host do that has
// lost its power: nothing passes, and nobody is told.
type hole struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	conns  []net.Conn
	silent map[net.Conn]bool
	dead   bool // new connections fall silent at once
	work   sync.WaitGroup
}

func dig(t *testing.T, to string) *hole {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{listener: listener, to: to, silent: make(map[net.Conn]bool)}
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

func (h *hole) accept() {
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

// pass copies until either end closes, or the connection has fallen silent: then it
// swallows what comes.
func (h *hole) pass(from, to net.Conn) {
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

// swallow lets every connection fall silent, and new ones too until revive.
func (h *hole) swallow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
	for _, c := range h.conns {
		h.silent[c] = true
	}
}

// revive lets new connections work. Those that were silent stay so.
func (h *hole) revive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = false
}

// A server that vanishes is found while a call waits, and what finds it does not use
// the connections of the lost link again.
//
// Guarantees: G-0025.1, G-0025.7
func TestHalfOpenConnectionsAreFound(t *testing.T) {
	for _, version := range []string{protocol.Version20241105, protocol.LatestLegacy, protocol.Latest} {
		t.Run(version, func(t *testing.T) {
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
			proxy := dig(t, site.Listener.Addr().String())
			options := client.Options{ProtocolVersion: version, Conn: conn.Options{Liveness: 500 * time.Millisecond, BackoffMin: 200 * time.Millisecond}}
			session, err := client.New(clientInfo, options).Connect(guarded(t), specification.WatchClient(t, &streamable.Client{URL: "http://" + proxy.listener.Addr().String()}))
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			told := make(chan error, 1)
			go func() {
				again := session.With(client.CallOptions{WaitForReady: true, Retries: 5, Repeatable: true})
				_, err := again.CallTool(guarded(t), &protocol.CallToolParams{Name: "once"})
				told <- err
			}()
			<-begun
			proxy.swallow()
			status := session.Conn().Status()
			for ; status.State == conn.Ready; status = session.Conn().Status() {
				<-status.Changed()
			}
			if why := status.LastFailure; why.Kind != conn.LivenessLost {
				t.Errorf("it was lost because of %v", why)
			}
			proxy.revive()
			if err := <-told; err != nil {
				t.Fatal(err)
			}
		})
	}
}
