package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/jsonschema-go/jsonschema"
)

// These are the kinds of features.
const (
	KindTool     = "tool"
	KindResource = "resource"
	KindTemplate = "template"
	KindPrompt   = "prompt"
)

// A Feature describes one thing that a server offers, for Options.Visible.
type Feature struct {
	Kind       string // KindTool, KindResource, KindTemplate or KindPrompt
	Name       string // the name of a tool or prompt, the URI of a resource, or the text of a template
	Definition any    // *protocol.Tool, *protocol.Resource, *protocol.ResourceTemplate or *protocol.Prompt; read-only
}

// A FeatureOption is an option for adding a feature: Asks, Form, InputSchema or a Completion.
type FeatureOption interface{ apply(*settings) }

// settings contains the options of a feature.
type settings struct {
	asking      *askingOption
	completion  map[string]completer // completions by argument
	inputSchema inputSchemaOption    // nil: the one of the definition, or of the type
}

// newSettings panics if an option is for a feature of another kind.
func newSettings(kind string, options []FeatureOption) settings {
	s := settings{completion: make(map[string]completer)}
	for _, o := range options {
		o.apply(&s)
	}
	switch {
	case kind == KindTool && len(s.completion) > 0:
		panic("only prompts and templates have completion")
	case kind != KindTool && s.inputSchema != nil:
		panic("only tools have an input schema")
	}
	return s
}

// InputSchema is the option for a tool whose input schema is written with package jsonschema, and not derived from the
// type of its arguments. It does what protocol.Tool.InputSchema does, which must not be set as well. Later changes
// of s have no effect. InputSchema panics if s is nil or cannot be encoded.
//
// What AddTool refuses of a schema it refuses here as well: another type than "object", $dynamicRef, and a $ref to another
// document. Defaults of the schema take precedence over those of tags.
func InputSchema(s *jsonschema.Schema) FeatureOption {
	if s == nil {
		panic("server: InputSchema takes a schema")
	}
	raw, err := protocol.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("server: InputSchema: %v", err))
	}
	return inputSchemaOption(raw)
}

// inputSchemaOption is the schema as JSON. It is encoded when the option is made, so that a schema that the program changes
// later, or gives to several tools, is not read while a tool is called.
type inputSchemaOption json.RawMessage

func (o inputSchemaOption) apply(s *settings) { s.inputSchema = o }

// Asking says how a handler continues after it has asked its client something. In the
// legacy revisions a question is a request on the stream of the call. In 2026-07-28
// the call ends with the question, and the client calls again with the answer, in a
// new round. Waits and Reruns each mean the same in all revisions (ADR-0031).
type Asking uint8

const (
	// Waits is for a handler that runs once. It waits on this node for each answer,
	// for at most 10 minutes. It holds its locks and transactions for that long, too.
	// If no answer comes, the question fails, and the handler must clean up.
	Waits Asking = iota + 1

	// Reruns is for a handler that runs again from its start in each round, on any
	// node. Until its last question is answered, it must have no effects, and must
	// ask the same questions in the same order. A question that has an answer returns
	// it immediately. At the first question without an answer, the context ends and
	// the result of the handler is dropped.
	Reruns
)

type askingOption struct {
	how   Asking
	needs protocol.ClientCapabilities
}

func (o *askingOption) apply(s *settings) { s.asking = o }

type completer = func(ctx context.Context, typed string, known map[string]string) ([]string, error)

// prefix adds the name of the feature to a panic in an Add function.
func prefix(kind, name string) {
	if problem := recover(); problem != nil {
		panic(fmt.Sprintf("server: %s %q: %v", kind, name, problem))
	}
}
