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

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

func newInspect() *cobra.Command {
	return withServer(&cobra.Command{
		Use:        "inspect",
		SuggestFor: []string{"info", "describe", "show", "ping", "status"},
		Short:      "Describe a server",
		Long: `Describe a server: the revision of the protocol that it uses with this
client, its name and version, its capabilities, how many tools, resources,
resource templates and prompts it lists, and its instructions.

With --json this is one JSON document.`,
		Example: `  bowline inspect --command 'npx -y @modelcontextprotocol/server-everything'

  # Does it also speak an older revision?
  bowline inspect --revision 2025-06-18 --url http://127.0.0.1:8080/mcp`,
		Args: noArguments,
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

func inspect(ctx context.Context, r *run) error {
	server := r.session.Server()
	p := profile{server.ProtocolVersion, server.Info, server.Capabilities, server.Instructions, map[string]int{}}
	lists := []struct {
		name, capability string
		count            func() (int, error)
	}{
		{"tools", "tools", func() (int, error) { return count(r.session.Tools(ctx)) }},
		{"resources", "resources", func() (int, error) { return count(r.session.Resources(ctx)) }},
		{"resourceTemplates", "resources", func() (int, error) { return count(r.session.ResourceTemplates(ctx)) }},
		{"prompts", "prompts", func() (int, error) { return count(r.session.Prompts(ctx)) }},
	}
	for _, list := range lists {
		if !p.Capabilities.Has(list.capability) {
			continue
		}
		n, err := list.count()
		if err != nil {
			return err
		}
		p.Counts[list.name] = n
	}
	capabilities, err := capabilityNames(p.Capabilities)
	if err != nil {
		return err
	}
	err = r.print(p, func(table io.Writer) {
		row(table, "server", strings.TrimSpace(p.Info.Name+" "+p.Info.Version))
		if p.Info.Title != "" {
			row(table, "title", p.Info.Title)
		}
		row(table, "revision", p.Revision)
		row(table, "capabilities", cmp.Or(strings.Join(capabilities, ", "), "none"))
		for _, list := range lists {
			if n, ok := p.Counts[list.name]; ok {
				row(table, list.name, fmt.Sprint(n))
			}
		}
	})
	if err == nil && !r.json && p.Instructions != "" {
		_, err = fmt.Fprintf(r.out, "\ninstructions\n%s\n", indented(strings.TrimSpace(p.Instructions)))
	}
	return err
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
