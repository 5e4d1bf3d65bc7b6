package main

import (
	"fmt"
	"io"
	"os"

	"github.com/bowline-mcp/bowline/protocol"
)

// width is what a terminal surely has room for in one line.
const width = 79

// A progress shows how far a call has come: in one line that changes on a
// terminal, in lines otherwise.
type progress struct {
	out      io.Writer
	terminal bool
	drawn    bool
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: isTerminal(out) && os.Getenv("TERM") != "dumb"}
}

// isTerminal takes every character device for a terminal.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (p *progress) show(params *protocol.ProgressParams) {
	text := fmt.Sprintf("progress: %g", params.Progress)
	if params.Total > 0 {
		text += fmt.Sprintf(" of %g", params.Total)
	}
	if params.Message != "" {
		text += ": " + line(params.Message)
	}
	if !p.terminal {
		fmt.Fprintln(p.out, text)
		return
	}
	p.drawn = true
	fmt.Fprintf(p.out, "\r\x1b[K%.*s", width, text)
}

// end makes room for what comes next.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
