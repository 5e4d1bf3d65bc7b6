package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// serving returns a transport whose peer answers every request with its params.
func serving() transport.Transport {
	return inmem.New(func(link transport.Link) {
		server := conn.Accept(link, conn.Options{Handler: handler{"echo": echo}})
		// Start cannot fail on a new Conn; a program that must know its end uses Done.
		_ = server.Start(context.Background(), func(error) {})
	}, inmem.Options{})
}

// A Conn connects, and reconnects, for as long as Run runs.
func ExampleConn_Run() {
	client := conn.New(serving(), conn.Options{Tuning: conn.Tuning{Name: "search"}})
	ended := make(chan error)
	go func() { ended <- client.Run(context.Background()) }()
	if err := client.AwaitReady(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(client.State())
	client.Stop()
	fmt.Println(<-ended)
	// Output:
	// ready
	// <nil>
}

// The error of a call says whether the peer can have executed it.
func ExampleConn_Call() {
	client := conn.New(serving(), conn.Options{})
	if err := client.Start(context.Background(), func(error) {}); err != nil {
		fmt.Println(err)
	}
	result, err := client.Call(context.Background(), conn.Request{
		Method: "echo", Params: json.RawMessage(`{"text":"hello"}`), WaitForReady: true, Timeout: time.Minute,
	})
	fmt.Println(string(result), err)
	client.Stop()
	<-client.Done()
	_, err = client.Call(context.Background(), conn.Request{Method: "echo"})
	var failed *conn.CallError
	if errors.As(err, &failed) {
		fmt.Println(failed.Cause, conn.NotExecuted(err))
	}
	// Output:
	// {"text":"hello"} <nil>
	// shut down true
}

// A request that only reads can be sent again after the connection was lost.
func ExampleRequest_retries() {
	client := conn.New(serving(), conn.Options{})
	if err := client.Start(context.Background(), func(error) {}); err != nil {
		fmt.Println(err)
	}
	result, err := client.Call(context.Background(), conn.Request{
		Method: "echo", Params: json.RawMessage(`[1]`),
		Retries: 3, Repeatable: true, WaitForReady: true,
		OnAttempt: func(a conn.Attempt) { fmt.Println("failed:", a.Cause, a.Delivery, a.Err) },
	})
	fmt.Println(string(result), err)
	client.Stop()
	<-client.Done()
	// Output: [1] <nil>
}

// Close lets work in flight finish, within the deadline of its context.
func ExampleConn_Close() {
	client := conn.New(serving(), conn.Options{})
	ended := make(chan error, 1)
	if err := client.Start(context.Background(), func(err error) { ended <- err }); err != nil {
		fmt.Println(err)
	}
	if err := client.AwaitReady(context.Background()); err != nil {
		fmt.Println(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(client.Close(ctx), <-ended, client.State())
	// Output: <nil> <nil> closing
}
