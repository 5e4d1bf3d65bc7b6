package main

import (
	"os"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/demo"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/spf13/cobra"
)

const demoLong = `Starts three of this program's own servers as child processes under
supervision, has many goroutines call them, and then: one is killed mid-call,
one writes garbage and sends an oversized frame, one is stopped and resumed, and
one ends by itself.

The story tells every change of state with its reason and the next attempt, and
what the callers were told. The closing table counts calls by how they ended and
by what is known of their delivery. With --metrics a second one tells the same
from what OpenTelemetry was told.

Exits 0 only when every call ended exactly once, every server came back, no
goroutine or process was left behind, and the metrics agree.`

const demoExample = `  # Ten seconds, in colour on a terminal
  bowline demo

  # The same faults at the same times, again
  bowline demo --seed 7

  # What the servers' metrics say of it, which must be the same
  bowline demo --metrics

  # For programs: one event a line
  bowline demo --json | jq -r 'select(.event == "told") | .text'`

func newDemo() *cobra.Command {
	var options demo.Options
	command := &cobra.Command{
		Use:     "demo",
		Short:   "Make real servers fail under load, and show what every caller is told",
		Long:    demoLong,
		Example: demoExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.Duration < demo.MinDuration {
				return usageFailure(demo.ErrTooShort)
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			options.Server = stdio.Command{Path: self, Args: []string{"serve", "--stdio", "--faults"}}
			options.Out = cmd.OutOrStdout()
			terminal := isTerminal(options.Out) && os.Getenv("TERM") != "dumb"
			options.Live = terminal
			options.Color = terminal && os.Getenv("NO_COLOR") == ""
			return demo.Run(cmd.Context(), options)
		},
	}
	command.Flags().BoolVar(&options.JSON, "json", false, "tell the story as JSON, one event a line")
	command.Flags().BoolVar(&options.Metrics, "metrics", false, "tell the closing table from the metrics of OpenTelemetry too: both must agree")
	command.Flags().Uint64Var(&options.Seed, "seed", 1, "draws which server suffers what, and when")
	command.Flags().DurationVar(&options.Duration, "duration", 10*time.Second, "about how long it takes; 5s at least")
	return command
}
