//go:build unix

package polling

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A socket reports once that its peer has reset it. The link must not take that for the
// end of the stream.
//
// Guarantees: G-0051.6
func TestASocketThatWasResetIsAnError(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // else os.NewFile takes it for a file that blocks
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	if _, err := ours.WriteString("never read"); err != nil {
		t.Fatal(err)
	}
	theirs.Close() // unread data makes this a reset
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := NewReader(raw).Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %d bytes, %v from a socket that was reset, want %v", n, err, syscall.ECONNRESET)
	}
}

// A reader polls before it waits, and notes what polling has found.
//
// Guarantees: G-0065.2
func TestAReaderPollsUntilThereIsSomething(t *testing.T) {
	theirs, ours := pair(t, new(Group))
	reader := ours.(*conn).reader
	reader.group, reader.poller = nil, poller{most: 1 << 30, longest: time.Hour, every: 1}
	read := make(chan error, 1)
	go func() {
		_, err := ours.Read(make([]byte, 10))
		read <- err
	}()
	ours.(*conn).awaitRead()
	if _, err := theirs.Write([]byte("text")); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	if reader.poller.began.IsZero() || reader.poller.waits || reader.poller.polls != 0 {
		t.Errorf("the reader is left with %+v: it did not poll, or did not note that polling has found something", reader.poller)
	}
}

// Close ends a read that polls.
//
// Guarantees: G-0065.5
func TestCloseEndsPolling(t *testing.T) {
	_, ours := pair(t, new(Group))
	ours.(*conn).reader.group, ours.(*conn).reader.poller = nil, poller{most: 1 << 30, longest: time.Hour, every: 1}
	read := make(chan error, 1)
	go func() {
		_, err := ours.Read(make([]byte, 10))
		read <- err
	}()
	ours.(*conn).awaitRead()
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the read ended with %v, want net.ErrClosed", err)
	}
}

// awaitRead waits until a goroutine reads.
func (c *conn) awaitRead() {
	for c.reading.TryLock() {
		c.reading.Unlock()
		runtime.Gosched()
	}
}

// The race detector knows that what a program reads comes after what it wrote to the other
// end of a connection. This test can fail only under the detector.
//
// Guarantees: G-0065.5
func TestTheRaceDetectorSeesTheOrderOfAConnection(t *testing.T) {
	theirs, ours := pair(t, new(Group))
	for _, ends := range [][2]net.Conn{{theirs, ours}, {ours, theirs}} {
		shared := 0
		go func() {
			shared = 1
			ends[0].Write([]byte("done"))
		}()
		if _, err := io.ReadFull(ends[1], make([]byte, len("done"))); err != nil || shared != 1 {
			t.Errorf("got %d, %v", shared, err)
		}
	}
}
