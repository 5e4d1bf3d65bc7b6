package stdio

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// handlingReceiver is a Runner that handles each frame on the goroutine of the link.
type handlingReceiver struct {
	*frames
	last   atomic.Pointer[string]
	handle func(frame string, leave func())
}

func (h *handlingReceiver) Receive(in transport.Inbound) {
	frame := string(in.Frame)
	h.last.Store(&frame)
	h.frames.Receive(in)
}

func (h *handlingReceiver) Work(int)                          { panic("the wire calls Serve") }
func (h *handlingReceiver) Serve(_ bool, leave func())        { h.handle(*h.last.Load(), leave) }
func (h *handlingReceiver) StreamBegun(transport.Stream) bool { return false }

// wireWithHandler returns a wire whose frames are handled with handle, within a bubble.
func wireWithHandler(handle func(frame string, leave func())) (w *wire, to *handlingReceiver, peer io.WriteCloser, end func()) {
	in, peer := io.Pipe()
	w = newWire(in, noStream{io.Discard}, Lines, 0)
	to = &handlingReceiver{frames: newFrames(), handle: handle}
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

// A handler that takes long, calls leave, or ends its goroutine delays neither other
// frames nor the end of the link.
//
// Guarantees: G-0055.2, G-0055.3
func TestSlowHandlerDelaysNoReading(t *testing.T) {
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
			bubble(t, func(t *testing.T) {
				free := make(chan struct{})
				w, to, peer, end := wireWithHandler(func(frame string, leave func()) {
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
						t.Errorf("got %q, want %q", got, want)
					}
				}
				if waited := time.Since(began); waited != test.within {
					t.Errorf("the frames behind it waited for %v, want %v", waited, test.within)
				}
				<-time.NewTimer(time.Second).C // the watchdog stops
				began = time.Now()
				go io.WriteString(peer, test.first+"\n3\n")
				for range 2 {
					<-to.received
				}
				if waited := time.Since(began); waited != test.within {
					t.Errorf("after a pause, the frame behind it waited for %v, want %v", waited, test.within)
				}
				go io.WriteString(peer, test.first+"\n")
				<-to.received
				synctest.Wait()
				end()
				select {
				case <-w.readDone:
				default:
					t.Error("a goroutine still reads, want none")
				}
				close(free)
				synctest.Wait()
			})
		})
	}
}

// The handler of an earlier frame, whose goroutine no longer reads, does not stop the
// goroutine that reads now.
//
// Guarantees: G-0055.3
func TestFormerReaderDoesNotRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		goOn, left := make(chan struct{}), make(chan struct{})
		var w *wire
		w, to, peer, end := wireWithHandler(func(frame string, leave func()) {
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
					t.Error("the handler of an earlier frame has stopped the present reader")
				}
			}
		})
		for _, frame := range []string{"slow", "next", "last"} {
			go io.WriteString(peer, frame+"\n")
			if got := string(<-to.received); got != frame {
				t.Errorf("got %q, want %q", got, frame)
			}
		}
		synctest.Wait()
		end()
	})
}

// If every third handler waits for the next frame, each frame is still handled once and
// in order.
//
// Guarantees: G-0055.3
func TestEveryFrameComesOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const count = 300
		came := make([]chan struct{}, count+2)
		for i := range came {
			came[i] = make(chan struct{})
		}
		_, to, peer, end := wireWithHandler(func(frame string, leave func()) {
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
				t.Fatalf("got %q, want %d", got, i)
			}
		}
		synctest.Wait()
		end()
	})
}

// A handler that returns within a millisecond is not overtaken: the next frame is read when it has returned.
//
// Guarantees: G-0055.3
func TestQuickHandlersAreNotOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const frames, takes = 50, watchEvery * 9 / 10
		running := 0
		_, to, peer, end := wireWithHandler(func(string, func()) {
			if running++; running > 1 {
				t.Error("a frame was handled while the handler of the one before was running")
			}
			<-time.NewTimer(takes).C
			running--
		})
		began := time.Now()
		go io.WriteString(peer, strings.Repeat("1\n", frames))
		for n := range frames {
			<-to.received
			if after := time.Since(began); after != time.Duration(n)*takes {
				t.Fatalf("frame %d was read after %v, want %v", n, after, time.Duration(n)*takes)
			}
		}
		<-time.NewTimer(takes).C
		synctest.Wait()
		end()
	})
}

// The watchdog does not run while a link receives nothing.
//
// Guarantees: G-0055.4
func TestWatchdogStopsOnAnIdleLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, to, peer, end := wireWithHandler(func(string, func()) {})
		for range 3 {
			fmt.Fprintln(peer, "frame")
			<-to.received
			if synctest.Wait(); !w.readerRole.watched.Load() {
				t.Error("the watchdog does not run, want it to")
			}
			<-time.NewTimer((1 + watchIdle) * watchEvery).C
			if synctest.Wait(); !w.readerRole.watched.Load() {
				t.Error("the watchdog has stopped too soon")
			}
			<-time.NewTimer(watchEvery).C
			if synctest.Wait(); w.readerRole.watched.Load() || w.readerRole.timer.Stop() {
				t.Error("the watchdog runs, want it stopped")
			}
		}
		fmt.Fprintln(peer, "last")
		<-to.received
		if end(); w.readerRole.timer.Stop() {
			t.Error("the watchdog runs when the link has ended, want it stopped")
		}
	})
}

// A check that was under way when the link ended does not start the watchdog again.
//
// Guarantees: G-0055.4
func TestWatchdogStaysStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var role readerRole
		next := func() { t.Error("another goroutine reads after the end") }
		role.beginCall(next)
		role.stop()
		role.watch(next)
		if role.timer.Stop() {
			t.Error("the watchdog runs after the end of its link")
		}
	})
}
