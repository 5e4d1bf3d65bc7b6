package command

import (
	"context"
	"fmt"
	"net/url"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/spf13/cobra"
)

const pageLong = `Open the page of a running "bowline up" in your browser, logged in: whoever opens the
address may act there. The address works once, within a minute. It is printed as
well, in case no browser can be opened, as on a machine without a screen. Other
users of a machine may see the command line of a browser, and so the address, before
it is used: on a shared one use --no-browser, which shows it to you only.`

// newPage logs a browser in without a token on the command line or in the history of the browser.
func newPage() *cobra.Command {
	var of doors.Choice
	var noBrowser bool
	command := &cobra.Command{
		Use:     "page",
		Short:   "Open the page of a running gateway in the browser",
		Long:    pageLong,
		Example: "  bowline page\n  bowline page --no-browser --file mcp.json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return of.Use(cmd.Context(), func(c *admin.Client) error { return openPage(cmd, c, noBrowser) })
		},
	}
	of.Add(command)
	command.Flags().BoolVar(&noBrowser, "no-browser", false, "only print the address")
	return command
}

func openPage(cmd *cobra.Command, c *admin.Client, noBrowser bool) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), answerTime)
	defer cancel()
	text, err := c.Page(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), render.Printable(text)); err != nil || noBrowser {
		return err
	}
	address, err := url.Parse(text)
	if err != nil {
		return err
	}
	if err := auth.Browse(ctx, address); err != nil {
		cmd.PrintErrln(render.Message("open the address above yourself, within a minute: " + err.Error()))
	}
	return nil
}
