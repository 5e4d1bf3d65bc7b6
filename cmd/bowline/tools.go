package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

const toolsLong = `List the tools of a server: the name and the first line of the description.

With --json the list is one JSON document on standard output, as the protocol
has it: names, descriptions, schemas and annotations.

` + configHelp

const toolsExample = `  # The tools of the reference server
  bowline tools --command 'npx -y @modelcontextprotocol/server-everything'

  # The tools of a server in .mcp.json of this directory
  bowline tools --server filesystem

  # The input schema of one tool
  bowline tools --json --command 'bowline serve --stdio' | jq '.tools[] | select(.name == "add").inputSchema'`

func newTools() *cobra.Command {
	var server target
	var asJSON bool
	command := &cobra.Command{
		Use:     "tools",
		Short:   "List the tools of a server",
		Long:    toolsLong,
		Example: toolsExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return server.talk(cmd, func(ctx context.Context, session *client.Session) error {
				return listTools(ctx, session, cmd.OutOrStdout(), asJSON)
			})
		},
	}
	server.addFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print the whole list as JSON")
	return command
}

func listTools(ctx context.Context, session *client.Session, out io.Writer, asJSON bool) error {
	tools, err := allTools(ctx, session)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, protocol.ListToolsResult{Tools: tools})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, tool := range tools {
		fmt.Fprintf(table, "%s\t%s\n", line(tool.Name), summary(tool))
	}
	return table.Flush()
}

func allTools(ctx context.Context, session *client.Session) ([]*protocol.Tool, error) {
	var tools []*protocol.Tool
	for tool, err := range session.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// summary says in one line what a tool is for.
func summary(tool *protocol.Tool) string {
	return line(cmp.Or(tool.Description, tool.DisplayName()))
}

// printJSON prints one document, indented.
func printJSON(out io.Writer, value any) error {
	raw, err := protocol.Marshal(value)
	if err != nil {
		return err
	}
	var document bytes.Buffer
	if err := json.Indent(&document, raw, "", "  "); err != nil {
		return err
	}
	document.WriteByte('\n')
	_, err = document.WriteTo(out)
	return err
}
