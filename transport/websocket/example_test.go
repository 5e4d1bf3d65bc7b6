package websocket_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/websocket"
)

// A server over WebSocket, and a client of it. The server shuts down properly.
func ExampleHandler() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "greet"}, func(context.Context, struct{}) (string, error) {
		return "Hello.", nil
	})
	endpoint := websocket.NewHandler(s, websocket.HandlerOptions{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv, served := &http.Server{Handler: endpoint, ReadHeaderTimeout: 10 * time.Second}, make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()

	ctx := context.Background()
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{FailFast: true})
	session, err := c.Connect(ctx, &websocket.Client{URL: "ws://" + listener.Addr().String()})
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
