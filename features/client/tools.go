package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/mirror"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/protocol/schema"
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

// These limits apply to what a session remembers of the tools that its server listed,
// because a server may list any number of tools.
const (
	maxNotes       = 10_000  // how many tools are remembered
	maxNotedName   = 256     // the maximum length of a name, in bytes
	maxNotedSchema = 4 << 20 // the maximum size of all schemas together, in bytes
)

// toolNotes are what a server said about its tools when it last listed them.
type toolNotes struct {
	mu          sync.Mutex
	tools       map[string]toolNote // the tools with a note, by name
	schemaBytes int
}

// A toolNote is what the server said about one tool.
type toolNote struct {
	mode       protocol.ToolMode
	repeatable bool                         // the server says that calling it twice does no harm
	taskOnly   bool                         // in 2025-11-25: it can only be called as a task
	output     *compiled[*schema.Validator] // its output schema; nil for none
	mirrored   *compiled[[]mirror.Argument] // its input schema, if it marks arguments as mirrored; otherwise nil
}

func (n toolNote) size() int { return n.output.size() + n.mirrored.size() }

// A compiled holds a schema, and what is compiled from it at the first use.
type compiled[T any] struct {
	text    string
	compile func(context.Context, stdjson.RawMessage) (T, error)

	mu    sync.Mutex
	done  bool
	told  bool // the program knows that the schema is refused
	value T
	err   error
}

// compiledFrom reuses what was compiled from the same schema before.
func compiledFrom[T any](text stdjson.RawMessage, before *compiled[T], compile func(context.Context, stdjson.RawMessage) (T, error)) *compiled[T] {
	switch {
	case len(text) == 0:
		return nil
	case before != nil && before.text == string(text):
		return before
	}
	return &compiled[T]{text: string(text), compile: compile}
}

// refusedSchema stands for a schema that is not kept.
func refusedSchema[T any](why error) *compiled[T] { return &compiled[T]{done: true, err: why} }

// get compiles the schema, unless it was compiled before. If the context ends meanwhile, the
// next caller begins again.
func (c *compiled[T]) get(ctx context.Context) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return c.value, c.err
	}
	value, err := c.compile(ctx, stdjson.RawMessage(c.text))
	if err == nil || ctx.Err() == nil {
		c.done, c.value, c.err = true, value, err
	}
	return value, err
}

// tellOnce reports whether the program is yet to learn that the schema is refused.
func (c *compiled[T]) tellOnce() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.told
	c.told = true
	return !before
}

func (c *compiled[T]) size() int {
	if c == nil {
		return 0
	}
	return len(c.text)
}

// learnTools records what a server says about the tools of a page. It removes the tools that
// must not be offered: over HTTP those with invalid annotations for mirrored arguments
// (2026-07-28 server/tools).
func (s *session) learnTools(page *protocol.ListToolsResult) {
	if s.mirrors && s.peer.Load().Modern() {
		page.Tools = slices.DeleteFunc(page.Tools, func(tool *protocol.Tool) bool {
			_, err := mirror.Arguments(tool.InputSchema)
			return err != nil
		})
	}
	s.tools.learn(page.Tools, s.client.options.TrustAnnotations)
}

// learn records what is said about some tools. Annotations count only if the program
// trusts the server.
func (n *toolNotes) learn(tools []*protocol.Tool, trusted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, tool := range tools {
		before := n.tools[tool.Name]
		said := toolNote{
			mode: tool.Mode(), repeatable: trusted && isRepeatable(tool.Annotations),
			taskOnly: tool.Execution != nil && tool.Execution.TaskSupport == protocol.TaskRequired,
			output:   compiledFrom(tool.OutputSchema, before.output, schema.Compile),
		}
		if bytes.Contains(tool.InputSchema, []byte(mirror.Keyword)) {
			said.mirrored = compiledFrom(tool.InputSchema, before.mirrored, func(_ context.Context, raw stdjson.RawMessage) ([]mirror.Argument, error) {
				return mirror.Arguments(raw)
			})
		}
		n.note(tool.Name, before, said)
	}
}

func (n *toolNotes) note(tool string, before, said toolNote) {
	if grows := said.size() - before.size(); grows > 0 && n.schemaBytes+grows > maxNotedSchema {
		said.mirrored = nil
		switch {
		case said.output == nil:
		case before.output != nil && before.output.text == "": // it was refused before
			said.output = before.output
		default:
			said.output = refusedSchema[*schema.Validator](errManySchemas)
		}
	}
	_, known := n.tools[tool]
	switch {
	case said == before:
		return
	case said == toolNote{}:
		delete(n.tools, tool)
	case !known && (len(tool) > maxNotedName || len(n.tools) >= maxNotes):
		return
	default:
		if n.tools == nil {
			n.tools = make(map[string]toolNote)
		}
		n.tools[strings.Clone(tool)] = said
	}
	n.schemaBytes += said.size() - before.size()
}

func isRepeatable(hints *protocol.ToolAnnotations) bool {
	return hints != nil && (hints.ReadOnlyHint || hints.IdempotentHint)
}

func (n *toolNotes) of(tool string) toolNote {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tools[tool]
}

// errManySchemas says why an output schema is not kept.
var errManySchemas = fmt.Errorf("client: the schemas of the server's tools are larger than %d bytes together", maxNotedSchema)

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
	found := transport.Arguments(mirror.Texts(wanted, p.Arguments))
	return &found
}

// refusesHeaders reports whether a server refused a request because of its headers.
func refusesHeaders(err error) bool {
	var fault *jsonrpc.Error
	return errors.As(err, &fault) && fault.Code == protocol.CodeHeaderMismatch
}

// relist lists the tools again.
func (s *Session) relist(ctx context.Context) error {
	now := s.With(s.options)
	now.options.Fresh, now.options.MaxStale = true, 0
	for _, err := range now.Tools(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
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
