package peers

import (
	"context"
	"fmt"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"
	mcpgo "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A number is the argument of the tool add, which all servers of the first page have.
type number struct {
	A int `json:"a"`
}

// unlucky is the argument that a tool has not thought of.
const unlucky = 13

// add panics for an unlucky number.
func add(in number) string {
	if in.A == unlucky {
		panic("a tool that fails by a panic")
	}
	return strconv.Itoa(in.A)
}

// serveAdd serves the tool add with an SDK, as its own documentation does it: nothing is set that is off by default.
func serveAdd(ctx context.Context, arguments []string) error {
	switch arguments[0] {
	case "bowline":
		s := server.New(bowlineInfo, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "add"}, func(_ context.Context, in number) (string, error) { return add(in), nil })
		return s.Run(ctx, &stdio.Server{})
	case "go-sdk":
		s := gosdk.NewServer(goSDK, nil)
		gosdk.AddTool(s, &gosdk.Tool{Name: "add"}, func(_ context.Context, _ *gosdk.CallToolRequest, in number) (*gosdk.CallToolResult, any, error) {
			return &gosdk.CallToolResult{Content: []gosdk.Content{&gosdk.TextContent{Text: add(in)}}}, nil, nil
		})
		return s.Run(ctx, &gosdk.StdioTransport{})
	case "mcp-go":
		s := mcpgo.NewMCPServer("mcp-go", "1")
		s.AddTool(mcp.NewTool("add", mcp.WithNumber("a", mcp.Required())), mcp.NewTypedToolHandler(
			func(_ context.Context, _ mcp.CallToolRequest, in number) (*mcp.CallToolResult, error) {
				return mcp.NewToolResultText(add(in)), nil
			}))
		return mcpgo.ServeStdio(s)
	default:
		return fmt.Errorf("no SDK is called %q", arguments[0])
	}
}
