package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/suggest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

func newResources() *cobra.Command {
	return withServer(&cobra.Command{
		Use:        "resources",
		SuggestFor: []string{"list", "ls", "list-resources"},
		Short:      "List the resources of a server",
		Long: `List the resources of a server and then its resource templates: the URI and the
first line of the description. To read a resource of a template, replace the
parts in braces.

With --json both lists are one JSON document on standard output.`,
		Example: `  # The resources of the reference server
  bowline resources --command 'npx -y @modelcontextprotocol/server-everything'

  # Their URIs alone
  bowline resources --json --url http://127.0.0.1:8080/mcp | jq -r '.resources[].uri'`,
		Args: noArguments,
	}, nil, listing(func(ctx context.Context, r *run) error {
		resources, err := all(r.session.Resources(ctx))
		if err != nil {
			return err
		}
		templates, err := all(r.session.ResourceTemplates(ctx))
		if err != nil {
			return err
		}
		document := struct {
			Resources protocol.Resources         `json:"resources"`
			Templates protocol.ResourceTemplates `json:"resourceTemplates"`
		}{resources, templates}
		return r.print(document, func(table io.Writer) {
			for _, r := range resources {
				row(table, r.URI, cmp.Or(r.Description, r.Title, r.Name))
			}
			for _, t := range templates {
				row(table, t.URITemplate, cmp.Or(t.Description, t.Title, t.Name))
			}
		})
	}))
}

func newRead() *cobra.Command {
	return withServer(&cobra.Command{
		Use:        "read URI",
		SuggestFor: []string{"get", "cat", "resource"},
		Short:      "Read a resource of a server",
		Long: `Read a resource and write its text or bytes unchanged to standard output. On a
terminal, control characters are replaced, and bytes are only counted. With
--json the whole result is one JSON document.`,
		Example: `  # A text
  bowline read file:///notes.txt --command 'notes-server'

  # A picture
  bowline read image://logo --url http://127.0.0.1:8080/mcp > logo.png`,
		Args: cobra.MatchAll(atLeast("the URI of the resource"), atMost(1)),
	}, first(resourceURIs), func(cmd *cobra.Command, args []string) (action, error) {
		terminal := isTerminal(cmd.OutOrStdout())
		return func(ctx context.Context, r *run) error {
			result, err := r.session.ReadResource(ctx, &protocol.ReadResourceParams{URI: args[0]})
			if err != nil {
				return err
			}
			if r.json {
				return printJSON(r.out, result)
			}
			var contents bytes.Buffer
			for _, part := range result.Contents {
				switch {
				case part.Text != nil && terminal:
					writeLine(&contents, *part.Text)
				case part.Text != nil:
					contents.WriteString(*part.Text)
				case terminal:
					writeLine(&contents, describeResource(&part))
				default:
					contents.Write(part.Blob)
				}
			}
			_, err = contents.WriteTo(r.out)
			return err
		}, nil
	})
}

func newPrompts() *cobra.Command {
	return withServer(&cobra.Command{
		Use:        "prompts",
		SuggestFor: []string{"list", "ls", "list-prompts"},
		Short:      "List the prompts of a server",
		Long: `List the prompts of a server: the name, the arguments (optional ones in
brackets) and the first line of the description.

With --json the list is one JSON document on standard output.`,
		Example: `  bowline prompts --command 'npx -y @modelcontextprotocol/server-everything'`,
		Args:    noArguments,
	}, nil, listing(func(ctx context.Context, r *run) error {
		prompts, err := all(r.session.Prompts(ctx))
		if err != nil {
			return err
		}
		return r.print(protocol.ListPromptsResult{Prompts: prompts}, func(table io.Writer) {
			for _, p := range prompts {
				row(table, usageOf(p), cmp.Or(p.Description, p.Title))
			}
		})
	}))
}

func newPrompt() *cobra.Command {
	return withServer(&cobra.Command{
		Use:        "prompt NAME [KEY=VALUE ...]",
		SuggestFor: []string{"get"},
		Short:      "Get a prompt of a server",
		Long: `Get a prompt with the given arguments and print its messages, each after a line
with its role. Arguments of prompts are always text.

With --json the whole result is one JSON document.`,
		Example: `  bowline prompt review language=go --command 'review-server'

  # The text alone
  bowline prompt review language=go --json --command 'review-server' | jq -r '.messages[].content.text'`,
		Args: atLeast("the prompt"),
	}, first(promptNames), func(_ *cobra.Command, args []string) (action, error) {
		arguments, err := textPairs(args[1:])
		return func(ctx context.Context, r *run) error {
			if err := checkPrompt(ctx, r.session, args[0], arguments); err != nil {
				return err
			}
			result, err := r.session.GetPrompt(ctx, &protocol.GetPromptParams{Name: args[0], Arguments: arguments})
			if err != nil {
				return err
			}
			if r.json {
				return printJSON(r.out, result)
			}
			var text bytes.Buffer
			for _, m := range result.Messages {
				writeLine(&text, flat(string(m.Role))+":\n"+indented(strings.TrimRight(describe(m.Content), "\n")))
			}
			_, err = text.WriteTo(r.out)
			return err
		}, err
	})
}

