package inmem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func TestLinkContract(t *testing.T) {
	proptest.LinkContract(t, func(*testing.T) (a, b transport.Link) {
		return inmem.Pipe(inmem.Options{})
	}, proptest.ContractOptions{})

}

// log is a receiver that writes down what it is told.
type log struct{ entries []string }

func (l *log) Receive(in transport.Inbound)               { l.add("frame %s", in.Frame) }
func (l *log) Writable()                                  { l.add("writable") }
func (*log) StreamOpened(transport.Stream, transport.Tag) {}
func (*log) StreamLost(transport.StreamLoss)              {}
func (l *log) Failed(f transport.Failure)                 { l.add("failed %d", f.Tag) }
func (l *log) Ended()                                     { l.add("ended") }
func (l *log) Lost(loss transport.Loss)                   { l.add("lost: %v, unsent %v", loss.Reason, loss.Unsent) }
func (l *log) add(format string, args ...any) {
	l.entries = append(l.entries, fmt.Sprintf(format, args...))
}

func (l *log) want(t rapid.TB, entries ...string) {
	t.Helper()
	if got, want := fmt.Sprintf("%q", l.entries), fmt.Sprintf("%q", entries); got != want {
		t.Fatalf("the receiver was told %s, want %s", got, want)
	}
	l.entries = nil
}

func pipe(options inmem.Options) (a, b transport.Link, toA, toB *log) {
	a, b = inmem.Pipe(options)
	toA, toB = &log{}, &log{}
	a.Bind(toA)
	b.Bind(toB)
	return a, b, toA, toB
}

func send(t rapid.TB, link transport.Link, tag transport.Tag, frame string) {
	t.Helper()
	if err := link.Send(transport.Outbound{Tag: tag, Frame: []byte(frame)}); err != nil {
		t.Fatal(err)
	}
}

func TestFrameIsHandedOverInTheGoroutineOfSendOrGrant(t *testing.T) {
	a, b, toA, toB := pipe(inmem.Options{})
	send(t, a, 0, "1")
	toB.want(t)
	b.Grant(transport.Main, 2)
	toB.want(t, "frame 1")
	send(t, a, 0, "2")
	toB.want(t, "frame 2")
	send(t, a, 0, "3")
	toB.want(t)
	toA.want(t)
}

// hand is a receiver that is a transport.Worker.
type hand struct{ log }

func (h *hand) Receive(in transport.Inbound) { h.add("frame %s, work %v", in.Frame, in.Work) }
func (h *hand) Work(depth int)               { h.add("work %d", depth) }

// A link leaves work to Flush only after the first Flush, and only for a receiver that
// is a Worker. It promises work only for what it delivers in Send.
//
// Guarantees: G-0048.5
func TestFlushHasTheReceiverWork(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	var toA log
	var toB hand
	a.Bind(&toA)
	b.Bind(&toB)
	b.Grant(transport.Main, 2)
	send(t, a, 0, "1")
	toB.want(t, "frame 1, work false")
	ours, theirs := a.(transport.Flusher), b.(transport.Flusher)
	ours.Flush(0)
	toB.want(t)
	send(t, a, 0, "2")
	toB.want(t, "frame 2, work true")
	ours.Flush(3)
	ours.Flush(0)
	toB.want(t, "work 4")
	send(t, a, 0, "3")
	ours.Flush(0)
	b.Grant(transport.Main, 1)
	theirs.Flush(0)
	toB.want(t, "frame 3, work false")
	a.Grant(transport.Main, 1)
	send(t, b, 0, "4")
	theirs.Flush(0)
	toA.want(t, "frame 4")
}

func TestFrameIsNotCopied(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	var got []byte
	b.Bind(receiveFunc(func(in transport.Inbound) { got = in.Frame }))
	a.Bind(&log{})
	b.Grant(transport.Main, 1)
	frame := []byte("1")
	if err := a.Send(transport.Outbound{Frame: frame}); err != nil || &got[0] != &frame[0] {
		t.Fatalf("the frame was copied, or not delivered: %v", err)
	}
}

type receiveFunc func(transport.Inbound)

