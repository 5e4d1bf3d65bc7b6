package streamable_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// newNamed returns a server whose tool answers with the name of the server.
func newNamed(name string) *server.Server {
	s := server.New(protocol.Implementation{Name: name, Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "name"}, func(context.Context, struct{}) (string, error) { return name, nil })
	return s
}

// nameOf calls the tool n times in one session of 2025-11-25.
func nameOf(url string, n int) {
	ctx := context.Background()
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{ProtocolVersion: protocol.LatestLegacy})
	session, err := c.Connect(ctx, &streamable.Client{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)
	for range n {
		fmt.Println(client.Call[string](ctx, session, "name", nil))
	}
}

// One handler for two servers. The path of the request selects the server.
func ExampleHandlerOptions_choose() {
	servers := map[string]*server.Server{"/red": newNamed("red"), "/blue": newNamed("blue")}
	endpoint := streamable.NewHandler(servers["/red"], streamable.HandlerOptions{
		Choose: func(r *http.Request) transport.Acceptor { return servers[r.URL.Path] }, // nil causes 404
	})
	site := httptest.NewServer(endpoint)
	defer site.Close()
	defer endpoint.Shutdown(context.Background(), nil)

	nameOf(site.URL+"/red", 1)
	nameOf(site.URL+"/blue", 1)
	// Output:
	// red <nil>
	// blue <nil>
}

// A handler behind a proxy that breaks streams of events. Every response is one JSON document.
func ExampleHandlerOptions_jsonOnly() {
	endpoint := streamable.NewHandler(newNamed("red"), streamable.HandlerOptions{JSONOnly: true})
	site := httptest.NewServer(endpoint)
	defer site.Close()
	defer endpoint.Shutdown(context.Background(), nil)

	nameOf(site.URL, 1)
	// Output: red <nil>
}

// Two nodes behind one address, which get requests in turn. A session stays on the node
// where it began: the other node forwards its requests.
func ExampleNodes() {
	var endpoints [2]*streamable.Handler
	var sites [2]*httptest.Server
	routers := [2]*streamable.Nodes{
		{Self: "a", Others: make(map[string]http.Handler)},
		{Self: "b", Others: make(map[string]http.Handler)},
	}
	for n, router := range routers {
		s := newNamed("node " + router.Self)
		defer s.Close(context.Background())
		endpoints[n] = streamable.NewHandler(s, streamable.HandlerOptions{Router: router})
		sites[n] = httptest.NewServer(endpoints[n])
		defer sites[n].Close()
		defer endpoints[n].Close(time.Second)
	}
	for n, router := range routers {
		other := (n + 1) % 2
		address, err := url.Parse(sites[other].URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		router.Others[routers[other].Self] = streamable.Forward(address)
	}
	var turn atomic.Int64
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoints[turn.Add(1)%2].ServeHTTP(w, r)
	}))
	defer balancer.Close()

	nameOf(balancer.URL, 3)
	// Output:
	// node b <nil>
	// node b <nil>
	// node b <nil>
}

// counting is an EventStore that counts its events. Instead of memory, your own store
// may use a database that all nodes share.
type counting struct {
	streamable.MemoryStore
	appended atomic.Int64
}

func (c *counting) Append(session string, e streamable.StoredEvent) {
	c.appended.Add(1)
	c.MemoryStore.Append(session, e)
}

// A handler with its own EventStore. The tool takes long, so it ends the connection:
// its result is stored, and the client reconnects to get it.
func ExampleEventStore() {
	store := &counting{MemoryStore: streamable.MemoryStore{MaxAge: 10 * time.Minute}}
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "name"}, func(ctx context.Context, _ struct{}) (string, error) {
		server.Poll(ctx, 10*time.Millisecond)
		return "slow", nil
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{EventStore: store})
	site := httptest.NewServer(endpoint)
	defer site.Close()
	defer endpoint.Close(time.Second)
	defer s.Close(context.Background())

	nameOf(site.URL, 1)
	fmt.Println("events:", store.appended.Load())
	// Output:
	// slow <nil>
	// events: 1
}
