package server

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/typed"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Completion is an option of prompts and templates. It proposes values for one
// argument while the user types. Values receives what the user has typed so far, and
// the arguments that are already known. It returns the best values first; at most 100
// are sent.
type Completion struct {
	Argument string
	Values   func(ctx context.Context, typed string, known map[string]string) ([]string, error)
}

func (c Completion) apply(s *settings) { s.completion[c.Argument] = c.Values }

// completeEnums adds completions for arguments with an enum, unless the program has its
// own.
// The values are in the order of the tag, and only those that begin with what was typed; case matters, as it does for
// the argument.
func (s *settings) completeEnums(of typed.Schema) {
	for name, property := range of.Properties {
		if _, own := s.completion[name]; own || len(property.Enum) == 0 {
			continue
		}
		s.completion[name] = func(_ context.Context, typed string, _ map[string]string) (values []string, _ error) {
			for _, value := range property.Enum {
				if text := fmt.Sprint(value); len(text) >= len(typed) && text[:len(typed)] == typed {
					values = append(values, text)
				}
			}
			return values, nil
		}
	}
}

// checkCompletion panics if a completion names no argument.
func (s *settings) checkCompletion(arguments []string) {
	for name, values := range s.completion {
		if values == nil || !slices.Contains(arguments, name) {
			panic(fmt.Sprintf("completion of %q: there is no such argument, or no function", name))
		}
	}
}

// completions serves completion/complete.
// What is in used never becomes false again: clients have read it as a capability. It is set after the feature can be
// found, and before they are told.
type completions struct {
	server *Server
	used   atomic.Bool // a feature has a completion, or had one
}

// note makes the server offer completion, if the feature has a completion.
func (cs *completions) note(added *settings) {
	if len(added.completion) > 0 {
		cs.used.Store(true)
	}
}

// offered reports whether completion/complete is offered. 2024-11-05 has no capability
// for it.
func (cs *completions) offered(c *call) bool {
	return c.offered.Completions != nil || !revision.Has(c.Client.ProtocolVersion, revision.CompletionCapability) && cs.used.Load()
}

// complete returns proposals for the value of an argument. An argument without a completion has
// none, which is no error: a client asks while the user types.
func (cs *completions) complete(ctx context.Context, _ *call, params *protocol.CompleteParams) (*protocol.CompleteResult, error) {
	if err := refusal.Missing(protocol.MethodComplete, "argument.name", params.Argument.Name); err != nil {
		return nil, err
	}
	of, err := cs.find(ctx, &params.Ref)
	if err != nil {
		return nil, err
	}
	var all []string
	if values := of.completion[params.Argument.Name]; values != nil {
		var known map[string]string
		if params.Context != nil {
			known = params.Context.Arguments
		}
		if all, err = values(ctx, params.Argument.Value, known); err != nil {
			return nil, err
		}
	}
	return completed(all), nil
}

// completed returns as many proposals as a result may have, and says how many there are.
func completed(all []string) *protocol.CompleteResult {
	result := &protocol.CompleteResult{Completion: protocol.Completion{Values: []string{}}}
	if len(all) > protocol.MaxCompletions {
		total := int64(len(all))
		result.Completion.Total, result.Completion.HasMore = &total, true
		all = all[:protocol.MaxCompletions]
	}
	result.Completion.Values = append(result.Completion.Values, all...)
	return result
}

// find finds the feature to which a completion request refers. One that the client may not see is
// as unknown as one that does not exist.
func (cs *completions) find(ctx context.Context, ref *protocol.CompleteReference) (*settings, error) {
	switch ref.Type {
	case protocol.ReferencePrompt:
		return cs.findPrompt(ctx, ref.Name)
	case protocol.ReferenceResource:
		return cs.findResource(ctx, ref.URI)
	}
	if err := refusal.Missing(protocol.MethodComplete, "ref.type", ref.Type); err != nil {
		return nil, err
	}
	return nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown reference %q", refusal.Shorten(ref.Type, refusal.LongestName))
}

func (cs *completions) findPrompt(ctx context.Context, name string) (*settings, error) {
	if err := refusal.Missing(protocol.MethodComplete, "ref.name", name); err != nil {
		return nil, err
	}
	p, err := cs.server.prompts.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return &p.settings, nil
}

// findResource finds a template by its text, which is what a client names, or a resource.
func (cs *completions) findResource(ctx context.Context, uri string) (*settings, error) {
	s := cs.server
	if err := refusal.Missing(protocol.MethodComplete, "ref.uri", uri); err != nil {
		return nil, err
	}
	if t, ok := s.resources.templates.Get(uri); ok && s.sees(ctx, t.feature()) {
		return &t.settings, nil
	}
	if r, ok := s.resources.Get(uri); ok && s.sees(ctx, r.feature()) {
		return new(settings), nil // it has no arguments
	}
	return nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown resource %q", refusal.Shorten(uri, refusal.LongestName))
}
