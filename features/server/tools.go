package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/features/internal/paramheader"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/features/server/internal/typed"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/protocol/schema"
	"github.com/go-json-experiment/json/jsontext"
)

// tools serves the tools of a server.
type tools struct {
	catalog.Catalog[*tool]
	server *Server
}

// A tool is a tool that was added.
type tool struct {
	settings
	definition *protocol.Tool
	input      *schema.Validator
	output     *schema.Validator // validates results; nil if the tool has no output schema
	headers    []paramheader.Argument

	taskSupport protocol.TaskSupport
	modern      *protocol.Tool // the definition in 2026-07-28, without task support
	takesParams bool           // run shows the params to the program

	run func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error)
}

func (t *tool) feature() Feature { return Feature{KindTool, t.definition.Name, t.definition} }

// AddTool offers a Go function as a tool.
//
// In is a struct or a map, or a pointer to one. AddTool derives its schema, unless
// t.InputSchema or the option InputSchema is set. The server validates arguments against the schema before the
// function runs, and fills in the schema's defaults for missing arguments. An In of
// struct{} takes no arguments. An In of *protocol.CallToolParams gets the undecoded
// params; the tool then needs an InputSchema, against which arguments are still
// validated.
//
// What the function returns determines the result:
//
//   - a string becomes a text block;
//   - a struct or map, or a pointer to one, becomes structured content and a text
//     block with its JSON, with a derived output schema unless t.OutputSchema is set;
//   - a slice, number, bool, or a type that marshals itself to text, such as
//     time.Time, becomes structured content of the form {"result": …}, and a text
//     block with the JSON of the value alone;
//   - a block such as *protocol.ImageContent, or protocol.Contents, is sent
//     unchanged;
//   - a Result sets structured content and content blocks separately;
//   - struct{} becomes a result without content;
//   - a *protocol.CallToolResult is sent unchanged;
//   - structured content that is not an object is sent only to clients of 2026-07-28,
//     and only if t.OutputSchema allows it; other clients get the text and no output
//     schema;
//   - an error becomes a result with IsError set and the error's text, but a
//     *jsonrpc.Error in its chain is sent unchanged as a protocol error, unless it is what
//     another server has answered to a call of the handler.
//
// Values are decoded and encoded as by encoding/json, including its tags: []byte is
// base64, and a time.Duration is nanoseconds. But names are case-sensitive, duplicate
// names are rejected, and nil slices and maps are encoded as empty ones. A field is
// required unless it is omitempty, omitzero, a pointer or has a default. These tags
// describe a field:
//
//	jsonschema:"what the field means"
//	title, format, pattern, minimum, maximum, minLength, maxLength
//	enum:"celsius,fahrenheit"
//	default:"celsius"   // fills in what the caller left out
//	header:"Region"     // mirrored to the HTTP header Mcp-Param-Region
//
// A type with a method EnumValues() []string is an enum wherever it is used. In a
// derived schema, a type that marshals itself to JSON accepts any value, a type that
// marshals itself to text is a string, and a time.Time a string with the format date-time.
// In arguments, null for a list is taken as none. Numbers such as 1.0 and 1e3 are accepted
// as integers if they are below 2^53. A tool with an output schema must return
// structured content that fits it, or set IsError. Otherwise the client gets an
// internal error.
//
// AddTool replaces a tool with the same name. It panics if f is nil, if the name, a schema, a
// tag or an annotation is invalid, if a tag would limit nothing (a length of a number, or a keyword that is not listed above), if the default of a tag does not fit the other tags, if a
// schema cannot be derived, or if t.Execution or an option does not fit a tool, because these
// are mistakes in the program. A name has 1 to 128 letters from A to Z and a to z, digits, "_",
// "-" and "." (2025-11-25 server/tools). It derives no schema for options of the json tag other than
// omitempty and omitzero, nor for embedded fields that are not plain structs. A type that
// contains itself needs t.InputSchema or t.OutputSchema.
func AddTool[In, Out any](s *Server, t protocol.Tool, f func(context.Context, In) (Out, error), o ...FeatureOption) {
	defer prefix("tool", t.Name)
	if f == nil {
		panic("no function")
	}
	checkToolName(t.Name)
	// These set the schemas of the definition, so they come before all that reads them. Everything that may panic
	// comes before Set: a mistake leaves the tool that was there. Clients are told last, so that one that asks at
	// once finds the new one.
	// An option may have the input schema, from which everything below is made.
	options := newSettings(KindTool, o)
	if options.inputSchema != nil {
		if t.InputSchema != nil {
			panic("it has two input schemas, one of them by the option InputSchema")
		}
		t.InputSchema = json.RawMessage(options.inputSchema)
	}
	accepted, read := toolInput[In](&t)
	write := toolOutput[Out](&t)
	added := &tool{settings: options, definition: &t, input: typed.MustCompile(accepted), headers: mustMirrored(t.InputSchema)}
	added.mustCompileOutput()
	added.splitEras()
	_, added.takesParams = any(*new(In)).(*protocol.CallToolParams)
	added.run = toolRun(read, f, write)
	s.rounds.check(&added.settings)
	s.tools.Set(t.Name, added)
	s.subscriptions.Tell(changes.Tools())
}