func (f receiveFunc) Receive(in transport.Inbound)               { f(in) }
func (receiveFunc) Writable()                                    {}
func (receiveFunc) StreamOpened(transport.Stream, transport.Tag) {}
func (receiveFunc) StreamLost(transport.StreamLoss)              {}
func (receiveFunc) Failed(transport.Failure)                     {}
func (receiveFunc) Ended()                                       {}
func (receiveFunc) Lost(transport.Loss)                          {}

// Guarantees: G-0014.4, G-0014.5
func TestWritableComesWhenTheRefusedFrameFits(t *testing.T) {
	a, b, toA, toB := pipe(inmem.Options{QueueFrames: 3, QueueBytes: 5})
	send(t, a, 0, "22")
	send(t, a, 0, "333")
	if err := a.Send(transport.Outbound{Frame: []byte("4444")}); err != transport.ErrBusy {
		t.Fatalf("a frame above the bound in bytes: %v", err)
	}
	b.Grant(transport.Main, 1)
	toA.want(t)
	b.Grant(transport.Main, 1)
	toA.want(t, "writable")
	send(t, a, 0, "4444")
	b.Grant(transport.Main, 1)
	toA.want(t)
	toB.want(t, "frame 22", "frame 333", "frame 4444")
}

func TestOneFrameAlwaysFitsAnEmptyQueue(t *testing.T) {
	a, b, _, toB := pipe(inmem.Options{QueueBytes: 1})
	send(t, a, 0, "123")
	b.Grant(transport.Main, 1)
	toB.want(t, "frame 123")
}

// Guarantees: G-0008.2
func TestOversizedFrameIsRefused(t *testing.T) {
	a, _, _, _ := pipe(inmem.Options{MaxFrame: 2})
	err := a.Send(transport.Outbound{Frame: []byte("123")})
	var oversized *transport.OversizedError
	if !errors.As(err, &oversized) || oversized.Limit != 2 || oversized.Size != 3 {
		t.Fatalf("Send of 3 bytes: %v", err)
	}
}

// Guarantees: G-0014.7
func TestCloseWaitsForThePeerToTakeWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, toA, toB := pipe(inmem.Options{})
		send(t, a, 1, "1")
		var closing sync.WaitGroup
		closing.Go(func() { a.Close(time.Hour) })
		synctest.Wait()
		toB.want(t)
		b.Grant(transport.Main, 1)
		closing.Wait()
		toB.want(t, "frame 1", "lost: transport: peer closed the link, unsent []")
		toA.want(t, "lost: transport: link closed, unsent []")
	})
}

// Guarantees: G-0014.6, G-0014.7
func TestCloseGivesUpAfterTheShortestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, toA, toB := pipe(inmem.Options{})
		send(t, a, 1, "1")
		send(t, a, 0, "untagged")
		send(t, b, 2, "2")
		start := time.Now()
		var closing sync.WaitGroup
		closing.Go(func() { a.Close(time.Hour) })
		closing.Go(func() { a.Close(time.Minute) })
		closing.Wait()
		if took := time.Since(start); took != time.Minute {
			t.Fatalf("Close took %v", took)
		}
		toA.want(t, "lost: transport: link closed, unsent [1]")
		toB.want(t, "lost: transport: peer closed the link, unsent [2]")
		a.Close(0)
		b.Close(0)
		toB.want(t)
	})
}

func TestBothSidesMayCloseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, toA, toB := pipe(inmem.Options{})
		send(t, a, 1, "1")
		send(t, b, 2, "2")
		var closing sync.WaitGroup
		closing.Go(func() { a.Close(time.Hour) })
		closing.Go(func() { b.Close(time.Minute) })
		closing.Wait()
		toA.want(t, "lost: transport: link closed, unsent [1]")
		toB.want(t, "lost: transport: link closed, unsent [2]")
	})
}

// Both sides send and grant as fast as they can, each from its own goroutine.
func TestOppositeDirectionsDoNotDeadlock(t *testing.T) {
	a, b, toA, toB := pipe(inmem.Options{QueueFrames: 4})
	const frames = 20_000
	var both sync.WaitGroup
	for _, link := range []transport.Link{a, b} {
		both.Go(func() {
			for sent := 0; sent < frames; {
				if link.Send(transport.Outbound{Frame: []byte("1")}) == nil {
					sent++
				}
				link.Grant(transport.Main, 1)
				runtime.Gosched()
			}
			link.Grant(transport.Main, frames)
		})
	}
	both.Wait()
	for _, told := range []*log{toA, toB} {
		received := 0
		for _, entry := range told.entries {
			if entry == "frame 1" {
				received++
			}
		}
		if received != frames {
			t.Fatalf("%d frames were received, of %d", received, frames)
		}
	}
}

