package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/google/jsonschema-go/jsonschema"
)

// AddTool offers a tool made of a Go function. In is a struct or a map: its
// schema is inferred unless tool.InputSchema is set, and arguments are
// validated against it before the function runs. Field tags are encoding/json's
// and jsonschema's (`jsonschema:"what the field means"`).
//
// What the function returns decides the result:
//
//   - a string becomes a text block;
//   - a *protocol.CallToolResult is sent as it is;
//   - a struct or map becomes structured content, with an inferred output
//     schema unless tool.OutputSchema is set, and a text block of its JSON for
//     peers that know no structured content;
//   - an error becomes a result with IsError set, see ToolHandler.
//
// AddTool panics when a schema cannot be inferred or is not valid: types and
// schemas are the program's own.
func AddTool[In, Out any](s *Server, tool protocol.Tool, handler func(context.Context, *ToolCall, In) (Out, error)) {
	if tool.InputSchema == nil {
		tool.InputSchema = infer[In](tool.Name)
	}
	encode := encoderFor[Out]()
	registered := &registeredTool{tool: &tool}
	switch {
	case tool.OutputSchema != nil:
		registered.output = mustCompile(tool.Name, tool.OutputSchema)
	case structured[Out]():
		tool.OutputSchema = infer[Out](tool.Name) // fits by construction
	}
	registered.handler = func(ctx context.Context, call *ToolCall) (*protocol.CallToolResult, error) {
		var in In
		if err := protocol.Unmarshal(call.Params.Arguments, &in); err != nil {
			return nil, fmt.Errorf("arguments of %q: %w", tool.Name, err)
		}
		out, err := handler(ctx, call, in)
		if err != nil {
			return nil, err
		}
		return encode(out)
	}
	s.register(registered)
}

// infer is the JSON Schema of a Go type.
func infer[T any](tool string) json.RawMessage {
	inferred, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("server: tool %q: schema of %v: %v", tool, reflect.TypeFor[T](), err))
	}
	if inferred.Type != "object" {
		panic(fmt.Sprintf("server: tool %q: %v is not an object in JSON", tool, reflect.TypeFor[T]()))
	}
	raw, err := protocol.Marshal(inferred)
	if err != nil {
		panic(fmt.Sprintf("server: tool %q: schema of %v: %v", tool, reflect.TypeFor[T](), err))
	}
	return raw
}

// structured reports whether Out is sent as structured content.
func structured[Out any]() bool {
	switch any(*new(Out)).(type) {
	case string, *protocol.CallToolResult:
		return false
	default:
		return true
	}
}

// encoderFor chooses once how a tool's output becomes a result.
func encoderFor[Out any]() func(Out) (*protocol.CallToolResult, error) {
	switch any(*new(Out)).(type) {
	case string:
		return func(out Out) (*protocol.CallToolResult, error) {
			return &protocol.CallToolResult{Content: text(any(out).(string))}, nil
		}
	case *protocol.CallToolResult:
		return func(out Out) (*protocol.CallToolResult, error) {
			return any(out).(*protocol.CallToolResult), nil
		}
	default:
		return func(out Out) (*protocol.CallToolResult, error) {
			raw, err := protocol.Marshal(out)
			if err != nil {
				return nil, err
			}
			return &protocol.CallToolResult{Content: text(string(raw)), StructuredContent: raw}, nil
		}
	}
}

func text(s string) protocol.Contents { return protocol.Contents{&protocol.TextContent{Text: s}} }

// isFault reports whether err is a failure of the protocol, not of a tool.
func isFault(err error) bool {
	var fault *jsonrpc.Error
	return errors.As(err, &fault)
}
