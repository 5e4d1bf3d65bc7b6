package fault_test

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A client whose link delivers the answer to its call twice. The call ends once.
func ExampleNew() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "greet"}, func(context.Context, struct{}) (string, error) {
		return "Hello.", nil
	})
	faulty := fault.New(inmem.New(s.Accept, inmem.Options{}), fault.Plan{Faults: []fault.Fault{
		{Kind: fault.Duplicate, Direction: fault.Inbound, At: []int{2}},
	}})

	ctx := context.Background()
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{})
	session, err := c.Connect(ctx, faulty)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Call[string](ctx, session, "greet", nil))
	fmt.Println(session.Close(ctx), s.Close(ctx))
	for _, e := range faulty.Log() {
		fmt.Printf("link %d, %v frame %d: %s\n", e.Link, e.Direction, e.Frame, e.Kind)
	}
	// Output:
	// Hello. <nil>
	// <nil> <nil>
	// link 1, inbound frame 2: duplicate
}

// A peer that answers one request, and breaks the link at the next one.
func ExampleScript() {
	ours, theirs := inmem.Pipe(inmem.Options{})
	served := make(chan error, 1)
	go func() {
		script := fault.Script{
			fault.Expect("ping"), fault.Answer(`{}`),
			fault.Expect("tools/call"), fault.Lose(),
		}
		served <- script.Serve(context.Background(), theirs)
	}()
	client := fault.Script{
		fault.Say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`),
		fault.ExpectMessage(`{"jsonrpc":"2.0","id":1,"result":{}}`),
		fault.Say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet"}}`),
		fault.ExpectLoss(),
	}
	fmt.Println(client.Serve(context.Background(), ours))
	fmt.Println(<-served)
	// Output:
	// <nil>
	// <nil>
}
