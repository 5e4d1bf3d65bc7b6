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

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func TestLinkContract(t *testing.T) {
	proptest.LinkContract(t, func(*testing.T) (a, b transport.Link) {
		return inmem.Pipe(inmem.Options{})
	}, proptest.ContractOptions{})

}

// recorder is a receiver that records its calls.
type recorder struct{ entries []string }

func (l *recorder) Receive(in transport.Inbound)               { l.add("frame %s", in.Frame) }
func (l *recorder) Writable()                                  { l.add("writable") }
func (*recorder) StreamOpened(transport.Stream, transport.Tag) {}
func (*recorder) StreamLost(transport.StreamLoss)              {}
func (l *recorder) Failed(f transport.Failure)                 { l.add("failed %d", f.Tag) }
func (l *recorder) Ended()                                     { l.add("ended") }
func (l *recorder) Lost(loss transport.Loss)                   { l.add("lost: %v, unsent %v", loss.Reason, loss.Unsent) }
func (l *recorder) add(format string, args ...any) {
	l.entries = append(l.entries, fmt.Sprintf(format, args...))
}

func (l *recorder) want(t rapid.TB, entries ...string) {
	t.Helper()
	if got, want := fmt.Sprintf("%q", l.entries), fmt.Sprintf("%q", entries); got != want {
		t.Fatalf("the receiver got %s, want %s", got, want)
	}
	l.entries = nil
}

func pipe(options inmem.Options) (a, b transport.Link, toA, toB *recorder) {
	a, b = inmem.Pipe(options)
	toA, toB = &recorder{}, &recorder{}
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

// A frame is delivered on the goroutine of Send if there is credit, else on that of
// Grant.
func TestFrameIsDeliveredOnTheGoroutineOfSendOrGrant(t *testing.T) {
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

// workReceiver is a receiver that is a transport.Runner.
type workReceiver struct{ recorder }

func (h *workReceiver) Receive(in transport.Inbound)    { h.add("frame %s, work %v", in.Frame, in.Work) }
func (h *workReceiver) Work(depth int)                  { h.add("work %d", depth) }
func (*workReceiver) Serve(bool, func())                { panic("a pipe serves nothing") }
func (*workReceiver) StreamBegun(transport.Stream) bool { panic("a pipe has no streams") }

// A link leaves work to Flush only after the first Flush, and only for a receiver that
// is a Runner. Work is announced only for what Send delivers.
//
// Guarantees: G-0048.5
func TestFlushCallsWorkOfTheReceiver(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	var toA recorder
	var toB workReceiver
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
	b.Grant(transport.Main, 1)
	send(t, a, 0, "5")
	send(t, a, 0, "6") // waits for credit
	toB.want(t, "frame 5, work true")
	b.Grant(transport.Main, 1)
	toB.want(t, "frame 6, work false")
	ours.Flush(0)
	toB.want(t, "work 1") // as was promised for frame 5
}

// A frame is delivered without a copy.
func TestFrameIsNotCopied(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	var got []byte
	b.Bind(peertest.Receive(func(in transport.Inbound) { got = in.Frame }))
	a.Bind(&recorder{})
	b.Grant(transport.Main, 1)
	frame := []byte("1")
	if err := a.Send(transport.Outbound{Frame: frame}); err != nil || &got[0] != &frame[0] {
		t.Fatalf("got a copy of the frame or none (%v), want the same bytes", err)
	}
}

// A refused Send is followed by Writable once the refused frame fits.
//
// Guarantees: G-0014.4, G-0014.5
func TestWritableComesWhenTheRefusedFrameFits(t *testing.T) {
	a, b, toA, toB := pipe(inmem.Options{QueueFrames: 3, QueueBytes: 5})
	send(t, a, 0, "22")
	send(t, a, 0, "333")
	if err := a.Send(transport.Outbound{Frame: []byte("4444")}); err != transport.ErrBusy {
		t.Fatalf("a frame above the limit of bytes: got %v, want %v", err, transport.ErrBusy)
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

// A frame of any size fits into an empty queue.
func TestOneFrameAlwaysFitsAnEmptyQueue(t *testing.T) {
	a, b, _, toB := pipe(inmem.Options{QueueBytes: 1})
	send(t, a, 0, "123")
	b.Grant(transport.Main, 1)
	toB.want(t, "frame 123")
}

// Send refuses a frame above MaxFrame.
//
// Guarantees: G-0008.2
func TestOversizedFrameIsRefused(t *testing.T) {
	a, _, _, _ := pipe(inmem.Options{MaxFrame: 2})
	err := a.Send(transport.Outbound{Frame: []byte("123")})
	var oversized *transport.OversizedError
	if !errors.As(err, &oversized) || oversized.Limit != 2 || oversized.Size != 3 {
		t.Fatalf("Send of 3 bytes: got %v, want a *transport.OversizedError, oversized.Limit == 2 and oversized.Size == 3", err)
	}
}

// Close waits until the peer has taken what is queued, and so do all that call it.
//
// Guarantees: G-0014.7
func TestCloseWaitsForThePeerToTakeWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, toA, toB := pipe(inmem.Options{})
		send(t, a, 1, "1")
		start := time.Now()
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() { a.Close(time.Hour) })
		}
		synctest.Wait()
		toB.want(t)
		b.Grant(transport.Main, 1)
		closing.Wait()
		a.Close(time.Hour)
		if took := time.Since(start); took != 0 {
			t.Errorf("Close has waited %v longer than for the peer", took)
		}
		toB.want(t, "frame 1", "lost: transport: peer closed the link, unsent []")
		toA.want(t, "lost: transport: link closed, unsent []")
	})
}

