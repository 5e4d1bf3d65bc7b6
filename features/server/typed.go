package server

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// AddTool offers a tool made of a Go function. In is a struct or a map, or a
// pointer to one: its schema is inferred unless tool.InputSchema is set, and
// arguments are validated against it before the function runs.
//
// What the function returns decides the result:
//
//   - a string becomes a text block;
//   - a *protocol.CallToolResult is sent as it is;
//   - a struct or map, or a pointer to one, becomes structured content, with an
//     inferred output schema unless tool.OutputSchema is set, and a text block of
//     its JSON for peers that know no structured content;
//   - an error becomes a result with IsError set, see ToolHandler.
//
// Values are read and written as encoding/json does, tags included, but names
// are case-sensitive, duplicates refused, and nil slices and maps are empty
// ones: []byte is base64, a time.Duration is nanoseconds. A tag
// `jsonschema:"what the field means"` describes a field. Types with JSON of
// their own may be anything in an inferred schema, types with text of their own
// are strings. Numbers such as 1.0 and 1e3 are read as integers if they are
// below 2^53. Structured content is validated as AddRawTool says.
//
// AddTool panics when handler is nil, and when a schema cannot be inferred or
// is not valid: types and schemas are the program's own. No schema is inferred
// for other tag options than omitempty and omitzero, nor for embedded fields
// that are no plain structs.
func AddTool[In, Out any](s *Server, tool protocol.Tool, handler func(context.Context, *ToolCall, In) (Out, error)) {
	if handler == nil {
		panic(fmt.Sprintf("server: tool %q: no handler", tool.Name))
	}
	if len(tool.InputSchema) == 0 {
		tool.InputSchema = infer(tool.Name, reflect.TypeFor[In]())
	}
	encode := promise[Out](&tool)
	s.AddRawTool(tool, func(ctx context.Context, call *ToolCall) (*protocol.CallToolResult, error) {
		in, err := decodeTyped[In](call.Params.Arguments)
		if err != nil {
			return call.Client.invalidArguments(misfit(err))
		}
		out, err := handler(ctx, call, in)
		if err != nil {
			return nil, err
		}
		return encode(out)
	})
}

// promise sets the tool's output schema, and chooses once how its output
// becomes a result.
func promise[Out any](tool *protocol.Tool) func(Out) (*protocol.CallToolResult, error) {
	switch any(*new(Out)).(type) {
	case string:
		if len(tool.OutputSchema) > 0 {
			panic(fmt.Sprintf("server: tool %q: an output schema, but text is no structured content", tool.Name))
		}
		return func(out Out) (*protocol.CallToolResult, error) {
			return &protocol.CallToolResult{Content: text(any(out).(string))}, nil
		}
	case *protocol.CallToolResult:
		return func(out Out) (*protocol.CallToolResult, error) { return any(out).(*protocol.CallToolResult), nil }
	case protocol.CallToolResult:
		panic(fmt.Sprintf("server: tool %q: return a *protocol.CallToolResult", tool.Name))
	}
	if len(tool.OutputSchema) == 0 {
		tool.OutputSchema = infer(tool.Name, reflect.TypeFor[Out]())
	}
	return structured[Out]
}

// structured is a result of structured content. Output that is no JSON is a
// mistake of the program, which a model cannot mend.
func structured[Out any](out Out) (*protocol.CallToolResult, error) {
	raw, err := encodeTyped(out)
	if err != nil {
		return nil, refuse(jsonrpc.CodeInternalError, "the output cannot be encoded: %s", misfit(err))
	}
	return &protocol.CallToolResult{Content: text(string(raw)), StructuredContent: raw}, nil
}

// text is one block. A run of what is not UTF-8 becomes one U+FFFD.
func text(s string) protocol.Contents {
	return protocol.Contents{&protocol.TextContent{Text: strings.ToValidUTF8(s, "\uFFFD")}}
}
