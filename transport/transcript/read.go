package transcript

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A SyntaxError says that a line is not a valid line of a transcript.
type SyntaxError struct {
	Line int // the number of the line, from 1
	Err  error
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("transcript: line %d: %v", e.Line, e.Err) }

func (e *SyntaxError) Unwrap() error { return e.Err }

// Read reads the output of a Writer. Frames are compact JSON. The errors of events have
// only the text of the original errors. Read leaves out refused frames and their events.
// It fails with a *SyntaxError, or with the error of r.
func Read(r io.Reader) ([]Entry, error) {
	var entries []Entry
	lines := &lines{from: bufio.NewReader(r)}
	for {
		text, number, err := lines.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return entries, err
		}
		if entries, err = add(entries, text); err != nil {
			return nil, &SyntaxError{number, err}
		}
	}
}

// add adds what a line says to the entries before it.
func add(entries []Entry, text string) ([]Entry, error) {
	e, err := parse(text)
	switch {
	case err != nil:
		return nil, err
	case e.Kind == Refused:
		return withoutLastSent(entries, e.Link), nil
	default:
		return append(entries, e), nil
	}
}

// withoutLastSent leaves out the frame that was sent last on a link.
func withoutLastSent(entries []Entry, link int) []Entry {
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Kind == Sent && entries[i].Link == link {
			return slices.Delete(entries, i, i+1)
		}
	}
	return entries
}

// lines reads lines that mean something, each with those that continue it.
type lines struct {
	from  *bufio.Reader
	ahead string // the line after, if it was read
	count int
	err   error
}

func (l *lines) next() (text string, number int, err error) {
	for text == "" || text[0] == '#' || strings.TrimSpace(text) == "" {
		if text, err = l.line(); err != nil {
			return "", 0, err
		}
	}
	number = l.count
	whole := strings.Builder{}
	whole.WriteString(text)
	for {
		more, err := l.line()
		if err != nil || !strings.HasPrefix(more, " ") {
			l.ahead = more
			return whole.String(), number, nil
		}
		whole.WriteString(more)
	}
}

// line returns the next line without its end.
func (l *lines) line() (string, error) {
	if l.ahead != "" {
		text := l.ahead
		l.ahead = ""
		return text, nil
	}
	if l.err != nil {
		return "", l.err
	}
	text, err := l.from.ReadString('\n')
	l.err = err
	if err != nil && text == "" {
		return "", err
	}
	l.count++
	return strings.TrimRight(text, "\r\n"), nil
}

// parse reads one entry.
func parse(text string) (e Entry, err error) {
	if strings.HasPrefix(text, "+") { // the time
		_, text, _ = strings.Cut(text, " ")
	}
	if e.Link, text, err = parseLink(text); err != nil {
		return Entry{}, err
	}
	sign, rest, _ := strings.Cut(text, " ")
	switch sign {
	case ">", ">!":
		e.Kind = Sent
	case "<", "<!":
		e.Kind = Received
	case "=":
		return parseEvent(e, rest)
	default:
		return Entry{}, fmt.Errorf("%.40q begins with none of > < = #", text)
	}
	if strings.HasSuffix(sign, "!") {
		frame, err := strconv.Unquote(rest)
		e.Frame = []byte(frame)
		return e, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(rest)); err != nil {
		return Entry{}, err
	}
	e.Frame = compact.Bytes()
	return e, nil
}

// parseLink reads the number of a link, which is left out for the first one.
func parseLink(text string) (link int, rest string, err error) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	if digits == 0 {
		return 1, text, nil
	}
	if link, err = strconv.Atoi(text[:digits]); err != nil || link < 1 {
		return 0, "", fmt.Errorf("%.20q is not the number of a link", text)
	}
	return link, text[digits:], nil
}

func parseEvent(e Entry, text string) (Entry, error) {
	name, reason, _ := strings.Cut(text, ": ")
	kind := slices.Index(kinds[:], name)
	if kind < 0 || Kind(kind) == Sent || Kind(kind) == Received {
		return Entry{}, fmt.Errorf("%.40q is no event", name)
	}
	if e.Kind = Kind(kind); reason != "" {
		e.Err = errors.New(reason)
	}
	return e, nil
}
