package streamable_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A cluster is some nodes behind one address, each on its own socket, which get
// requests in turn.
type cluster struct {
	url   string
	turn  atomic.Int64
	nodes []*node
}

type node struct {
	*server.Server
	handler *streamable.Handler
	site    *httptest.Server
	served  atomic.Int64 // how many calls its tool got
	dead    atomic.Bool
}

// kill ends a node as if its process had died.
func (n *node) kill(t *testing.T) {
	n.dead.Store(true)
	n.site.Listener.Close()
	n.site.CloseClientConnections()
	if err := n.handler.Close(0); err != nil {
		t.Error(err)
	}
	n.site.Close()
}

func newCluster(t *testing.T, size int) *cluster {
	return newClusterWith(t, size, streamable.Forward)
}

func newClusterWith(t *testing.T, size int, forward func(*url.URL) http.Handler) *cluster {
	c := &cluster{}
	router := make([]*streamable.Nodes, size)
	for n := range size {
		s := &node{Server: server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})}
		server.AddTool(s.Server, protocol.Tool{Name: "long"}, func(ctx context.Context, _ struct{}) (string, error) {
			s.served.Add(1)
			server.Poll(ctx, 50*time.Millisecond)
			_ = wait.Sleep(ctx, 100*time.Millisecond)
			return fmt.Sprint(n), nil
		})
		router[n] = &streamable.Nodes{Self: fmt.Sprint("node-", n), Others: make(map[string]http.Handler)}
		s.handler = streamable.NewHandler(s.Server, streamable.HandlerOptions{Router: router[n]})
		s.site = httptest.NewServer(s.handler)
		c.nodes = append(c.nodes, s)
	}
	for n, s := range c.nodes {
		address, err := url.Parse(s.site.URL)
		if err != nil {
			t.Fatal(err)
		}
		for other := range size {
			if other != n {
				router[other].Others[router[n].Self] = forward(address)
			}
		}
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(c.turn.Add(1))
		for c.nodes[n%size].dead.Load() {
			n++
		}
		c.nodes[n%size].handler.ServeHTTP(w, r)
	}))
	c.url = front.URL
	t.Cleanup(func() {
		for _, s := range c.nodes {
			_ = s.Close(context.Background())
			if err := s.handler.Close(0); err != nil {
				t.Error(err)
			}
		}
		front.Close()
		for _, s := range c.nodes {
			s.site.Close()
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return c
}

// A session works although each of its requests arrives at another node: messages,
// calls whose client reconnects for the response, and DELETE.
//
// Guarantees: G-0043.1, G-0043.2
func TestSessionBehindManyNodes(t *testing.T) {
	c := newCluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	for _, version := range []string{protocol.Version20250618, protocol.Version20251125, protocol.Version20260728} {
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{ProtocolVersion: version}).
			Connect(ctx, &streamable.Client{URL: c.url})
		if err != nil {
			t.Fatal(err)
		}
		nodes := make(map[string]bool)
		for range 6 {
			result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "long"})
			if err != nil || len(result.Content) != 1 {
				t.Fatalf("%s: got %+v, %v, want 1 element", version, result, err)
			}
			nodes[result.Content[0].(*protocol.TextContent).Text] = true
		}
		if modern := version == protocol.Version20260728; modern != (len(nodes) > 1) {
			t.Errorf("%s: served by %v", version, nodes)
		}
		if err := session.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// When the node of a session dies, its client begins a session at another node, whether it
// is idle or calls: behind Forward, and behind a proxy that only ever answers 502.
//
// Guarantees: G-0043.4, G-0025.8
func TestClientOfADeadNodeMovesToAnother(t *testing.T) {
	for name, forward := range map[string]func(*url.URL) http.Handler{
		"Forward": streamable.Forward,
		"another proxy": func(to *url.URL) http.Handler {
			proxy := httputil.NewSingleHostReverseProxy(to)
			proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
			return proxy
		},
	} {
		for _, calls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/calls %t", name, calls), func(t *testing.T) {
				t.Parallel()
				c := newClusterWith(t, 2, forward)
				ctx, cancel := context.WithTimeout(t.Context(), guard)
				defer cancel()
				session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
					ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{Liveness: 500 * time.Millisecond},
				}).Connect(ctx, &streamable.Client{URL: c.url})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close(ctx)
				long := &protocol.CallToolParams{Name: "long"}
				if _, err := session.CallTool(ctx, long); err != nil {
					t.Fatal(err)
				}
				dies, other := c.nodes[0], c.nodes[1]
				if other.served.Load() > 0 {
					dies, other = other, dies
				}
				dies.kill(t)
				for status := range session.Changes(ctx) {
					if status.State == conn.Ready && status.Epoch > 1 {
						break
					}
					if calls {
						_, _ = session.CallTool(ctx, long)
					}
				}
				if _, err := session.CallTool(ctx, long); err != nil || other.served.Load() == 0 {
					t.Errorf("got %v, and the other node has served %d calls, want an answer of the other node", err, other.served.Load())
				}
			})
		}
	}
}

// A session whose node is unknown, or that its node does not know, is not found. A
// request does not go round in circles if nodes disagree.
//
// Guarantees: G-0043.2, G-0043.3
func TestSessionOfNoNode(t *testing.T) {
	c := newCluster(t, 2)
	circle := &streamable.Nodes{Self: "a", Others: map[string]http.Handler{}}
	h := streamable.NewHandler(c.nodes[0].Server, streamable.HandlerOptions{Router: circle})
	defer h.Close(0)
	circle.Others["b"] = h // does not know that it is b
	for session, handler := range map[string]http.Handler{
		"node-1.unknown": c.nodes[0].handler, "node-9.unknown": c.nodes[0].handler, "unknown": c.nodes[0].handler,
		".": c.nodes[0].handler, "b.unknown": h,
	} {
		r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", session)
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != 404 {
			t.Errorf("%s: got %d %s, want 404", session, w.Code, w.Body)
		}
	}
	for _, wrong := range []string{"a.b", "a b", "ü", strings.Repeat("a", 65)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("NewHandler accepted the name %q, want a panic", wrong)
				}
			}()
			streamable.NewHandler(c.nodes[0].Server, streamable.HandlerOptions{Router: &streamable.Nodes{Self: wrong}})
		}()
	}
	if streamable.NodeOf("node-1.x") != "node-1" || streamable.NodeOf("x") != "" {
		t.Error("got another node of a session")
	}
}
