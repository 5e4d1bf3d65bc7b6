package fault_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A recording is a receiver that records its calls and their times.
type recording struct {
	mu      sync.Mutex
	began   time.Time
	entries []string
}

func (r *recording) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := fmt.Sprintf(format, args...)
	if after := time.Since(r.began); after > 0 {
		entry += " at " + after.String()
	}
	r.entries = append(r.entries, entry)
}

func (r *recording) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.entries)
}

func (r *recording) Receive(in transport.Inbound)                 { r.add("%s", in.Frame) }
func (r *recording) Writable()                                    { r.add("writable") }
func (r *recording) Failed(f transport.Failure)                   { r.add("failed %d", f.Tag) }
func (r *recording) Ended()                                       { r.add("ended") }
func (r *recording) StreamOpened(transport.Stream, transport.Tag) {}
func (r *recording) StreamLost(transport.StreamLoss)              {}
func (r *recording) Lost(l transport.Loss)                        { r.add("lost: %v, unsent %v", l.Reason, l.Unsent) }

// A wire is a wrapped link and its peer, both with enough credit.
type wire struct {
	t         *testing.T
	near      *fault.Link
	far       transport.Link
	got, sees *recording // the calls of the near side and of the far side
}

// withFault runs a test on a wire with one fault, on the clock of a bubble.
func withFault(t *testing.T, plan fault.Plan, test func(w *wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := inmem.Pipe(inmem.Options{})
		w := &wire{t, fault.Wrap(a, plan), b, &recording{began: time.Now()}, &recording{began: time.Now()}}
		w.near.Bind(w.got)
		w.far.Bind(w.sees)
		w.near.Grant(transport.Main, 1000)
		w.far.Grant(transport.Main, 1000)
		synctest.Wait()
		test(w)
		w.near.Close(time.Second)
	})
}

// inBothDirections runs a test for a fault in either direction: send sends frames through it, and
// seen records what arrives.
func inBothDirections(t *testing.T, f fault.Fault, test func(w *wire, send func(frames ...string), seen *recording)) {
	t.Helper()
	for _, d := range []fault.Direction{fault.Inbound, fault.Outbound} {
		t.Run(d.String(), func(t *testing.T) {
			f.Direction = d
			withFault(t, fault.Plan{Seed: 1, Faults: []fault.Fault{f}}, func(w *wire) {
				from, seen := w.far, w.got
				if d == fault.Outbound {
					from, seen = transport.Link(w.near), w.sees
				}
				test(w, func(frames ...string) {
					for i, frame := range frames {
						if err := from.Send(transport.Outbound{Tag: transport.Tag(i + 1), Frame: []byte(frame)}); err != nil {
							t.Errorf("Send: %v", err)
						}
						synctest.Wait()
					}
				}, seen)
			})
		})
	}
}

func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func want(t *testing.T, seen *recording, entries ...string) {
	t.Helper()
	if got := seen.all(); !slices.Equal(got, entries) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(entries, "\n"))
	}
}

// Each kind of fault has its effect on frames, and is in the log.
func TestFaultsOfFrames(t *testing.T) {
	for _, c := range []struct {
		fault fault.Fault
		seen  []string // for the frames 1 to 4 and a second of waiting
	}{
		{fault.Fault{Kind: fault.Drop}, []string{"1", "3", "4"}},
		{fault.Fault{Kind: fault.Duplicate}, []string{"1", "22", "22", "3", "4"}},
		{fault.Fault{Kind: fault.Delay, Frames: 1}, []string{"1", "3", "22", "4"}},
		{fault.Fault{Kind: fault.Delay, Frames: 9, For: time.Second}, []string{"1", "3", "4", "22 at 1s"}},
		{fault.Fault{Kind: fault.Reorder, Frames: 1, For: time.Second}, []string{"1", "3", "22", "4"}},
		{fault.Fault{Kind: fault.Stall, For: time.Second}, []string{"1", "22 at 1s", "3 at 1s", "4 at 1s"}},
		{fault.Fault{Kind: fault.Truncate}, []string{"1", "2", "3", "4"}},
		{fault.Fault{Kind: fault.Corrupt}, []string{"1", "2\x00", "3", "4"}},
		{fault.Fault{Kind: fault.HalfOpen}, []string{"1"}},
		{fault.Fault{Kind: fault.Flood, Frames: 1}, []string{"1", "22", `{"jsonrpc":"2.0","method":"fault/flood","params":{"n":0}}`, "3", "4"}},
	} {
		t.Run(string(c.fault.Kind), func(t *testing.T) {
			c.fault.At = []int{2}
			inBothDirections(t, c.fault, func(w *wire, send func(...string), seen *recording) {
				send("1", "22", "3", "4")
				pass(time.Second)
				want(w.t, seen, c.seen...)
				if log := w.near.Log(); len(log) != 1 || log[0].Kind != c.fault.Kind || log[0].Frame != 2 || log[0].Head != "22" {
					w.t.Errorf("got the log\n%v, want len(log) == 1, log[0].Kind == %v, log[0].Frame == 2 and log[0].Head == %q", log, c.fault.Kind, "22")
				}
			})
		})
	}
}