func newComplete() *cobra.Command {
	return withServer(&cobra.Command{
		Use:   "complete PROMPT|TEMPLATE KEY=TYPED [KEY=VALUE ...]",
		Short: "Ask a server to complete an argument",
		Long: `Ask a server to complete the beginning of an argument of a prompt or of a
resource template. Further pairs are arguments with known values. The completions
are printed one on each line, best first.

A name that contains a brace or :// is a template, any other name a prompt. With
--json the whole result is one JSON document.`,
		Example: `  bowline complete review language=py --command 'review-server'

  # An argument that depends on another
  bowline complete 'repo://{owner}/{name}' name=bow owner=bowline-mcp --url http://127.0.0.1:8080/mcp`,
		Args: atLeast("the prompt or the resource template", "the argument, as KEY=TYPED"),
	}, first(promptNames), func(_ *cobra.Command, args []string) (action, error) {
		known, err := textPairs(args[1:])
		key, typed, _ := strings.Cut(args[1], "=")
		delete(known, key)
		params := &protocol.CompleteParams{
			Ref:      protocol.CompleteReference{Type: protocol.ReferencePrompt, Name: args[0]},
			Argument: protocol.CompleteArgument{Name: key, Value: typed},
		}
		if strings.Contains(args[0], "{") || strings.Contains(args[0], "://") {
			params.Ref = protocol.CompleteReference{Type: protocol.ReferenceResource, URI: args[0]}
		}
		if len(known) > 0 {
			params.Context = &protocol.CompleteContext{Arguments: known}
		}
		return func(ctx context.Context, r *run) error {
			result, err := r.session.Complete(ctx, params)
			if err != nil {
				return err
			}
			return r.print(result, func(out io.Writer) {
				for _, value := range result.Completion.Values {
					fmt.Fprintln(out, flat(value))
				}
			})
		}, err
	})
}

// listing is the preparation of a command without arguments.
func listing(do action) func(*cobra.Command, []string) (action, error) {
	return func(*cobra.Command, []string) (action, error) { return do, nil }
}

// print prints a document with --json, and otherwise the table that text writes.
func (r *run) print(document any, text func(table io.Writer)) error {
	if r.json {
		return printJSON(r.out, document)
	}
	table := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	text(table)
	return table.Flush()
}

func row(table io.Writer, name, about string) {
	fmt.Fprintf(table, "%s\t%s\n", line(name), line(about))
}

func all[T any](list iter.Seq2[*T, error]) ([]*T, error) {
	var found []*T
	for one, err := range list {
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

func count[T any](list iter.Seq2[*T, error]) (n int, err error) {
	for _, err := range list {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// first completes the first argument of a command, and nothing else.
func first(names func(context.Context, *client.Session) ([]cobra.Completion, error)) lookup {
	return func(ctx context.Context, s *client.Session, args []string, _ string) ([]cobra.Completion, error) {
		if len(args) > 0 {
			return nil, nil
		}
		return names(ctx, s)
	}
}

// names returns a list as completions for a shell.
func names[T any](list iter.Seq2[*T, error], describe func(*T) (name, about string)) ([]cobra.Completion, error) {
	found, err := all(list)
	var completions []cobra.Completion
	for _, one := range found {
		name, about := describe(one)
		completions = appendCompletion(completions, name, about)
	}
	return completions, err
}

// appendCompletion appends a name of a peer or of a file. It leaves out a name that the scripts
// of cobra would print as a message.
func appendCompletion(to []cobra.Completion, name, about string) []cobra.Completion {
	name, about = line(name), line(about)
	switch {
	case strings.HasPrefix(name, "_activeHelp_"):
		return to
	case about == "":
		return append(to, name)
	default:
		return append(to, cobra.CompletionWithDesc(name, about))
	}
}

func resourceURIs(ctx context.Context, s *client.Session) ([]cobra.Completion, error) {
	return names(s.Resources(ctx), func(r *protocol.Resource) (string, string) { return r.URI, cmp.Or(r.Description, r.Name) })
}

func promptNames(ctx context.Context, s *client.Session) ([]cobra.Completion, error) {
	return names(s.Prompts(ctx), func(p *protocol.Prompt) (string, string) { return p.Name, p.Description })
}

// usageOf shows how a prompt is got.
func usageOf(p *protocol.Prompt) string {
	words := []string{line(p.Name)}
	for _, argument := range p.Arguments {
		word := line(argument.Name) + "=TEXT"
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
		return &failure{status: exitUsage, err: errors.New("the server has no prompts")}
	}
	for p, err := range s.Prompts(ctx) {
		if err != nil {
			return err
		}
		known = append(known, line(p.Name))
		if p.Name != name {
			continue
		}
		for _, argument := range p.Arguments {
			if _, ok := given[argument.Name]; argument.Required && !ok {
				return &failure{status: exitUsage, err: fmt.Errorf("argument %q is missing\nIt takes: bowline prompt %s", argument.Name, usageOf(p))}
			}
		}
		return nil
	}
	if len(known) == 0 {
		return &failure{status: exitUsage, err: errors.New("the server has no prompts")}
	}
	return &failure{status: exitUsage, err: fmt.Errorf("the server has no prompt %q; %s", name, suggest.Among(name, known))}
}

// textPairs reads arguments whose values are text.
func textPairs(args []string) (map[string]string, error) {
	given, err := readPairs(args)
	values := make(map[string]string, len(given.pairs))
	for _, p := range given.pairs {
		values[p.key] = p.value
	}
	return values, err
}
