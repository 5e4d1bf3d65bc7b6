//go:build !race

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
