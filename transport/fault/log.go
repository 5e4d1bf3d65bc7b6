package fault

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// An InjectedError is the reason of a loss, of a link or of a stream, or of a
// failed open, that a Plan has caused.
type InjectedError struct {
	Kind      Kind
	Link      int // the links of a transport are counted from 1; so are its failed opens
	Direction Direction
	Frame     int // counted from 1; 0 when the fault was of no frame
}

func (e *InjectedError) Error() string {
	return "fault: " + Entry{Link: e.Link, Direction: e.Direction, Frame: e.Frame, Kind: e.Kind}.String()
}

func injected(e Entry) *InjectedError {
	return &InjectedError{Kind: e.Kind, Link: e.Link, Direction: e.Direction, Frame: e.Frame}
}

// An Entry is one fault that was done.
type Entry struct {
	Link      int
	Direction Direction
	Frame     int // 0 when it was of no frame
	Kind      Kind
	Head      string // the first 80 bytes of the frame
}

func (e Entry) String() string {
	if e.Frame == 0 {
		return fmt.Sprintf("link %d: %s", e.Link, e.Kind)
	}
	text := fmt.Sprintf("link %d, %s frame %d: %s", e.Link, e.Direction, e.Frame, e.Kind)
	if e.Head != "" {
		text += " " + e.Head
	}
	return text
}

// A Log is what was done, in the order in which it was.
type Log []Entry

// String is one entry a line.
func (l Log) String() string {
	var b strings.Builder
	for _, e := range l {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// maxEntries bounds a record; what comes later is not recorded.
const maxEntries = 4096

// headBytes is how much of a frame an entry keeps.
const headBytes = 80

// A record is a Log being written.
type record struct {
	mu  sync.Mutex
	log Log
}

// entry is what is to be recorded of a frame.
func entry(link int, d Direction, frame int, kind Kind, bytes []byte) Entry {
	return Entry{Link: link, Direction: d, Frame: frame, Kind: kind, Head: string(bytes[:min(len(bytes), headBytes)])}
}

func (r *record) add(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.log) < maxEntries {
		r.log = append(r.log, e)
	}
}

func (r *record) read() Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}
