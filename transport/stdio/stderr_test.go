package stdio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// The tail keeps the last whole lines of standard error.
//
// Guarantees: G-0014.9
func TestTailKeepsTheLastLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		var kept tail
		for _, size := range rapid.SliceOfN(rapid.IntRange(0, 3*tailSize), 0, 6).Draw(t, "sizes") {
			chunk := []byte(strings.Repeat(rapid.SampledFrom([]string{"x", "line\n"}).Draw(t, "text"), size))[:size]
			all = append(all, chunk...)
			if kept.add(chunk); len(kept.kept) > 2*tailSize {
				t.Fatalf("%d bytes are kept, want %d at most", len(kept.kept), 2*tailSize)
			}
		}
		if got, want := kept.String(), lastLines(all); got != want {
			t.Fatalf("got %d bytes %.60q, want %d %.60q", len(got), got, len(want), want)
		}
	})
}

// The whole of what was said is kept if it is just as long as the tail.
//
// Guarantees: G-0014.9
func TestATailThatJustFits(t *testing.T) {
	var kept tail
	all := "first\n" + strings.Repeat("x", tailSize-len("first\n"))
	if kept.add([]byte(all)); kept.String() != all {
		t.Errorf("got %d bytes %.20q, want all %d", len(kept.String()), kept.String(), len(all))
	}
}

// A writer of standard error may be seventeen chunks behind, and then one second late. After that, after its first error, and
// after the link has no more time, it receives nothing more. The child is not delayed any longer then.
//
// Guarantees: G-0014.13
func TestHowLateAWriterOfStderrMayBe(t *testing.T) {
	const chunks = 40
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		takes  time.Duration // for each chunk
		stop   time.Duration // after which there is no more time; 0: never
		fails  int           // the number of the call that fails; 0: none
		short  bool          // it fails by taking less, without an error
		writes int
		delay  time.Duration // of the child
	}{
		"at once":       {0, 0, 0, false, chunks, 0},
		"just in time":  {time.Second - 1, 0, 0, false, chunks, (chunks - copyQueue - 1) * (time.Second - 1)},
		"too late":      {time.Second + 1, 0, 0, false, copyQueue + 1, time.Second},
		"fails":         {0, 0, 3, false, 3, 0},
		"takes less":    {0, 0, 3, true, 3, 0},
		"no more time":  {time.Hour, 500 * time.Millisecond, 0, false, copyQueue + 1, 500 * time.Millisecond},
		"much too late": {time.Hour, 0, 0, false, copyQueue + 1, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var got []string
				s := &stderr{copied: make(chan struct{}), chunks: make(chan []byte, copyQueue)}
				go s.copyTo(writerFunc(func(p []byte) (int, error) {
					got = append(got, string(p))
					<-time.NewTimer(test.takes).C
					switch {
					case len(got) != test.fails:
						return len(p), nil
					case test.short:
						return len(p) - 1, nil
					}
					return len(p), broken
				}))
				if test.stop > 0 {
					time.AfterFunc(test.stop, s.stop.Fire)
				}
				began, buffer := time.Now(), []byte{0}
				for n := range chunks {
					buffer[0] = byte('A' + n)
					s.pass(buffer)
					s.pass(nil)
					synctest.Wait()
				}
				if delay := time.Since(began); delay != test.delay {
					t.Errorf("the child was delayed for %v, want %v", delay, test.delay)
				}
				close(s.chunks)
				<-s.copied
				var want []string
				for n := range test.writes {
					want = append(want, string(byte('A'+n)))
				}
				if !slices.Equal(got, want) {
					t.Errorf("the writer got %q, want %q", got, want)
				}
			})
		})
	}
}

// When the link has no more time, standard error is read no more, even if its writer and another process hold it up.
//
// Guarantees: G-0014.13
func TestStderrEndsWithTheTimeForIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		said, saidEnd := mustPipe(t) // another process holds the end
		defer saidEnd.Close()
		saidEnd.Write(bytes.Repeat([]byte("x"), 5*4<<10))
		release := make(chan struct{})
		s := &stderr{from: said, done: make(chan struct{}), copied: make(chan struct{}), chunks: make(chan []byte, 1)}
		go s.copyTo(writerFunc(func(p []byte) (int, error) {
			<-release
			return len(p), nil
		}))
		go s.drain()
		synctest.Wait() // it waits for the writer
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		s.finish(ctx)
		if took := time.Since(began); took != copyTimeout {
			t.Errorf("it took %v, want %v, for the writer", took, copyTimeout)
		}
		select {
		case <-s.done:
		default:
			t.Error("standard error is still read")
		}
		close(release)
		<-s.copied
		said.Close()
	})
}

// After the end of standard error, its writer has a second to take what is left.
//
// Guarantees: G-0014.13
func TestTheEndOfStderrIsCopied(t *testing.T) {
	said, saidEnd := mustPipe(t)
	s := newStderr(said, io.Discard)
	if got := cap(s.chunks); got != copyQueue {
		t.Errorf("%d chunks may wait for the writer, want %d", got, copyQueue)
	}
	saidEnd.Close()
	testenv.Receive(t, s.copied, "the end of standard error")
	said.Close()
	for takes, want := range map[time.Duration]time.Duration{0: 0, 900 * time.Millisecond: 900 * time.Millisecond, time.Minute: time.Second} {
		bubble(t, func(t *testing.T) {
			s := &stderr{done: make(chan struct{}), copied: make(chan struct{})}
			close(s.done)
			time.AfterFunc(takes, func() { close(s.copied) })
			began := time.Now()
			s.finish(t.Context())
			if took := time.Since(began); took != want {
				t.Errorf("for a writer that takes %v, it took %v, want %v", takes, took, want)
			}
			<-s.copied
		})
	}
}

// lastLines returns what a tail should keep: if it is cut, it begins with a whole line
// unless nothing would be left.
func lastLines(all []byte) string {
	if len(all) <= tailSize {
		return string(all)
	}
	last := all[len(all)-tailSize:]
	if _, lines, found := bytes.Cut(last, []byte("\n")); found && len(lines) > 0 {
		return string(lines)
	}
	return string(last)
}

// Without a writer, a child that writes much to standard error is not delayed.
//
// Guarantees: G-0014.13
func TestStderrWithoutAWriterDelaysNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, began := new(stderr), time.Now()
		for range 2 * copyQueue {
			s.pass([]byte("line\n"))
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v, want no time", took)
		}
	})
}
