package stdio

import (
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// handlers is a ServingWorker that handles each frame on the goroutine of the link.
type handlers struct {
	*frames
	last   atomic.Pointer[string]
	handle func(frame string, leave func())
}

func (h *handlers) Receive(in transport.Inbound) {
	frame := string(in.Frame)
	h.last.Store(&frame)
	h.frames.Receive(in)
}

func (h *handlers) Work(int)                   { panic("the wire has a ServingWorker") }
func (h *handlers) Serve(_ bool, leave func()) { h.handle(*h.last.Load(), leave) }

// handled has a wire whose frames are handled, within a bubble.
func handled(handle func(frame string, leave func())) (w *wire, to *handlers, peer io.WriteCloser, end func()) {
	in, peer := io.Pipe()
	w = newWire(in, noStream{io.Discard}, Lines, 0)
	to = &handlers{frames: newFrames(), handle: handle}
	w.Bind(to)
	w.Grant(transport.Main, 1000)
	w.start()
	return w, to, peer, func() {
		w.stopReading()
		in.Close()
		w.writer.finish()
		<-w.readDone
		<-w.writeDone
		w.closeBoth()
	}
}

// A handler that takes long, says that it will, or ends its goroutine, holds nobody up,
// and neither the end of the link.
//
// Guarantees: G-0055.2, G-0055.3
func TestAnotherGoroutineReadsOn(t *testing.T) {
	for _, test := range []struct {
		first  string
		within time.Duration
	}{
		{"waits", 2 * watchEvery},
		{"leaves and waits", 0},
		{"leaves twice and waits", 0},
		{"exits", 0},
	} {
		t.Run(test.first, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				free := make(chan struct{})
				w, to, peer, end := handled(func(frame string, leave func()) {
					switch frame {
					case "leaves twice and waits":
						leave()
						fallthrough
					case "leaves and waits":
						leave()
						fallthrough
					case "waits":
						<-free
					case "exits":
						runtime.Goexit()
					}
				})
				began := time.Now()
				go io.WriteString(peer, test.first+"\n1\n2\n")
				for _, want := range []string{test.first, "1", "2"} {
					if got := string(<-to.received); got != want {
						t.Errorf("%q came instead of %q", got, want)
					}
				}
				if waited := time.Since(began); waited > test.within {
					t.Errorf("the frames behind it waited for %v", waited)
				}
				go io.WriteString(peer, test.first+"\n")
				<-to.received
				synctest.Wait()
				end()
				select {
				case <-w.readDone:
				default:
					t.Error("somebody still reads")
				}
				close(free)
				synctest.Wait()
			})
		})
	}
}

// A handler whose goroutine has lost the reading already takes it from nobody else.
//
// Guarantees: G-0055.3
func TestFormerReaderDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, left := make(chan struct{}), make(chan struct{})
		var w *wire
		w, to, peer, end := handled(func(frame string, leave func()) {
			switch frame {
			case "slow":
				<-goOn
				leave()
				close(left)
			case "next":
				before := w.readerRole.state.Load()
				close(goOn)
				<-left
				if w.readerRole.state.Load() != before {
					t.Error("the handler of an earlier frame has taken the reading away")
				}
			}
		})
		for _, frame := range []string{"slow", "next", "last"} {
			go io.WriteString(peer, frame+"\n")
			if got := string(<-to.received); got != frame {
				t.Errorf("%q came instead of %q", got, frame)
			}
		}
		synctest.Wait()
		end()
	})
}

// Every third handler waits until the next frame has come. None is lost, and none comes
// before its time.
//
// Guarantees: G-0055.3
func TestEveryFrameComesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 300
		came := make([]chan struct{}, count+2)
		for i := range came {
			came[i] = make(chan struct{})
		}
		_, to, peer, end := handled(func(frame string, leave func()) {
			var i int
			if _, err := fmt.Sscan(frame, &i); err != nil {
				t.Error(err)
			}
			close(came[i])
			if i%3 == 0 {
				if i%2 == 0 {
					leave()
				}
				<-came[i+1]
			}
		})
		go func() {
			for i := range count + 1 {
				fmt.Fprintln(peer, i)
			}
			close(came[count+1])
		}()
		for i := range count + 1 {
			if got := string(<-to.received); got != fmt.Sprint(i) {
				t.Fatalf("%q came instead of %d", got, i)
			}
		}
		synctest.Wait()
		end()
	})
}

// Nobody watches a link on which nothing comes in.
//
// Guarantees: G-0055.4
func TestTheWatchRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, to, peer, end := handled(func(string, func()) {})
		for range 3 {
			fmt.Fprintln(peer, "frame")
			<-to.received
			if synctest.Wait(); !w.readerRole.watched.Load() {
				t.Error("nobody watches")
			}
			<-time.NewTimer((watchIdle + 3) * watchEvery).C
			if synctest.Wait(); w.readerRole.watched.Load() {
				t.Error("somebody watches")
			}
		}
		end()
	})
}
