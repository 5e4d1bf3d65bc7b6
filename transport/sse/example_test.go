package sse_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
)

// A server for clients that only support HTTP+SSE, and such a client. The server shuts
// down properly.
func ExampleHandler() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "greet"}, func(context.Context, struct{}) (string, error) {
		return "Hello.", nil
	})
	endpoint := sse.NewHandler(s, sse.HandlerOptions{})
	mux := http.NewServeMux()
	mux.Handle("/sse", endpoint)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv, served := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()

	ctx := context.Background()
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{FailFast: true})
	session, err := c.Connect(ctx, &sse.Client{URL: "http://" + listener.Addr().String() + "/sse"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Call[string](ctx, session, "greet", nil))
	fmt.Println(session.Close(ctx))
	fmt.Println(endpoint.Shutdown(ctx, srv))
	fmt.Println(<-served)
	// Output:
	// Hello. <nil>
	// <nil>
	// <nil>
	// http: Server closed
}

// One endpoint serves several servers: the host name says which one a session gets.
func ExampleHandlerOptions() {
	servers := map[string]*server.Server{}
	for _, name := range []string{"a.example.com", "b.example.com"} {
		servers[name] = server.New(protocol.Implementation{Name: name, Version: "1.0"}, server.Options{})
	}
	endpoint := sse.NewHandler(nil, sse.HandlerOptions{
		AllowedHosts: []string{"a.example.com", "b.example.com"},
		Choose:       func(r *http.Request) transport.Acceptor { return servers[r.Host] }, // nil is answered with 404
	})
	response := httptest.NewRecorder()
	endpoint.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "http://localhost/sse", nil))
	fmt.Println(response.Code)
	fmt.Println(endpoint.Shutdown(context.Background(), nil))
	// Output:
	// 404
	// <nil>
}
