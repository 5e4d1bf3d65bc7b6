//go:build unix

package stdio

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/transport"
)

// Send writes on its own goroutine as long as the pipe has room.
//
// Guarantees: G-0051.1
func TestSendWritesOnItsGoroutine(t *testing.T) {
	out, in := mustPipe(t)
	defer closeAll([]*os.File{out, in})
	w := newWriter(in, Lines) // the test does not call run
	out.SetReadDeadline(time.Now().Add(hangGuard))
	lines := bufio.NewReader(out)
	for _, send := range []func(frame string){
		func(frame string) {
			if err := w.send(transport.Outbound{Frame: []byte(frame)}); err != nil {
				t.Fatal(err)
			}
		},
		func(frame string) {
			w.flush()
			if err := w.send(transport.Outbound{Frame: []byte(frame)}); err != nil {
				t.Fatal(err)
			}
			w.flush()
		},
	} {
		send("frame")
		if line, err := lines.ReadString('\n'); line != "frame\n" {
			t.Fatalf("got %q, %v, want %q", line, err, "frame\n")
		}
	}
}

// A link writes directly, and polls, only where a call cannot block: on a pipe or socket that is non-blocking.
//
// Guarantees: G-0051.1
func TestWhichStreamsAreUsedDirectly(t *testing.T) {
	r, w := mustPipe(t)
	blockingR, blockingW := mustPipe(t)
	blockingR.Fd() // makes it blocking
	blockingW.Fd()
	closedR, closedW := mustPipe(t)
	closeAll([]*os.File{closedR, closedW})
	owned, err := ownFile(w)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*os.File{r, blockingR, blockingW})
	defer owned.Close()
	near, far := net.Pipe()
	defer closeBothEnds(near, far)
	for name, test := range map[string]struct {
		in     io.Reader
		out    io.Writer
		direct bool
	}{
		"a pipe":           {r, w, true},
		"a pipe of a link": {r, owned, true},
		"a blocking pipe":  {blockingR, blockingW, false},
		"a closed pipe":    {closedR, closedW, false},
		"another stream":   {near, near, false},
	} {
		if got := newDirectWriter(test.out) != nil; got != test.direct {
			t.Errorf("%s is written directly: %t, want %t", name, got, test.direct)
		}
		if got := newDirectReader(test.in) != test.in; got != test.direct {
			t.Errorf("%s is polled: %t, want %t", name, got, test.direct)
		}
	}
}

// What Open cannot take over it closes, if it has dialled it.
func TestFilesThatCannotBeTakenOver(t *testing.T) {
	r, w := mustPipe(t) // opens the descriptors of the poller
	closeAll([]*os.File{r, w})
	before := descriptors(t)
	defer func() {
		if after := descriptors(t); !slices.Equal(before, after) {
			t.Errorf("got the descriptors %v, want %v", after, before)
		}
	}()
	for _, in := range []bool{true, false} { // whether it is the input that is closed already
		r, w := mustPipe(t)
		closed, other := r, w
		if !in {
			closed, other = w, r
		}
		closed.Close()
		if _, err := Pair(r, w).Open(t.Context()); !errors.Is(err, os.ErrClosed) {
			t.Errorf("got %v, want %v", err, os.ErrClosed)
		}
		if err := other.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the other stream was left open; Close returned %v", err)
		}
	}
}

// After a link of the standard streams, a pipe that other processes share blocks again, as they expect, if it did before. A file or a
// terminal is not touched: whoever else uses it would get errors.
//
// Guarantees: G-0014.11
func TestStandardStreamsBlockAgain(t *testing.T) {
	for name, c := range map[string]struct {
		isFile, before, during bool // whether it blocks
	}{
		"a pipe":                     {false, true, false},
		"a pipe that does not block": {false, false, false},
		"a file":                     {true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			ends := make([]int, 2)
			if err := syscall.Pipe(ends); err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(ends[1])
			descriptor := ends[0]
			if c.isFile {
				defer syscall.Close(descriptor)
				device, err := syscall.Open(os.DevNull, syscall.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				descriptor = device
			}
			if err := syscall.SetNonblock(descriptor, !c.before); err != nil {
				t.Fatal(err)
			}
			in := os.NewFile(uintptr(descriptor), "in")
			defer in.Close()
			blocks := func() bool {
				flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFL, 0)
				if err != nil {
					t.Fatal(err)
				}
				return flags&unix.O_NONBLOCK == 0
			}
			link, err := ownFile(in)
			if err != nil {
				t.Fatal(err)
			}
			link.standard = true
			during := blocks()
			if err := link.Close(); err != nil {
				t.Error(err)
			}
			if during != c.during || blocks() != c.before {
				t.Errorf("it blocks while the link is open: %t, and after that: %t; want %t and %t", during, blocks(), c.during, c.before)
			}
		})
	}
}
