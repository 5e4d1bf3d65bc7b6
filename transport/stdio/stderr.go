package stdio

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

const (
	tailSize = 4 << 10

	// copyQueue is how many chunks of up to 4 KiB a slow Stderr writer may be
	// behind, and copyTimeout how long the child then waits for it.
	copyQueue   = 16
	copyTimeout = time.Second
)

// A stderr reads a child's standard error to its end, keeps the tail, and copies
// everything to a writer.
type stderr struct {
	from *os.File
	tail tail
	stop wait.Signal   // the rest is not needed
	done chan struct{} // closed when reading has ended

	chunks chan []byte   // to the copying goroutine; nil without a writer
	copied chan struct{} // closed when that goroutine has ended
	stuck  bool          // the writer was too slow and receives nothing more
}

func newStderr(from *os.File, to io.Writer) *stderr {
	s := &stderr{from: from, done: make(chan struct{}), copied: make(chan struct{})}
	if to == nil {
		close(s.copied)
	} else {
		s.chunks = make(chan []byte, copyQueue)
		go s.copyTo(to)
	}
	go s.drain()
	return s
}

func (s *stderr) drain() {
	defer close(s.done)
	buffer := make([]byte, 4<<10)
	for {
		n, err := s.from.Read(buffer)
		s.tail.add(buffer[:n])
		s.pass(buffer[:n])
		if err != nil {
			break
		}
	}
	if s.chunks != nil {
		close(s.chunks)
	}
}

// pass hands a chunk to the copying goroutine. A writer that blocks for longer
// than copyTimeout while its queue is full receives nothing more.
func (s *stderr) pass(chunk []byte) {
	if s.chunks == nil || s.stuck || len(chunk) == 0 {
		return
	}
	timeout := time.NewTimer(copyTimeout)
	defer timeout.Stop()
	select {
	case s.chunks <- bytes.Clone(chunk):
	case <-timeout.C:
		s.stuck = true
	case <-s.stop.Wait(): // for good
	}
}

// finish waits for the end of standard error until the timeout ends, and then up
// to copyTimeout until everything is copied.
func (s *stderr) finish(timeout context.Context) {
	select {
	case <-s.done:
	case <-timeout.Done():
		s.stop.Fire()
		s.from.SetReadDeadline(time.Unix(0, 1))
		<-s.done
	}
	wait.Within(s.copied, copyTimeout)
}

// copyTo writes chunks until there are no more. After its first error the writer
// receives nothing more.
func (s *stderr) copyTo(to io.Writer) {
	defer close(s.copied)
	failed := false
	for chunk := range s.chunks {
		if !failed {
			n, err := to.Write(chunk)
			failed = err != nil || n < len(chunk)
		}
	}
}

// A tail keeps the end of what was added.
type tail struct {
	kept []byte
	cut  bool // something before it was dropped
}

func (t *tail) add(p []byte) {
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*tailSize {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-tailSize:]...)
		t.cut = true
	}
}

// String returns at most tailSize bytes, from the start of a line if possible.
func (t *tail) String() string {
	kept, cut := t.kept, t.cut
	if len(kept) > tailSize {
		kept, cut = kept[len(kept)-tailSize:], true
	}
	if i := bytes.IndexByte(kept, '\n'); cut && i+1 < len(kept) {
		kept = kept[i+1:]
	}
	return string(kept)
}
