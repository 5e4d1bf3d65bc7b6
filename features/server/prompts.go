package server

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/features/server/internal/typed"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// prompts serves the prompts of a server.
type prompts struct {
	catalog.Catalog[*prompt]
	server *Server
}

// A prompt is a prompt that was added.
type prompt struct {
	settings
	definition *protocol.Prompt
	run        func(context.Context, *protocol.GetPromptParams) (*protocol.GetPromptResult, error)
}

func (p *prompt) feature() Feature { return Feature{KindPrompt, p.definition.Name, p.definition} }

// AddPrompt offers a Go function as a prompt.
//
// In is a struct, or a pointer to one. Each argument is parsed from its text into the
// field with its name; see AddTool for tags. In may also be map[string]string for all
// arguments, struct{} for none, or *protocol.GetPromptParams for the undecoded
// params. The declared arguments of the prompt follow from the fields, unless
// p.Arguments is set. Arguments with an enum are completed automatically. Use a
// Completion for others.
//
// If the function returns a string or a block such as *protocol.ImageContent, it
// becomes one message from the user. protocol.Contents becomes one message for each
// block. []protocol.PromptMessage and *protocol.GetPromptResult are sent unchanged. An error
// is sent as an internal error with its text, but a *jsonrpc.Error in its chain is
// sent unchanged.
//
// AddPrompt replaces a prompt with the same name. It panics if f is nil, the name is
// empty, a type is not one of these, or a Completion names no argument.
func AddPrompt[In, Out any](s *Server, p protocol.Prompt, f func(context.Context, In) (Out, error), o ...FeatureOption) {
	defer prefix("prompt", p.Name)
	if f == nil || p.Name == "" {
		panic("a name and a function are needed")
	}
	added := &prompt{settings: newSettings(KindPrompt, o), definition: &p}
	// It declares the arguments, which the check of completions needs.
	read := promptInput[In](added)
	write := promptOutput[Out]()
	added.checkCompletion(argumentNames(p.Arguments))
	added.run = func(ctx context.Context, params *protocol.GetPromptParams) (*protocol.GetPromptResult, error) {
		in, err := read(ctx, params)
		if err != nil {
			return nil, refusal.New(jsonrpc.CodeInvalidParams, "invalid arguments: %s", refusal.Explain(err))
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		return withDescription(&p, write(out))
	}
	s.rounds.check(&added.settings)
	s.prompts.Set(p.Name, added)
	s.completions.note(&added.settings)
	s.subscriptions.Tell(changes.Prompts())
}

// withDescription gives a result the description of its prompt, unless the program has set another.
// The result may be one that the program returns each time, so a copy is changed.
func withDescription(p *protocol.Prompt, result *protocol.GetPromptResult) (*protocol.GetPromptResult, error) {
	switch {
	case result == nil:
		return nil, refusal.New(jsonrpc.CodeInternalError, "prompt %q has returned no result", p.Name)
	case result.Description != "" || p.Description == "":
		return result, nil
	}
	copied := *result
	copied.Description = p.Description
	return &copied, nil
}

// RemovePrompts removes prompts. Unknown names are ignored.
func (s *Server) RemovePrompts(names ...string) {
	if s.prompts.Remove(names) {
		s.subscriptions.Tell(changes.Prompts())
	}
}

// promptInput returns a function that decodes arguments, and declares them in the
// prompt.
func promptInput[In any](p *prompt) func(context.Context, *protocol.GetPromptParams) (In, error) {
	// In every case, also if the program decodes the params itself or has declared other arguments than its type has
	// fields.
	required := func(params *protocol.GetPromptParams) error {
		for _, argument := range p.definition.Arguments {
			if _, given := params.Arguments[argument.Name]; argument.Required && !given {
				return fmt.Errorf("%q is missing", argument.Name)
			}
		}
		return nil
	}
	if _, raw := any(*new(In)).(*protocol.GetPromptParams); raw {
		return func(_ context.Context, params *protocol.GetPromptParams) (In, error) {
			return any(params).(In), required(params)
		}
	}
	s := typed.InferObject(reflect.TypeFor[In](), nil)
	if p.definition.Arguments == nil {
		p.definition.Arguments = argumentsOf(s)
	}
	p.completeEnums(s)
	decode := textDecoder[In](s)
	return func(ctx context.Context, params *protocol.GetPromptParams) (In, error) {
		if err := required(params); err != nil {
			return *new(In), err
		}
		return decode(ctx, params.Arguments)
	}
}

// argumentsOf declares an argument for each field of a type, in their order.
func argumentsOf(s typed.Schema) []protocol.PromptArgument {
	var all []protocol.PromptArgument
	for _, name := range s.PropertyOrder {
		property := s.Properties[name]
		all = append(all, protocol.PromptArgument{
			Name: name, Title: property.Title, Description: property.Description, Required: slices.Contains(s.Required, name),
		})
	}
	return all
}

func argumentNames(all []protocol.PromptArgument) (names []string) {
	for _, argument := range all {
		names = append(names, argument.Name)
	}
	return names
}

// promptOutput returns a function that converts output to messages.
func promptOutput[Out any]() func(Out) *protocol.GetPromptResult {
	messages := func(to func(Out) protocol.Contents) func(Out) *protocol.GetPromptResult {
		return func(out Out) *protocol.GetPromptResult {
			all := []protocol.PromptMessage{}
			for _, block := range to(out) {
				all = append(all, protocol.PromptMessage{Role: protocol.RoleUser, Content: block})
			}
			return &protocol.GetPromptResult{Messages: all}
		}
	}
	switch any(*new(Out)).(type) {
	case string:
		return messages(func(out Out) protocol.Contents { return text(any(out).(string)) })
	case protocol.Contents:
		return messages(func(out Out) protocol.Contents { return any(out).(protocol.Contents) })
	case []protocol.PromptMessage:
		return func(out Out) *protocol.GetPromptResult {
			return &protocol.GetPromptResult{Messages: any(out).([]protocol.PromptMessage)}
		}
	case *protocol.GetPromptResult:
		return func(out Out) *protocol.GetPromptResult { return any(out).(*protocol.GetPromptResult) }
	}
	if reflect.TypeFor[Out]().Implements(reflect.TypeFor[protocol.Content]()) {
		return messages(func(out Out) protocol.Contents { return protocol.Contents{any(out).(protocol.Content)} })
	}
	panic(fmt.Sprintf("no messages can be made of %v", reflect.TypeFor[Out]()))
}

// list serves prompts/list.
func (ps *prompts) list(ctx context.Context, c *call, params *protocol.ListPromptsParams) (*protocol.ListPromptsResult, error) {
	page, err := listPage(ctx, c, &ps.Catalog, params.Cursor, func(p *prompt) *protocol.Prompt { return p.definition })
	if err != nil {
		return nil, err
	}
	return &protocol.ListPromptsResult{CacheableResult: page.CacheableResult, Prompts: page.entries, NextCursor: page.next}, nil
}

// serve serves prompts/get.
func (ps *prompts) serve(ctx context.Context, c *call, params *protocol.GetPromptParams) (*protocol.GetPromptResult, error) {
	p, err := ps.find(ctx, params.Name)
	if err != nil {
		return nil, err
	}
	c.in.SetTarget(params.Name)
	if err := c.readProgressToken(&params.RequestParams); err != nil {
		return nil, err
	}
	about := asking.Subject{Method: c.Method, Name: params.Name, Arguments: params.Arguments, Identity: c.Origin.Identity}
	run := func(ctx context.Context) (*protocol.GetPromptResult, error) { return p.run(ctx, params) }
	result, required, err := converse(ctx, c, invocation[*protocol.GetPromptResult]{&p.settings, &params.InputParams, about, run})
	if required != nil {
		return &protocol.GetPromptResult{InputRequired: required}, nil
	}
	if err != nil || result == nil || revision.Has(c.Client.ProtocolVersion, revision.ResourceLinks) {
		return result, err
	}
	return olderPrompt(c.Client.ProtocolVersion, result), nil
}

// find finds a prompt. One that the client may not see is as unknown as one that does not exist.
func (ps *prompts) find(ctx context.Context, name string) (*prompt, error) {
	if err := refusal.Missing(protocol.MethodGetPrompt, "name", name); err != nil {
		return nil, err
	}
	p, ok := ps.Get(name)
	if !ok || !ps.server.sees(ctx, p.feature()) {
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown prompt %q", refusal.Shorten(name, refusal.LongestName))
	}
	return p, nil
}

// olderPrompt returns a copy of a prompt without the blocks that a revision does not have. The
// program may return the same messages to clients of other revisions.
func olderPrompt(version string, result *protocol.GetPromptResult) *protocol.GetPromptResult {
	copied := *result
	copied.Messages = slices.Clone(result.Messages)
	for i := range copied.Messages {
		copied.Messages[i].Content = downgraded(version, protocol.Contents{copied.Messages[i].Content})[0]
	}
	return &copied
}