// toolRun returns what a call of a tool runs: it decodes the arguments, calls the function of the
// program, and makes a result of what it returns. Many calls that decode at once take turns, since
// that is the work that a client can make large.
func toolRun[In, Out any](
	read func(*protocol.CallToolParams) (In, error), f func(context.Context, In) (Out, error), write func(Out) (*protocol.CallToolResult, error),
) func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	return func(ctx context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
		var in In
		var invalid error
		if err := inTurn(ctx, func() { in, invalid = read(params) }); err != nil {
			return nil, err
		} else if invalid != nil {
			return nil, &argumentError{invalid}
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		return write(out)
	}
}

// mustCompileOutput prepares the check of results, if the tool has an output schema. Unlike the
// input, it may have any type.
func (t *tool) mustCompileOutput() {
	if len(t.definition.OutputSchema) == 0 {
		return
	}
	var err error
	if t.output, err = schema.Compile(context.Background(), t.definition.OutputSchema); err != nil {
		panic(err)
	}
}

// splitEras sets what the two eras differ in: whether a call may become a task is a part of the
// definition only in 2025-11-25. It panics if the task support is unknown.
// Both definitions are shared by all calls, and do not change after that.
func (t *tool) splitEras() {
	t.modern, t.taskSupport = t.definition, protocol.TaskForbidden
	if t.definition.Execution != nil {
		t.taskSupport = cmp.Or(t.definition.Execution.TaskSupport, protocol.TaskForbidden)
		modern := *t.definition
		modern.Execution = nil
		t.modern = &modern
	}
	if !slices.Contains([]protocol.TaskSupport{protocol.TaskForbidden, protocol.TaskOptional, protocol.TaskRequired}, t.taskSupport) {
		panic(fmt.Sprintf("unknown task support %q", t.taskSupport))
	}
}

// RemoveTools removes tools. Unknown names are ignored.
func (s *Server) RemoveTools(names ...string) {
	if s.tools.Remove(names) {
		s.subscriptions.Tell(changes.Tools())
	}
}

// longestToolName is the longest name of a tool that MCP recommends.
const longestToolName = 128

// checkToolName panics if a name is not one that MCP recommends. Many clients and models
// refuse others.
func checkToolName(name string) {
	if name == "" {
		panic("a name is needed")
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			panic(fmt.Sprintf("the name contains %q: use letters from A to Z and a to z, digits, _, - and .", c))
		}
	}
	if len(name) > longestToolName {
		panic(fmt.Sprintf("the name is longer than %d characters", longestToolName))
	}
}

// list serves tools/list.
func (ts *tools) list(ctx context.Context, c *call, params *protocol.ListToolsParams) (*protocol.ListToolsResult, error) {
	page, err := listPage(ctx, c, &ts.Catalog, params.Cursor, func(t *tool) *protocol.Tool { return t.forClient(c) })
	if err != nil {
		return nil, err
	}
	return &protocol.ListToolsResult{CacheableResult: page.CacheableResult, Tools: page.entries, NextCursor: page.next}, nil
}

