package admin

import (
	"bytes"
	"sync"

	"github.com/bowline-mcp/bowline/internal/wait"
)

const (
	// TailLines is how many lines a Tail keeps.
	TailLines = 256
	// TailLine is where a line is cut, in bytes.
	TailLine = 4 << 10
)

// A Tail keeps the last lines that are written to it, for instance as the Stderr of a stdio.Command. Its zero value is
// ready. Writing never waits and never fails. It may be used from every goroutine.
type Tail struct {
	mu      sync.Mutex
	lines   []string // the last one of them has the number last
	last    uint64
	open    []byte // a line without its end
	changed wait.Changes
}

// Write implements io.Writer.
func (t *Tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := text; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		t.open = append(t.open, line[:min(len(line), TailLine-len(t.open))]...)
		if ended {
			t.add(string(bytes.TrimSuffix(t.open, []byte("\r"))))
			t.open = t.open[:0]
		}
		rest = after
	}
	return len(text), nil
}

func (t *Tail) add(line string) {
	if len(t.lines) == TailLines {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines, t.last = append(t.lines, line), t.last+1
	t.changed.Announce()
}

// Read implements Log.
func (t *Tail) Read(after uint64) (lines []string, last uint64, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	missing := min(t.last-min(after, t.last), uint64(len(t.lines)))
	return append(lines, t.lines[uint64(len(t.lines))-missing:]...), t.last, t.changed.Next()
}

// Last returns the last line, or "" if there is none.
func (t *Tail) Last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		return ""
	}
	return t.lines[len(t.lines)-1]
}
