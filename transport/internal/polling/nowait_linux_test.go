package polling

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A nowait call returns immediately even if another process has made the pipe blocking.
//
// Guarantees: G-0051.6
func TestANowaitCallDoesNotWaitForAFileThatBlocks(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer in.Close()
	var reads, writes nowait
	from, to := out.Fd(), in.Fd()
	for _, fd := range []uintptr{from, to} {
		if err := unix.SetNonblock(int(fd), false); err != nil {
			t.Fatal(err)
		}
	}
	var buffer [64 << 10]byte
	_, err = reads.call(unix.SYS_PREADV2, from, buffer[:])
	if reads.unable {
		return // Linux before 6.4 has only the usual call, which the scheduler knows
	}
	if err != syscall.EAGAIN {
		t.Fatalf("read of an empty pipe: got %v, want %v", err, syscall.EAGAIN)
	}
	written := 0
	for {
		n, err := writes.write(to, buffer[:])
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil || n == 0 {
			t.Fatalf("write: got %d bytes, %v", n, err)
		}
		written += n
	}
	for read := 0; read < written; {
		n, err := reads.read(from, buffer[:])
		if err != nil || n == 0 {
			t.Fatalf("read: got %d bytes, %v", n, err)
		}
		read += n
	}
	in.Close()
	for _, unable := range []bool{false, true} {
		reads.unable = unable
		if n, err := reads.read(from, buffer[:]); n != 0 || err != nil {
			t.Fatalf("at the end: got %d bytes, %v, want 0", n, err)
		}
	}
}

// A socket reports once that its peer has reset it. The link must not take that for the
// end of the stream.
//
// Guarantees: G-0051.6
func TestASocketThatWasResetIsAnError(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
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
