// Package eventstream reads and writes server-sent events, as MCP uses them:
// https://html.spec.whatwg.org/multipage/server-sent-events.html.
package eventstream

import (
	"bytes"
	"strconv"
	"time"
)

// An Event is one server-sent event.
type Event struct {
	Type  string        // "message" when the stream names none
	ID    string        // the last id in the stream, of this event or an earlier one
	Retry time.Duration // how long to wait before reconnecting; 0 when the event does not say
	Data  []byte        // lines joined by a newline; may be empty
}

// Append appends an event to the buffer. It leaves out a type that is empty or
// "message", and an id and a retry that are zero. No field except Data may contain
// a line break.
func Append(to []byte, e Event) []byte {
	if e.Type != "" && e.Type != "message" {
		to = append(append(append(to, "event: "...), e.Type...), '\n')
	}
	if e.ID != "" {
		to = append(append(append(to, "id: "...), e.ID...), '\n')
	}
	if e.Retry > 0 {
		to = append(strconv.AppendInt(append(to, "retry: "...), e.Retry.Milliseconds(), 10), '\n')
	}
	for line := range bytes.SplitSeq(e.Data, []byte("\n")) {
		to = append(append(append(to, "data: "...), line...), '\n')
	}
	return append(to, '\n')
}
