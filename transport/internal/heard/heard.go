// Package heard counts what comes in on a link.
package heard

import (
	"io"
	"sync/atomic"
)

// A Counter counts the bytes that a link has received; see transport.Hearing.
type Counter struct{ bytes atomic.Uint64 }

// Bytes returns the count so far.
func (c *Counter) Bytes() uint64 { return c.bytes.Load() }

// Add counts bytes that did not come through a Reader.
func (c *Counter) Add(bytes int) { c.bytes.Add(uint64(bytes)) }

// Reader returns a reader that counts what is read from the stream.
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
