package changes

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Interval is the time between two messages about the same change.
const Interval = 10 * time.Millisecond

// A Send sends changes to a client, and returns those that are to be tried again after the wait. It may
// block, and runs without a lock. No two of one listener run at a time.
type Send func([]Change) (unsent []Change, wait time.Duration)

// A Listener collects the changes for one client, and sends them Interval after the
// first one. If the link or the stream is busy, it sends them later, as one message: a client that
// reads slowly costs as much memory as it has subscriptions, whatever changes meanwhile.
//
// It is silent until Begin, and has ended for good after Stop or End. The zero value is silent. Sessions have one each as
// long as they live, so an idle one must be small: what only subscribers need is behind a pointer, and there is a timer
// only while something is pending.
//
// What is sent is never more than what is wanted at the time at which it became pending. A client that unsubscribes while its
// update is being sent may still get that one; who answers it has to wait with AwaitSent.
type Listener struct {
	send Send

	mu      sync.Mutex
	wanted  set
	pending set   // of wanted, when it was added
	begun   bool  // the client is ready for notifications
	ended   bool  // nothing is sent any more
	firing  bool  // changes are being sent
	holds   int32 // what the end of the listener has to wait for

	subscribing *subscribing  // nil before the first subscription of a session
	timer       *time.Timer   // nil: nothing is scheduled
	fired       chan struct{} // closed when they were sent; nil: nobody waits for that

	sending sync.WaitGroup // counts timers that are set, or fire
	held    sync.WaitGroup // counts holds
}

// Use sets how changes are sent. It is called before Begin.
func (l *Listener) Use(send Send) { l.send = send }

// Begin permits notifications. For a legacy client it is called after "initialized", so
// that nothing overtakes the answer to initialize (2025-11-25 basic/lifecycle).
func (l *Listener) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = true
	l.schedule(Interval)
}

// Want adds to what the client wants. It reports false if the listener has ended.
func (l *Listener) Want(c Change) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.wanted.add(c)
	}
	return !l.ended
}

// Wants reports whether the client wants to know of a change.
func (l *Listener) Wants(c Change) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted.has(c)
}

// Unwant removes from what the client wants, and reports whether it was there. What is pending is not
// sent any more; what is being sent now still comes, see AwaitSent.
func (l *Listener) Unwant(c Change) (wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted = l.wanted.has(c)
	l.wanted.remove(c)
	l.pending.remove(c)
	return wanted
}

// Tell adds a change, if the client wants it. It does not block.
func (l *Listener) Tell(c Change) { l.add(c) }

// add adds a change, if the client wants it. It is called under the lock of a Hub, so it must not block.
func (l *Listener) add(changed ...Change) { l.addAfter(Interval, changed) }

func (l *Listener) addAfter(wait time.Duration, changed []Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range changed {
		if l.wanted.has(one) {
			l.pending.add(one)
		}
	}
	l.schedule(wait)
}

// addAll adds everything that the client wants, because any of it may have changed.
func (l *Listener) addAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending.addSet(&l.wanted)
	l.schedule(Interval)
}

// schedule sets the timer, unless it is set: the first change decides when all are sent, or a source that changes all the
// time would put them off for ever. The caller holds the mutex.
func (l *Listener) schedule(wait time.Duration) {
	if l.begun && !l.ended && l.timer == nil && l.pending.len() > 0 {
		l.sending.Add(1)
		l.timer = time.AfterFunc(wait, l.fire)
	}
}

// fire sends what is pending. The timer stays set until that has ended, so that no other one fires.
func (l *Listener) fire() {
	defer l.sending.Done()
	l.mu.Lock()
	pending := l.pending.all()
	l.pending, l.firing = set{}, true
	l.mu.Unlock()
	// Without the mutex: this runs code of the program, and what changes meanwhile becomes pending.
	unsent, wait := l.send(pending)
	l.mu.Lock()
	l.timer, l.firing = nil, false
	if l.fired != nil {
		close(l.fired)
		l.fired = nil
	}
	l.mu.Unlock()
	// Only what is still wanted: the client may have unsubscribed while it was being sent. After End this adds
	// nothing.
	l.addAfter(wait, unsent)
}

// AwaitSent makes sure that nothing follows the answer to a request that unsubscribes. It does not wait for what is
// pending, since that does not contain the resource any more. It waits until what is being sent now was sent.
func (l *Listener) AwaitSent(ctx context.Context) error {
	l.mu.Lock()
	if l.firing && l.fired == nil {
		l.fired = make(chan struct{})
	}
	fired := l.fired
	l.mu.Unlock()
	if fired == nil {
		return nil
	}
	select {
	case <-fired:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop stops all sending, without waiting, for a goroutine that must not: the one on which a connection ends. It reports whether End has nothing to wait for or to return.
func (l *Listener) Stop() (quiet bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.timer != nil && l.timer.Stop() {
		l.sending.Done()
		l.timer = nil
	}
	return l.timer == nil && len(l.wanted.uris) == 0 && l.holds == 0
}

// End stops all sending, waits for a running one, and returns the resources that the
// client was subscribed to. Only the first call returns any, so the program learns once that a subscription has ended.
// It must not be called under a lock that Send may need.
func (l *Listener) End() (uris []string) {
	l.mu.Lock()
	l.ended = true
	if len(l.wanted.uris) > 0 {
		uris = slices.Sorted(maps.Keys(l.wanted.uris))
	}
	// With nothing wanted, a running send finds nothing that it could make pending again.
	l.wanted = set{}
	if l.timer != nil && l.timer.Stop() {
		l.sending.Done()
	}
	l.mu.Unlock()
	l.sending.Wait()
	return uris
}

// Hold makes AwaitHolds wait for Release. It reports false if the listener has ended already: then nothing
// waits any more.
// Once the listener has ended, AwaitHolds may already wait for a count of zero, which must not rise any more.
func (l *Listener) Hold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.holds++
	l.held.Add(1)
	return true
}

// Release ends what Hold began.
func (l *Listener) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds--
	l.held.Done()
}

// AwaitHolds waits until each Hold was released. It is called after Stop or End.
func (l *Listener) AwaitHolds() { l.held.Wait() }
