package parts

import (
	"io"
	"sync"
	"time"
)

// Reads records when a link has read bytes; see transport.LinkTraits. The zero Reads is
// ready to use.
type Reads struct {
	mu   sync.Mutex
	last time.Time
}

// Last returns when bytes last came in, or the zero time if none have.
func (t *Reads) Last() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Note records that bytes came in now. A Reader does so by itself.
func (t *Reads) Note() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = now
}

// Reader returns a reader of the stream that records when it reads bytes.
func (t *Reads) Reader(from io.Reader) io.Reader { return reader{from, t} }

type reader struct {
	from io.Reader
	time *Reads
}

func (r reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n > 0 {
		r.time.Note()
	}
	return n, err
}
