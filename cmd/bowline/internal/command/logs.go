package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

var logLevels = [...]string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

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

func newLogs() *cobra.Command {
	t := &target{serverFlags: serverFlags{logLevel: string(protocol.LogInfo)}, lasting: true}
	command := t.withServer(&cobra.Command{
		Use:   "logs",
		Short: "Follow the log messages of a server",
		Long:  logsLong,
		Example: `  bowline logs --command 'npx -y @modelcontextprotocol/server-everything'

  # Everything, for a minute, as JSON
  bowline logs --log debug --timeout 1m --json --url http://127.0.0.1:8080/mcp | jq .data

  # What a server logs about one call
  bowline call echo message=hello --log debug --command 'bowline serve --stdio'`,
		Args: noArguments,
	}, nil, func(cmd *cobra.Command, _ []string) (action, error) {
		if !cmd.Flags().Changed("timeout") {
			t.timeout = 0
		}
		if t.revision == "" {
			t.revision = protocol.LatestLegacy
		}
		asJSON, err := cmd.Flags().GetBool("json")
		if err != nil {
			return nil, err
		}
		out, write := terminalWriter(cmd.OutOrStdout()), logLine
		if asJSON {
			write = logJSON
		}
		t.onEvent = t.follow(cmd, out, write)
		return followed, nil
	})
	command.Flags().Lookup("timeout").DefValue = "0s"
	command.Flags().Lookup("log").Usage = "the least `level` to show: debug, info, notice, warning, error, critical, alert or emergency"
	return command
}

// followed waits for the end: of the session, or of --timeout.
func followed(ctx context.Context, r *run) error {
	if server := r.session.Server(); !server.Capabilities.Has("logging") {
		return &client.CapabilityError{Capability: "logging"}
	}
	ended := make(chan error, 1)
	go func() { ended <- r.session.Wait() }() // ends with the session, which target.run closes
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		if errors.As(context.Cause(ctx), new(timedOut)) {
			return nil
		}
		return context.Cause(ctx)
	}
}

// follow returns a handler that writes log messages, and reports losses on standard
// error.
func (t *target) follow(cmd *cobra.Command, out io.Writer, write func(*client.LogMessage) string) func(context.Context, *client.Session, client.Event) {
	logs := logTo(out, write)
	return func(ctx context.Context, s *client.Session, e client.Event) {
		switch e := e.(type) {
		case *client.Lost:
			cmd.PrintErrln(message(t.redact("the connection was lost; reconnecting: " + ending(e.Reason))))
		case *client.Restored:
			cmd.PrintErrln(message(fmt.Sprintf("reconnected after %v", e.Away.Round(time.Millisecond))))
			for _, err := range e.Failures {
				cmd.PrintErrln(message(t.redact(err.Error())))
			}
		default:
			logs(ctx, s, e)
		}
	}
}

// logTo returns a handler that writes log messages, a line each.
func logTo(out io.Writer, write func(*client.LogMessage) string) func(context.Context, *client.Session, client.Event) {
	return func(_ context.Context, _ *client.Session, e client.Event) {
		if m, ok := e.(*client.LogMessage); ok {
			fmt.Fprintln(out, write(m))
		}
	}
}

// logLine returns a message as one line, whatever the message contains.
func logLine(m *client.LogMessage) string {
	line := string(m.Level)
	if m.Logger != "" {
		line += " " + m.Logger
	}
	var text string
	if json.Unmarshal(m.Data, &text) != nil {
		text = compact(m.Data)
	}
	return flat(line + ": " + text)
}

// logJSON returns a message as one line of JSON.
func logJSON(m *client.LogMessage) string {
	raw, err := protocol.Marshal(struct {
		Level  protocol.LogLevel `json:"level"`
		Logger string            `json:"logger,omitzero"`
		Data   json.RawMessage   `json:"data"`
	}{m.Level, m.Logger, m.Data})
	if err != nil {
		return logLine(m) // it came as JSON, so this does not happen
	}
	return string(raw)
}
