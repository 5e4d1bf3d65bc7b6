// Package heard notes when a link has received something.
package heard

import (
	"io"
	"sync"
	"time"
)

// A Time is when a link has received bytes last; see transport.ActivityRecorder. The zero
// Time is ready to use.
type Time struct {
	mu   sync.Mutex
	last time.Time
}

// Last returns when bytes have come in last: the zero time if none have.
func (t *Time) Last() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Note notes bytes that come in now, but not through a Reader.
func (t *Time) Note() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = now
}

// Reader returns a reader that notes what is read from the stream.
func (t *Time) Reader(from io.Reader) io.Reader { return reader{from, t} }

type reader struct {
	from io.Reader
	time *Time
}

func (r reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n > 0 {
		r.time.Note()
	}
	return n, err
}
