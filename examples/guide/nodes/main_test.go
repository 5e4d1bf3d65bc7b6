package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryRequestMayArriveAtAnyNode: a load balancer sends each request to the next
// node. A session stays at its node, and a question that one node has asked is
// answered at the other.
func TestEveryRequestMayArriveAtAnyNode(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	toA, toB := make(map[string]http.Handler), make(map[string]http.Handler)
	a, b := serve(t, newNode("a", secret, toB)), serve(t, newNode("b", secret, toA))
	toB["b"], toA["a"] = streamable.Forward(b), streamable.Forward(a)
	nodes, next := []http.Handler{streamable.Forward(a), streamable.Forward(b)}, new(atomic.Uint64)
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nodes[next.Add(1)%2].ServeHTTP(w, r)
	}))
	t.Cleanup(balancer.Close)

	for revision, want := range map[string]int{"2025-11-25": 1, "2026-07-28": 2} {
		t.Run(revision, func(t *testing.T) {
			c := client.New(protocol.Implementation{Name: "test", Version: "1"}, client.Options{
				ProtocolVersion: revision,
				Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
					return client.Accept(nil)
				},
			})
			defer c.Close(context.Background())
			session, err := c.Connect(t.Context(), &streamable.Client{URL: balancer.URL})
			if err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]bool)
			for range 4 {
				node, err := client.Call[string](t.Context(), session, "node", nil)
				if err != nil {
					t.Fatal(err)
				}
				seen[node] = true
			}
			if len(seen) != want {
				t.Errorf("the calls ran on the nodes %v, want %d", seen, want)
			}
			for range 2 { // beginning at either node
				got, err := client.Call[string](t.Context(), session, "remove", map[string]string{"bucket": "photos"})
				if err != nil || got != "deleted photos" {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
}

// serve runs a node until the test ends, and returns its address.
func serve(t *testing.T, node *streamable.Handler) *url.URL {
	server := httptest.NewServer(node)
	t.Cleanup(func() {
		if err := node.Shutdown(context.Background(), server.Config); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address
}
