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
	Type  string        // "message" if the stream names no type
	ID    string        // the last id in the stream, of this event or an earlier one
	Retry time.Duration // how long to wait before reconnecting; 0 when the event does not say
	Data  []byte        // the lines of data, joined by newlines; may be empty
}

// Append appends an event to the buffer. It leaves out a type that is empty or
// "message", and an id and a retry that are zero. No field except Data may contain
// a line break; there, a reader gets a line feed for each.
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
	line := e.Data
	for {
		end := lineEnd(line)
		to = append(append(append(to, "data: "...), line[:end]...), '\n')
		if end == len(line) {
			return append(to, '\n')
		}
		line = line[end+1:]
	}
}

// lineEnd returns where the first line of a text ends. IndexByte is much quicker
// than IndexAny.
func lineEnd(text []byte) int {
	end := len(text)
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		end = i
	}
	if i := bytes.IndexByte(text[:end], '\r'); i >= 0 {
		end = i
	}
	return end
}
