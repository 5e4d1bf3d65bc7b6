package command

import (
	"bytes"
	"cmp"
	"context"
	"io"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

const resourcesLong = `List the resources of a server and then its resource templates: the URI and the
first line of the description. To read a resource of a template, replace the
parts in braces.

With --json both lists are one JSON document on standard output.`

const resourcesExample = `  # The resources of the reference server
  bowline resources --command 'npx -y @modelcontextprotocol/server-everything'

  # Their URIs alone
  bowline resources --json --url http://127.0.0.1:8080/mcp | jq -r '.resources[].uri'`

// newResources prints two lists, and as JSON both in one document, so that a script reads one.
func newResources() *cobra.Command {
	return connect.WithServer(&cobra.Command{
		Use:        "resources",
		SuggestFor: []string{"list", "ls", "list-resources"},
		Short:      "List the resources of a server",
		Long:       resourcesLong,
		Example:    resourcesExample,
		Args:       noArguments,
	}, nil, listing(listResources))
}

// listResources lists resources and templates: a server may have either, and what can be read is both.
func listResources(ctx context.Context, r *connect.Run) error {
	resources, err := all(r.Session.Resources(ctx))
	if err != nil {
		return err
	}
	templates, err := all(r.Session.ResourceTemplates(ctx))
	if err != nil {
		return err
	}
	document := struct {
		Resources []*protocol.Resource         `json:"resources"`
		Templates []*protocol.ResourceTemplate `json:"resourceTemplates"`
	}{resources, templates}
	return r.Print(document, func(table io.Writer) {
		for _, r := range resources {
			render.Row(table, r.URI, cmp.Or(r.Description, r.Title, r.Name))
		}
		for _, t := range templates {
			render.Row(table, t.URITemplate, cmp.Or(t.Description, t.Title, t.Name))
		}
	})
}

const readLong = `Read a resource and write its text or bytes unchanged to standard output. On a
terminal, control characters are replaced, and bytes are only counted. With
--json the whole result is one JSON document.`

const readExample = `  # A text
  bowline read file:///notes.txt --command 'notes-server'

  # A picture
  bowline read image://logo --url http://127.0.0.1:8080/mcp > logo.png`

// newRead looks at its output before there is a server: bytes may go to a file, and not to a terminal.
func newRead() *cobra.Command {
	return connect.WithServer(&cobra.Command{
		Use:        "read URI",
		SuggestFor: []string{"get", "cat", "resource"},
		Short:      "Read a resource of a server",
		Long:       readLong,
		Example:    readExample,
		Args:       cobra.MatchAll(atLeast("the URI of the resource"), atMost(1)),
	}, first(resourceURIs), func(cmd *cobra.Command, args []string) (connect.Action, error) {
		terminal := render.IsTerminal(cmd.OutOrStdout())
		return func(ctx context.Context, r *connect.Run) error {
			result, err := r.Session.ReadResource(ctx, &protocol.ReadResourceParams{URI: args[0]})
			if err != nil {
				return err
			}
			if r.JSON {
				return render.JSON(r.Out, result)
			}
			_, err = readable(result, terminal).WriteTo(r.Out)
			return err
		}, nil
	})
}

// readable returns what was read: unchanged for a file or a pipe, and without bytes for a terminal.
func readable(result *protocol.ReadResourceResult, terminal bool) *bytes.Buffer {
	contents := new(bytes.Buffer)
	for _, part := range result.Contents {
		switch {
		case part.Text != nil && terminal:
			render.WriteLine(contents, *part.Text)
		case part.Text != nil:
			contents.WriteString(*part.Text)
		case terminal:
			render.WriteLine(contents, render.Resource(&part))
		default:
			contents.Write(part.Blob)
		}
	}
	return contents
}

// resourceURIs completes URIs. Templates are left out: no shell can fill them in.
func resourceURIs(ctx context.Context, s *client.Session) ([]cobra.Completion, error) {
	return names(s.Resources(ctx), func(r *protocol.Resource) (string, string) { return r.URI, cmp.Or(r.Description, r.Name) })
}
