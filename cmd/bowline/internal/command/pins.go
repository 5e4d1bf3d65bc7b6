package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/spf13/cobra"
)

const pinsLong = `Print the tools of a running "bowline up" that are not as they were approved, and what
has changed in them. A tool is approved as it was when the gateway saw it first, or by
"bowline pins approve". What a tool says of itself tells models what to do, so read
what it says now before you approve it.

With "pins": "block" in the block "bowline" of the file, such tools are not offered,
and calls of them are refused. With "off", nothing is said of them.`

// newPins has the commands for tools that have changed.
func newPins() *cobra.Command {
	command := &cobra.Command{Use: "pins", Short: "Print the tools of a gateway that have changed, and approve them", Long: pinsLong, Example: "  bowline pins", Args: noArguments}
	asking(command, func(ctx context.Context, _ []string, c *admin.Client) error {
		pins, err := c.Pins(ctx)
		if err != nil {
			return err
		}
		return printPins(command.OutOrStdout(), pins)
	})
	command.AddCommand(newApprove())
	return command
}

func newApprove() *cobra.Command {
	command := &cobra.Command{
		Use: "approve SERVER [TOOL...]", Short: "Approve tools as they are now",
		Long:    "Approve tools of a server of a running \"bowline up\" as they are now, by the names that\nthe server uses, or all of it that have changed. With an @ and the version that \"bowline\npins\" prints, a tool is approved only if it is still what you have read.",
		Example: "  bowline pins approve files read_file@1f0c9a2b3d4e5f60",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return process.Usage(errors.New("name a server of the file"))
			}
			return nil
		},
	}
	return asking(command, func(ctx context.Context, args []string, c *admin.Client) error {
		return c.Approve(ctx, args[0], args[1:]...)
	})
}

// printPins prints what a server has written, so nothing of it may drive a terminal.
func printPins(out io.Writer, pins []admin.Pin) error {
	if len(pins) == 0 {
		_, err := fmt.Fprintln(out, "all tools are as they were approved")
		return err
	}
	for _, p := range pins {
		held := ""
		if p.Held {
			held = "  (not offered)"
		}
		fmt.Fprintf(out, "%s/%s%s\n", render.Flat(p.Server), render.Flat(p.Tool), held)
		for _, c := range p.Changes {
			if _, err := fmt.Fprintf(out, "  - %s: %s\n  + %s: %s\n", c.Member, orDash(render.Flat(c.Was)), c.Member, orDash(render.Flat(c.Is))); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(out, "  version: %s\n", p.Version); err != nil {
			return err
		}
	}
	return nil
}
