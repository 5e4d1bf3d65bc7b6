package stdio

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Another process that has the pipe may make it blocking.
//
// Guarantees: G-0051.6
func TestAPromptCallDoesNotWaitForAFileThatBlocks(t *testing.T) {
	out, in := mustPipe(t)
	defer closeAll([]*os.File{out, in})
	var reads, writes prompt
	from, to := out.Fd(), in.Fd()
	for _, fd := range []uintptr{from, to} {
		if err := unix.SetNonblock(int(fd), false); err != nil {
			t.Fatal(err)
		}
	}
	var buffer [64 << 10]byte
	_, err := reads.call(unix.SYS_PREADV2, from, buffer[:])
	if reads.unable {
		return // Linux before 6.4: the usual call is made, of which the scheduler is told
	}
	if err != syscall.EAGAIN {
		t.Fatalf("the read of an empty pipe: %v", err)
	}
	written := 0
	for {
		n, err := writes.write(to, buffer[:])
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil || n == 0 {
			t.Fatalf("%d bytes were written: %v", n, err)
		}
		written += n
	}
	for read := 0; read < written; {
		n, err := reads.read(from, buffer[:])
		if err != nil || n == 0 {
			t.Fatalf("%d bytes were read: %v", n, err)
		}
		read += n
	}
	in.Close()
	for _, unable := range []bool{false, true} {
		reads.unable = unable
		if n, err := reads.read(from, buffer[:]); n != 0 || err != nil {
			t.Fatalf("%d bytes, %v at the end", n, err)
		}
	}
}
