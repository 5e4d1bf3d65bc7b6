package command

import (
	"errors"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/ask"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/spf13/cobra"
)

const recordLong = `Start a server for a host, pass on all messages between them unchanged, and write
a transcript to FILE, or to standard error for -.

Put it in front of the server's command in the mcp.json of a host, and use the
host. The file then contains the whole conversation: lines with > are messages
from the host, < from the server, and = are events of the connection. Package
mcptest replays such a file in a test.

Choose the server with --command or an mcp.json. To record another command of
bowline, also with a server over HTTP, use --record with that command. Messages
are written unchanged, with all secrets in them.

The exit status is 0 when the host closes its standard input, and 3 if the
server ends first.`

const recordExample = `  # In the mcp.json of a host: the server, recorded
  {"command": "bowline", "args": ["record", "/home/ada/talk.txt", "--command", "npx -y @modelcontextprotocol/server-everything"]}

  # What does one call say?
  bowline call echo message=hello --record - --command 'bowline serve --stdio'`

// newRecord hides the flags that mean nothing here: the host chooses the revision and the timeouts, and
// its messages are not changed.
func newRecord() *cobra.Command {
	var server connect.Target
	var times bool
	command := &cobra.Command{
		Use:     "record FILE",
		Short:   "Record the messages between a host and a server",
		Long:    recordLong,
		Example: recordExample,
		Args:    cobra.MatchAll(atLeast("the file to write"), cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			server.RecordPath = args[0]
			return recordTo(cmd, &server, times)
		},
	}
	server.Add(command)
	command.Flags().BoolVar(&times, "times", false, "begin each line with the time since the first line")
	for _, other := range []string{"record", "log", "revision", "timeout", "init-timeout", "url", "header", "cacert", "insecure"} {
		if err := command.Flags().MarkHidden(other); err != nil {
			panic(err) // Add has it
		}
	}
	return command
}

// recordTo passes on the messages between the host and the server, and writes them down.
func recordTo(cmd *cobra.Command, server *connect.Target, times bool) error {
	server.User = ask.New(nil, cmd.ErrOrStderr()) // standard input is the host's
	to, err := server.Reach(cmd)
	if err != nil {
		return err
	}
	if to.Remote {
		return process.Usage(errors.New("record does not support a server over HTTP: use --record with the command that calls it"))
	}
	record, err := server.OpenRecord(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return process.Usage(err)
	}
	defer record.Close(cmd)
	record.Times = times
	if err := forward(cmd.Context(), record.Tap(to.Transport)); err != nil {
		return &process.Failure{Status: process.ExitNoSession, Err: errors.New(server.Redact(err.Error()))}
	}
	return nil
}
