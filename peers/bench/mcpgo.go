package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func mcpGo() implementation {
	return implementation{
		agent:  agents + "mcpgo",
		memory: mcpGoInMemory,
		stdio: func(ctx context.Context, revision string, command []string) (*session, error) {
			return openMCPGo(ctx, transport.NewStdioWithOptions(command[0], nil, command[1:]), revision, nil)
		},
		serveStdio: func(context.Context) error { return server.ServeStdio(newMCPGoServer(serving{})) },
		http: func(ctx context.Context, revision, url string) (*session, error) {
			over, err := transport.NewStreamableHTTP(url, transport.WithHTTPBasicClient(&http.Client{Transport: newPool()}),
				transport.WithHTTPLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				return nil, err
			}
			return openMCPGo(ctx, over, revision, nil)
		},
		handler: func(string) http.Handler { return server.NewStreamableHTTPServer(newMCPGoServer(serving{})) },
	}
}

func newMCPGoServer(o serving) *server.MCPServer {
	s := server.NewMCPServer("mcp-go", "1", server.WithToolCapabilities(true))
	addMCPGoTool(s, mcp.WithString("message", mcp.Required()), "echo", func(_ context.Context, in arguments) string { return in.Message })
	addMCPGoTool(s, mcp.WithNumber("count", mcp.Required()), "document", func(_ context.Context, in many) string { return foundText(in.Count) })
	s.AddTool(mcp.NewTool("order", mcp.WithInputSchema[order](), mcp.WithOutputSchema[order]()), mcp.NewStructuredToolHandler(
		func(_ context.Context, _ mcp.CallToolRequest, in order) (order, error) { return in, nil }))
	addMCPGoTool(s, mcp.WithNumber("count", mcp.Required()), "flood", func(ctx context.Context, in many) string {
		for range in.Count {
			s.SendNotificationToClient(ctx, mcpGoNews, nil) // fails when too many wait
		}
		return ""
	})
	for i := range o.tools {
		s.AddTool(mcp.NewToolWithRawSchema(toolName(i), toolDescription, json.RawMessage(toolSchema)),
			func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcp.NewToolResultText(""), nil
			})
	}
	if o.notified != nil {
		s.AddNotificationHandler(mcpGoNews, func(context.Context, mcp.JSONRPCNotification) { o.notified() })
	}
	return s
}

// addMCPGoTool adds a tool that answers with a text.
func addMCPGoTool[In any](s *server.MCPServer, argument mcp.ToolOption, name string, answer func(context.Context, In) string) {
	s.AddTool(mcp.NewTool(name, argument), mcp.NewTypedToolHandler(
		func(ctx context.Context, _ mcp.CallToolRequest, in In) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(answer(ctx, in)), nil
		}))
}

const mcpGoNews = "notifications/news"

// mcpGoInProcess has a transport that calls the server: nothing is encoded, and
// there is no wire.
func mcpGoInProcess() implementation {
	return implementation{memory: func(revision string, o serving) dial {
		s := newMCPGoServer(o)
		return func(ctx context.Context) (*session, error) {
			return openMCPGo(ctx, transport.NewInProcessTransport(s), revision, nil)
		}
	}}
}

// mcpGoInMemory has the wire of its stdio transport, on pipes in memory. That one
// serves one client in a process.
func mcpGoInMemory(revision string, o serving) dial {
	s := newMCPGoServer(o)
	return func(ctx context.Context) (*session, error) {
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		go func() { // until the client closes
			defer out.Close()
			over := server.NewStdioServer(s)
			over.SetErrorLogger(log.New(io.Discard, "", 0)) // it tells of every call that finds its queue full
			over.Listen(context.Background(), in, out)
		}()
		return openMCPGo(ctx, transport.NewIO(fromServer, toServer, io.NopCloser(nil)), revision, o.received)
	}
}

func openMCPGo(ctx context.Context, over transport.Interface, revision string, received func()) (*session, error) {
	c := client.NewClient(over)
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == mcpGoNews {
			received()
		}
	})
	if err := c.Start(context.WithoutCancel(ctx)); err != nil { // its context is the process's
		return nil, err
	}
	var request mcp.InitializeRequest
	request.Params.ProtocolVersion = revision
	request.Params.ClientInfo = mcp.Implementation{Name: "mcp-go", Version: "1"}
	result, err := c.Initialize(ctx, request)
	if err == nil && result.ProtocolVersion != revision {
		err = fmt.Errorf("it speaks %s", result.ProtocolVersion)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return mcpGoCalls(c, over), nil
}

// mcpGoCalls are what rows do with a session.
func mcpGoCalls(c *client.Client, over transport.Interface) *session {
	notification := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{Method: mcpGoNews}}
	callTool := func(ctx context.Context, tool string, arguments any) (string, error) {
		var request mcp.CallToolRequest
		request.Params.Name, request.Params.Arguments = tool, arguments
		result, err := c.CallTool(ctx, request)
		if err != nil {
			return "", err
		}
		var got strings.Builder
		for _, content := range result.Content {
			if block, ok := content.(mcp.TextContent); ok {
				got.WriteString(block.Text)
			}
		}
		return got.String(), nil
	}
	textOf := func(ctx context.Context, tool string, arguments any, want string) error {
		got, err := callTool(ctx, tool, arguments)
		return cmp.Or(err, sameText(got, want))
	}
	return &session{
		echo: func(text string) call {
			return func(ctx context.Context) error { return textOf(ctx, "echo", arguments{text}, text) }
		},
		order: orderInText(callTool),
		fetch: func(ctx context.Context, bytes int) error {
			return textOf(ctx, "document", many{bytes}, foundText(bytes))
		},
		list: func(ctx context.Context) (int, error) {
			result, err := c.ListTools(ctx, mcp.ListToolsRequest{})
			if err != nil {
				return 0, err
			}
			return len(result.Tools), nil
		},
		notify: func(ctx context.Context) error { return over.SendNotification(ctx, notification) },
		flood: func(ctx context.Context, count int) error {
			var request mcp.CallToolRequest
			request.Params.Name, request.Params.Arguments = "flood", many{count}
			_, err := c.CallTool(ctx, request)
			return err
		},
		close: c.Close,
	}
}
