package fault_test

import (
	"errors"
	"fmt"
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

// told is a receiver that writes down what it is told, and when.
type told struct {
	mu      sync.Mutex
	began   time.Time
	entries []string
}

func (r *told) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := fmt.Sprintf(format, args...)
	if after := time.Since(r.began); after > 0 {
		entry += " at " + after.String()
	}
	r.entries = append(r.entries, entry)
}

func (r *told) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.entries)
}

func (r *told) Receive(in transport.Inbound)                 { r.add("%s", in.Frame) }
func (r *told) Writable()                                    { r.add("writable") }
func (r *told) Failed(f transport.Failure)                   { r.add("failed %d", f.Tag) }
func (r *told) Ended()                                       { r.add("ended") }
func (r *told) StreamOpened(transport.Stream, transport.Tag) {}
func (r *told) StreamLost(transport.StreamLoss)              {}
func (r *told) Lost(l transport.Loss)                        { r.add("lost: %v, unsent %v", l.Reason, l.Unsent) }

// A wire is a wrapped link and its peer, both with all the credit they want.
type wire struct {
	t         *testing.T
	near      *fault.Link
	far       transport.Link
	got, sees *told // by the near side, by the far side
}

// wired runs a test on a wire with one fault, in virtual time.
func wired(t *testing.T, plan fault.Plan, test func(w *wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := inmem.Pipe(inmem.Options{})
		w := &wire{t, fault.Wrap(a, plan), b, &told{began: time.Now()}, &told{began: time.Now()}}
		w.near.Bind(w.got)
		w.far.Bind(w.sees)
		w.near.Grant(transport.Main, 1000)
		w.far.Grant(transport.Main, 1000)
		synctest.Wait()
		test(w)
		w.near.Close(time.Second)
	})
}

