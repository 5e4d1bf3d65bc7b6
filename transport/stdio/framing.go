package stdio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/bowline-mcp/bowline/transport"
)

// A Framing says how frames are separated on a byte stream.
type Framing int

const (
	// Lines is MCP's framing, and the default: a frame is a line.
	Lines Framing = iota

	// ContentLength is the framing of the Language Server Protocol: a header with a
	// Content-Length, in bytes, comes before each frame. Other fields of the header
	// are ignored. A header may have 4 KiB. Empty frames are ignored.
	ContentLength
)

// A HeaderError says that a header of a ContentLength stream does not tell where its
// frame ends. The rest of the stream cannot be read, so the link is lost.
type HeaderError struct {
	Header  string // the line that is wrong, or its beginning; empty if a line is missing
	Problem string
}

func (e *HeaderError) Error() string {
	if e.Header == "" {
		return "stdio: frame header: " + e.Problem
	}
	return fmt.Sprintf("stdio: frame header %q: %s", e.Header, e.Problem)
}

// errCutOff reports a stream that has ended in the middle of a frame.
var errCutOff = fmt.Errorf("stdio: the stream has ended within a frame: %w", io.ErrUnexpectedEOF)

// A frameReader splits a stream into frames. next returns the next frame, which the
// caller owns. After an *OversizedError, next continues with the following frame; any
// other error is the end of the stream.
type frameReader interface {
	next() ([]byte, error)

	// buffered reports whether next has probably read the next frame already. It does
	// little work, and may be wrong, because an empty line is not a frame.
	buffered() bool
}

func (f Framing) reader(from io.Reader, limit int) frameReader {
	if f == ContentLength {
		return &headerReader{from: bufio.NewReaderSize(from, maxHeader), limit: limit}
	}
	return &reader{from: from, limit: limit}
}

// before returns what the writer puts before a frame.
func (f Framing) before(frame []byte) string {
	if f == ContentLength {
		return contentLength + ": " + strconv.Itoa(len(frame)) + "\r\n\r\n"
	}
	return ""
}

func (f Framing) after() string {
	if f == ContentLength {
		return ""
	}
	return "\n"
}

const (
	contentLength = "Content-Length"
	maxHeader     = 4 << 10
	maxDigits     = 15 // of a length, so that it fits an int64
)

// A headerReader reads frames with a header that contains their length. It allocates as
// bytes arrive, so a length that a peer only announces costs nothing.
type headerReader struct {
	from  *bufio.Reader
	limit int   // the maximum size of a frame, in bytes
	skip  int64 // bytes of a refused frame that must be skipped
	begun bool  // the first line was read
}

func (r *headerReader) next() ([]byte, error) {
	for {
		if err := r.discard(); err != nil {
			return nil, err
		}
		length, err := r.header()
		switch {
		case err != nil:
			return nil, err
		case length > int64(r.limit):
			r.skip = length
			return nil, &transport.OversizedError{Limit: r.limit, Size: int(min(length, math.MaxInt))}
		case length > 0:
			return r.body(int(length))
		}
	}
}

// buffered implements frameReader. The length of the next frame is unknown before its
// header is read.
func (r *headerReader) buffered() bool { return false }

// discard skips a refused frame.
func (r *headerReader) discard() error {
	n, err := io.CopyN(io.Discard, r.from, r.skip)
	r.skip -= n
	return cutOff(err)
}

// header reads a header up to its empty line, and returns the length of the frame. It
// skips empty lines before the header.
func (r *headerReader) header() (length int64, err error) {
	length = -1
	for read, begun := 0, false; ; {
		raw, err := r.from.ReadSlice('\n')
		line := strings.TrimRight(string(raw), "\r\n")
		read += len(raw)
		if !r.begun {
			line, r.begun = strings.TrimPrefix(line, byteOrderMark), true
		}
		switch {
		case read > maxHeader || errors.Is(err, bufio.ErrBufferFull):
			return 0, &HeaderError{beginning(line), fmt.Sprintf("a header has at most %d bytes", maxHeader)}
		case err == io.EOF && read == 0:
			return 0, io.EOF
		case err != nil:
			return 0, cutOff(err)
		case line == "" && !begun:
			continue
		case line == "" && length < 0:
			return 0, &HeaderError{"", "it has no " + contentLength}
		case line == "":
			return length, nil
		}
		begun = true
		name, value, found := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		switch {
		case !found || name == "" || strings.ContainsFunc(name, notOfName):
			return 0, &HeaderError{beginning(line), "expected NAME: VALUE"}
		case !strings.EqualFold(name, contentLength):
			continue
		case length >= 0:
			return 0, &HeaderError{beginning(line), "the length is given twice"}
		}
		if length, err = lengthOf(strings.TrimSpace(value)); err != nil {
			return 0, &HeaderError{beginning(line), err.Error()}
		}
	}
}

// notOfName reports a character that cannot be in a field's name. It detects a peer with
// another framing, such as lines of JSON.
func notOfName(c rune) bool { return c != '-' && !unicode.IsLetter(c) && !unicode.IsDigit(c) }

func lengthOf(digits string) (int64, error) {
	if digits == "" || len(digits) > maxDigits || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("expected a length of at most %d digits", maxDigits)
	}
	return strconv.ParseInt(digits, 10, 64)
}

func beginning(line string) string { return line[:min(len(line), 80)] }

// body reads so many bytes. Its buffer doubles as they arrive.
func (r *headerReader) body(length int) ([]byte, error) {
	frame := make([]byte, 0, min(length, readAhead))
	for len(frame) < length {
		if len(frame) == cap(frame) {
			grown := make([]byte, len(frame), min(length, 2*cap(frame)))
			copy(grown, frame)
			frame = grown
		}
		n, err := r.from.Read(frame[len(frame):cap(frame)])
		if frame = frame[:len(frame)+n]; err != nil && len(frame) < length {
			return nil, cutOff(err)
		}
	}
	return frame, nil
}

func cutOff(err error) error {
	if err == io.EOF {
		return errCutOff
	}
	return err
}