// A fault that holds a frame back is in the log from when it does, also if the frame never goes on.
func TestWhatHoldsAFrameBackIsInTheLog(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Delay, fault.Reorder, fault.Stall} {
		inBothDirections(t, fault.Fault{Kind: kind, At: []int{1}, Frames: 9, For: time.Hour}, func(w *wire, send func(...string), seen *recording) {
			send("1")
			want(w.t, seen)
			if log := w.near.Log(); len(log) != 1 || log[0].Kind != kind || log[0].Head != "1" {
				w.t.Errorf("got the log\n%v, want the %s of the frame", log, kind)
			}
		})
	}
}

// Forge adds answers to requests that were never made.
func TestForgeAddsAnswersToNoRequest(t *testing.T) {
	inBothDirections(t, fault.Fault{Kind: fault.Forge, Probability: 1}, func(w *wire, send func(...string), seen *recording) {
		send("1", "2")
		got := seen.all()
		if len(got) != 4 || !strings.Contains(got[1]+got[3], "forged") {
			w.t.Errorf("got %q, want len(got) == 4 and %q in it", got, "forged")
		}
	})
}

// Die loses the link together with the frame.
func TestDieLosesTheLinkWithTheFrame(t *testing.T) {
	for _, d := range []fault.Direction{fault.Inbound, fault.Outbound} {
		withFault(t, fault.Plan{Faults: []fault.Fault{{Kind: fault.Die, Direction: d, At: []int{2}}}}, func(w *wire) {
			from := w.far
			if d == fault.Outbound {
				from = w.near
			}
			for tag := range transport.Tag(2) {
				if err := from.Send(transport.Outbound{Tag: tag + 1, Frame: []byte("x")}); err != nil {
					t.Errorf("Send returned %v", err)
				}
			}
			synctest.Wait()
			got := w.got.all()
			if last := got[len(got)-1]; last != fmt.Sprintf("lost: fault: link 1, %s frame 2: die, unsent []", d) {
				t.Errorf("got %q", got)
			}
			if err := w.near.Send(transport.Outbound{}); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("Send after the loss returned %v", err)
			}
		})
	}
}

// Frames that are queued at a loss are reported as unsent.
//
// Guarantees: G-0014.6
func TestQueuedFramesAreUnsentAtALoss(t *testing.T) {
	plan := fault.Plan{Faults: []fault.Fault{
		{Kind: fault.Delay, Direction: fault.Outbound, At: []int{1}, For: time.Hour},
		{Kind: fault.Stall, Direction: fault.Outbound, At: []int{2}, For: time.Hour},
		{Kind: fault.Die, Direction: fault.Outbound, At: []int{3}},
	}}
	withFault(t, plan, func(w *wire) {
		for tag := range transport.Tag(3) {
			w.near.Send(transport.Outbound{Tag: tag + 1, Frame: []byte("x")})
		}
		synctest.Wait()
		want(t, w.got, "lost: fault: link 1, outbound frame 3: die, unsent [2 1]")
		want(t, w.sees, "lost: transport: peer closed the link, unsent []")
	})
}

// A frame that was sent twice is never reported as unsent: the other one may have been executed.
//
// Guarantees: G-0014.6
func TestDoubledFramesAreNeverUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &streamLink{asked: &recording{began: time.Now()}}
		link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{
			{Kind: fault.Duplicate, Direction: fault.Outbound, At: []int{1, 2}},
			{Kind: fault.Stall, Direction: fault.Outbound, At: []int{3}, For: time.Hour},
			{Kind: fault.Duplicate, Direction: fault.Outbound, At: []int{5}},
		}})
		got := &failures{recording: recording{began: time.Now()}}
		link.Bind(got)
		for tag := range transport.Tag(6) {
			link.Send(transport.Outbound{Tag: tag + 1, Frame: []byte("x")})
		}
		for _, tag := range []transport.Tag{1, 7} {
			inner.to.Failed(transport.Failure{Tag: tag, Err: io.EOF, Unsent: true})
		}
		inner.to.Lost(transport.Loss{Reason: io.EOF, Unsent: []transport.Tag{2, 8}})
		synctest.Wait()
		want(t, &got.recording, "failed 1, unsent false", "failed 7, unsent true", "lost: EOF, unsent [8 3 4 6]")
		link.Close(0)
	})
}