// forClient returns the definition for the revision of the client. The legacy revisions
// only allow objects as output.
func (t *tool) forClient(c *call) *protocol.Tool {
	definition := t.definition
	if !c.offered.Has("tasks") {
		definition = t.modern
	}
	if !c.modern && t.output != nil && !t.output.IsObject() {
		copied := *definition
		copied.OutputSchema = nil
		return &copied
	}
	return definition
}

// call serves tools/call.
func (ts *tools) call(ctx context.Context, c *call, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	t, err := ts.find(ctx, c, params)
	if err != nil {
		return nil, err
	}
	// Before a call may become a task: invalid arguments are answered at once, in every revision and whatever the
	// tool, and take no place.
	switch invalid, late := t.validate(ctx, c, params.Arguments); {
	case late != nil:
		return nil, late
	case invalid != nil: // an answer of the tool, so that a model can correct its arguments
		return t.failure(c, &argumentError{invalid})
	}
	mayBeTask, err := ts.server.tasks.mayBe(c, t, params)
	if err != nil {
		return nil, err
	}
	var result *protocol.CallToolResult
	if mayBeTask {
		result, err = ts.server.tasks.call(ctx, c, t, params)
	} else {
		result, err = t.call(ctx, c, params)
	}
	// What the tool returns is checked when the task has ended; see taskJob.Outcome.
	if err == nil && result != nil && result.Task != nil {
		return result, nil
	}
	return t.answer(ctx, c, result, err)
}

// find finds the tool of a call, and reads what does not depend on its arguments' schema. What is
// wrong there is an error of the protocol, which the model need not see.
func (ts *tools) find(ctx context.Context, c *call, params *protocol.CallToolParams) (*tool, error) {
	if err := refusal.Missing(protocol.MethodCallTool, "name", params.Name); err != nil {
		return nil, err
	}
	t, ok := ts.Get(params.Name)
	// One answer for both, so that a client does not learn of a tool that is hidden from it.
	if !ok || !ts.server.sees(ctx, t.feature()) {
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown tool %q", refusal.Shorten(params.Name, refusal.LongestName))
	}
	// Only a name that there is: metrics have a series for each, and a client must not make more of them.
	c.in.SetTarget(params.Name)
	if err := c.readProgressToken(&params.RequestParams); err != nil {
		return nil, err
	}
	// The handler gets the params themselves, and not by the context of the call, which adds the _meta.
	if t.takesParams {
		c.addMeta()
	}
	if len(params.Arguments) == 0 {
		params.Arguments = json.RawMessage("{}")
	}
	return t, checkHeaders(c, t.headers, params.Arguments)
}

// validate checks the arguments of a call: large ones when it is their turn, so that they do not
// keep the processors from small ones.
func (t *tool) validate(ctx context.Context, c *call, arguments json.RawMessage) (invalid, late error) {
	if c.in.Size() <= turn.Small {
		return t.input.Validate(ctx, arguments), nil
	}
	return t.validateInTurn(ctx, c, arguments)
}

// validateInTurn is apart from validate, because its frames would make the stack of every call
// larger.
func (t *tool) validateInTurn(ctx context.Context, c *call, arguments json.RawMessage) (invalid, late error) {
	late = c.inTurn(c.in.Size(), func() { invalid = t.input.Validate(ctx, arguments) })
	return invalid, late
}

// answer returns the answer to a call whose handler has returned.
func (t *tool) answer(ctx context.Context, c *call, result *protocol.CallToolResult, err error) (*protocol.CallToolResult, error) {
	if err != nil {
		return t.failure(c, err)
	}
	if result, err = t.check(ctx, result); err != nil {
		return nil, err
	}
	return forRevision(c, result), nil
}

