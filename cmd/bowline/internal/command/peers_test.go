package command

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// peers are the programs that the command is tested with, by role. Each returns its exit
// status.
func peers() map[string]func() int {
	return map[string]func() int{
		"mute":    mute,
		"chatty":  func() int { fmt.Print("one\ntwo\nthree\n"); return mute() },
		"babbler": func() int { fmt.Print(strings.Repeat("babble\n", 12_000)); return mute() },
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
		"described": func() int { return withTool(render.Compact(json.RawMessage(describedTool))) },
		"unclear":   func() int { return withTool(`{"type":12,"properties":"none"}`) },
		"remote": func() int {
			return withTool(`{"type":"object","properties":{"n":{"$ref":"https://example.com/n"}}},"outputSchema":{"type":"object","items":{"$dynamicRef":"#node"}}`)
		},
		"toolless": func() int {
			return answer(`"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
		},
		"odd":          func() int { return serveTools(addOddTools) },
		"library":      library,
		"clerk":        clerk,
		"logger":       logger,
		"endless list": endlessList,
		"deaf":         (&badServer{deaf: true}).serve,
		"stays":        (&badServer{stays: true}).serve,
		"lists":        (&badServer{flood: `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`}).serve,
		"logs":         (&badServer{flood: `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"again"}}`}).serve,
		"progress":     (&badServer{flood: `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`}).serve,
	}
}

// mute prints that it has started, and runs until its input ends.
func mute() int {
	fmt.Fprintln(os.Stderr, "started")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return 1
	}
	return 0
}

// answer answers its requests in order with these members. It supports no modern revision.
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

// logger logs when the client sets the level, and then crashes if it is the first process in
// its directory.
func logger() int {
	first := os.Mkdir("crashed", 0o700) == nil
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		m, err := jsonrpc.Decode(input.Bytes(), jsonrpc.Limits{})
		if err != nil {
			return 1
		}
		switch m.Method {
		case protocol.MethodInitialize:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"x","version":"1"}}}`+"\n", m.ID.Append(nil))
		case protocol.MethodSetLogLevel:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID.Append(nil))
			fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"db","data":"slow\nbowline: forged"}}` + "\n")
			fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"asked": %s}}}`+"\n", m.Params)
			if first {
				return 9
			}
		}
	}
	return 0
}

// withTool answers like a server with one tool that has this schema and is called once.
func withTool(schema string) int {
	return answer(
		`"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`,
		`"result":{"tools":[{"name":"tool","inputSchema":`+schema+`}]}`,
		`"result":{"content":[{"type":"text","text":"called"}]}`,
	)
}

// library is a server with everything that can be listed, except tools.
func library() int {
	s := server.New(protocol.Implementation{Name: "library", Version: "2"}, server.Options{
		Instructions: "Ask the \x1b[31mlibrarian\nfirst.",
	})
	server.AddResource(s, protocol.Resource{URI: "book://moby", Name: "moby", Description: "a whale\nand more"},
		func(context.Context) (string, error) { return "Call me \x1b[31mIshmael", nil })
	server.AddResource(s, protocol.Resource{URI: "book://cover", Name: "cover", MIMEType: "image/png"},
		func(context.Context) ([]byte, error) { return []byte{0x89, 'P', 0, 0xff}, nil })
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "book://shelf/{n}", Name: "shelf"},
		func(_ context.Context, in struct {
			N string `json:"n"`
		}) (string, error) {
			return "shelf " + in.N, nil
		})
	server.AddPrompt(s, protocol.Prompt{Name: "greeting", Description: "greets"},
		func(_ context.Context, in greeting) (string, error) {
			return "Hello " + in.Name + "\nin " + in.Language, nil
		},
		server.Completion{Argument: "language", Values: func(_ context.Context, typed string, known map[string]string) ([]string, error) {
			return []string{typed + "nglish", known["name"], fmt.Sprint(len(known))}, nil
		}})
	ask := server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}})
	server.AddTool(s, protocol.Tool{Name: "register"}, func(ctx context.Context, _ struct{}) (string, error) {
		m, err := server.Elicit[person](ctx, "Who are you?\nbowline: forged \x1b]52;c;aGk=\x07")
		return fmt.Sprintf("%+v", m), err
	}, ask)
	server.AddTool(s, protocol.Tool{Name: "visit"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "visited", server.ElicitURL(ctx, "Look at this.", cmp.Or(os.Getenv("PAGE"), "https://library.test/?a=1#b"))
	}, server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{URL: &protocol.Capability{}}}))
	if err := s.Serve(context.Background(), &stdio.Server{}); err != nil {
		return 1
	}
	return 0
}

// clerk is a server whose tools ask: delete asks for a confirmation, and form asks what the
// variable FORM has as its schema.
func clerk() int {
	s := server.New(protocol.Implementation{Name: "clerk", Version: "1"}, server.Options{})
	asks := server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}})
	server.AddTool(s, protocol.Tool{Name: "delete"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "deleted", server.Confirm(ctx, "Delete note 3?")
	}, asks)
	server.AddTool(s, protocol.Tool{Name: "form"}, func(ctx context.Context, _ struct{}) (string, error) {
		question := &protocol.ElicitParams{Message: "Please fill in.", RequestedSchema: json.RawMessage(os.Getenv("FORM"))}
		answers, err := server.Ask(ctx, protocol.InputRequests{"form": question})
		if err != nil {
			return "", err
		}
		answer := answers["form"].(*protocol.ElicitResult)
		return fmt.Sprintf("%s %s", answer.Action, answer.Content), nil
	}, asks)
	server.AddTool(s, protocol.Tool{Name: "bank"}, func(context.Context, struct{}) (string, error) {
		if os.Mkdir("visited", 0o700) == nil {
			return "", protocol.URLElicitationRequired("log in first", &protocol.ElicitParams{
				Mode: protocol.ElicitURL, Message: "Log in to your bank.", URL: "https://bank.test/login?a=1#b", ElicitationID: "1",
			})
		}
		return "42 euros", nil
	})
	if err := s.Serve(context.Background(), &stdio.Server{}); err != nil {
		return 1
	}
	return 0
}

type greeting struct {
	Name     string `json:"name"`
	Language string `json:"language,omitempty"`
}

type person struct {
	Name  string `json:"name" jsonschema:"your name"`
	Age   int    `json:"age" minimum:"18"`
	Kind  string `json:"kind" enum:"reader,writer" default:"reader"`
	Agree bool   `json:"agree"`
}

// endlessList answers every page of tools with a large tool and another cursor.
func endlessList() int {
	input := bufio.NewReader(os.Stdin)
	for n := 0; ; n++ {
		frame, err := input.ReadBytes('\n')
		if err != nil {
			return 0
		}
		m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
		if err != nil {
			return 1
		}
		result := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
		switch {
		case m.Kind != jsonrpc.KindRequest:
			continue
		case m.Method == protocol.MethodDiscover:
			os.Stdout.Write(append(jsonrpc.AppendError(nil, m.ID, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}), '\n'))
			continue
		case m.Method == "tools/list":
			result = fmt.Sprintf(`{"tools":[{"name":"t%d","description":%q,"inputSchema":{"type":"object"}}],"nextCursor":"%d"}`, n, strings.Repeat("x", 8<<20), n)
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID.Append(nil), result)
	}
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