// failures is a recording that says which messages that have failed are unsent.
type failures struct{ recording }

func (r *failures) Failed(f transport.Failure) { r.add("failed %d, unsent %v", f.Tag, f.Unsent) }

// After each Busy, Writable is called.
func TestBusyIsFollowedByWritable(t *testing.T) {
	plan := fault.Plan{Faults: []fault.Fault{{Kind: fault.Busy, Direction: fault.Outbound, At: []int{1, 2}, For: time.Second}}}
	withFault(t, plan, func(w *wire) {
		for range 2 {
			for range 2 {
				if err := w.near.Send(transport.Outbound{Frame: []byte("x")}); !errors.Is(err, transport.ErrBusy) {
					t.Errorf("Send returned %v, want %v", err, transport.ErrBusy)
				}
			}
			pass(time.Second)
			if err := w.near.Send(transport.Outbound{Frame: []byte("x")}); err != nil {
				t.Errorf("Send returned %v", err)
			}
		}
		synctest.Wait()
		want(t, w.got, "writable at 1s", "writable at 2s")
		want(t, w.sees, "x at 1s", "x at 2s")
	})
}

// A Stall delays frames, and not the loss: they are delivered before that at once.
func TestALossEndsAStall(t *testing.T) {
	withFault(t, fault.Plan{Faults: []fault.Fault{{Kind: fault.Stall, Direction: fault.Inbound, At: []int{1}, For: time.Hour}}}, func(w *wire) {
		for _, frame := range []string{"1", "2"} {
			w.far.Send(transport.Outbound{Frame: []byte(frame)})
		}
		synctest.Wait()
		want(t, w.got)
		w.far.Close(0)
		pass(time.Minute)
		want(t, w.got, "1", "2", "lost: transport: peer closed the link, unsent []")
	})
}

// A half-open link is lost only when it is closed.
func TestHalfOpenLinkIsLostWhenItIsClosed(t *testing.T) {
	withFault(t, fault.Plan{Faults: []fault.Fault{{Kind: fault.HalfOpen, Direction: fault.Outbound, At: []int{1}}}}, func(w *wire) {
		w.near.Send(transport.Outbound{Tag: 1, Frame: []byte("x")})
		w.far.Send(transport.Outbound{Frame: []byte("y")})
		w.far.Close(0)
		pass(time.Hour)
		want(t, w.got)
		w.near.Close(0)
		want(t, w.got, "lost: transport: link closed, unsent [] at 1h0m0s")
	})
}

// Close ends a Delay, and does not end a Stall.
//
// Guarantees: G-0014.7
func TestCloseCutsADelayShortAndNotAStall(t *testing.T) {
	plan := fault.Plan{Faults: []fault.Fault{
		{Kind: fault.Delay, Direction: fault.Outbound, At: []int{1}, For: time.Hour},
		{Kind: fault.Stall, Direction: fault.Outbound, At: []int{2}, For: time.Hour},
	}}
	withFault(t, plan, func(w *wire) {
		w.near.Send(transport.Outbound{Tag: 1, Frame: []byte("1")})
		w.near.Close(time.Minute)
		want(t, w.sees, "1", "lost: transport: peer closed the link, unsent []")
	})
	withFault(t, plan, func(w *wire) {
		w.near.Send(transport.Outbound{Tag: 1, Frame: []byte("1")})
		w.near.Send(transport.Outbound{Tag: 2, Frame: []byte("2")})
		w.near.Close(time.Minute)
		want(t, w.sees, "lost: transport: peer closed the link, unsent [] at 1m0s")
		want(t, w.got, "lost: transport: link closed, unsent [2 1] at 1m0s")
	})
}

// FailOpen makes Open fail, and SlowClose delays Close.
func TestOpensFailAndClosesAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far transport.Link
		from := fault.New(inmem.New(func(l transport.Link) { far = l }, inmem.Options{}), fault.Plan{FailOpens: 2, SlowClose: time.Hour})
		for range 2 {
			var injected *fault.InjectedError
			if _, err := from.Open(t.Context()); !errors.As(err, &injected) || injected.Kind != fault.FailOpen {
				t.Errorf("Open returned %v, want a *fault.InjectedError and injected.Kind == %v", err, fault.FailOpen)
			}
		}
		link, err := from.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.Bind(&recording{})
		began := time.Now()
		link.Close(time.Second)
		if took := time.Since(began); took != time.Hour {
			t.Errorf("Close took %v, want %v", took, time.Hour)
		}
		far.Close(0)
	})
}