// call runs the handler. Asking costs nothing for a tool that does not ask.
func (t *tool) call(ctx context.Context, c *call, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
	if t.asking != nil || params.InputResponses != nil || params.RequestState != nil {
		return t.converse(ctx, c, params, func(ctx context.Context) (*protocol.CallToolResult, error) { return t.run(ctx, params) })
	}
	// The handler may still return InputRequired, so what it has done counts as its first run: a second one would
	// have its effects twice.
	result, err := t.run(ctx, params)
	if err == nil || !requiresInput(err) {
		return result, err
	}
	first := true
	return t.converse(ctx, c, params, func(ctx context.Context) (*protocol.CallToolResult, error) {
		if first { // the handler has run once
			first = false
			return result, err
		}
		return t.run(ctx, params)
	})
}

// converse runs a handler that may ask the client.
// It completes the params first: a handler that waits finds its request without the context of the call.
func (t *tool) converse(ctx context.Context, c *call, params *protocol.CallToolParams, run func(context.Context) (*protocol.CallToolResult, error)) (*protocol.CallToolResult, error) {
	c.addMeta()
	about := asking.Subject{Method: c.Method, Name: params.Name, Arguments: params.Arguments, Identity: c.Origin.Identity}
	result, required, err := converse(ctx, c, invocation[*protocol.CallToolResult]{&t.settings, &params.InputParams, about, run})
	if required != nil {
		return &protocol.CallToolResult{InputRequired: required}, nil
	}
	return result, err
}

// check rejects a result that does not fit the tool's output schema.
func (t *tool) check(ctx context.Context, result *protocol.CallToolResult) (*protocol.CallToolResult, error) {
	switch {
	case result == nil:
		return nil, refusal.New(jsonrpc.CodeInternalError, "tool %q has returned no result", t.definition.Name)
	// A failure has no structured content that a schema could describe, and a question is no result yet.
	case t.output == nil || result.IsError || result.InputRequired != nil:
		return result, nil
	case len(result.StructuredContent) == 0:
		return nil, refusal.New(jsonrpc.CodeInternalError, "tool %q has broken its output schema: no structured content", t.definition.Name)
	}
	if err := t.output.Validate(ctx, result.StructuredContent); err != nil {
		return nil, refusal.New(jsonrpc.CodeInternalError, "tool %q has broken its output schema: %s", t.definition.Name, refusal.Explain(err))
	}
	return result, nil
}

// An argumentError reports invalid arguments.
type argumentError struct{ err error }

func (e *argumentError) Error() string { return "invalid arguments: " + refusal.Explain(e.err) }

// failure returns the answer to a failed call: a result that a model can read,
// unless the protocol has an error code for the failure. Since 2025-11-25, invalid
// arguments are such a result.
func (t *tool) failure(c *call, err error) (*protocol.CallToolResult, error) {
	var fault *jsonrpc.Error
	var arguments *argumentError
	switch err = c.fault(err); {
	// What has a code of the protocol keeps it. The text of a panic is for the log, not for a model.
	case errors.As(err, &fault), isPanic(err):
		return nil, err
	case errors.As(err, &arguments):
		fault = refusal.New(jsonrpc.CodeInvalidParams, "%v", arguments)
		if !revision.Has(c.Client.ProtocolVersion, revision.InvalidArgumentsAsResult) {
			return nil, fault
		}
		return failed(fault.Message), nil
	default:
		return failed(err.Error()), nil
	}
}

func failed(why string) *protocol.CallToolResult {
	return &protocol.CallToolResult{Content: text(why), IsError: true}
}

// forRevision adapts a result to the revision of a call. It replaces blocks that the
// revision does not have by text about them, and leaves out structured content that the
// revision does not allow. It copies a result before it changes it, because results may
// be shared.
func forRevision(c *call, result *protocol.CallToolResult) *protocol.CallToolResult {
	old := !revision.Has(c.Client.ProtocolVersion, revision.ResourceLinks)
	wide := !c.modern && len(result.StructuredContent) > 0 && jsontext.Value(result.StructuredContent).Kind() != '{'
	if !old && !wide {
		return result
	}
	copied := *result
	if old {
		copied.Content = downgraded(c.Client.ProtocolVersion, result.Content)
	}
	if wide {
		copied.StructuredContent = nil
		if len(result.Content) == 0 {
			copied.Content = text(string(result.StructuredContent))
		}
	}
	return &copied
}
