// Package heard records when a link has received something.
package heard

import (
	"io"
	"sync"
	"time"
)

// A Time says when a link last received bytes; see transport.LinkTraits. The zero
// Time is ready to use.
type Time struct {
	mu   sync.Mutex
	last time.Time
}

// Last returns when bytes last came in, or the zero time if none have.
func (t *Time) Last() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Note records that bytes came in now. A Reader does so by itself.
func (t *Time) Note() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = now
}

// Reader returns a reader of the stream that records when it reads bytes.
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
