// Package heard counts what comes in on a link.
package heard

import (
	"io"
	"sync/atomic"
)

// A Counter counts bytes. Embedded in a link it implements transport.Hearing.
type Counter struct{ bytes atomic.Uint64 }

// Heard implements transport.Hearing.
func (c *Counter) Heard() (bytes uint64, ok bool) { return c.bytes.Load(), true }

// Add counts bytes that no reader has brought.
func (c *Counter) Add(bytes int) { c.bytes.Add(uint64(bytes)) }

// Reader counts what is read from a stream.
func (c *Counter) Reader(from io.Reader) io.Reader { return reader{from, c} }

type reader struct {
	from    io.Reader
	counter *Counter
}

func (r reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.counter.Add(n)
	return n, err
}