// Break loses the link that is open now.
func TestBreakLosesThePresentLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := fault.New(inmem.New(func(transport.Link) {}, inmem.Options{}), fault.Plan{})
		from.Break() // no link is open
		link, err := from.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := &recording{began: time.Now()}
		link.Bind(got)
		from.Break()
		synctest.Wait()
		want(t, got, "lost: fault: link 1: break, unsent []")
		link.Close(0)
	})
}

// Break may be called while a link is opened. The race detector sees if one of them forgets the mutex.
func TestBreakDuringOpen(t *testing.T) {
	from := fault.New(inmem.New(func(transport.Link) {}, inmem.Options{}), fault.Plan{})
	var breaking sync.WaitGroup
	for range 400 {
		for range 10 {
			breaking.Go(from.Break)
		}
		link, err := from.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.Bind(&recording{began: time.Now()})
		defer link.Close(0)
	}
	breaking.Wait()
}

// Frames that Flood adds are delivered within the credit of the receiver.
//
// Guarantees: G-0014.2
func TestFloodIsDeliveredAgainstCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := inmem.Pipe(inmem.Options{})
		link := fault.Wrap(a, fault.Plan{Faults: []fault.Fault{{Kind: fault.Flood, Direction: fault.Inbound, At: []int{1}, Frames: 100}}})
		got := &recording{began: time.Now()}
		link.Bind(got)
		b.Bind(&recording{})
		b.Send(transport.Outbound{Frame: []byte("1")})
		for granted := range 10 {
			if n := len(got.all()); n != granted {
				t.Errorf("got %d frames for %d credits", n, granted)
			}
			link.Grant(transport.Main, 1)
			synctest.Wait()
		}
		link.Close(0)
	})
}

// New panics for an unknown or invalid fault.
func TestUnknownFaultsPanic(t *testing.T) {
	for _, f := range []fault.Fault{{Kind: "rain"}, {Kind: fault.Busy, Direction: fault.Inbound}, {Kind: fault.CutStream, Direction: fault.Outbound}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New accepted %v, want a panic", f)
				}
			}()
			fault.New(nil, fault.Plan{Faults: []fault.Fault{f}})
		}()
	}
}

// Equal plans have equal effects on equal frames.
func TestEqualPlansGiveEqualFaults(t *testing.T) {
	kinds := []fault.Kind{fault.Drop, fault.Delay, fault.Reorder, fault.Duplicate, fault.Truncate, fault.Corrupt, fault.Stall, fault.Flood, fault.Forge}
	rapid.Check(t, func(rt *rapid.T) {
		plan := fault.Plan{Seed: rapid.Uint64().Draw(rt, "seed")}
		for range rapid.IntRange(1, 5).Draw(rt, "faults") {
			plan.Faults = append(plan.Faults, fault.Fault{
				Kind:        rapid.SampledFrom(kinds).Draw(rt, "kind"),
				Direction:   fault.Direction(rapid.IntRange(0, 1).Draw(rt, "direction")),
				Probability: rapid.Float64Range(0, 1).Draw(rt, "probability"),
			})
		}
		frames := rapid.IntRange(1, 40).Draw(rt, "frames")
		first, second := replay(rt, plan, frames), replay(rt, plan, frames)
		if first != second {
			rt.Fatalf("got first\n%s\nthen\n%s\nwant equal effects", first, second)
		}
	})
}

func replay(rt *rapid.T, plan fault.Plan, frames int) (history string) {
	rapid.SyncTest(rt, func(rt *rapid.T) {
		a, b := inmem.Pipe(inmem.Options{})
		near, got, sees := fault.Wrap(a, plan), &recording{began: time.Now()}, &recording{began: time.Now()}
		near.Bind(got)
		b.Bind(sees)
		near.Grant(transport.Main, 10_000)
		b.Grant(transport.Main, 10_000)
		for n := range frames {
			frame := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"n","params":[%d]}`, n)
			near.Send(transport.Outbound{Tag: transport.Tag(n + 1), Frame: slices.Clone(frame)})
			b.Send(transport.Outbound{Tag: transport.Tag(n + 1), Frame: frame})
			pass(time.Millisecond)
		}
		pass(time.Second)
		near.Close(time.Second)
		history = fmt.Sprintf("%v\n%q\n%q", near.Log(), got.all(), sees.all())
	})
	return history
}