// Close gives up after the shortest grace of all calls of Close.
//
// Guarantees: G-0014.6, G-0014.7
func TestCloseGivesUpAfterTheShortestGrace(t *testing.T) {
	for _, grace := range []time.Duration{time.Minute, time.Millisecond, 0} {
		synctest.Test(t, func(t *testing.T) {
			a, b, toA, toB := pipe(inmem.Options{})
			send(t, a, 1, "1")
			send(t, a, 0, "untagged")
			send(t, b, 2, "2")
			start := time.Now()
			var closing sync.WaitGroup
			closing.Go(func() { a.Close(time.Hour) })
			closing.Go(func() { a.Close(grace) })
			closing.Wait()
			if took := time.Since(start); took != grace {
				t.Fatalf("Close took %v, want %v", took, grace)
			}
			toA.want(t, "lost: transport: link closed, unsent [1]")
			toB.want(t, "lost: transport: peer closed the link, unsent [2]")
			a.Close(0)
			b.Close(0)
			toB.want(t)
		})
	}
}

// Both sides can send and grant as fast as possible, each on its own goroutine, without
// a deadlock.
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
	for _, receiver := range []*recorder{toA, toB} {
		received := 0
		for _, entry := range receiver.entries {
			if entry == "frame 1" {
				received++
			}
		}
		if received != frames {
			t.Fatalf("got %d frames, want %d", received, frames)
		}
	}
}

// Send on a stream other than Main fails.
func TestOnlyTheMainStreamIsCarried(t *testing.T) {
	a, b, _, toB := pipe(inmem.Options{})
	if err := a.Send(transport.Outbound{Stream: 7}); !errors.Is(err, transport.ErrNoRoute) {
		t.Fatalf("Send on stream 7: got %v, want %v", err, transport.ErrNoRoute)
	}
	b.Grant(7, 1)
	send(t, a, 0, "1")
	toB.want(t)
}

// Open passes the other end of the pipe to the accept function.
func TestOpenPassesTheOtherEndToAccept(t *testing.T) {
	var accepted transport.Link
	from := inmem.New(func(l transport.Link) { accepted = l }, inmem.Options{})
	link, err := from.Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var receiver recorder
	accepted.Bind(&receiver)
	accepted.Grant(transport.Main, 1)
	link.Bind(&recorder{})
	send(t, link, 0, "1")
	receiver.want(t, "frame 1")

	enough := errors.New("enough")
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(enough)
	if _, err := from.Open(cancelled); !errors.Is(err, enough) {
		t.Fatalf("Open with a cancelled context: got %v, want %v", err, enough)
	}
}

func TestNewNeedsAccept(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("New(nil) did not panic, want a panic")
		}
	}()
	inmem.New(nil, inmem.Options{})
}

// An idle pipe uses little memory.
//
// Guarantees: G-0014.16
func TestIdlePipeIsSmall(t *testing.T) {
	testenv.Crowd(t)
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
		t.Fatalf("an idle pipe uses %d bytes, want less", bytes)
	}
}

func BenchmarkSendReceive(b *testing.B) {
	from, to := inmem.Pipe(inmem.Options{})
	from.Bind(peertest.Ignore{})
	received := 0
	to.Bind(peertest.Receive(func(transport.Inbound) { received++ }))
	frame := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		to.Grant(transport.Main, 1)
		from.Send(transport.Outbound{Frame: frame})
	}
	if received != b.N {
		b.Fatalf("got %d frames, want %d", received, b.N)
	}
}

