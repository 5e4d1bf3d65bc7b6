package server

// How the Go types of a tool's function become the arguments and the result of a call.

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/typed"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

// toolInput sets the tool's input schema, and returns the schema that arguments must fit and a
// function that decodes them.
func toolInput[In any](t *protocol.Tool) (accepted json.RawMessage, read func(*protocol.CallToolParams) (In, error)) {
	if _, raw := any(*new(In)).(*protocol.CallToolParams); raw {
		return t.InputSchema, func(params *protocol.CallToolParams) (In, error) { return any(params).(In), nil }
	}
	// Also with a schema of the program: the type must be an object, and its tags have the defaults if the schema has
	// none.
	inferred := typed.InferObject(reflect.TypeFor[In](), t.InputSchema)
	defaults := inferred.Defaults()
	if len(t.InputSchema) == 0 {
		t.InputSchema, accepted = inferred.MustMarshal(), inferred.Accepted()
	} else {
		accepted = t.InputSchema
		if declared := typed.DeclaredDefaults(t.InputSchema, !inferred.TakesAny()); declared != nil {
			defaults = declared
			// Tried out once: every call that leaves the arguments out would fail.
			if _, err := typed.Decode[In](defaults.FillIn(json.RawMessage("{}"))); err != nil {
				panic(fmt.Sprintf("the defaults of the input schema do not fit %v: %v", reflect.TypeFor[In](), err))
			}
		}
	}
	decode := typed.Decoder[In](defaults)
	return accepted, func(params *protocol.CallToolParams) (In, error) { return decode(params.Arguments) }
}

// A Result sets both the structured content and the content blocks of a tool's
// result. T is any type that AddTool turns into structured content.
type Result[T any] struct {
	Value   T                 // structured content
	Content protocol.Contents // nil: a text block of the JSON of Value
	Meta    protocol.Meta
}

func (r Result[T]) parts() (any, protocol.Contents, protocol.Meta) { return r.Value, r.Content, r.Meta }

func (Result[T]) valueType() reflect.Type { return reflect.TypeFor[T]() }

// A result is a Result of any type.
type result interface {
	parts() (any, protocol.Contents, protocol.Meta)
	valueType() reflect.Type
}

// toolOutput sets the tool's output schema, and returns a function that converts output
// to a result.
func toolOutput[Out any](t *protocol.Tool) func(Out) (*protocol.CallToolResult, error) {
	onlyBlocks := func() {
		if len(t.OutputSchema) > 0 {
			panic("an output schema, but blocks are no structured content")
		}
	}
	blocks := func(to func(Out) protocol.Contents) func(Out) (*protocol.CallToolResult, error) {
		onlyBlocks()
		return func(out Out) (*protocol.CallToolResult, error) {
			content := to(out)
			if content == nil {
				content = protocol.Contents{}
			}
			return &protocol.CallToolResult{Content: content}, nil
		}
	}
	of := reflect.TypeFor[Out]()
	switch typed := any(*new(Out)).(type) {
	case string:
		onlyBlocks()
		return any(textResult).(func(Out) (*protocol.CallToolResult, error)) // Out is string
	case protocol.Contents:
		return blocks(func(out Out) protocol.Contents { return any(out).(protocol.Contents) })
	case struct{}:
		return blocks(func(Out) protocol.Contents { return nil })
	case *protocol.CallToolResult:
		return func(out Out) (*protocol.CallToolResult, error) { return any(out).(*protocol.CallToolResult), nil }
	case protocol.CallToolResult:
		panic("return a *protocol.CallToolResult")
	case result:
		encode := structured(t, typed.valueType())
		return func(out Out) (*protocol.CallToolResult, error) {
			value, content, meta := any(out).(result).parts()
			r, err := encode(value)
			if err != nil {
				return nil, err
			}
			if content != nil {
				r.Content = content
			}
			r.Meta = meta
			return r, nil
		}
	}
	if of.Implements(reflect.TypeFor[protocol.Content]()) {
		return blocks(func(out Out) protocol.Contents { return protocol.Contents{any(out).(protocol.Content)} })
	}
	encode := structured(t, of)
	return func(out Out) (*protocol.CallToolResult, error) { return encode(out) }
}

// structured sets the output schema for a type, and returns a function that converts
// values of that type to results. If a value cannot be encoded, that is a mistake in the
// program, which a model cannot correct.
func structured(t *protocol.Tool, of reflect.Type) func(any) (*protocol.CallToolResult, error) {
	wrapped := describeOutput(t, of)
	return func(out any) (*protocol.CallToolResult, error) {
		raw, err := typed.Encode(out)
		if err != nil {
			return nil, refusal.New(jsonrpc.CodeInternalError, "the output cannot be encoded: %s", refusal.Explain(err))
		}
		r := &protocol.CallToolResult{Content: text(string(raw)), StructuredContent: raw}
		// The text stays that of the value alone: a model reads it, and does not need the wrapping.
		if wrapped {
			r.StructuredContent = append(append(json.RawMessage(`{"result":`), raw...), '}')
		}
		return r, nil
	}
}

// describeOutput sets the output schema, unless the program has, and reports whether values are
// wrapped in an object: those that are none themselves, unless the program's schema allows that.
func describeOutput(t *protocol.Tool, of reflect.Type) (wrapped bool) {
	inferred := typed.InferUnless(t.OutputSchema, of)
	if inferred.Binary {
		panic("a []byte is no output of a tool: return a *protocol.ImageContent or another block")
	}
	wrapped = !inferred.IsObject()
	if len(t.OutputSchema) > 0 {
		// A schema that cannot be compiled is no reason to wrap: mustCompileOutput says what is wrong with it.
		own, err := schema.Compile(context.Background(), t.OutputSchema)
		return wrapped && err == nil && own.IsObject()
	}
	if wrapped {
		inferred = inferred.Wrap("result")
	}
	t.OutputSchema = inferred.MustMarshal()
	return wrapped
}

// textResult returns the result of a tool that returns a string, with one allocation.
func textResult(s string) (*protocol.CallToolResult, error) {
	one := new(struct {
		result protocol.CallToolResult
		blocks [1]protocol.Content
		block  protocol.TextContent
	})
	one.block.Text = validText(s)
	one.blocks[0] = &one.block
	one.result.Content = one.blocks[:]
	return &one.result, nil
}

// text returns content with one text block.
func text(s string) protocol.Contents { return protocol.Texts(validText(s)) }

// validText replaces each run of bytes that are not UTF-8 by one U+FFFD.
func validText(s string) string {
	if utf8.ValidString(s) { // this is faster than ToValidUTF8 for valid text
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