// both runs a test for a fault in either direction: send sends frames through
// it, and seen is what arrived.
func both(t *testing.T, f fault.Fault, test func(w *wire, send func(frames ...string), seen *told)) {
	t.Helper()
	for _, d := range []fault.Direction{fault.Inbound, fault.Outbound} {
		t.Run(d.String(), func(t *testing.T) {
			f.Direction = d
			wired(t, fault.Plan{Seed: 1, Faults: []fault.Fault{f}}, func(w *wire) {
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

func want(t *testing.T, seen *told, entries ...string) {
	t.Helper()
	if got := seen.all(); !slices.Equal(got, entries) {
		t.Errorf("it was told\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(entries, "\n"))
	}
}

func TestFaultsOfFrames(t *testing.T) {
	for _, c := range []struct {
		fault fault.Fault
		seen  []string // of 1, 2, 3 and 4, and a second
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
			both(t, c.fault, func(w *wire, send func(...string), seen *told) {
				send("1", "22", "3", "4")
				pass(time.Second)
				want(w.t, seen, c.seen...)
				if log := w.near.Log(); len(log) != 1 || log[0].Kind != c.fault.Kind || log[0].Frame != 2 || log[0].Head != "22" {
					w.t.Errorf("the log says\n%v", log)
				}
			})
		})
	}
}

func TestForgedAnswersAreNobodys(t *testing.T) {
	both(t, fault.Fault{Kind: fault.Forge, Probability: 1}, func(w *wire, send func(...string), seen *told) {
		send("1", "2")
		got := seen.all()
		if len(got) != 4 || !strings.Contains(got[1]+got[3], "forged") {
			w.t.Errorf("it was told %q", got)
		}
	})
}

func TestDieLosesTheLinkWithTheFrame(t *testing.T) {
	for _, d := range []fault.Direction{fault.Inbound, fault.Outbound} {
		wired(t, fault.Plan{Faults: []fault.Fault{{Kind: fault.Die, Direction: d, At: []int{2}}}}, func(w *wire) {
			from := w.far
			if d == fault.Outbound {
				from = w.near
			}
			for tag := range transport.Tag(2) {
				if err := from.Send(transport.Outbound{Tag: tag + 1, Frame: []byte("x")}); err != nil {
					t.Errorf("Send: %v", err)
				}
			}
			synctest.Wait()
			got := w.got.all()
			if last := got[len(got)-1]; last != fmt.Sprintf("lost: fault: link 1, %s frame 2: die, unsent []", d) {
				t.Errorf("it was told %q", got)
			}
			if err := w.near.Send(transport.Outbound{}); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("Send after the loss: %v", err)
			}
		})
	}
}

// Guarantees: G-0014.6
func TestQueuedFramesAreUnsentAtALoss(t *testing.T) {
	plan := fault.Plan{Faults: []fault.Fault{
		{Kind: fault.Delay, Direction: fault.Outbound, At: []int{1}, For: time.Hour},
		{Kind: fault.Stall, Direction: fault.Outbound, At: []int{2}, For: time.Hour},
		{Kind: fault.Die, Direction: fault.Outbound, At: []int{3}},
	}}
	wired(t, plan, func(w *wire) {
		for tag := range transport.Tag(3) {
			w.near.Send(transport.Outbound{Tag: tag + 1, Frame: []byte("x")})
		}
		synctest.Wait()
		want(t, w.got, "lost: fault: link 1, outbound frame 3: die, unsent [2 1]")
		want(t, w.sees, "lost: transport: peer closed the link, unsent []")
	})
}

func TestBusyIsFollowedByWritable(t *testing.T) {
	plan := fault.Plan{Faults: []fault.Fault{{Kind: fault.Busy, Direction: fault.Outbound, At: []int{1}, For: time.Second}}}
	wired(t, plan, func(w *wire) {
		for range 2 {
			if err := w.near.Send(transport.Outbound{Frame: []byte("x")}); !errors.Is(err, transport.ErrBusy) {
				t.Errorf("Send: %v", err)
			}
		}
		pass(time.Second)
		want(t, w.got, "writable at 1s")
		if err := w.near.Send(transport.Outbound{Frame: []byte("x")}); err != nil {
			t.Errorf("Send: %v", err)
		}
		want(t, w.sees, "x at 1s")
	})
}

func TestHalfOpenLinkIsLostWhenItIsClosed(t *testing.T) {
	wired(t, fault.Plan{Faults: []fault.Fault{{Kind: fault.HalfOpen, Direction: fault.Outbound, At: []int{1}}}}, func(w *wire) {
		w.near.Send(transport.Outbound{Tag: 1, Frame: []byte("x")})
		w.far.Send(transport.Outbound{Frame: []byte("y")})
		w.far.Close(0)
		pass(time.Hour)
		want(t, w.got)
		w.near.Close(0)
		want(t, w.got, "lost: transport: link closed, unsent [] at 1h0m0s")
	})
}

// Guarantees: G-0014.7
func TestCloseCutsADelayShortAndNotAStall(t *testing.T) {
	plan := fault.Plan{Faults: []fault.Fault{
		{Kind: fault.Delay, Direction: fault.Outbound, At: []int{1}, For: time.Hour},
		{Kind: fault.Stall, Direction: fault.Outbound, At: []int{2}, For: time.Hour},
	}}
	wired(t, plan, func(w *wire) {
		w.near.Send(transport.Outbound{Tag: 1, Frame: []byte("1")})
		w.near.Close(time.Minute)
		want(t, w.sees, "1", "lost: transport: peer closed the link, unsent []")
	})
	wired(t, plan, func(w *wire) {
		w.near.Send(transport.Outbound{Tag: 1, Frame: []byte("1")})
		w.near.Send(transport.Outbound{Tag: 2, Frame: []byte("2")})
		w.near.Close(time.Minute)
		want(t, w.sees, "lost: transport: peer closed the link, unsent [] at 1m0s")
		want(t, w.got, "lost: transport: link closed, unsent [2 1] at 1m0s")
	})
}

func TestOpensFailAndClosesAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far transport.Link
		from := fault.New(inmem.New(func(l transport.Link) { far = l }, inmem.Options{}), fault.Plan{FailOpens: 2, SlowClose: time.Hour})
		for range 2 {
			var injected *fault.InjectedError
			if _, err := from.Open(t.Context()); !errors.As(err, &injected) || injected.Kind != fault.FailOpen {
				t.Errorf("Open: %v", err)
			}
		}
		link, err := from.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.Bind(&told{})
		began := time.Now()
		link.Close(time.Second)
		if took := time.Since(began); took != time.Hour {
			t.Errorf("Close took %v", took)
		}
		far.Close(0)
	})
}

func TestBreakLosesThePresentLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := fault.New(inmem.New(func(transport.Link) {}, inmem.Options{}), fault.Plan{})
		from.Break() // there is none
		link, err := from.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := &told{began: time.Now()}
		link.Bind(got)
		from.Break()
		synctest.Wait()
		want(t, got, "lost: fault: link 1: break, unsent []")
		link.Close(0)
	})
}

// An unread inbound flood stays within the receiver's credit.
//
// Guarantees: G-0014.2
func TestFloodIsDeliveredAgainstCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := inmem.Pipe(inmem.Options{})
		link := fault.Wrap(a, fault.Plan{Faults: []fault.Fault{{Kind: fault.Flood, Direction: fault.Inbound, At: []int{1}, Frames: 100}}})
		got := &told{began: time.Now()}
		link.Bind(got)
		b.Bind(&told{})
		b.Send(transport.Outbound{Frame: []byte("1")})
		for granted := range 10 {
			if n := len(got.all()); n != granted {
				t.Errorf("%d frames for %d credits", n, granted)
			}
			link.Grant(transport.Main, 1)
			synctest.Wait()
		}
		link.Close(0)
	})
}

func TestUnknownFaultsPanic(t *testing.T) {
	for _, f := range []fault.Fault{{Kind: "rain"}, {Kind: fault.Busy, Direction: fault.Inbound}, {Kind: fault.CutStream, Direction: fault.Outbound}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v was accepted", f)
				}
			}()
			fault.New(nil, fault.Plan{Faults: []fault.Fault{f}})
		}()
	}
}

// The same plan does the same to the same frames.
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
			rt.Fatalf("first\n%s\nthen\n%s", first, second)
		}
	})
}

func replay(rt *rapid.T, plan fault.Plan, frames int) (history string) {
	rapid.SyncTest(rt, func(rt *rapid.T) {
		a, b := inmem.Pipe(inmem.Options{})
		near, got, sees := fault.Wrap(a, plan), &told{began: time.Now()}, &told{began: time.Now()}
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
