package render

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// IsTerminal reports whether a stream of the command is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Writer returns a writer for a peer's text. For a terminal it makes the text
// printable; otherwise it does not change it.
func Writer(out io.Writer) io.Writer {
	if IsTerminal(out) {
		return &filter{out: out}
	}
	return out
}

// ServerLog returns a writer for the standard error of a server. It marks each
// line, so that none imitates a message of this command.
func ServerLog(out io.Writer) io.Writer {
	return &filter{out: out, prefix: "| ", atLineStart: true}
}

// A filter makes a stream of text printable, and marks its lines.
type filter struct {
	out         io.Writer
	prefix      string
	atLineStart bool   // the next character begins a line
	partial     []byte // the beginning of a character whose end has not come
}

func (f *filter) Write(p []byte) (int, error) {
	text := append(f.partial, p...)
	whole := len(text) - unfinished(text)
	f.partial = append([]byte(nil), text[whole:]...)
	shown := Printable(string(text[:whole]))
	if f.prefix != "" {
		var marked strings.Builder
		for l := range strings.Lines(shown) {
			if f.atLineStart {
				marked.WriteString(f.prefix)
			}
			marked.WriteString(l)
			f.atLineStart = strings.HasSuffix(l, "\n")
		}
		shown = marked.String()
	}
	if _, err := io.WriteString(f.out, shown); err != nil {
		return 0, err
	}
	return len(p), nil
}

// unfinished counts the bytes at the end of text that begin a character without
// ending it.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
