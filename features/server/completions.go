package server

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/typed"
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
	return c.offered.Completions != nil || !protocol.Has(c.Client.ProtocolVersion, protocol.CompletionCapability) && cs.used.Load()
}

// complete returns proposals for the value of an argument.
func (cs *completions) complete(ctx context.Context, _ *call, params *protocol.CompleteParams) (*protocol.CompleteResult, error) {
	if err := refusal.Missing(protocol.MethodComplete, "argument.name", params.Argument.Name); err != nil {
		return nil, err
	}
	of, err := cs.find(ctx, &params.Ref)
	if err != nil {
		return nil, err
	}
	result := &protocol.CompleteResult{Completion: protocol.Completion{Values: []string{}}}
	values := of.completion[params.Argument.Name]
	if values == nil {
		return result, nil
	}
	var known map[string]string
	if params.Context != nil {
		known = params.Context.Arguments
	}
	all, err := values(ctx, params.Argument.Value, known)
	if err != nil {
		return nil, err
	}
	if len(all) > protocol.MaxCompletions {
		total := int64(len(all))
		result.Completion.Total, result.Completion.HasMore = &total, true
		all = all[:protocol.MaxCompletions]
	}
	result.Completion.Values = append(result.Completion.Values, all...)
	return result, nil
}

// find finds the feature to which a completion request refers.
func (cs *completions) find(ctx context.Context, ref *protocol.CompleteReference) (*settings, error) {
	s, member, value := cs.server, "ref.type", ref.Type
	switch ref.Type {
	case protocol.ReferencePrompt:
		member, value = "ref.name", ref.Name
	case protocol.ReferenceResource:
		member, value = "ref.uri", ref.URI
	}
	if err := refusal.Missing(protocol.MethodComplete, member, value); err != nil {
		return nil, err
	}
	switch ref.Type {
	case protocol.ReferencePrompt:
		if p, ok := s.prompts.Get(ref.Name); ok && s.sees(ctx, p.feature()) {
			return &p.settings, nil
		}
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown prompt %q", refusal.Shorten(ref.Name, refusal.LongestName))
	case protocol.ReferenceResource:
		if t, ok := s.resources.templates.Get(ref.URI); ok && s.sees(ctx, t.feature()) {
			return &t.settings, nil
		}
		if r, ok := s.resources.Get(ref.URI); ok && s.sees(ctx, r.feature()) {
			return new(settings), nil // it has no arguments
		}
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown resource %q", refusal.Shorten(ref.URI, refusal.LongestName))
	default:
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown reference %q", refusal.Shorten(ref.Type, refusal.LongestName))
	}
}
