package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/suggest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

const callLong = `Call one tool of a server and print what it answers.

Arguments are one JSON object, or - to read one from standard input, or
KEY=VALUE pairs. A value is text where the tool's schema takes text, and JSON
where it takes anything else: count=3, verbose=true, tags='["a","b"]'.
KEY:=JSON is JSON whatever the schema says. All are checked against the schema
before the server is asked.

Text goes to standard output as it is, other content in a readable form, and
structured content when there is no text. With --json the whole result is one
JSON document. Progress goes to standard error. If the tool fails, its message
goes to standard error and the exit status is 1.

Ctrl-C cancels the call at the server.

` + configHelp

const callExample = `  # Arguments by name; numbers are numbers because the schema says so
  bowline call add a=1 b=2.5 --command 'bowline serve --stdio'

  # Arguments as JSON, the whole result as JSON
  bowline call echo '{"message": "hello"}' --json --command 'bowline serve --stdio'

  # A server that is reached over HTTP
  bowline call echo message=hello --url http://127.0.0.1:8080/mcp

  # A server of the mcp.json that a desktop host has
  bowline call list_directory path=. --mcp-config ~/.config/host/mcp.json --server filesystem

  # A slow tool: no timeout, progress on standard error
  bowline call slow seconds=90 --timeout 0 --command 'bowline serve --stdio'`

// completionPatience bounds how long a shell waits for names.
const completionPatience = 10 * time.Second

func newCall() *cobra.Command {
	var server target
	var asJSON bool
	command := &cobra.Command{
		Use:     "call TOOL [JSON | - | KEY=VALUE ...]",
		Short:   "Call a tool of a server",
		Long:    callLong,
		Example: callExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the tool to call")
			}
			return nil
		},
		ValidArgsFunction: server.completeTool,
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := readArguments(cmd.Context(), args[1:], cmd.InOrStdin())
			if err != nil {
				return usageFailure(err)
			}
			return server.talk(cmd, func(ctx context.Context, session *client.Session) error {
				result, err := callTool(ctx, cmd, session, args[0], given)
				if err != nil {
					return err
				}
				return printResult(cmd.OutOrStdout(), args[0], result, asJSON)
			})
		},
	}
	server.addFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print the whole result as JSON")
	return command
}

func callTool(ctx context.Context, cmd *cobra.Command, session *client.Session, name string, given arguments) (*protocol.CallToolResult, error) {
	tool, err := findTool(ctx, session, name)
	if err != nil {
		return nil, err
	}
	arguments, err := given.fit(ctx, tool)
	if err != nil {
		return nil, &failure{status: exitUsage, err: err}
	}
	progress := newProgress(cmd.ErrOrStderr())
	defer progress.end()
	options := client.CallOptions{Timeout: -1, OnProgress: progress.show}
	return session.With(options).CallTool(ctx, &protocol.CallToolParams{Name: name, Arguments: arguments})
}

// findTool looks through all pages, and fails with the names it has found.
func findTool(ctx context.Context, session *client.Session, name string) (*protocol.Tool, error) {
	var names []string
	for tool, err := range session.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		if tool.Name == name {
			return tool, nil
		}
		names = append(names, line(tool.Name))
	}
	return nil, &failure{status: exitUsage, err: fmt.Errorf("the server has no tool %q; %s", name, suggest.Among(name, names))}
}

// completeTool completes the tool's name when flags say whom to ask: no server
// is started because a file happens to lie in the working directory.
func (t *target) completeTool(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || t.command == "" && t.url == "" && t.configPath == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	t.timeout, t.initTimeout = completionPatience, completionPatience
	var names []cobra.Completion
	err := t.talk(cmd, func(ctx context.Context, session *client.Session) error {
		tools, err := allTools(ctx, session)
		for _, tool := range tools {
			names = append(names, cobra.CompletionWithDesc(line(tool.Name), summary(tool)))
		}
		return err
	})
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
