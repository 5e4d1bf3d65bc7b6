package conn

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/internal/actor"
	"github.com/bowline-mcp/bowline/transport"
)

// A busyLink posts another event at each of its first hundred grants.
type busyLink struct {
	deadLink
	loop   *loop
	grants int
}

func (b *busyLink) Grant(transport.Stream, int) {
	if b.grants++; b.grants > 100 {
		return
	}
	b.loop.mailbox.post(event{kind: progressed, epoch: 1, frames: 1, id: 1})
}

// The loop steps through three batches of events on a lent goroutine, however many come meanwhile, and then
// continues on its own.
//
// Guarantees: G-0048.2
func TestLentGoroutineIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := watched(t, new(Wheel))
		link := &busyLink{loop: l}
		l.incarnation.link = link
		woken := resting(l)
		if !l.lend(&event{kind: progressed, epoch: 1, frames: 1, id: 1}) || link.grants != 3 {
			t.Errorf("%d batches were stepped through, want 3", link.grants)
		}
		if len(woken) != 1 || l.mailbox.owner.State() != actor.Own {
			t.Error("the loop's own goroutine was not woken")
		}
		finish(l)
	})
}

// receiver.Work does nothing without a promised event, steps through the event at depth 0, and wakes the
// loop's own goroutine at depth 1.
//
// Guarantees: G-0048.3
func TestDeepWorkIsLeftToTheLoopsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := watched(t, new(Wheel))
		r := &receiver{record: l.record, loop: l, epoch: 1}
		for depth, own := range []int{0, 0, 1} {
			r.Work(depth)
			woken := resting(l)
			r.post(event{kind: writable, works: true})
			if r.Work(depth); len(woken) != own || (l.mailbox.owner.State() == actor.Own) != (own == 1) {
				t.Errorf("at depth %d the loop's own goroutine was woken %d times, want %d", depth, len(woken), own)
			}
			r.Work(depth)
		}
		finish(l)
	})
}

// A loop that is about to end does so on its own goroutine, because it may have to wait for code of the
// program.
//
// Guarantees: G-0048.2, G-0048.4
func TestLoopEndsOnItsOwnGoroutine(t *testing.T) {
	for name, end := range map[string]event{
		"interrupted": {kind: interrupted, err: ErrInterrupted},
		"panicking":   {kind: tick + 100, epoch: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := watched(t, new(Wheel))
				woken := resting(l)
				if !l.lend(&end) || len(woken) != 1 {
					t.Error("the loop's own goroutine was not woken")
				}
				var over bool
				for !over {
					over, _ = worked(l)
					synctest.Wait()
				}
			})
		})
	}
}

// Many goroutines post short bursts of events, and read the mailbox when no other goroutine does. Every
// event is taken, by one reader at a time.
//
// Guarantees: G-0048.1
func TestLentMailboxLosesNoEvent(t *testing.T) {
	const posters, bursts, burst = 8, 500, 3
	box := mailbox{pools: new(pools)}
	var taken, readers int // of the reader; the race detector would report two at a time
	read := func(held actor.Held) {
		readers++
		for events := box.take(held, nil); len(events) > 0; events = box.take(held, events) {
			taken += len(events)
		}
	}
	box.take(box.open(func(actor.Held) { t.Error("the mailbox woke the loop's own goroutine") }), nil)
	var posting sync.WaitGroup
	for range posters {
		posting.Go(func() {
			for range bursts * burst {
				posted, mine := box.lend(&event{kind: tick}, actor.Lend)
				if !posted {
					t.Error("an event was refused")
				}
				if mine.OK() {
					read(mine)
				}
			}
		})
	}
	posting.Wait()
	_, held := box.lend(&event{kind: tick}, actor.Done) // nobody has it
	if taken != posters*bursts*burst || !held.OK() || len(box.close()) != 1 {
		t.Errorf("%d events were taken in %d turns, want %d", taken, readers, posters*bursts*burst)
	}
	if posted, mine := box.lend(&event{kind: tick}, actor.Lend); posted || mine.OK() {
		t.Error("a closed mailbox accepted an event")
	}
}

// If events wait, a job for the loop's own goroutine begins at once on another one, since there may be many
// events.
func TestJobDoesNotWaitForEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := entered(t, New(dead{}, Options{}))
		defer l.leave()
		l.begin()
		l.doesJobs = true
		done := false
		l.do("job", func(error) {}, func() error { done = true; return nil }, func(error) event { return event{kind: woken} })
		if l.job == nil {
			t.Error("the loop's own goroutine did not get the job")
		}
		l.mailbox.post(event{kind: woken})
		worked(l)
		synctest.Wait()
		if !done {
			t.Error("the job was not done")
			return
		}
		finish(l)
	})
}

// If no events wait, the loop's own goroutine does the job, and has the loop again when it is done, unless
// another one has it.
func TestOwnGoroutineDoesTheNextJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, held, err := New(dead{}, Options{}).enter(t.Context(), func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		defer l.leave()
		_, opening, over, err := l.work(l.mailbox.adopt(held))
		if opening == nil || over || err != nil {
			t.Fatalf("work returned the job %v, over %t, error %v; want the job of opening a link", opening, over, err)
		}
		if held = l.complete(opening); !held.Own() {
			t.Error("the goroutine does not have the loop after its job")
		}
		finish(l)
	})
}

// While the Conn closes, frames are dropped, so none needs credit.
func TestClosingTakesNoFrameWithoutCredit(t *testing.T) {
	for state, takes := range map[State]bool{Ready: true, Closing: false} {
		c := New(dead{}, Options{Dialect: cancellingDialect{}})
		c.status.replace(Status{State: state})
		l := &loop{record: &c.record, mailbox: mailbox{pools: new(pools)}}
		l.mailbox.open(func(actor.Held) {})
		if got := (&receiver{record: &c.record, loop: l}).StreamBegun(1); got != takes {
			t.Errorf("%v: StreamBegun returned %v, want %v", state, got, takes)
		}
	}
}
