package command

import (
	"os"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/demo"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/spf13/cobra"
)

const demoLong = `Start three servers of this program as supervised child processes, and call
them from many goroutines. Then make them fail: kill one during a call, make one
write garbage and an oversized frame, stop and resume one, and let one exit.

The output shows every change of state with its reason and the next attempt, and
how calls ended. The table at the end counts calls by how they ended, and by
whether the server may have executed them. With --metrics, a second table shows
the same counts as OpenTelemetry has measured them.

The exit status is 0 only if every call ended exactly once, every server came
back, no goroutine or process was left behind, and the metrics agree.`

const demoExample = `  # Ten seconds, in colour on a terminal
  bowline demo

  # The same faults at the same times, again
  bowline demo --seed 7

  # Compare with the metrics
  bowline demo --metrics

  # For programs: one event a line
  bowline demo --json | jq -r 'select(.event == "told") | .text'`

func newDemo() *cobra.Command {
	var options demo.Options
	command := &cobra.Command{
		Use:     "demo",
		Short:   "Make real servers fail under load, and show how every call ends",
		Long:    demoLong,
		Example: demoExample,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDemo(cmd, options) },
	}
	command.Flags().BoolVar(&options.JSON, "json", false, "print events as JSON, one event on each line")
	command.Flags().BoolVar(&options.Metrics, "metrics", false, "also print the table from the metrics of OpenTelemetry, and compare both")
	command.Flags().Uint64Var(&options.Seed, "seed", 1, "decides which server fails how, and when")
	command.Flags().DurationVar(&options.Duration, "duration", 10*time.Second, "about how long the demo takes; at least 5s")
	return command
}

// runDemo runs the demo with this program as its server. Colours and lines that change are for a terminal
// that has them.
func runDemo(cmd *cobra.Command, options demo.Options) error {
	if options.Duration < demo.MinDuration {
		return process.Usage(demo.ErrTooShort)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	options.Server = stdio.Command{Path: self, Args: []string{"serve", "--stdio", "--faults"}}
	options.Out = cmd.OutOrStdout()
	options.Live = render.IsTerminal(options.Out) && os.Getenv("TERM") != "dumb"
	options.Color = options.Live && os.Getenv("NO_COLOR") == ""
	return demo.Run(cmd.Context(), options)
}
