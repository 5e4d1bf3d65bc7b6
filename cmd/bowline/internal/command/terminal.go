package command

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/protocol"
	"golang.org/x/term"
)

// isTerminal reports whether a stream of the command is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// printable replaces everything in a peer's text that could drive the terminal
// or reorder what stands on it: control characters, marks of writing direction,
// and the separators of Unicode. Line breaks and tabs stay.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return unicode.ReplacementChar
		default:
			return r
		}
	}, text)
}

// line returns the first line of a peer's text, for where there is room for one.
func line(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return printable(strings.ReplaceAll(strings.TrimSpace(first), "\t", " "))
}

// indented indents a text by two spaces.
func indented(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}

// message makes a text for standard error. Only its first line is not
// indented, so that a peer's text cannot imitate a message of this command.
func message(text string) string {
	return "bowline: " + strings.ReplaceAll(printable(strings.TrimRight(text, "\n")), "\n", "\n  ")
}

// terminalWriter returns a writer for a peer's text. For a terminal it makes the text
// printable; otherwise it does not change it.
func terminalWriter(out io.Writer) io.Writer {
	if isTerminal(out) {
		return &filter{out: out}
	}
	return out
}

// serverLog returns a writer for the standard error of a server. It marks each
// line, so that none imitates a message of this command.
func serverLog(out io.Writer) io.Writer {
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
	shown := printable(string(text[:whole]))
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

// width is how many characters fit into one line of any terminal.
const width = 79

// A progress shows how far a call has come: in one line that changes on a
// terminal, and in a line for each change otherwise.
type progress struct {
	out      io.Writer
	terminal bool
	drawn    bool
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: isTerminal(out) && os.Getenv("TERM") != "dumb"}
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

// end clears the line for what comes next.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
