package mcpconfig

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Error is all that is wrong with one file.
type Error struct {
	Path     string    // of the file
	Mistakes []Mistake // in file order; the first 100. A file that is not JSON has one
}

// A Mistake is one thing to mend. Its message shows no value of a variable.
type Mistake struct {
	Line, Column int    // from 1; columns count bytes
	Path         string // of the value, as in mcpServers.files.args[2]; "" for the whole file
	Message      string
}

// Error is one mistake a line: mcp.json:12:7: mcpServers.files.args: expected
// an array of strings, got a number.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		path := m.Path
		if path != "" {
			path += ": "
		}
		lines[i] = fmt.Sprintf("%s:%d:%d: %s%s", e.Path, m.Line, m.Column, path, m.Message)
	}
	return strings.Join(lines, "\n")
}

// A finding is a mistake before its place is counted out in lines.
type finding struct {
	at            int // offset in the text
	path, message string
}

func (r *reader) wrong(n node, format string, args ...any) {
	r.findings = append(r.findings, finding{n.at, n.path, fmt.Sprintf(format, args...)})
}

func (r *reader) err() error {
	if len(r.findings) == 0 {
		return nil
	}
	slices.SortStableFunc(r.findings, func(a, b finding) int { return cmp.Compare(a.at, b.at) })
	err := &Error{Path: r.name}
	for _, f := range r.findings[:min(len(r.findings), maxMistakes)] {
		line, column := r.position(f.at)
		err.Mistakes = append(err.Mistakes, Mistake{line, column, f.path, f.message})
	}
	return err
}

// position counts from 1.
func (r *reader) position(at int) (line, column int) {
	before := r.text[:at]
	return 1 + bytes.Count(before, []byte("\n")), at - bytes.LastIndexByte(before, '\n')
}
