package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/arguments"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/suggest"
	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
	"github.com/spf13/cobra"
)

const toolsLong = `List the tools of a server: the name, the arguments (optional ones in brackets)
and the first line of the description.

With NAME, show one tool: its description, its arguments with their types,
allowed values, limits and defaults, and an example of a call.

With --json the list, or the tool, is one JSON document on standard output, as
the protocol has it: names, descriptions, schemas and annotations.

A warning names each tool with a schema that programs like this one refuse, and
says why: it has $dynamicRef, refers to another document, or is malformed.`

const toolsExample = `  # The tools of the reference server
  bowline tools --command 'npx -y @modelcontextprotocol/server-everything'

  # One tool, with its arguments and an example of a call
  bowline tools slow --command 'bowline serve --stdio'

  # The tools of a server in .mcp.json of this directory
  bowline tools --mcp-config .mcp.json --server filesystem

  # The input schema of one tool
  bowline tools add --json --command 'bowline serve --stdio' | jq .inputSchema`

// newTools shows one tool with a call of it that works as it stands: the flags of the example are those
// that the user has given, without headers and variables, which may be secrets.
func newTools() *cobra.Command {
	server := new(connect.Target)
	return server.WithServer(&cobra.Command{
		Use:        "tools [NAME]",
		SuggestFor: []string{"list", "ls", "list-tools", "functions"},
		Short:      "List the tools of a server, or show one of them",
		Long:       toolsLong,
		Example:    toolsExample,
		Args:       atMost(1),
	}, first(toolNames), func(_ *cobra.Command, args []string) (connect.Action, error) {
		return func(ctx context.Context, r *connect.Run) error {
			if len(args) == 0 {
				return listTools(ctx, r)
			}
			tool, err := findTool(ctx, r.Session, args[0])
			if err != nil {
				return err
			}
			schema := readSchemas(ctx, r, tool)
			return r.Print(tool, func(out io.Writer) { showTool(ctx, out, tool, schema, server.Choice(server.ShownURL)) })
		}, nil
	})
}

// readSchemas returns the input schema of a tool, and warns of those of its schemas that are refused.
func readSchemas(ctx context.Context, r *connect.Run, tool *protocol.Tool) arguments.Schema {
	input := arguments.ReadSchema(ctx, tool.InputSchema, jsonschema.Compile)
	if refused := input.Refused(); refused != nil {
		warnOfSchema(r.Err, tool, "its input schema is refused", refused)
	}
	if len(tool.OutputSchema) > 0 {
		if _, refused := jsonschema.Compile(ctx, tool.OutputSchema); refused != nil {
			warnOfSchema(r.Err, tool, "its output schema is refused", refused)
		}
	}
	return input
}

func warnOfSchema(to io.Writer, tool *protocol.Tool, what string, refused error) {
	fmt.Fprintln(to, render.Message(render.Flat(fmt.Sprintf("warning: tool %q: %s: %v", tool.Name, what, refused))))
}

// listTools shows what each tool takes, as far as there is room; a schema that cannot be read shows nothing.
func listTools(ctx context.Context, r *connect.Run) error {
	tools, err := all(r.Session.Tools(ctx))
	if err != nil {
		return err
	}
	words := make([][]string, len(tools))
	for i, tool := range tools {
		words[i] = append([]string{render.Line(tool.Name)}, readSchemas(ctx, r, tool).Usage()...)
	}
	return r.Print(protocol.ListToolsResult{Tools: tools}, func(table io.Writer) {
		for i, tool := range tools {
			render.Row(table, shorten(words[i]), aboutTool(tool))
		}
	})
}

// aboutTool returns the description of a tool, or its title.
func aboutTool(tool *protocol.Tool) string {
	if title := tool.DisplayName(); title != tool.Name {
		return cmp.Or(tool.Description, title)
	}
	return tool.Description
}

// shorten joins the first words that fit into a column, and the first one in any case.
func shorten(words []string) string {
	const column = 48
	text := words[0]
	for _, word := range words[1:] {
		if len(text)+len(word) >= column {
			return text + " ..."
		}
		text += " " + word
	}
	return text
}

// showTool describes a tool for people.
func showTool(ctx context.Context, out io.Writer, tool *protocol.Tool, schema arguments.Schema, server string) {
	fmt.Fprintln(out, render.Flat(tool.Name))
	if about := strings.TrimSpace(aboutTool(tool)); about != "" {
		fmt.Fprintln(out, render.Indented(render.Printable(about)))
	}
	if keys := schema.Keys(); len(keys) > 0 {
		fmt.Fprintln(out, "\nArguments:")
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, key := range keys {
			need := "optional"
			if schema.Requires(key) {
				need = "required"
			}
			words := []string{key, cmp.Or(strings.Join(schema.Kinds(key), " or "), "any"), need}
			if about := schema.About(key); about != "" {
				words = append(words, about)
			}
			for i, word := range words {
				words[i] = render.Flat(word)
			}
			fmt.Fprintf(table, "  %s\n", strings.Join(words, "\t"))
		}
		table.Flush()
	} else {
		fmt.Fprintln(out, "\nIt has no arguments.")
	}
	fmt.Fprintf(out, "\nExample:\n  %s\n", schema.Example(ctx, tool.Name, server))
}

// toolNames completes the names of tools. A shell shows what it gets, so it is made printable first.
func toolNames(ctx context.Context, s *client.Session) ([]cobra.Completion, error) {
	return names(s.Tools(ctx), func(t *protocol.Tool) (string, string) { return t.Name, aboutTool(t) })
}

// toolArguments completes the name of a tool, the keys of its arguments, and values that the
// schema lists.
func toolArguments(ctx context.Context, s *client.Session, args []string, typed string) ([]cobra.Completion, error) {
	if len(args) == 0 {
		return toolNames(ctx, s)
	}
	tool, err := findTool(ctx, s, args[0])
	if err != nil {
		return nil, err
	}
	schema := arguments.ReadSchema(ctx, tool.InputSchema, jsonschema.Compile)
	var completions []cobra.Completion
	if key, _, isValue := strings.Cut(typed, "="); isValue {
		values := schema.Options(key)
		if slices.Equal(schema.Types(key), []string{"boolean"}) {
			values = []arguments.Option{{Value: json.RawMessage("true")}, {Value: json.RawMessage("false")}}
		}
		for _, value := range values {
			completions = render.AppendCompletion(completions, key+"="+value.Text(), value.Title)
		}
		return completions, nil
	}
	for _, key := range schema.Keys() {
		given := slices.ContainsFunc(args[1:], func(arg string) bool { return strings.HasPrefix(arg, key+"=") || strings.HasPrefix(arg, key+":=") })
		if !given {
			completions = render.AppendCompletion(completions, key+"=", schema.About(key))
		}
	}
	return completions, nil
}

// findTool searches all pages for a tool. Its error lists the names of the
// tools.
func findTool(ctx context.Context, session *client.Session, name string) (*protocol.Tool, error) {
	var names []string
	for tool, err := range session.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		if tool.Name == name {
			return tool, nil
		}
		names = append(names, render.Line(tool.Name))
	}
	return nil, &process.Failure{Status: process.ExitUsage, Err: fmt.Errorf("the server has no tool %q; %s", name, suggest.Among(name, names))}
}
