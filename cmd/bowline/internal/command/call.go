package command

import (
	"bytes"
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/arguments"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
	"github.com/spf13/cobra"
)

const callLong = `Call one tool of a server and print what it answers.

Arguments are one JSON object, or KEY=VALUE pairs, or - to read a JSON object
from standard input. If the tool's schema expects a string, VALUE is text.
Otherwise it is JSON: count=3, verbose=true, tags='["a","b"]'. With KEY:=JSON the
value is always JSON. All arguments are checked against the schema before the
call. If that cannot be done, because the schema refers to another document, for
instance, a warning says so, and only the server checks them.

Text is printed unchanged, other content in a readable form, and structured
content if there is no text. On a terminal, control characters are replaced.
With --json the whole result is one JSON document. Progress goes to standard
error. If the tool fails, its message goes to standard error and the exit status
is 1.

Ctrl-C cancels the call at the server. If the server turns the call into a task,
the command waits until the task has ended, or until --timeout if you set it.
With --detach it prints the id of the task instead, for "bowline tasks".`

const callExample = `  # Arguments by name; numbers are numbers because the schema says so
  bowline call add a=1 b=2.5 --command 'bowline serve --stdio'

  # Arguments as JSON, the whole result as JSON
  bowline call echo '{"message": "hello"}' --json --command 'bowline serve --stdio'

  # A server over HTTP
  bowline call echo message=hello --url http://127.0.0.1:8080/mcp

  # A server from the mcp.json of a desktop program
  bowline call list_directory path=. --mcp-config ~/.config/host/mcp.json --server filesystem

  # A slow tool: no timeout, progress on standard error
  bowline call slow seconds=90 --timeout 0 --command 'bowline serve --stdio'`

// newCall reads the arguments before there is a server: a mistake in JSON starts nothing.
func newCall() *cobra.Command {
	var detached bool
	command := connect.WithServer(&cobra.Command{
		Use:        "call TOOL [JSON | - | KEY=VALUE ...]",
		SuggestFor: []string{"run", "exec", "invoke", "tool", "call-tool"},
		Short:      "Call a tool of a server",
		Long:       callLong,
		Example:    callExample,
		Args:       atLeast("the tool to call"),
	}, toolArguments, func(cmd *cobra.Command, args []string) (connect.Action, error) {
		given, err := arguments.Read(cmd.Context(), args[1:], cmd.InOrStdin())
		return func(ctx context.Context, r *connect.Run) error {
			params, err := fitted(ctx, r, args[0], given)
			switch {
			case err != nil:
				return err
			case detached:
				return detach(ctx, r, params)
			default:
				return callTool(ctx, r, params)
			}
		}, err
	})
	command.Flags().BoolVar(&detached, "detach", false, "do not wait for a task; print its id instead")
	return command
}

// fitted returns a call whose arguments fit the schema of the tool. What does not fit is a mistake of the user,
// and is never sent. If the schema is refused, the user learns that only the server checks them.
func fitted(ctx context.Context, r *connect.Run, name string, given arguments.Given) (*protocol.CallToolParams, error) {
	tool, err := findTool(ctx, r.Session, name)
	if err != nil {
		return nil, err
	}
	schema := arguments.ReadSchema(ctx, tool.InputSchema, jsonschema.Compile)
	fit, err := given.Fit(ctx, tool.Name, schema)
	if err != nil {
		return nil, &process.Failure{Status: process.ExitUsage, Err: err}
	}
	if refused := schema.Refused(); refused != nil {
		warnOfSchema(r.Err, tool, "only the server checks the arguments", refused)
	}
	return &protocol.CallToolParams{Name: name, Arguments: fit}, nil
}

// callTool calls a tool, and waits for the task that may come of it. The progress line ends before a result is
// printed, so that they do not mix.
func callTool(ctx context.Context, r *connect.Run, params *protocol.CallToolParams) error {
	r.Limit.AwaitTask()
	progress := render.NewProgress(r.Err)
	result, err := r.Session.With(client.CallOptions{Timeout: -1, OnProgress: progress.Show}).CallTool(ctx, params)
	progress.End()
	if err != nil {
		return connect.ExplainTask(err, "it was cancelled. To let it continue, use --detach, or a longer --timeout")
	}
	return printResult(r, params.Name, result)
}

// printResult prints the result of a tool. It returns an error if the tool failed.
func printResult(r *connect.Run, tool string, result *protocol.CallToolResult) error {
	if r.JSON {
		if err := render.JSON(r.Out, result); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	render.WriteResult(&text, result)
	if result.IsError {
		return &process.Failure{Status: process.ExitToolFailed, Err: fmt.Errorf("tool %q failed: %s", tool, bytes.TrimSpace(text.Bytes()))}
	}
	if r.JSON {
		return nil
	}
	_, err := text.WriteTo(r.Out)
	return err
}

// detach calls a tool, and prints the id of the task that comes of it. If the tool has
// answered at once, that is printed instead.
func detach(ctx context.Context, r *connect.Run, params *protocol.CallToolParams) error {
	task, err := r.Session.With(client.CallOptions{Timeout: -1}).StartTool(ctx, params)
	if err != nil {
		return err
	}
	if task.ID() == "" {
		result, err := task.Wait(ctx) // it is known
		if err != nil {
			return err
		}
		fmt.Fprintln(r.Err, "The tool has answered at once: there is no task, and this is the result.")
		return printResult(r, params.Name, result)
	}
	if r.JSON {
		return render.JSON(r.Out, map[string]string{"taskId": task.ID()})
	}
	_, err = fmt.Fprintln(r.Out, render.Flat(task.ID()))
	return err
}
