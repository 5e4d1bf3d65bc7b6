package conn

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// Guarantees: G-0001.16
func TestParkedLoopKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ended := New(deadTransport{}, Options{}), make(chan error, 1)
		l, err := c.enter(t.Context(), func(err error) { ended <- err })
		if err != nil {
			t.Fatal(err)
		}
		go l.run()
		synctest.Wait()
		if _, err := c.Call(t.Context(), Request{Method: "m", Timeout: lingering / 2}); err == nil {
			t.Error("a dead link has brought an answer")
		}
		for _, wait := range []time.Duration{2 * lingering, 10 * c.options.TombstoneSweep} {
			pass(wait)
			kept := l.core.traffic
			if kept == nil {
				kept = new(traffic)
			} else if kept.tombstones.len() == 0 {
				t.Errorf("after %v: traffic, %+v", wait, kept)
			}
			for name, kept := range map[string]bool{
				"events":   l.mailbox.events != nil,
				"buffers":  l.buffers != nil,
				"effects":  kept.out != nil,
				"requests": kept.pending.byID != nil || kept.pending.free != nil || kept.incoming.serving != nil,
				"tasks":    l.tasks.n != 0,
				"a wait":   l.woken != nil || l.mailbox.running,
				"a timer":  l.timer != nil && kept.tombstones.len() == 0,
			} {
				if kept {
					t.Errorf("after %v: %s", wait, name)
				}
			}
			c.Wake() // so that it is busy again, and has seen what was read here
		}
		c.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestMailboxLosesNoEvent has many goroutines post short bursts while the reader
// stops and is woken all the time, as a loop that parks.
func TestMailboxLosesNoEvent(t *testing.T) {
	const posters, bursts, burst = 8, 500, 3
	var box mailbox
	var taken, readers int // the reader's: the race detector watches that there is one at a time
	var reading sync.WaitGroup
	box.start(func() {
		reading.Go(func() {
			readers++
			for events := box.take(nil); len(events) > 0; events = box.take(events) {
				taken += len(events)
			}
		})
	}, false)
	box.take(nil) // so that the first event wakes a reader
	var posting sync.WaitGroup
	for range posters {
		posting.Go(func() {
			for range bursts {
				for range burst {
					if !box.post(event{kind: tick}) {
						t.Error("an event was not taken")
					}
				}
			}
		})
	}
	posting.Wait()
	reading.Wait()
	if taken != posters*bursts*burst || len(box.close()) != 0 {
		t.Errorf("%d events were taken by %d readers", taken, readers)
	}
	if box.post(event{kind: tick}) {
		t.Error("a closed mailbox took an event")
	}
}

// A busy mailbox keeps its capacity through a lull, and not for good.
func TestMailboxKeepsItsCapacityForAWhile(t *testing.T) {
	var box mailbox
	var spare []event
	box.start(func() {}, false)
	exchange := func(events int) {
		for range events {
			box.post(event{kind: tick})
		}
		spare = box.take(spare)
	}
	exchange(fewEvents + 1)
	exchange(fewEvents + 1)
	for range keepUnused / 2 {
		exchange(1)
	}
	if cap(spare) <= fewEvents {
		t.Errorf("after a lull, there is room for %d events", cap(spare))
	}
	for range keepUnused {
		exchange(1)
	}
	if cap(spare) > fewEvents {
		t.Errorf("there is room for %d events, and hardly any come", cap(spare))
	}
}

// A burst of requests leaves a bounded number of workers waiting.
func TestIdleWorkersAreBounded(t *testing.T) {
	var idle workers
	idle.busy()
	for range maxIdleWorkers {
		idle.add(&worker{requests: make(chan served, 1)})
	}
	surplus := &worker{requests: make(chan served, 1)}
	idle.add(surplus)
	if len(idle.idle) != maxIdleWorkers {
		t.Errorf("%d workers wait", len(idle.idle))
	}
	select {
	case <-surplus.requests: // closed, so that its goroutine ends
	default:
		t.Error("a worker too many waits on")
	}
}

// Workers wait for any Conn that shares the Wheel, and none waits once all are parked.
func TestIdleWorkersEndWithTheLastBusyLoop(t *testing.T) {
	var idle workers
	one := &worker{requests: make(chan served, 1)}
	idle.busy()
	idle.busy()
	idle.add(one)
	idle.parked()
	if idle.take() != one || idle.take() != nil {
		t.Error("a worker was given up, although a loop is busy")
	}
	idle.add(one)
	idle.parked()
	if idle.take() != nil {
		t.Error("a worker waits for nobody")
	}
	select {
	case <-one.requests: // closed, so that its goroutine ends
	default:
		t.Error("a worker waits on")
	}
}

// The memory that a mailbox has outgrown is not kept, with what was in it.
func TestMailboxKeepsNoMemoryThatItHasOutgrown(t *testing.T) {
	m := &mailbox{spares: new(spares)}
	m.start(func() {}, false)
	m.spares.buffers.Put(&buffers{events: [2][]event{make([]event, 0, firstEvents)}})
	for range firstEvents + 1 {
		m.post(event{kind: replied, payload: []byte("large")})
	}
	clear(m.take(nil))
	if kept := m.buffers.events[0]; kept != nil {
		t.Errorf("room for %d events is kept", cap(kept))
	}
}

// A call and its answer copy a dozen events and effects, and a crowd fills mailboxes with
// them, so what few of them have stays behind a pointer.
func TestEventsAndEffectsAreSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return // the bounds are for 64 bits
	}
	if size := unsafe.Sizeof(event{}); size > 192 {
		t.Errorf("an event has %d bytes, of 192 at most", size)
	}
	if size := unsafe.Sizeof(effect{}); size > 208 {
		t.Errorf("an effect has %d bytes, of 208 at most", size)
	}
}
