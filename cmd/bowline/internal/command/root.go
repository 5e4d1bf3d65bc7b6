// Package command is the bowline command: everything but its main function. cmd/bowline
// runs it as it is, and cmd/bowline/full/bowline with what needs larger libraries.
//
// Files:
//   - root: the command line
//   - arguments: those of a tool, fitted to its schema
//   - examples: calls of a tool that its schema allows
//   - flags: those that say which server is meant, and how it is called
//   - endpoint: how that server is reached
//   - consent: to a file of the working directory
//   - session: one run of a command with a server
//   - questions: what servers ask the user
//   - forms: questions with fields
//   - tools, call, lists, inspect, logs, tasks, record, login, serve, nodes, demo: the subcommands;
//     lists has those that list things, and those that read what was listed
//   - protect, observe, cluster, member: logins, metrics and traces of serve, and its part in a cluster
//   - exit: statuses, and what errors say
//   - terminal: what may be printed
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/spf13/cobra"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
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
	// Traces returns what sends traces by OTLP over HTTP.
	Traces func(context.Context) (sdktrace.SpanExporter, error)

	// Engine returns what the nodes of a cluster share.
	Engine func(context.Context, EngineOptions) (cluster.Engine, error)

	// Running reports whether a process of this machine runs the engine of a folder.
	Running func(folder string) bool
}

// Main runs the command with the arguments of the process, and ends the process.
func Main(with Extras) { os.Exit(runUntilSignal(os.Args[1:], with)) }

// errLean says which command can do what this one cannot.
func errLean(flag, needs string) error {
	return usageFailure(fmt.Errorf("%s needs %s, which this bowline was built without; install the one that has it from a clone: go install ./cmd/bowline/full/bowline", flag, needs))
}

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

func newRoot(with Extras) *cobra.Command {
	root := &cobra.Command{
		Use:           "bowline",
		Short:         "Talk to MCP servers",
		Long:          rootLong,
		Example:       rootExample,
		Version:       version(),
		Args:          knownCommand,
		RunE:          showHelp,
		SilenceErrors: true, // report prints them
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
	}
	root.AddCommand(newInspect(), newTools(), newCall(), newResources(), newRead(), newPrompts(), newPrompt(), newComplete(),
		newTasks(), newLogs(), newRecord(), newLogin(), newLogout(), newAuth(), newServe(with), newCluster(), newNodes(with), newDrain(with), newDemo(), newVersion())
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageFailure(explainFlag(cmd, err)) })
	checkArguments(root)
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic(err) // it was added just now
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return usageFailure(cmp.Or(err, knownCommand(found, rest)))
		}
		return nil
	}
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  "Print the version of this command, as its build recorded it.",
		Example: `  bowline version
  bowline --version`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "bowline version "+version())
			return err
		},
	}
}

// version is the module's version, or the commit it was built from if that is
// all that the build recorded.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok || build.Main.Version == "" {
		return "(devel)"
	}
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" && build.Main.Version == "(devel)" {
			return "(devel) " + setting.Value
		}
	}
	return build.Main.Version
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// knownCommand refuses the name of an unknown command, and suggests similar ones.
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
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	problem := fmt.Sprintf("unexpected argument %q", args[0])
	if cmd.Flags().Lookup("command") != nil {
		problem += "; a server is named by a flag: --command, --url or --mcp-config"
	}
	return errors.New(problem)
}

// atLeast requires one argument for each name. Its error names the first that is missing.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("name %s", names[len(args)])
		}
		return nil
	}
}

// atMost is for commands that take no more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return noArguments(cmd, args[min(n, len(args)):]) }
}

// checkArguments makes wrong arguments a usage failure, in every command. A
// command that does nothing by itself shows its help.
func checkArguments(cmd *cobra.Command) {
	if !cmd.Runnable() {
		cmd.RunE = showHelp
		if cmd.Args == nil {
			cmd.Args = knownCommand
		}
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
