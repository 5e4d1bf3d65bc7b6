package conn

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/bowline-mcp/bowline/internal/actor"
)

// After a while without events a loop parks: it gives up its buffers, timers and goroutine. Its
// tombstones stay until they are swept.
//
// Guarantees: G-0001.16
func TestParkedLoopKeepsNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ended := New(deadTransport{}, Options{}), make(chan error, 1)
		l, held, err := c.enter(t.Context(), func(err error) { ended <- err })
		if err != nil {
			t.Fatal(err)
		}
		l.mailbox.resume(held)
		synctest.Wait()
		if _, err := c.Call(t.Context(), Request{Method: "m", Timeout: lingering / 2}); err == nil {
			t.Error("a call on a dead link returned no error")
		}
		for _, wait := range []time.Duration{2 * lingering, 10 * c.options.TombstoneSweep} {
			advance(wait)
			held := l.core.traffic
			if held == nil {
				held = new(traffic)
			} else if held.tombstones.len() == 0 {
				t.Errorf("after %v the loop keeps traffic %+v, want none", wait, held)
			}
			for name, kept := range map[string]bool{
				"events":    l.mailbox.events != nil,
				"buffers":   l.buffers != nil,
				"effects":   held.out != nil,
				"requests":  held.pending.byID != nil || held.pending.free != nil || held.incoming.serving != nil,
				"tasks":     l.tasks.n != 0,
				"goroutine": l.mailbox.owner.State() != actor.Parked,
				"timer":     l.timer != nil && held.tombstones.len() == 0,
			} {
				if kept {
					t.Errorf("after %v the loop keeps its %s, want none", wait, name)
				}
			}
			c.Wake() // the loop is busy again, which also orders the reads above before its writes
		}
		c.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Many goroutines post short bursts of events while the reader stops and is woken again and again,
// as a loop does that parks. Every event is taken, by one reader at a time.
func TestMailboxLosesNoEvent(t *testing.T) {
	const posters, bursts, burst = 8, 500, 3
	box := mailbox{pools: new(pools)}
	var taken, readers int // of the reader; the race detector would report two at a time
	var reading sync.WaitGroup
	held := box.open(func(held actor.Held) {
		reading.Go(func() {
			readers++
			for events := box.take(held, nil); len(events) > 0; events = box.take(held, events) {
				taken += len(events)
			}
		})
	})
	box.take(held, nil) // so that the first event wakes a reader
	var posting sync.WaitGroup
	for range posters {
		posting.Go(func() {
			for range bursts {
				for range burst {
					if !box.post(event{kind: tick}) {
						t.Error("an event was refused")
					}
				}
			}
		})
	}
	posting.Wait()
	reading.Wait()
	_, held = box.lend(&event{kind: tick}, actor.Done) // nobody has it
	if taken != posters*bursts*burst || !held.OK() || len(box.close()) != 1 {
		t.Errorf("%d events were taken by %d readers, want %d", taken, readers, posters*bursts*burst)
	}
	if box.post(event{kind: tick}) {
		t.Error("a closed mailbox accepted an event")
	}
}

// A mailbox keeps its capacity while few events come for a short time, and gives it up later.
func TestMailboxKeepsItsCapacityForAWhile(t *testing.T) {
	box := mailbox{pools: new(pools)}
	var spare []event
	held := box.open(func(actor.Held) {})
	exchange := func(events int) {
		for range events {
			box.post(event{kind: tick})
		}
		spare = box.take(held, spare)
	}
	exchange(fewEvents + 1)
	exchange(fewEvents + 1)
	for range keepUnused / 2 {
		exchange(1)
	}
	if cap(spare) <= fewEvents {
		t.Errorf("after a short time the capacity is %d events, want more than %d", cap(spare), fewEvents)
	}
	for range keepUnused {
		exchange(1)
	}
	if cap(spare) > fewEvents {
		t.Errorf("after a long time the capacity is %d events, want %d at most", cap(spare), fewEvents)
	}
}

// At most maxIdleWorkers workers wait for requests. A further one ends.
func TestIdleWorkersAreBounded(t *testing.T) {
	var idle workers
	idle.busy()
	for range maxIdleWorkers {
		idle.add(&worker{requests: make(chan served, 1)})
	}
	surplus := &worker{requests: make(chan served, 1)}
	idle.add(surplus)
	if len(idle.idle) != maxIdleWorkers {
		t.Errorf("%d workers wait, want %d", len(idle.idle), maxIdleWorkers)
	}
	select {
	case <-surplus.requests: // closed, so that its goroutine ends
	default:
		t.Error("the surplus worker still waits")
	}
}

// Idle workers wait as long as a loop of the Wheel is busy, and end when the last one parks.
func TestIdleWorkersEndWithTheLastBusyLoop(t *testing.T) {
	var idle workers
	one := &worker{requests: make(chan served, 1)}
	idle.busy()
	idle.busy()
	idle.add(one)
	idle.parked()
	if idle.take() != one || idle.take() != nil {
		t.Error("the worker has ended, want it to wait while a loop is busy")
	}
	idle.add(one)
	idle.parked()
	if idle.take() != nil {
		t.Error("a worker waits although no loop is busy")
	}
	select {
	case <-one.requests: // closed, so that its goroutine ends
	default:
		t.Error("the worker still waits")
	}
}

// When a mailbox has grown out of its first slice, it does not keep that slice and its events.
func TestMailboxKeepsNoOutgrownMemory(t *testing.T) {
	m := &mailbox{pools: new(pools)}
	held := m.open(func(actor.Held) {})
	m.pools.buffers.Put(&buffers{events: [2][]event{make([]event, 0, firstEvents)}})
	for range firstEvents + 1 {
		m.post(event{kind: replied, payload: []byte("large")})
	}
	clear(m.take(held, nil))
	if kept := m.buffers.events[0]; kept != nil {
		t.Errorf("a slice with capacity %d is kept, want none", cap(kept))
	}
}

// Events and effects stay small, because each call copies a dozen of them: fields that few of them
// need are behind a pointer.
func TestEventsAndEffectsAreSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return // the bounds are for 64 bits
	}
	if size := unsafe.Sizeof(event{}); size > 192 {
		t.Errorf("an event has %d bytes, want 192 at most", size)
	}
	if size := unsafe.Sizeof(effect{}); size > 208 {
		t.Errorf("an effect has %d bytes, want 208 at most", size)
	}
}
