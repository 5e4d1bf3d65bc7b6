package client

import (
	"cmp"
	"context"
	"encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/paramheader"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/go-json-experiment/json"
)

// CallTool calls a tool. If the tool itself fails, CallTool returns a result with
// IsError set, and no error. A content block that cannot be decoded becomes a
// *protocol.UnknownContent.
//
// A tool is stateless or stateful; see Options.ToolModes. A call of a stateful tool
// belongs to the server session that is ready when the call begins, or to that of
// CallOptions.Epoch. If that session does not exist or has ended, the call fails and
// is not sent. It does not wait for a server, and is not retried on the next one.
func (s *Session) CallTool(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	return resultOf(callTool.call(ctx, s, params))
}

// Call calls a tool and returns its result as Out. The args may be any value that
// encodes to a JSON object; nil means no arguments. Out may be one of these:
//
//   - a string: the text of the result;
//   - a *protocol.CallToolResult: the whole result;
//   - struct{}: the result is ignored;
//   - any other type: decoded from the structured content, or from the text if an
//     older server sends no structured content. A list, a number, a string type or a
//     bool may be wrapped as {"result": …}.
//
// If the tool failed the error is a *ToolError. If the result cannot be read as Out,
// or does not fit the output schema that the server gave when it listed the tool
// last, the error is a *CallError that wraps a *ResultError. If the client refuses that
// schema, the result is not checked, and the session has a *SchemaRefused event.
func Call[Out any](ctx context.Context, s *Session, tool string, args any) (Out, error) {
	var out Out
	arguments, err := marshalParams(protocol.MethodCallTool, args)
	if err != nil {
		return out, err
	}
	result, last, err := callTool.call(ctx, s, &protocol.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return out, err
	}
	if result.IsError {
		return out, &ToolError{Tool: tool, Result: result}
	}
	if err := s.checkOutput(ctx, tool, result); err != nil {
		return out, answered(protocol.MethodCallTool, last.id, &ResultError{err})
	}
	if err := readOutput(result, &out); err != nil {
		return out, answered(protocol.MethodCallTool, last.id, &ResultError{err})
	}
	return out, nil
}

// readOutput decodes the result of a tool.
func readOutput[Out any](result *protocol.CallToolResult, out *Out) error {
	switch out := any(out).(type) {
	case *string:
		*out = result.Content.Text()
		return nil
	case **protocol.CallToolResult:
		*out = result
		return nil
	case *struct{}:
		return nil
	}
	raw := result.StructuredContent
	if len(raw) == 0 {
		if raw = stdjson.RawMessage(result.Content.Text()); len(raw) == 0 {
			return errors.New("it has no structured content and no text")
		}
	}
	if !isObjectType(reflect.TypeFor[Out]()) {
		raw = unwrap(raw)
	}
	return protocol.Unmarshal(raw, out)
}

// isObjectType reports whether a type is encoded as a JSON object. It returns false for
// a type with its own encoding.
func isObjectType(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, own := range []reflect.Type{
		reflect.TypeFor[encoding.TextUnmarshaler](), reflect.TypeFor[stdjson.Unmarshaler](), reflect.TypeFor[json.UnmarshalerFrom](),
	} {
		if reflect.PointerTo(t).Implements(own) {
			return false
		}
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
}

// unwrap returns the value in {"result": …}, the form in which servers send a value that
// is not an object. It returns anything else unchanged.
func unwrap(raw stdjson.RawMessage) stdjson.RawMessage {
	var members map[string]stdjson.RawMessage
	if !isObject(raw) || protocol.Unmarshal(raw, &members) != nil || len(members) != 1 {
		return raw
	}
	if value, ok := members["result"]; ok {
		return value
	}
	return raw
}

// learnTools records what a server says about the tools of a page, and tells the program which output schemas are refused
// because a reference leads out of them (ADR-0072). It removes the tools that
// must not be offered: over HTTP those with invalid annotations for mirrored arguments
// (2026-07-28 server/tools).
func (s *session) learnTools(page *protocol.ListToolsResult) {
	if s.mirrors && s.peer.Load().Modern() {
		page.Tools = slices.DeleteFunc(page.Tools, func(tool *protocol.Tool) bool {
			_, err := paramheader.Arguments(tool.InputSchema)
			return err != nil
		})
	}
	refused := s.tools.learn(page.Tools, s.client.options.TrustAnnotations)
	for _, r := range refused[:min(len(refused), maxRefusals)] { // the program learns of the others with their first result
		e := &SchemaRefused{Tool: r.tool, Err: r.err}
		switch {
		case !r.output.tellOnce():
		case s.events.offer(e):
			s.warn(e)
		default:
			r.output.tellAgain()
		}
	}
}

// checkOutput checks a result against the output schema of its tool. If this client
// refuses the schema, because of its dialect or its cost for instance, any result passes,
// and the program gets a SchemaRefused event (ADR-0072).
func (s *Session) checkOutput(ctx context.Context, tool string, result *protocol.CallToolResult) error {
	n := s.tools.of(tool)
	if n.output == nil {
		return nil
	}
	validator, err := n.output.get(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		if n.output.tellOnce() {
			s.tell(&SchemaRefused{Tool: tool, Err: err})
		}
		return nil
	}
	if len(result.StructuredContent) == 0 {
		return errors.New("the tool has an output schema, and the result no structured content")
	}
	if err := validator.Validate(ctx, result.StructuredContent); err != nil {
		return fmt.Errorf("the structured content does not fit the output schema: %w", err)
	}
	return nil
}

// mirroredArguments returns the arguments of a call to mirror, as its tool's schema
// says.
func (s *session) mirroredArguments(p *protocol.CallToolParams) *transport.Arguments {
	said := s.tools.of(p.Name)
	if said.mirrored == nil {
		return nil
	}
	wanted, err := said.mirrored.get(context.Background())
	if err != nil {
		return nil
	}
	found := transport.Arguments(paramheader.Texts(wanted, p.Arguments))
	return &found
}

// refusesHeaders reports whether a server refused a request because of its headers.
func refusesHeaders(err error) bool {
	var fault *jsonrpc.Error
	return errors.As(err, &fault) && fault.Code == protocol.CodeHeaderMismatch
}

// relist lists the tools again if a server refuses the headers of a call, because the new list may
// say which arguments must be mirrored. It reports whether it has a new list.
func relist(ctx context.Context, s *Session, refused error) bool {
	if !s.mirrors || !refusesHeaders(refused) {
		return false
	}
	now := s.With(s.options)
	now.options.Fresh, now.options.MaxStale = true, 0
	for _, err := range now.Tools(ctx) {
		if err != nil {
			return false
		}
	}
	return true
}

// forTool adjusts the options of a call of one tool.
func (s *session) forTool(name string, o *CallOptions) {
	said := s.tools.of(name)
	mode := cmp.Or(o.ToolMode, s.client.options.ToolModes[name], said.mode, protocol.Stateless)
	if mode == protocol.Stateful {
		o.stateful(s.conn.Status())
	} else if said.repeatable {
		o.Repeatable = true
	}
}

// stateful changes the options for a call that depends on earlier ones (ADR-0012). The
// call is bound to the session that is ready now, and waits for no other.
func (o *CallOptions) stateful(now conn.Status) {
	o.Repeatable = false
	switch {
	case o.Epoch != 0:
	case now.State == conn.Ready:
		o.Epoch = now.Epoch
	default:
		o.WaitForReady, o.Retries = false, 0
	}
}
