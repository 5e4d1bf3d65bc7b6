package server_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func Example() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	type numbers struct {
		A int `json:"a" jsonschema:"the first number"`
		B int `json:"b" jsonschema:"the second number"`
	}
	type sum struct {
		Sum int `json:"sum"`
	}
	server.AddTool(s, protocol.Tool{Name: "add", Description: "adds two numbers"},
		func(_ context.Context, in numbers) (sum, error) {
			return sum{in.A + in.B}, nil
		})

	// A program serves its standard streams: s.Serve(ctx, &stdio.Server{}).
	// Here the peer is at the other end of a pipe.
	peer, link := inmem.Pipe(inmem.Options{})
	served := make(chan error, 1)
	go func() { served <- s.ServeLink(context.Background(), link) }()

	frames := make(printer, 10)
	peer.Bind(frames)
	peer.Grant(transport.Main, 10)
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"peer","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3}}}`,
	} {
		if err := peer.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
			fmt.Println(err)
		}
		fmt.Println(<-frames)
	}
	peer.Close(0)
	fmt.Println(<-served)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"example","version":"1.0"}}}
	// {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"{\"sum\":5}"}],"structuredContent":{"sum":5}}}
	// <nil>
}

// A printer passes on the frames that it receives.
type printer chan string

func (p printer) Receive(in transport.Inbound)               { p <- string(in.Frame) }
func (printer) Writable()                                    {}
func (printer) StreamOpened(transport.Stream, transport.Tag) {}
func (printer) StreamLost(transport.StreamLoss)              {}
func (printer) Failed(transport.Failure)                     {}
func (printer) Ended()                                       {}
func (printer) Lost(transport.Loss)                          {}

// A server that asks silent clients for an answer, and ends the session of one that does not answer twice.
func ExampleOptions() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{
		Conn: conn.Tuning{Liveness: 250 * time.Millisecond}, // 30 s, for instance
	})
	peer, link := inmem.Pipe(inmem.Options{})
	frames := make(printer, 10)
	peer.Bind(frames)
	peer.Grant(transport.Main, 10)
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"peer","version":"1"}}}`
	if err := peer.Send(transport.Outbound{Frame: []byte(initialize)}); err != nil {
		fmt.Println(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeLink(context.Background(), link) }()
	<-frames // the answer; this client says nothing more
	reason := conn.Reason{}
	fmt.Println(errors.As(<-served, &reason), reason.Kind)
	fmt.Println(<-frames)
	// Output:
	// true liveness lost
	// {"jsonrpc":"2.0","id":1,"method":"ping"}
}
