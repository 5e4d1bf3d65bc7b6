package render

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// LogTo returns a handler that writes log messages, a line each.
func LogTo(out io.Writer, write func(*client.LogMessage) string) func(context.Context, *client.Session, client.Event) {
	return func(_ context.Context, _ *client.Session, e client.Event) {
		if m, ok := e.(*client.LogMessage); ok {
			fmt.Fprintln(out, write(m))
		}
	}
}

// LogLine returns a message as one line, whatever the message contains.
func LogLine(m *client.LogMessage) string {
	line := string(m.Level)
	if m.Logger != "" {
		line += " " + m.Logger
	}
	var text string
	if json.Unmarshal(m.Data, &text) != nil {
		text = Compact(m.Data)
	}
	return Flat(line + ": " + text)
}

// LogJSON returns a message as one line of JSON.
func LogJSON(m *client.LogMessage) string {
	raw, err := protocol.Marshal(struct {
		Level  protocol.LogLevel `json:"level"`
		Logger string            `json:"logger,omitzero"`
		Data   json.RawMessage   `json:"data"`
	}{m.Level, m.Logger, m.Data})
	if err != nil {
		return LogLine(m) // it came as JSON, so this does not happen
	}
	return string(raw)
}
