package peers

import (
	"context"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// What the guide for users of mcp-go says: mcp-go checks arguments against the schema only if asked to.
func TestMCPGoValidatesArgumentsOnlyIfAsked(t *testing.T) {
	for name, test := range map[string]struct {
		options []server.ServerOption
		runs    bool
	}{
		"by default": {runs: true},
		"asked to":   {options: []server.ServerOption{server.WithInputSchemaValidation()}},
	} {
		ran := false
		s := server.NewMCPServer("s", "1", test.options...)
		s.AddTool(mcp.NewTool("add", mcp.WithNumber("a", mcp.Required())), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			ran = true
			return mcp.NewToolResultText("done"), nil
		})
		s.HandleMessage(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":"many"}}}`))
		if ran != test.runs {
			t.Errorf("%s: the handler ran for arguments that do not fit: %v, want %v", name, ran, test.runs)
		}
	}
}
