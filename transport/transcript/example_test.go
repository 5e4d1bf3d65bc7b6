package transcript_test

import (
	"context"
	"fmt"
	"os"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// A client that records all that it sends and receives.
func ExampleTap() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	writer := transcript.NewWriter(os.Stdout, transcript.Options{})
	tapped := transcript.Tap(inmem.New(s.Accept, inmem.Options{}), writer.Observe)

	ctx := context.Background()
	c := client.New(protocol.Implementation{Name: "example", Version: "1.0"}, client.Options{ProtocolVersion: protocol.LatestLegacy})
	session, err := c.Connect(ctx, tapped)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(session.Ping(ctx))
	fmt.Println(session.Close(ctx), s.Close(ctx), writer.Err())
	// Output:
	// = opened
	// > {
	//     "jsonrpc": "2.0",
	//     "id": 1,
	//     "method": "initialize",
	//     "params": {
	//       "protocolVersion": "2025-11-25",
	//       "capabilities": {},
	//       "clientInfo": {
	//         "name": "example",
	//         "version": "1.0"
	//       }
	//     }
	//   }
	// < {
	//     "jsonrpc": "2.0",
	//     "id": 1,
	//     "result": {
	//       "protocolVersion": "2025-11-25",
	//       "capabilities": {
	//         "logging": {}
	//       },
	//       "serverInfo": {
	//         "name": "example",
	//         "version": "1.0"
	//       }
	//     }
	//   }
	// > {"jsonrpc":"2.0","method":"notifications/initialized"}
	// > {"jsonrpc":"2.0","id":2,"method":"ping","params":{}}
	// < {"jsonrpc":"2.0","id":2,"result":{}}
	// <nil>
	// = lost: transport: link closed
	// <nil> <nil> <nil>
}