func TestOnlyTheMainStreamIsCarried(t *testing.T) {
	a, b, _, toB := pipe(inmem.Options{})
	if err := a.Send(transport.Outbound{Stream: 7}); !errors.Is(err, transport.ErrNoRoute) {
		t.Fatalf("Send on stream 7: %v", err)
	}
	b.Grant(7, 1)
	send(t, a, 0, "1")
	toB.want(t)
}

func TestOpenHandsTheOtherEndToAccept(t *testing.T) {
	var accepted transport.Link
	from := inmem.New(func(l transport.Link) { accepted = l }, inmem.Options{})
	link, err := from.Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var told log
	accepted.Bind(&told)
	accepted.Grant(transport.Main, 1)
	link.Bind(&log{})
	send(t, link, 0, "1")
	told.want(t, "frame 1")

	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := from.Open(cancelled); !errors.Is(err, context.Canceled) {
		t.Fatalf("Open with a cancelled context: %v", err)
	}
}

func TestNewNeedsAccept(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("New(nil) did not panic")
		}
	}()
	inmem.New(nil, inmem.Options{})
}

// Guarantees: G-0014.16
func TestIdlePipeIsSmall(t *testing.T) {
	const pipes = 1000
	kept := make([]transport.Link, 0, pipes)
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			x, _ := inmem.Pipe(inmem.Options{})
			if len(kept) < pipes {
				kept = append(kept, x)
			}
		}
	})
	if bytes := result.AllocedBytesPerOp(); bytes >= 1000 {
		t.Fatalf("a pipe takes %d bytes", bytes)
	}
}

func BenchmarkSendReceive(b *testing.B) {
	from, to := inmem.Pipe(inmem.Options{})
	from.Bind(receiveFunc(func(transport.Inbound) {}))
	received := 0
	to.Bind(receiveFunc(func(transport.Inbound) { received++ }))
	frame := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		to.Grant(transport.Main, 1)
		from.Send(transport.Outbound{Frame: frame})
	}
	if received != b.N {
		b.Fatalf("%d received of %d", received, b.N)
	}
}

func BenchmarkQueuedSendReceive(b *testing.B) {
	from, to := inmem.Pipe(inmem.Options{})
	from.Bind(receiveFunc(func(transport.Inbound) {}))
	to.Bind(receiveFunc(func(transport.Inbound) {}))
	frame := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		from.Send(transport.Outbound{Frame: frame})
		to.Grant(transport.Main, 1)
	}
}

func BenchmarkPipe(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		inmem.Pipe(inmem.Options{})
	}
}

// Guarantees: G-0054.3
func TestCloseNowWaitsForNothing(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	closing := a.(transport.NonBlockingCloser)
	if err := a.Send(transport.Outbound{Frame: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if closing.CloseNow() {
		t.Fatal("it is closed although a frame waits")
	}
	if err := a.Send(transport.Outbound{Frame: []byte("y")}); err != nil {
		t.Fatalf("it does not send any more: %v", err)
	}
	r := &counter{}
	b.Bind(r)
	b.Grant(transport.Main, 2)
	if !closing.CloseNow() || r.frames != 2 || !errors.Is(r.lost, transport.ErrPeerClosed) {
		t.Fatalf("it is not closed: the peer got %d frames and %v", r.frames, r.lost)
	}
	if !closing.CloseNow() || !errors.Is(a.Send(transport.Outbound{Frame: []byte("z")}), transport.ErrClosed) {
		t.Fatal("it is not closed for good")
	}
	if !b.(transport.NonBlockingCloser).CloseNow() {
		t.Fatal("the other end is not closed")
	}
}

// A counter counts what it receives.
type counter struct {
	transport.Receiver
	frames int
	lost   error
}

func (c *counter) Receive(transport.Inbound) { c.frames++ }
func (c *counter) Lost(loss transport.Loss)  { c.lost = loss.Reason }
