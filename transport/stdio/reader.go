package stdio

import (
	"bytes"
	"io"
	"strings"

	"github.com/bowline-mcp/bowline/transport"
)

const (
	readAhead   = 64 << 10
	firstBuffer = 4 << 10
)

// byteOrderMark is skipped at the beginning of a stream, and nowhere else.
const byteOrderMark = "\ufeff"

// A reader splits a byte stream into newline-delimited frames. It allocates as
// bytes arrive, and holds at most one line of limit bytes and two buffers of
// readAhead.
type reader struct {
	from  io.Reader
	limit int // the longest frame, in bytes

	buffer     []byte // buffer[start:end] was read and not consumed
	start, end int
	searched   int  // buffer[start:searched] holds no newline
	filled     bool // the last read filled the buffer
	begun      bool // a byte order mark was skipped, if there was one

	parts    [][]byte // of a long line: what comes before buffer[start]
	size     int      // bytes in parts
	skipping bool     // an oversized line was reported, and its rest comes next
	err      error    // why the stream ended
}

// next returns the next frame; the caller owns it. For a line longer than the
// limit it returns an *OversizedError as soon as that is certain, and the next
// call continues after that line. Any other error is the end of the stream.
func (r *reader) next() ([]byte, error) {
	for {
		if !r.begun {
			r.begin()
		}
		if i := bytes.IndexByte(r.buffer[r.searched:r.end], '\n'); i >= 0 {
			if frame, err := r.cut(r.searched + i); frame != nil || err != nil {
				return frame, err
			}
			continue
		}
		r.searched = r.end
		switch {
		case r.skipping:
			r.discard(r.end)
		case r.begun && r.pending() > r.limit+len("\r"):
			r.skipping = true
			return nil, &transport.OversizedError{Limit: r.limit, Size: r.discard(r.end)}
		case r.err == io.EOF:
			if frame, err := r.cut(r.end); frame != nil || err != nil {
				return frame, err
			}
		}
		if r.err != nil {
			return nil, r.err
		}
		r.fill()
	}
}

// begin skips a byte order mark, with which some programs on Windows begin their output.
func (r *reader) begin() {
	held := string(r.buffer[r.start:r.end])
	if r.err == nil && strings.HasPrefix(byteOrderMark, held) {
		return // more may come
	}
	if r.begun = true; strings.HasPrefix(held, byteOrderMark) {
		r.discard(r.start + len(byteOrderMark))
	}
}

// buffered implements frameReader.
func (r *reader) buffered() bool {
	if bytes.IndexByte(r.buffer[r.searched:r.end], '\n') >= 0 {
		return true
	}
	r.searched = r.end
	return false
}

// cut takes out the line that ends before buffer[stop]. It returns nil when the
// line is empty or was reported as oversized.
func (r *reader) cut(stop int) ([]byte, error) {
	last := r.buffer[r.start:stop]
	parts, skipping := r.parts, r.skipping
	size := r.discard(min(stop+len("\n"), r.end))
	if r.skipping = false; skipping {
		return nil, nil
	}
	frame := last
	if len(parts) > 0 {
		frame = bytes.Join(append(parts, last), nil)
	}
	frame = bytes.TrimSuffix(frame, []byte{'\r'})
	switch {
	case len(frame) > r.limit:
		return nil, &transport.OversizedError{Limit: r.limit, Size: size}
	case len(frame) == 0:
		return nil, nil
	case len(parts) > 0:
		return frame, nil
	}
	return bytes.Clone(frame), nil
}

// pending is how many bytes of the current line have been read.
func (r *reader) pending() int { return r.size + r.end - r.start }

// discard drops everything before buffer[to], and returns how many bytes that was.
func (r *reader) discard(to int) int {
	dropped := r.size + to - r.start
	r.parts, r.size = nil, 0
	r.start, r.searched = to, to
	return dropped
}

// fill reads once from the stream.
func (r *reader) fill() {
	r.makeRoom()
	n, err := r.from.Read(r.buffer[r.end:])
	r.filled = n == len(r.buffer)-r.end
	r.end += n
	r.err = err
}

// makeRoom makes sure that there is room after buffer[end]. The buffer doubles
// while reads fill it. When a line is too long for it, the bytes so far become a
// part.
func (r *reader) makeRoom() {
	held := r.buffer[r.start:r.end]
	if len(held) > 0 && r.end < len(r.buffer) {
		return
	}
	room := r.buffer
	if room == nil || r.filled && len(room) < readAhead {
		room = make([]byte, max(firstBuffer, 2*len(room)))
	}
	if len(held) > len(room)/2 {
		r.parts, r.size = append(r.parts, held), r.size+len(held)
		room, held = make([]byte, readAhead), nil
	}
	r.buffer, r.start, r.end = room, 0, copy(room, held)
	r.searched = r.end
}
