// Package inbox holds the notifications of a peer that wait for their handler. The handler runs
// on a goroutine of the inbox, which exists only while something waits, and gets one after the
// other, in the order in which they came. So a handler that is slow delays no other work, and
// what waits is bounded whatever the peer sends (ADR-0004, ADR-0006).
package inbox

import (
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/internal/lazyworker"
)

// An Item is what waits in an Inbox.
type Item interface {
	Name() string    // for the report of a handler that does not return
	Key() string     // a newer Item with the same key replaces an older one; "" replaces none
	Size() int       // in bytes
	Droppable() bool // it goes before others when there is no room
}

// An Owner gets what an Inbox has to tell. Its methods run on the goroutine of the Inbox, without
// its lock.
type Owner[T Item] interface {
	// Handle handles an item. No other is handled before it returns. A panic loses only that item.
	Handle(T)

	// Eased tells that only few wait again, after Add has reported that they were many. They may
	// be many again when the owner gets to know that: then Many reports it.
	Eased()

	// Quiet tells once, after AwaitQuiet, that none waits and none is being handled.
	Quiet()
}

// An Inbox holds items until they are handled. If there are too many, it drops first those that a
// newer one replaces, then the oldest droppable ones, then the one that comes. It must not be
// copied. Its methods may be called from any goroutine.
//
// The methods that only ask work on a nil Inbox, too: then nothing waits.
type Inbox[T Item] struct {
	worker    lazyworker.Worker // its lock guards the fields below
	owner     Owner[T]
	bound     int // how many items may wait
	boundSize int // how many bytes all waiting items may have; a single one may have more

	slots       []T // the items in slots[head:] wait
	head        int
	handled     string // the name of the one that was taken last
	size        int
	keys        map[string]int // how many of each key wait
	superfluous int            // how many of the waiting ones a newer one replaces
	droppable   int
	crowded     bool
	awaited     bool // the owner waits for Quiet
	busy        bool // the one that was taken last may not have been handled yet
	waiters     []waiter
}

// A waiter waits until those that were there before it are gone. It counts them, rather than
// keep the last one of them: an item has no name of its own, and one may take the place of
// another.
type waiter struct {
	ahead int // how many of them are left
	gone  chan struct{}
}

// New returns an empty Inbox, in which bound items may wait, with boundSize bytes together.
func New[T Item](bound, boundSize int, owner Owner[T]) *Inbox[T] {
	return &Inbox[T]{owner: owner, bound: bound, boundSize: boundSize}
}

// waiting returns the items that wait. The slice is valid until the queue changes.
func (n *Inbox[T]) waiting() []T { return n.slots[n.head:] }

// Idle reports whether none waits for the handler or is with it.
func (n *Inbox[T]) Idle() bool { return n == nil || n.worker.Idle() }

// Add queues an item. It returns the items that are dropped for
// that, which may include the new one, and whether they have become many.
func (n *Inbox[T]) Add(added T) (shed []T, crowded bool) {
	n.worker.Mu.Lock()
	defer n.worker.Mu.Unlock()
	if added.Size() > n.boundSize && len(n.waiting()) > 0 {
		return []T{added}, false // it would not fit even if all others were dropped
	}
	if len(n.slots) == cap(n.slots) && n.head > len(n.slots)/2 {
		n.slots, n.head = slices.Delete(n.slots, 0, n.head), 0
	}
	n.slots = append(n.slots, added)
	n.count(added, 1)
	for len(n.waiting()) > n.bound || n.size > n.boundSize && len(n.waiting()) > 1 {
		shed = append(shed, n.shedOne())
	}
	if !n.worker.Runs() { // without this check, each item would allocate a method value
		n.worker.Start(n.handleNext)
	}
	if !n.crowded && (len(n.waiting()) >= max(n.bound/2, 1) || n.size >= n.boundSize/2) {
		n.crowded, crowded = true, true
	}
	return shed, crowded
}

// count adds an item to the sums, or takes it out of them.
func (n *Inbox[T]) count(of T, by int) {
	n.size += by * of.Size()
	if of.Droppable() {
		n.droppable += by
	}
	key := of.Key()
	if key == "" {
		return
	}
	if n.keys == nil {
		n.keys = make(map[string]int)
	}
	before := n.keys[key]
	n.superfluous += max(before+by-1, 0) - max(before-1, 0)
	if n.keys[key] = before + by; before+by == 0 {
		delete(n.keys, key)
	}
}

// shedOne removes the item that matters least.
func (n *Inbox[T]) shedOne() T {
	switch {
	case n.superfluous > 0:
		return n.coalesce()
	case n.droppable > 0:
		return n.remove(slices.IndexFunc(n.waiting(), func(in T) bool { return in.Droppable() }))
	default:
		return n.remove(len(n.waiting()) - 1)
	}
}

// coalesce moves the newer of two items with the same key to the place of
// the older, which it drops. If the newer one kept its place, an item that
// comes again and again would never be handled.
func (n *Inbox[T]) coalesce() T {
	waiting := n.waiting()
	at := slices.IndexFunc(waiting, func(in T) bool { return n.keys[in.Key()] > 1 })
	old := waiting[at]
	newer := at + 1 + slices.IndexFunc(waiting[at+1:], func(in T) bool { return in.Key() == old.Key() })
	waiting[at], waiting[newer] = waiting[newer], old
	return n.remove(newer)
}

