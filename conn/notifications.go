package conn

import (
	"context"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/internal/ondemand"
)

// notifications are the peer's notifications that wait for the handler, which gets
// them one at a time, in order, off the loop. If there are too many, it drops
// first those that a newer one replaces, then the oldest droppable ones, then the
// one that comes (ADR-0006).
//
// A Conn has a queue once a notification has waited. The methods that only ask work without
// one, too: then nothing waits.
type notifications struct {
	ondemand.Worker
	of        *record // whose handler gets them
	bound     int     // how many notifications may wait
	boundSize int     // how many bytes all waiting notifications may have; a single one may have more

	slots       []notification // the notifications in slots[head:] wait
	head        int
	handled     string // the method of the one that was taken last
	size        int
	keys        map[string]int // how many of each key wait
	superfluous int            // how many of the waiting ones a newer one replaces
	droppable   int
	crowded     bool
	awaited     bool // the loop waits for the event quiet
}

// A notification waits, with the context that its handler gets.
type notification struct {
	*Incoming
	ctx context.Context
}

// waiting returns the notifications that wait. The slice is valid until the queue changes.
func (n *notifications) waiting() []notification { return n.slots[n.head:] }

// areIdle reports whether none waits for the handler or is with it.
func (n *notifications) areIdle() bool { return n == nil || n.Idle() }

// add queues a notification. It returns the notifications that are dropped for
// that, which may include the new one, and whether they have become many.
func (n *notifications) add(added notification) (shed []notification, crowded bool) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if added.Size() > n.boundSize && len(n.waiting()) > 0 {
		return []notification{added}, false // it would not fit even if all others were dropped
	}
	if len(n.slots) == cap(n.slots) && n.head > len(n.slots)/2 {
		n.slots, n.head = slices.Delete(n.slots, 0, n.head), 0
	}
	n.slots = append(n.slots, added)
	n.count(added, 1)
	for len(n.waiting()) > n.bound || n.size > n.boundSize && len(n.waiting()) > 1 {
		shed = append(shed, n.shedOne())
	}
	if !n.Runs() { // without this check, each notification would allocate a method value
		n.Start(n.handleNext)
	}
	if !n.crowded && (len(n.waiting()) >= max(n.bound/2, 1) || n.size >= n.boundSize/2) {
		n.crowded, crowded = true, true
	}
	return shed, crowded
}

// count adds a notification to the sums, or takes it out of them.
func (n *notifications) count(of notification, by int) {
	n.size += by * of.Size()
	if of.droppable {
		n.droppable += by
	}
	if of.label == "" {
		return
	}
	if n.keys == nil {
		n.keys = make(map[string]int)
	}
	before := n.keys[of.label]
	n.superfluous += max(before+by-1, 0) - max(before-1, 0)
	if n.keys[of.label] = before + by; before+by == 0 {
		delete(n.keys, of.label)
	}
}

// shedOne removes the notification that matters least.
func (n *notifications) shedOne() notification {
	switch {
	case n.superfluous > 0:
		return n.coalesce()
	case n.droppable > 0:
		return n.remove(slices.IndexFunc(n.waiting(), func(in notification) bool { return in.droppable }))
	default:
		return n.remove(len(n.waiting()) - 1)
	}
}

// coalesce moves the newer of two notifications with the same key to the place of
// the older, which it drops. If the newer one kept its place, a notification that
// comes again and again would never be handled.
func (n *notifications) coalesce() notification {
	waiting := n.waiting()
	at := slices.IndexFunc(waiting, func(in notification) bool { return n.keys[in.label] > 1 })
	old := waiting[at]
	newer := at + 1 + slices.IndexFunc(waiting[at+1:], func(in notification) bool { return in.label == old.label })
	waiting[at], waiting[newer] = waiting[newer], old
	return n.remove(newer)
}

func (n *notifications) remove(at int) notification {
	at += n.head
	removed := n.slots[at]
	n.slots = slices.Delete(n.slots, at, at+1)
	n.count(removed, -1)
	return removed
}

// handleNext hands the oldest that waits to the handler.
func (n *notifications) handleNext() (more bool) {
	next, more, few := n.next()
	if few {
		n.of.conn.post(event{kind: eased})
	}
	if more {
		n.of.handle(next)
	} else if n.isAwaited() {
		n.of.conn.post(event{kind: quiet})
	}
	return more
}

// isAwaited reports, once, whether the loop waits for the event quiet.
func (n *notifications) isAwaited() (awaited bool) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	awaited, n.awaited = n.awaited, false
	return awaited
}

// awaitQuiet reports whether none waits for the handler or is with it. Otherwise the event
// quiet comes when that is so.
func (n *notifications) awaitQuiet() bool {
	if n == nil {
		return true
	}
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.awaited = n.Runs()
	return !n.awaited
}

func (n *notifications) next() (next notification, more, few bool) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if n.crowded && len(n.waiting()) <= n.bound/4 && n.size <= n.boundSize/4 {
		n.crowded, few = false, true
	}
	if len(n.waiting()) == 0 {
		n.slots, n.head, n.keys = nil, 0, nil
		n.End()
		return notification{}, false, few
	}
	next = n.slots[n.head]
	n.slots[n.head] = notification{}
	if n.head++; n.head == len(n.slots) { // the goroutine frees the slots when it ends
		n.slots, n.head = n.slots[:0], 0
	}
	n.handled = next.Method
	n.Begin()
	n.count(next, -1)
	return next, true, few
}

// many reports whether there are many at present.
func (n *notifications) many() bool {
	if n == nil {
		return false
	}
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return n.crowded
}

func (n *notifications) len() int {
	if n == nil {
		return 0
	}
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return len(n.waiting())
}

// settle waits until the queue is empty, for at most the grace. If that is too
// short, it drops the notifications that wait and returns them. If a handler is
// still running then, settle waits until it has run for the grace. If it has
// not returned by then, it is stuck, and settle returns its method.
func (n *notifications) settle(grace time.Duration) (shed []notification, stuck string) {
	if n == nil || n.Await(grace) {
		return nil, ""
	}
	shed, running := n.clear()
	if n.AwaitLast(grace) {
		return shed, ""
	}
	return shed, running
}

func (n *notifications) clear() (shed []notification, running string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	shed = n.waiting()
	n.slots, n.head, n.keys = nil, 0, nil
	n.size, n.superfluous, n.droppable, n.crowded = 0, 0, 0, false
	return shed, n.handled
}

// handle runs the handler of a notification.
func (r *record) handle(n notification) {
	err := guard(func() error { r.own.handler.ServeNotification(n.ctx, n.Incoming); return nil })
	r.reportPanic(n.Method, err)
}
