package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/ask"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

const logsLong = `Follow the log messages of a server, one on each line: the level, the logger if
the server names one, and the text or the data as JSON. With --json each line is
a JSON document.

The command ends when you interrupt it, or after --timeout, which has no limit
by default here. If the server is lost, the command starts it or connects to it
again, and asks for its log again.

From 2026-07-28 on a server logs only while it serves a request. So this command
uses 2025-11-25 unless --revision says otherwise. To see what such a server logs
during a call, use bowline call --log. To see what a server writes to standard
error, use --verbose.`

const logsExample = `  bowline logs --command 'npx -y @modelcontextprotocol/server-everything'

  # Everything, for a minute, as JSON
  bowline logs --log debug --timeout 1m --json --url http://127.0.0.1:8080/mcp | jq .data

  # What a server logs about one call
  bowline call echo message=hello --log debug --command 'bowline serve --stdio'`

// newLogs follows a server for longer than one connection, so it has no timeout unless the user sets one,
// and it speaks a revision in which a server logs without being asked for anything.
func newLogs() *cobra.Command {
	t := &connect.Target{Flags: connect.Flags{LogLevel: string(protocol.LogInfo)}, Lasting: true}
	command := t.WithServer(&cobra.Command{
		Use:     "logs",
		Short:   "Follow the log messages of a server",
		Long:    logsLong,
		Example: logsExample,
		Args:    noArguments,
	}, nil, func(cmd *cobra.Command, _ []string) (connect.Action, error) {
		if !cmd.Flags().Changed("timeout") {
			t.Timeout = 0
		}
		if t.Revision == "" {
			t.Revision = protocol.LatestLegacy
		}
		asJSON, err := cmd.Flags().GetBool("json")
		if err != nil {
			return nil, err
		}
		out, write := render.Writer(cmd.OutOrStdout()), render.LogLine
		if asJSON {
			write = render.LogJSON
		}
		t.OnEvent = follow(t, cmd, out, write)
		return followed, nil
	})
	command.Flags().Lookup("timeout").DefValue = "0s"
	command.Flags().Lookup("log").Usage = "the least `level` to show: debug, info, notice, warning, error, critical, alert or emergency"
	return command
}

// followed waits for the end: of the session, or of --timeout.
func followed(ctx context.Context, r *connect.Run) error {
	if server := r.Session.Server(); !server.Capabilities.Has("logging") {
		return &client.CapabilityError{Capability: "logging"}
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Session.Wait() }() // ends with the session, which Target closes
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		if errors.As(context.Cause(ctx), new(ask.TimedOut)) {
			return nil
		}
		return context.Cause(ctx)
	}
}

// follow returns a handler that writes log messages, and reports losses on standard
// error.
func follow(t *connect.Target, cmd *cobra.Command, out io.Writer, write func(*client.LogMessage) string) func(context.Context, *client.Session, client.Event) {
	logs := render.LogTo(out, write)
	return func(ctx context.Context, s *client.Session, e client.Event) {
		switch e := e.(type) {
		case *client.Lost:
			cmd.PrintErrln(render.Message(t.Redact("the connection was lost; reconnecting: " + connect.Ending(e.Reason))))
		case *client.Restored:
			cmd.PrintErrln(render.Message(fmt.Sprintf("reconnected after %v", e.Away.Round(time.Millisecond))))
			for _, err := range e.Failures {
				cmd.PrintErrln(render.Message(t.Redact(err.Error())))
			}
		default:
			logs(ctx, s, e)
		}
	}
}