// remove takes one that waits out, which is no longer handled.
func (n *Inbox[T]) remove(at int) T {
	at += n.head
	removed := n.slots[at]
	n.slots = slices.Delete(n.slots, at, at+1)
	n.count(removed, -1)
	place := at - n.head
	// The one with the handler comes before all that wait.
	if n.busy {
		place++
	}
	n.leave(place)
	return removed
}

// leave tells the waiters that one is gone that had so many before it. For a waiter that had
// no more than these before it, it came later, so it does not count. The caller holds the
// mutex.
func (n *Inbox[T]) leave(place int) {
	// In place: usually nobody waits, or one, and the others keep their order.
	left := n.waiters[:0]
	for _, w := range n.waiters {
		if w.ahead > place {
			w.ahead--
		}
		if w.ahead == 0 {
			close(w.gone)
		} else {
			left = append(left, w)
		}
	}
	clear(n.waiters[len(left):])
	n.waiters = left
}

// returned notes that the handler of the item that was taken last, if there is one, has
// returned. Whoever waits for that item waits until then, and not until it was taken: what its
// handler does must have been done.
func (n *Inbox[T]) returned() {
	n.worker.Mu.Lock()
	defer n.worker.Mu.Unlock()
	if n.busy {
		n.busy = false
		n.leave(0)
	}
}

// Gone returns a channel that is closed when all items that have been added until now were
// handled or dropped; nil if that is so. Items that are added later do not delay it, however
// many there are. A handler must not wait for it: its own item is one of those.
func (n *Inbox[T]) Gone() <-chan struct{} {
	if n == nil {
		return nil
	}
	n.worker.Mu.Lock()
	defer n.worker.Mu.Unlock()
	ahead := len(n.waiting())
	if n.busy {
		ahead++
	}
	if ahead == 0 {
		return nil
	}
	w := waiter{ahead, make(chan struct{})}
	n.waiters = append(n.waiters, w)
	return w.gone
}

// handleNext hands the oldest that waits to the handler.
func (n *Inbox[T]) handleNext() (more bool) {
	n.returned()
	next, more, few := n.next()
	if few {
		n.owner.Eased()
	}
	if more {
		n.owner.Handle(next)
	} else if n.isAwaited() {
		n.owner.Quiet()
	}
	return more
}

// isAwaited reports, once, whether the owner waits for Quiet.
func (n *Inbox[T]) isAwaited() (awaited bool) {
	n.worker.Mu.Lock()
	defer n.worker.Mu.Unlock()
	awaited, n.awaited = n.awaited, false
	return awaited
}

// AwaitQuiet reports whether none waits for the handler or is with it. Otherwise Quiet comes when
// that is so.
func (n *Inbox[T]) AwaitQuiet() bool {
	if n == nil {
		return true
	}
	n.worker.Mu.Lock()
	defer n.worker.Mu.Unlock()
	n.awaited = n.worker.Runs()
	return !n.awaited
}

// next takes the oldest out. It reports whether there was one, and whether only few wait again. If
// there was none, the goroutine ends: Add starts another one, perhaps before next has returned.
func (n *Inbox[T]) next() (next T, more, few bool) {
	n.worker.Mu.Lock()
	defer n.worker.Mu.Unlock()
	if n.crowded && len(n.waiting()) <= n.bound/4 && n.size <= n.boundSize/4 {
		n.crowded, few = false, true
	}
	if len(n.waiting()) == 0 {
		n.slots, n.head, n.keys = nil, 0, nil
		n.worker.End()
		return next, false, few
	}
	next = n.slots[n.head]
	clear(n.slots[n.head : n.head+1])
	if n.head++; n.head == len(n.slots) { // the goroutine frees the slots when it ends
		n.slots, n.head = n.slots[:0], 0
	}
	n.handled, n.busy = next.Name(), true
	n.worker.Begin()
	n.count(next, -1)
	return next, true, few
}

// Many reports whether they have become many (Add), and not yet few again (Eased).
func (n *Inbox[T]) Many() bool {
	if n == nil {
		return false
	}
	n.worker.Mu.Lock()
	defer n.worker.Mu.Unlock()
	return n.crowded
}

// Len returns how many wait.
func (n *Inbox[T]) Len() int {
	if n == nil {
		return 0
	}
	n.worker.Mu.Lock()
	defer n.worker.Mu.Unlock()
	return len(n.waiting())
}

// Settle waits until the inbox is empty, for at most the grace. If that is too short, it drops the
// items that wait and returns them. If a handler is still running then, Settle waits until it has
// run for the grace. If it has not returned by then, it is stuck, and Settle returns the name of
// its item. Items may be added meanwhile and later: an owner may outlive what has ended.
func (n *Inbox[T]) Settle(grace time.Duration) (shed []T, stuck string) {
	if n == nil || n.worker.Await(grace) {
		return nil, ""
	}
	shed, running := n.clear()
	if n.worker.AwaitLast(grace) {
		return shed, ""
	}
	return shed, running
}

// clear drops what waits, and begins to count from zero. It returns the name of the item that was
// taken last, which may still be with the handler.
func (n *Inbox[T]) clear() (shed []T, running string) {
	n.worker.Mu.Lock()
	defer n.worker.Mu.Unlock()
	shed = n.waiting()
	n.slots, n.head, n.keys = nil, 0, nil
	n.size, n.superfluous, n.droppable, n.crowded = 0, 0, 0, false
	for _, w := range n.waiters {
		close(w.gone)
	}
	n.waiters = nil
	return shed, n.handled
}
