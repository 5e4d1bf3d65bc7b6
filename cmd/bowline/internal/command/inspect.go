package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

const inspectLong = `Describe a server: the revision of the protocol that it uses with this
client, its name and version, its capabilities, how many tools, resources,
resource templates and prompts it lists, and its instructions.

With --json this is one JSON document.`

const inspectExample = `  bowline inspect --command 'npx -y @modelcontextprotocol/server-everything'

  # Does it also speak an older revision?
  bowline inspect --revision 2025-06-18 --url http://127.0.0.1:8080/mcp`

// newInspect is the first command for a server that nobody knows.
func newInspect() *cobra.Command {
	return connect.WithServer(&cobra.Command{
		Use:        "inspect",
		SuggestFor: []string{"info", "describe", "show", "ping", "status"},
		Short:      "Describe a server",
		Long:       inspectLong,
		Example:    inspectExample,
		Args:       noArguments,
	}, nil, listing(inspect))
}

// A profile is what inspect prints.
type profile struct {
	Revision     string                      `json:"protocolVersion"`
	Info         protocol.Implementation     `json:"serverInfo"`
	Capabilities protocol.ServerCapabilities `json:"capabilities"`
	Instructions string                      `json:"instructions,omitzero"`
	Counts       map[string]int              `json:"counts"`
}

// inspect asks only for lists that the server has declared; others would answer with an error. The
// instructions follow the table, because they have lines of their own.
func inspect(ctx context.Context, r *connect.Run) error {
	server := r.Session.Server()
	p := profile{server.ProtocolVersion, server.Info, server.Capabilities, server.Instructions, nil}
	var err error
	if p.Counts, err = counts(ctx, r.Session, p.Capabilities); err != nil {
		return err
	}
	capabilities, err := capabilityNames(p.Capabilities)
	if err != nil {
		return err
	}
	err = r.Print(p, func(table io.Writer) {
		render.Row(table, "server", strings.TrimSpace(p.Info.Name+" "+p.Info.Version))
		if p.Info.Title != "" {
			render.Row(table, "title", p.Info.Title)
		}
		render.Row(table, "revision", p.Revision)
		render.Row(table, "capabilities", cmp.Or(strings.Join(capabilities, ", "), "none"))
		for _, list := range lists {
			if n, ok := p.Counts[list.name]; ok {
				render.Row(table, list.name, fmt.Sprint(n))
			}
		}
	})
	if err == nil && !r.JSON && p.Instructions != "" {
		_, err = fmt.Fprintf(r.Out, "\ninstructions\n%s\n", render.Indented(strings.TrimSpace(p.Instructions)))
	}
	return err
}

// lists are those of a server, in the order in which they are shown.
var lists = []struct {
	name, capability string
	count            func(context.Context, *client.Session) (int, error)
}{
	{"tools", "tools", func(ctx context.Context, s *client.Session) (int, error) { return count(s.Tools(ctx)) }},
	{"resources", "resources", func(ctx context.Context, s *client.Session) (int, error) { return count(s.Resources(ctx)) }},
	{"resourceTemplates", "resources", func(ctx context.Context, s *client.Session) (int, error) { return count(s.ResourceTemplates(ctx)) }},
	{"prompts", "prompts", func(ctx context.Context, s *client.Session) (int, error) { return count(s.Prompts(ctx)) }},
}

// counts counts what is in the lists that a server has declared. Others are not asked for.
func counts(ctx context.Context, s *client.Session, declared protocol.ServerCapabilities) (map[string]int, error) {
	found := map[string]int{}
	for _, list := range lists {
		if !declared.Has(list.capability) {
			continue
		}
		n, err := list.count(ctx, s)
		if err != nil {
			return nil, err
		}
		found[list.name] = n
	}
	return found, nil
}

// capabilityNames returns what a server has declared, with the parts of a
// capability that are switched on: "resources (subscribe)".
func capabilityNames(declared protocol.ServerCapabilities) ([]string, error) {
	raw, err := protocol.Marshal(declared)
	if err != nil {
		return nil, err
	}
	var byName map[string]json.RawMessage
	if err := json.Unmarshal(raw, &byName); err != nil {
		return nil, err
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		var parts map[string]any
		var on []string
		if json.Unmarshal(byName[name], &parts) == nil { // anything else has no parts
			for _, part := range slices.Sorted(maps.Keys(parts)) {
				if off, isBool := parts[part].(bool); !isBool || off {
					on = append(on, part)
				}
			}
		}
		if len(on) > 0 {
			name += " (" + strings.Join(on, ", ") + ")"
		}
		names = append(names, name)
	}
	return names, nil
}
