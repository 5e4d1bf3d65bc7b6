// Package command is the bowline command: everything but its main function. cmd/bowline
// runs it as it is, and cmd/bowline/full/bowline with what needs larger libraries.
//
// Each file has one subcommand, or those of one thing; root registers them, and usage says what is
// wrong with a command line. What they stand on is in rooms beside this one: connect leads from flags to
// a session, arguments to those of a tool, ask to the person at the terminal, consent to a file of the
// working directory, render to the screen, monitor and member to what serve shows and shares, doors and
// relay to a running gateway, and process to the exit status.
//
// A command runs on the goroutine of Main. Only logs and record wait for more than one thing.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/monitor"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/spf13/cobra"
)

const rootLong = `bowline talks to MCP servers. It starts them as child processes or connects to
them over HTTP, in any revision of the protocol.

Exit status:
    0   success
    1   the tool was called, and failed
    2   wrong usage: flags, an unknown tool or prompt, arguments that do not fit
        the tool's schema, or a file that has mistakes, or cannot be opened
    3   no session: the server cannot be started, exits immediately, does not
        answer, or is not an MCP server; or a login is missing
    4   a request failed: the connection was lost, the timeout passed, or the
        server answered with a protocol error
    5   this machine failed the command: a port is in use, or the output cannot
        be written
  130   interrupted`

const rootExample = `  # What is this server?
  bowline inspect --command 'npx -y @modelcontextprotocol/server-everything'

  # What tools does it offer?
  bowline tools --command 'npx -y @modelcontextprotocol/server-everything'

  # Call one of them
  bowline call echo message=hello --command 'npx -y @modelcontextprotocol/server-everything'

  # Read a resource of a server over HTTP
  bowline read file:///notes.txt --url https://example.com/mcp --header "Authorization: Bearer $TOKEN"

  # Run a server
  bowline serve --stdio`

// Extras are the parts of the command that need large libraries. Without one of them, the
// command says how to install the one that has it.
type Extras struct {
	Traces  monitor.Traces
	Trails  Trails
	Cluster member.Engines
}

// Main runs the command with the arguments of the process, and ends the process.
func Main(with Extras) { os.Exit(runUntilSignal(os.Args[1:], with)) }

// runUntilSignal runs the command in a context that the first interrupt ends. A
// second one ends the process immediately.
func runUntilSignal(args []string, with Extras) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return execute(ctx, args, with)
}

// execute runs the command line and returns its exit status.
func execute(ctx context.Context, args []string, with Extras) int {
	root := newRoot(with)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return report(cmd, err)
}

// newRoot returns the command with its subcommands. Each of its errors has a status; none is printed by
// cobra, which would print it before the status is known.
func newRoot(with Extras) *cobra.Command {
	root := &cobra.Command{
		Use:           "bowline",
		Short:         "Talk to MCP servers",
		Long:          rootLong,
		Example:       rootExample,
		Version:       process.Build(),
		Args:          knownCommand,
		RunE:          showHelp,
		SilenceErrors: true, // report prints them
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
	}
	root.AddCommand(commands(with)...)
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return process.Usage(explainFlag(cmd, err)) })
	checkArguments(root)
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic(err) // it was added just now
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return process.Usage(cmp.Or(err, knownCommand(found, rest)))
		}
		return nil
	}
	return root
}

// commands are those of bowline, by what they are about. A new one gets a line here; cobra sorts them
// by name.
func commands(with Extras) []*cobra.Command {
	return append(newActs(),
		// a server, and what it has
		newInspect(),
		newTools(), newCall(), newTasks(),
		newResources(), newRead(),
		newPrompts(), newPrompt(), newComplete(),
		newLogs(), newRecord(),
		// logins
		newLogin(), newLogout(), newAuth(),
		// this program as a server, as a gateway, and as a node
		newServe(with), newUp(with.Cluster, with.Trails), newPs(), newPage(), newReload(), newDown(), newToken(), newLogoutUser(), newAudit(), newPolicy(), newPins(), newStderr(), newCluster(), newNodes(with.Cluster), newDrain(with.Cluster), newMove(with.Cluster), newKeys(with.Cluster),
		// the command itself
		newDemo(), newVersion(),
	)
}

const versionExample = `  bowline version
  bowline --version`

// newVersion prints what --version prints. Both are there, because people try either.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and Go",
		Long:    "Print the version of this command, the commit it was built from and the version of Go, as its build recorded them. A\ncommand that was installed from a module proxy has no commit.",
		Example: versionExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "bowline version "+process.Build())
			return err
		},
	}
}

// report prints an error on standard error and returns the exit status. After an
// interrupt it prints only that, because the interrupt has caused all other
// errors.
func report(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	if cmd.Context().Err() != nil {
		cmd.PrintErrln("bowline: interrupted")
		return process.ExitInterrupted
	}
	cmd.PrintErrln(render.Message(err.Error()))
	failed := &process.Failure{Status: process.ExitFailed}
	if errors.As(err, &failed) && failed.Usage {
		cmd.PrintErrln(fmt.Sprintf("Usage: %s\nMore: %s --help", cmd.UseLine(), cmd.CommandPath()))
	}
	return failed.Status
}
