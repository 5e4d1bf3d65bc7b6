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

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
	"github.com/spf13/cobra"
)

func newTools() *cobra.Command {
	server := new(target)
	return server.withServer(&cobra.Command{
		Use:        "tools [NAME]",
		SuggestFor: []string{"list", "ls", "list-tools", "functions"},
		Short:      "List the tools of a server, or show one of them",
		Long: `List the tools of a server: the name, the arguments (optional ones in brackets)
and the first line of the description.

With NAME, show one tool: its description, its arguments with their types,
allowed values and defaults, and an example of a call.

With --json the list, or the tool, is one JSON document on standard output, as
the protocol has it: names, descriptions, schemas and annotations.`,
		Example: `  # The tools of the reference server
  bowline tools --command 'npx -y @modelcontextprotocol/server-everything'

  # One tool, with its arguments and an example of a call
  bowline tools slow --command 'bowline serve --stdio'

  # The tools of a server in .mcp.json of this directory
  bowline tools --mcp-config .mcp.json --server filesystem

  # The input schema of one tool
  bowline tools add --json --command 'bowline serve --stdio' | jq .inputSchema`,
		Args: atMost(1),
	}, first(toolNames), func(_ *cobra.Command, args []string) (action, error) {
		return func(ctx context.Context, r *run) error {
			if len(args) == 0 {
				return listTools(ctx, r)
			}
			tool, err := findTool(ctx, r.session, args[0])
			if err != nil {
				return err
			}
			return r.print(tool, func(out io.Writer) { showTool(ctx, out, tool, server.choice(server.shownURL)) })
		}, nil
	})
}

func listTools(ctx context.Context, r *run) error {
	tools, err := all(r.session.Tools(ctx))
	if err != nil {
		return err
	}
	return r.print(protocol.ListToolsResult{Tools: tools}, func(table io.Writer) {
		for _, tool := range tools {
			words := readSchema(ctx, tool.InputSchema, jsonschema.Compile).usage()
			row(table, shorten(append([]string{line(tool.Name)}, words...)), aboutTool(tool))
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
func showTool(ctx context.Context, out io.Writer, tool *protocol.Tool, server string) {
	schema := readSchema(ctx, tool.InputSchema, jsonschema.Compile)
	fmt.Fprintln(out, flat(tool.Name))
	if about := strings.TrimSpace(aboutTool(tool)); about != "" {
		fmt.Fprintln(out, indented(printable(about)))
	}
	if keys := schema.keys(); len(keys) > 0 {
		fmt.Fprintln(out, "\nArguments:")
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, key := range keys {
			need := "optional"
			if schema.requires(key) {
				need = "required"
			}
			words := []string{key, cmp.Or(strings.Join(schema.kinds(key), " or "), "any"), need}
			if about := schema.about(key); about != "" {
				words = append(words, about)
			}
			for i, word := range words {
				words[i] = flat(word)
			}
			fmt.Fprintf(table, "  %s\n", strings.Join(words, "\t"))
		}
		table.Flush()
	} else {
		fmt.Fprintln(out, "\nIt has no arguments.")
	}
	fmt.Fprintf(out, "\nExample:\n  %s\n", schema.example(ctx, tool.Name, server))
}

// keys returns the names of the arguments: the required ones, and then the others.
func (s schema) keys() []string {
	keys := slices.Clone(s.order)
	slices.SortStableFunc(keys, func(a, b string) int {
		switch need := s.requires(a); {
		case need == s.requires(b):
			return 0
		case need:
			return -1
		default:
			return 1
		}
	})
	return keys
}

// about describes an argument: what the schema says of it, what it allows, and its default.
func (s schema) about(key string) string {
	property, _ := s.properties()[key].(object)
	title, _ := property["title"].(string)
	description, _ := property["description"].(string)
	var notes []string
	if text := cmp.Or(description, title); text != "" {
		notes = append(notes, line(text))
	}
	if options := s.options(key); len(options) > 0 {
		var values []string
		for _, o := range options {
			values = append(values, o.text())
		}
		notes = append(notes, "one of: "+strings.Join(values, ", "))
	}
	if value, ok := property["default"]; ok {
		notes = append(notes, "default: "+valueText(value))
	}
	return strings.Join(notes, "; ")
}

// options returns what an argument allows, if those are single values.
func (s schema) options(key string) []option {
	raw, err := protocol.Marshal(s.properties()[key])
	if err != nil {
		return nil
	}
	return readOptions(raw)
}

// valueText returns a value as it is typed on the command line.
func valueText(value any) string {
	raw, err := protocol.Marshal(value)
	if err != nil {
		return "?"
	}
	return option{value: raw}.text()
}

// quote returns a text as one word of a shell, on one line.
func quote(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@,+%", r)
	}) {
		return text
	}
	return inQuotes(text)
}

// inQuotes returns a text in the quotes of a shell, in which nothing has a meaning.
func inQuotes(text string) string { return "'" + strings.ReplaceAll(flat(text), "'", `'\''`) + "'" }

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
	schema := readSchema(ctx, tool.InputSchema, jsonschema.Compile)
	var completions []cobra.Completion
	if key, _, isValue := strings.Cut(typed, "="); isValue {
		values := schema.options(key)
		if slices.Equal(schema.types(key), []string{"boolean"}) {
			values = []option{{value: json.RawMessage("true")}, {value: json.RawMessage("false")}}
		}
		for _, value := range values {
			completions = appendCompletion(completions, key+"="+value.text(), value.title)
		}
		return completions, nil
	}
	for _, key := range schema.keys() {
		given := slices.ContainsFunc(args[1:], func(arg string) bool { return strings.HasPrefix(arg, key+"=") || strings.HasPrefix(arg, key+":=") })
		if !given {
			completions = appendCompletion(completions, key+"=", schema.about(key))
		}
	}
	return completions, nil
}
