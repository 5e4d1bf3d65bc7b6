package render

import (
	"fmt"
	"io"
	"os"

	"github.com/bowline-mcp/bowline/protocol"
)

// width is how many characters fit into one line of any terminal.
const width = 79

// A progress shows how far a call has come: in one line that changes on a
// terminal, and in a line for each change otherwise.
type progress struct {
	out      io.Writer
	terminal bool
	drawn    bool
}

// NewProgress returns a progress on out, which nothing else writes to before its End.
func NewProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: IsTerminal(out) && os.Getenv("TERM") != "dumb"}
}

// Show shows how far the call has come.
func (p *progress) Show(params *protocol.ProgressParams) {
	text := fmt.Sprintf("progress: %g", params.Progress)
	if params.Total > 0 {
		text += fmt.Sprintf(" of %g", params.Total)
	}
	if params.Message != "" {
		text += ": " + Line(params.Message)
	}
	if !p.terminal {
		fmt.Fprintln(p.out, text)
		return
	}
	p.drawn = true
	fmt.Fprintf(p.out, "\r\x1b[K%.*s", width, text)
}

// End clears the line for what comes next.
func (p *progress) End() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
