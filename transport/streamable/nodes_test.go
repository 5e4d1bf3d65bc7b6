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

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
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
}

func newCluster(t *testing.T, size int) *cluster {
	c := &cluster{}
	router := make([]*streamable.Nodes, size)
	for n := range size {
		s := &node{Server: server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})}
		server.AddTool(s.Server, protocol.Tool{Name: "long"}, func(ctx context.Context, _ struct{}) (string, error) {
			s.served.Add(1)
			server.Poll(ctx, 50*time.Millisecond)
			pause(ctx, 100*time.Millisecond)
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
				proxy := httputil.NewSingleHostReverseProxy(address)
				proxy.FlushInterval = -1
				router[other].Others[router[n].Self] = proxy
			}
		}
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.nodes[int(c.turn.Add(1))%size].handler.ServeHTTP(w, r)
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
