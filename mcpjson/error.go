package mcpjson

import (
	"bytes"
	"fmt"
	"strings"
)

// An Error lists the mistakes in a file, or in one of its servers.
type Error struct {
	Path     string    // the path of the file
	Mistakes []Mistake // the first 100, in file order; just one if the file is not JSON
}

// A Mistake is one thing to correct. Its message never shows the value of an
// environment variable or an input.
type Mistake struct {
	Line, Column int    // from 1; columns count bytes
	Path         string // where the value is, such as mcpServers.files.args[2]; "" for the whole file
	Message      string // what is wrong and, unless that is obvious, what to do
}

// Error returns one line for each mistake: mcp.json:12:7:
// mcpServers.files.args: expected an array of strings, got a number.
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

// A finding is a mistake at an offset, before its line is counted.
type finding struct {
	at            int // offset in the text
	path, message string
}

// syntax returns the place and the message of an error of hujson, which has the place only in
// its text. It shortens the message, which may quote a long string of the file.
func syntax(text []byte, err error) (at int, message string) {
	var line, column int
	if _, scanErr := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &column); scanErr != nil {
		return 0, "this is not JSON"
	}
	_, message, _ = strings.Cut(err.Error(), fmt.Sprintf("column %d: ", column))
	if strings.HasPrefix(message, `invalid literal: "`) {
		message = `invalid string: a control character, or a \ that escapes nothing; a \ itself is \\`
	}
	return offset(text, line, column), message[:min(len(message), 120)]
}

// offset returns the offset of a line and column, or the end of the text.
func offset(text []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		end := bytes.IndexByte(text[at:], '\n')
		if end < 0 {
			return len(text)
		}
		at += end + 1
	}
	return min(at+column-1, len(text))
}
