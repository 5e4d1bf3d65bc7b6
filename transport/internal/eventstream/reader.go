package eventstream

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

const (
	// readAhead is how much a Reader takes from its source beyond an event.
	readAhead = 4 << 10

	// maxLine is the longest line without data that is parsed, in bytes: no id,
	// type or delay needs as much.
	maxLine = 1 << 10

	// minRetry and maxRetry bound the delay that Next returns.
	minRetry = time.Millisecond
	maxRetry = 24 * time.Hour
)

// A Reader parses a stream of server-sent events as the WHATWG specification
// says. It holds the data of one event and 4 KiB of read-ahead, has no goroutine,
// and is not safe for concurrent use.
//
// It differs from a browser in three ways. It also returns an event that has an
// id or a delay and no data. It ignores a line of more than 1 KiB that has no
// data. A delay is at least one millisecond and at most one day.
type Reader struct {
	from   *bufio.Reader
	source *source
	limit  int // the maximum size of one event's data, in bytes

	begun    bool   // a byte order mark was skipped, if there was one
	afterCR  bool   // a line feed that comes next belongs to the previous line
	midLine  bool   // the rest of the present line is skipped
	skipping bool   // the rest of the present event is skipped
	id       string // the last id of the stream
	head     []byte // the beginning of a line that arrives in pieces

	event   Event // the present event
	hasData bool
	named   bool // the present event has an id, a delay or data
}

// NewReader returns a Reader of events that have at most limit bytes of data.
func NewReader(from io.Reader, limit int) *Reader {
	read := &source{from: from}
	return &Reader{from: bufio.NewReaderSize(read, readAhead), source: read, limit: limit}
}

// Reset makes the Reader one of another stream, as NewReader does. It keeps its
// read-ahead memory, and nothing of the stream before.
func (r *Reader) Reset(from io.Reader, limit int) {
	*r.source = source{from: from}
	r.from.Reset(r.source)
	*r = Reader{from: r.from, source: r.source, limit: limit}
}

// Ended reports whether the whole stream has been read, with its end. Some of it may still be
// read-ahead.
func (r *Reader) Ended() bool { return r.source.ended }

// A source notices the end of a stream.
type source struct {
	from  io.Reader
	ended bool
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.ended = s.ended || err == io.EOF
	return n, err
}

// ResumeAfter sets the last id that the stream had before it was interrupted.
func (r *Reader) ResumeAfter(id string) { r.id = id }

// Next returns the next event. The caller owns the data. At the end of the stream
// it discards an unfinished event and returns io.EOF. For an event with more data
// than the limit it returns a *transport.OversizedError as soon as that is
// certain, and the next call continues after that event. Any other error is that
// of the stream.
func (r *Reader) Next() (Event, error) {
	if err := r.begin(); err != nil {
		return Event{}, err
	}
	for {
		line, isData, err := r.line()
		switch {
		case err != nil:
			return Event{}, err
		case isData:
		case len(line) > 0:
			if err := r.field(line); err != nil {
				return Event{}, err
			}
		case r.complete():
			e := r.event
			r.reset()
			return e, nil
		default:
			r.reset()
		}
	}
}

// begin skips a byte order mark. It waits for no byte that is not part of one.
func (r *Reader) begin() error {
	const mark = "\xef\xbb\xbf"
	for n := 1; !r.begun; n++ {
		start, err := r.from.Peek(n)
		if err != nil {
			return err // the rest, if any, is not a complete event
		}
		whole := string(start) == mark
		if r.begun = whole || string(start) != mark[:n]; whole {
			r.from.Discard(len(mark))
		}
	}
	return nil
}

// complete completes the present event, and reports whether to return it.
func (r *Reader) complete() bool {
	r.event.ID = r.id
	if r.event.Type == "" {
		r.event.Type = "message"
	}
	return r.named && !r.skipping
}

func (r *Reader) reset() {
	r.event, r.hasData, r.named, r.skipping = Event{}, false, false, false
}

// line reads one line. It adds a line with data to the present event, and returns
// any other line, which is valid until the next read.
func (r *Reader) line() (line []byte, isData bool, err error) {
	r.head = r.head[:0]
	for {
		piece, ended, err := r.piece()
		if err != nil {
			return nil, false, err
		}
		if r.midLine {
			r.midLine = !ended
			continue
		}
		line, rest := r.join(piece)
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok && (ended || len(value) > 0) {
			return nil, true, r.data(bytes.TrimPrefix(value, []byte(" ")), rest, ended)
		}
		if ended {
			return line, false, nil
		}
		if len(r.head) == 0 {
			r.head = append(r.head, piece[:min(len(piece), maxLine+1)]...)
		}
	}
}

// join appends a piece to the beginning of its line. It returns as rest what would
// make the line too long.
func (r *Reader) join(piece []byte) (line, rest []byte) {
	if len(r.head) == 0 {
		return piece, nil
	}
	n := min(len(piece), maxLine+1-len(r.head))
	r.head = append(r.head, piece[:n]...)
	return r.head, piece[n:]
}

// data adds a line of data. value and rest have been read already.
func (r *Reader) data(value, rest []byte, ended bool) (err error) {
	if r.hasData {
		err = r.add([]byte("\n"))
	}
	r.hasData, r.named = true, true
	for _, piece := range [][]byte{value, rest} {
		if err == nil {
			err = r.add(piece)
		}
	}
	for err == nil && !ended {
		var piece []byte
		if piece, ended, err = r.piece(); err == nil {
			err = r.add(piece)
		}
	}
	r.midLine = !ended
	return err
}

func (r *Reader) add(piece []byte) error {
	switch size := len(r.event.Data) + len(piece); {
	case r.skipping:
		return nil
	case size > r.limit:
		r.event.Data, r.skipping = nil, true
		return &transport.OversizedError{Limit: r.limit, Size: size}
	}
	r.event.Data = append(r.event.Data, piece...)
	return nil
}

// field handles a line that is not empty and does not begin with "data:".
func (r *Reader) field(line []byte) error {
	if len(line) > maxLine {
		return nil
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		return r.data(nil, nil, true)
	case "event":
		r.event.Type = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id, r.named = string(value), true
		}
	case "retry":
		if ms, ok := digits(value); ok {
			r.event.Retry, r.named = ms, true
		}
	}
	return nil
}

// digits parses milliseconds.
func digits(value []byte) (time.Duration, bool) {
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	if len(value) == 0 {
		return 0, false
	}
	ms, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || ms > maxRetry.Milliseconds() {
		return maxRetry, true
	}
	return max(minRetry, time.Duration(ms)*time.Millisecond), true
}

// piece returns as much of the present line as has been read, and whether the line
// ends there. The piece is valid until the next read.
func (r *Reader) piece() (piece []byte, ended bool, err error) {
	for {
		if _, err := r.from.Peek(1); err != nil {
			return nil, false, err
		}
		read, _ := r.from.Peek(r.from.Buffered())
		if r.afterCR && read[0] == '\n' {
			r.from.Discard(1)
			r.afterCR = false
			continue
		}
		r.afterCR = false
		end := bytes.IndexByte(read, '\n')
		if end < 0 {
			end = len(read)
		}
		if cr := bytes.IndexByte(read[:end], '\r'); cr >= 0 {
			end, r.afterCR = cr, true
		}
		if end == len(read) {
			r.from.Discard(end)
			return read, false, nil
		}
		r.from.Discard(end + 1)
		return read[:end], true, nil
	}
}
