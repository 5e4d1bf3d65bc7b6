package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// peers are the programs that the command must live with, by role. Each
// returns its exit status.
func peers() map[string]func() int {
	return map[string]func() int{
		"mute":    mute,
		"chatty":  func() int { fmt.Print("one\ntwo\nthree\n"); return mute() },
		"babbler": func() int { fmt.Print(strings.Repeat("babble\n", 500)); return mute() },
		"gone":    func() int { fmt.Fprintln(os.Stderr, "no licence found"); return 7 },
		"closed":  func() int { fmt.Print("bye\n"); return 0 },
		"refuser": func() int { return answer(`"error":{"code":-32603,"message":"not \u001b[31mtoday"}`) },
		"ancient": func() int {
			return answer(`"result":{"protocolVersion":"1999-01-01","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
		},
		"endless": func() int { return withTool(`{"type":"object","$ref":"#"}`) },
		"foreign": func() int {
			return withTool(`{"$schema":"https://json-schema.org/draft/2019-09/schema","type":"object"}`)
		},
		"unclear": func() int { return withTool(`{"type":12,"properties":"none"}`) },
		"toolless": func() int {
			return answer(`"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
		},
		"odd": func() int { return serveTools(addOddTools) },
	}
}

// mute says that it has started, and lives until its input ends.
func mute() int {
	fmt.Fprintln(os.Stderr, "started")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return 1
	}
	return 0
}

// answer answers its requests one after the other with these members. It knows
// no modern revision.
func answer(members ...string) int {
	input := bufio.NewReader(os.Stdin)
	for len(members) > 0 {
		frame, err := input.ReadBytes('\n')
		if err != nil {
			return 1
		}
		m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
		if err != nil {
			return 1
		}
		switch {
		case m.Kind != jsonrpc.KindRequest:
		case m.Method == protocol.MethodDiscover:
			os.Stdout.Write(append(jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}), '\n'))
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", m.ID.Append(nil), members[0])
			members = members[1:]
		}
	}
	if _, err := io.Copy(io.Discard, input); err != nil {
		return 1
	}
	return 0
}

// withTool answers as a server with one tool of this schema, called once.
func withTool(schema string) int {
	return answer(
		`"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`,
		`"result":{"tools":[{"name":"tool","inputSchema":`+schema+`}]}`,
		`"result":{"content":[{"type":"text","text":"called"}]}`,
	)
}

func serveTools(add func(*server.Server)) int {
	s := server.New(protocol.Implementation{Name: "odd", Version: "1"}, server.Options{PageSize: 2})
	add(s)
	if err := s.Serve(context.Background(), &stdio.Server{}); err != nil {
		return 1
	}
	return 0
}

const anyObject = `{"type": "object"}`

func addOddTools(s *server.Server) {
	tools := map[string]struct {
		schema string
		result protocol.CallToolResult
	}{
		"kinds": {anyObject, protocol.CallToolResult{Content: everyKind()}},
		"structured": {anyObject, protocol.CallToolResult{
			Content: protocol.Contents{}, StructuredContent: json.RawMessage(`{"exact": 12345678901234567890}`),
		}},
		"hostile": {anyObject, protocol.CallToolResult{
			Content: protocol.Contents{&protocol.TextContent{Text: "\x1b[2Jgone"}}, IsError: true,
		}},
	}
	for name, tool := range tools {
		server.AddTool(s, protocol.Tool{Name: name, Description: "\x1b[31m" + name + "\nmore", InputSchema: json.RawMessage(tool.schema)},
			func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) {
				return &tool.result, nil
			})
	}
	server.AddTool(s, protocol.Tool{Name: "arguments", InputSchema: json.RawMessage(anyObject)},
		func(_ context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
			result := text(string(params.Arguments))
			return &result, nil
		})
	server.AddTool(s, protocol.Tool{Name: "surroundings", InputSchema: json.RawMessage(anyObject)},
		func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) {
			dir, err := os.Getwd()
			result := text(dir + " " + os.Getenv("GREETING"))
			return &result, err
		})
}

func text(s string) protocol.CallToolResult {
	return protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: s}}}
}

func everyKind() protocol.Contents {
	words := "the words"
	return protocol.Contents{
		&protocol.TextContent{Text: "a text"},
		&protocol.ImageContent{Data: []byte("12345"), MIMEType: "image/png"},
		&protocol.AudioContent{Data: []byte("123"), MIMEType: "audio/wav"},
		&protocol.EmbeddedResource{Resource: protocol.ResourceContents{URI: "file:///a", MIMEType: "text/plain", Text: &words}},
		&protocol.EmbeddedResource{Resource: protocol.ResourceContents{URI: "file:///b", MIMEType: "x/y", Blob: []byte("12")}},
		&protocol.ResourceLink{URI: "file:///c", Name: "sea"},
		&protocol.UnknownContent{Type: "smell", Raw: json.RawMessage(`{"type": "smell", "of": "tar"}`)},
	}
}
