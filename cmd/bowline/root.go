package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootLong = `bowline lists and calls the tools of MCP servers, started as child processes or
reached over HTTP.

Exit status:
    0   it worked
    1   the tool was called, and failed
    2   wrong usage: flags, an unknown tool, arguments that fail the tool's schema
    3   no session: the server cannot be started, ends at once, never answers,
        or does not speak MCP
    4   the call failed: the connection was lost, the time ran out, or the
        server answered with a protocol error
  130   interrupted`

const rootExample = `  # What does a server offer?
  bowline tools --command 'npx -y @modelcontextprotocol/server-everything'

  # Call one of its tools
  bowline call echo message=hello --command 'npx -y @modelcontextprotocol/server-everything'

  # Be a server
  bowline serve --stdio`

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "bowline",
		Short:         "List and call the tools of MCP servers",
		Long:          rootLong,
		Example:       rootExample,
		Version:       version(),
		Args:          knownCommand,
		RunE:          showHelp,
		SilenceErrors: true, // report tells them
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
	}
	root.AddCommand(newTools(), newCall(), newServe(), newDemo(), newVersion())
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageFailure(err) })
	checkArguments(root)
	return root
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// run runs the command line and returns its exit status.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return report(cmd, err)
}

// knownCommand refuses what is no command of the root's, with suggestions.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	problem := fmt.Sprintf("unknown command %q", args[0])
	if close := cmd.SuggestionsFor(args[0]); len(close) > 0 {
		problem += fmt.Sprintf("; did you mean %s?", strings.Join(close, " or "))
	}
	return errors.New(problem)
}

// noArguments is for commands that take flags only.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// checkArguments makes wrong arguments a usage failure, in every command. A
// command without work of its own shows its help.
func checkArguments(cmd *cobra.Command) {
	if !cmd.Runnable() {
		cmd.RunE = showHelp
	}
	if valid := cmd.Args; valid != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := valid(cmd, args); err != nil {
				return usageFailure(err)
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		checkArguments(child)
	}
}
