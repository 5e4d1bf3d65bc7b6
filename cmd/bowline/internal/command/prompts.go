package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/arguments"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/suggest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

const promptsLong = `List the prompts of a server: the name, the arguments (optional ones in
brackets) and the first line of the description.

With --json the list is one JSON document on standard output.`

// newPrompts shows arguments as they are typed after bowline prompt.
func newPrompts() *cobra.Command {
	return connect.WithServer(&cobra.Command{
		Use:        "prompts",
		SuggestFor: []string{"list", "ls", "list-prompts"},
		Short:      "List the prompts of a server",
		Long:       promptsLong,
		Example:    `  bowline prompts --command 'npx -y @modelcontextprotocol/server-everything'`,
		Args:       noArguments,
	}, nil, listing(func(ctx context.Context, r *connect.Run) error {
		prompts, err := all(r.Session.Prompts(ctx))
		if err != nil {
			return err
		}
		return r.Print(protocol.ListPromptsResult{Prompts: prompts}, func(table io.Writer) {
			for _, p := range prompts {
				render.Row(table, usageOf(p), cmp.Or(p.Description, p.Title))
			}
		})
	}))
}

const promptLong = `Get a prompt with the given arguments and print its messages, each after a line
with its role. Arguments of prompts are always text.

With --json the whole result is one JSON document.`

const promptExample = `  bowline prompt review language=go --command 'review-server'

  # The text alone
  bowline prompt review language=go --json --command 'review-server' | jq -r '.messages[].content.text'`

// newPrompt checks the name and the arguments against the list of the server first: the error of a server
// would not say what is missing.
func newPrompt() *cobra.Command {
	return connect.WithServer(&cobra.Command{
		Use:        "prompt NAME [KEY=VALUE ...]",
		SuggestFor: []string{"get"},
		Short:      "Get a prompt of a server",
		Long:       promptLong,
		Example:    promptExample,
		Args:       atLeast("the prompt"),
	}, first(promptNames), func(_ *cobra.Command, args []string) (connect.Action, error) {
		arguments, err := arguments.TextPairs(args[1:])
		return func(ctx context.Context, r *connect.Run) error {
			if err := checkPrompt(ctx, r.Session, args[0], arguments); err != nil {
				return err
			}
			result, err := r.Session.GetPrompt(ctx, &protocol.GetPromptParams{Name: args[0], Arguments: arguments})
			if err != nil {
				return err
			}
			return printPrompt(r, result)
		}, err
	})
}

// printPrompt prints messages, each indented below its role: no text can pass for another message.
func printPrompt(r *connect.Run, result *protocol.GetPromptResult) error {
	if r.JSON {
		return render.JSON(r.Out, result)
	}
	var text bytes.Buffer
	for _, m := range result.Messages {
		render.WriteLine(&text, render.Flat(string(m.Role))+":\n"+render.Indented(strings.TrimRight(render.Content(m.Content), "\n")))
	}
	_, err := text.WriteTo(r.Out)
	return err
}

const completeLong = `Ask a server to complete the beginning of an argument of a prompt or of a
resource template. Further pairs are arguments with known values. The completions
are printed one on each line, best first.

A name that contains a brace or :// is a template, any other name a prompt. With
--json the whole result is one JSON document.`

const completeExample = `  bowline complete review language=py --command 'review-server'

  # An argument that depends on another
  bowline complete 'repo://{owner}/{name}' name=bow owner=bowline-mcp --url http://127.0.0.1:8080/mcp`

// newComplete tells a template from a prompt by its form, because a server may have both by one name.
func newComplete() *cobra.Command {
	return connect.WithServer(&cobra.Command{
		Use:     "complete PROMPT|TEMPLATE KEY=TYPED [KEY=VALUE ...]",
		Short:   "Ask a server to complete an argument",
		Long:    completeLong,
		Example: completeExample,
		Args:    atLeast("the prompt or the resource template", "the argument, as KEY=TYPED"),
	}, first(promptNames), func(_ *cobra.Command, args []string) (connect.Action, error) {
		params, err := toComplete(args)
		return func(ctx context.Context, r *connect.Run) error {
			result, err := r.Session.Complete(ctx, params)
			if err != nil {
				return err
			}
			return r.Print(result, func(out io.Writer) {
				for _, value := range result.Completion.Values {
					fmt.Fprintln(out, render.Flat(value))
				}
			})
		}, err
	})
}

// toComplete reads the words of complete: what has the argument, the argument, and what is known.
func toComplete(words []string) (*protocol.CompleteParams, error) {
	known, err := arguments.TextPairs(words[1:])
	key, typed, _ := strings.Cut(words[1], "=")
	delete(known, key)
	params := &protocol.CompleteParams{
		Ref:      protocol.CompleteReference{Type: protocol.ReferencePrompt, Name: words[0]},
		Argument: protocol.CompleteArgument{Name: key, Value: typed},
	}
	if strings.Contains(words[0], "{") || strings.Contains(words[0], "://") {
		params.Ref = protocol.CompleteReference{Type: protocol.ReferenceResource, URI: words[0]}
	}
	if len(known) > 0 {
		params.Context = &protocol.CompleteContext{Arguments: known}
	}
	return params, err
}

// promptNames completes the names of prompts.
func promptNames(ctx context.Context, s *client.Session) ([]cobra.Completion, error) {
	return names(s.Prompts(ctx), func(p *protocol.Prompt) (string, string) { return p.Name, p.Description })
}

// usageOf shows how a prompt is got.
func usageOf(p *protocol.Prompt) string {
	words := []string{render.Line(p.Name)}
	for _, argument := range p.Arguments {
		word := render.Line(argument.Name) + "=TEXT"
		if !argument.Required {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// checkPrompt reports a prompt that the server does not list, and required
// arguments that are missing.
func checkPrompt(ctx context.Context, s *client.Session, name string, given map[string]string) error {
	var known []string
	if server := s.Server(); !server.Capabilities.Has("prompts") {
		return &process.Failure{Status: process.ExitUsage, Err: errors.New("the server has no prompts")}
	}
	for p, err := range s.Prompts(ctx) {
		if err != nil {
			return err
		}
		known = append(known, render.Line(p.Name))
		if p.Name != name {
			continue
		}
		for _, argument := range p.Arguments {
			if _, ok := given[argument.Name]; argument.Required && !ok {
				return &process.Failure{Status: process.ExitUsage, Err: fmt.Errorf("argument %q is missing\nIt takes: bowline prompt %s", argument.Name, usageOf(p))}
			}
		}
		return nil
	}
	if len(known) == 0 {
		return &process.Failure{Status: process.ExitUsage, Err: errors.New("the server has no prompts")}
	}
	return &process.Failure{Status: process.ExitUsage, Err: fmt.Errorf("the server has no prompt %q; %s", name, suggest.Among(name, known))}
}
