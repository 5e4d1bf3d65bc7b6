package main

import (
	"os"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/demo"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/spf13/cobra"
)

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Kill a real server under load, and show what every caller is told",
		Long: `Starts this program's own server (bowline serve --stdio) as a child process
under supervision, has 50 goroutines call it, kills it with SIGKILL mid-call,
and tells what happens: every change of state with its reason, what the callers
were told, and a closing table whose books must balance.

Exits 0 only when every call ended exactly once, the server came back, and no
goroutine or process was left behind.`,
		Example: "  bowline demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			return demo.Run(cmd.Context(), demo.Options{
				Server: stdio.Command{Path: self, Args: []string{"serve", "--stdio"}},
				Out:    cmd.OutOrStdout(),
			})
		},
	}
}
