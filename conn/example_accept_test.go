package conn_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// sums is a Handler that knows one method.
type sums struct{}

func (sums) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method != "sum" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + in.Method}
	}
	var numbers []int
	if err := json.Unmarshal(in.Params, &numbers); err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	sum := 0
	for _, n := range numbers {
		sum += n
	}
	return json.Marshal(sum)
}

func (sums) ServeNotification(context.Context, *conn.Incoming) {}

// A server makes a Conn of each link that its listener accepts.
func ExampleAccept() {
	ctx, ended := context.Background(), make(chan error, 1)
	listener := inmem.New(func(link transport.Link) {
		server := conn.Accept(link, conn.Options{Handler: sums{}})
		if err := server.Start(ctx, func(err error) { ended <- err }); err != nil {
			fmt.Println(err)
		}
	}, inmem.Options{})

	client := conn.New(listener, conn.Options{})
	if err := client.Start(ctx, func(error) {}); err != nil {
		fmt.Println(err)
	}
	for _, params := range []string{`[1,2,3]`, `["1"]`} {
		result, err := client.Call(ctx, conn.Request{Method: "sum", Params: json.RawMessage(params), WaitForReady: true})
		fmt.Println(string(result), err != nil)
	}
	fmt.Println(client.Close(ctx), <-ended)
	// Output:
	// 6 false
	//  true
	// <nil> <nil>
}