func BenchmarkQueuedSendReceive(b *testing.B) {
	from, to := inmem.Pipe(inmem.Options{})
	from.Bind(peertest.Ignore{})
	to.Bind(peertest.Ignore{})
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

// CloseNow closes a link only if no frame waits. Otherwise it returns false, and the
// link stays usable.
//
// Guarantees: G-0054.3
func TestCloseNowClosesOnlyAnIdleLink(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	closing := a.(transport.Flusher)
	if err := a.Send(transport.Outbound{Frame: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if closing.CloseNow() {
		t.Fatal("CloseNow closed the link although a frame waits")
	}
	if err := a.Send(transport.Outbound{Frame: []byte("y")}); err != nil {
		t.Fatalf("Send after the refused CloseNow: got %v", err)
	}
	r := &counter{}
	b.Bind(r)
	b.Grant(transport.Main, 2)
	if !closing.CloseNow() || r.frames != 2 || !errors.Is(r.lost, transport.ErrPeerClosed) {
		t.Fatalf("CloseNow did not close the link: the peer got %d frames and %v", r.frames, r.lost)
	}
	if !closing.CloseNow() || !errors.Is(a.Send(transport.Outbound{Frame: []byte("z")}), transport.ErrClosed) {
		t.Fatal("a later CloseNow returned false, want true")
	}
	if !b.(transport.Flusher).CloseNow() {
		t.Fatal("the other end is open, want it closed")
	}
}

// A counter counts the frames that it receives.
type counter struct {
	transport.Receiver
	frames int
	lost   error
}

func (c *counter) Receive(transport.Inbound) { c.frames++ }
func (c *counter) Lost(loss transport.Loss)  { c.lost = loss.Reason }

// Without options, a frame has at most 16 MiB, and a direction queues 256 frames or 16 MiB. A limit below zero is the default, too.
func TestDefaultLimitsOfAPipe(t *testing.T) {
	for _, options := range []inmem.Options{{}, {MaxFrame: -1, QueueFrames: -1, QueueBytes: -1}} {
		a, _, _, _ := pipe(options)
		var oversized *transport.OversizedError
		if err := a.Send(transport.Outbound{Frame: make([]byte, 16<<20+1)}); !errors.As(err, &oversized) || *oversized != (transport.OversizedError{Limit: 16 << 20, Size: 16<<20 + 1}) {
			t.Errorf("%+v: a frame of a byte more than 16 MiB: got %v, want a *transport.OversizedError", options, err)
		}
		for range 256 {
			send(t, a, 0, "1")
		}
		if err := a.Send(transport.Outbound{Frame: []byte("1")}); err != transport.ErrBusy {
			t.Errorf("%+v: a frame behind 256: got %v, want %v", options, err, transport.ErrBusy)
		}
		b, _, _, _ := pipe(options)
		if err := b.Send(transport.Outbound{Frame: make([]byte, 16<<20)}); err != nil {
			t.Errorf("%+v: a frame of 16 MiB: %v", options, err)
		}
		if err := b.Send(transport.Outbound{Frame: []byte("1")}); err != transport.ErrBusy {
			t.Errorf("%+v: a frame behind 16 MiB: got %v, want %v", options, err, transport.ErrBusy)
		}
	}
}

// A lostRunner records whether work follows its loss.
type lostRunner struct{ workReceiver }

func (r *lostRunner) Lost(loss transport.Loss) { r.add("lost: %v, work %v", loss.Reason, loss.Work) }

// CloseNow leaves the work of the loss to the Flush that follows, on the other side only, and only if that side is a Runner and the closing side
// calls Flush.
func TestCloseNowLeavesWorkToFlush(t *testing.T) {
	for _, flushes := range []bool{true, false} {
		a, b := inmem.Pipe(inmem.Options{})
		var toA, toB lostRunner
		a.Bind(&toA)
		b.Bind(&toB)
		ours := a.(transport.Flusher)
		if flushes {
			ours.Flush(0)
		}
		if !ours.CloseNow() {
			t.Fatal("CloseNow returned false, want true")
		}
		toA.want(t, "lost: transport: link closed, work false")
		toB.want(t, fmt.Sprintf("lost: transport: peer closed the link, work %v", flushes))
		if ours.Flush(1); flushes {
			toB.want(t, "work 2")
		}
		b.Grant(transport.Main, 1)
		b.(transport.Flusher).Flush(0)
		toA.want(t)
		toB.want(t)
		if err := b.Send(transport.Outbound{Frame: []byte("1")}); err != transport.ErrClosed {
			t.Errorf("Send on the other side: got %v, want %v", err, transport.ErrClosed)
		}
	}
}
