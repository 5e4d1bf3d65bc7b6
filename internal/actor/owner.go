// Package actor decides which goroutine may run an actor's loop: the loop's own goroutine, or one
// that is lent to it because it brings an event while nobody has the loop (ADR-0048). An Owner
// starts no goroutine itself; it says who has to start or wake the loop's own. All its methods
// are called under its lock.
package actor

import (
	"sync"
	"sync/atomic"
)

// An Owner says who has a loop. Its lock also guards the mailbox of that loop, since
// whether events wait decides who gets the loop. The zero Owner is closed.
type Owner struct {
	sync.Mutex
	state State
	woken chan Held  // wakes the loop's own goroutine, capacity one; nil while it has none
	start func(Held) // starts that goroutine
}

// A Next is what a goroutine has to do after it has unlocked the Owner.
type Next struct {
	Held  Held // the token for this goroutine, or for the one to be started or woken
	start func(Held)
	woken chan Held
}

// Go starts or wakes the loop's own goroutine, if that has the loop now. Otherwise it returns
// the token of this goroutine, if it has one.
func (n Next) Go() Held {
	switch {
	case n.start != nil:
		n.start(n.Held)
		return Held{}
	case n.woken != nil:
		n.woken <- n.Held // it has room: the channel is empty while that goroutine waits, and only one can have the loop
		return Held{}
	}
	return n.Held
}

// State returns who has the loop.
func (o *Owner) State() State { return o.state }

// Accepts reports whether the loop takes events.
func (o *Owner) Accepts() bool { return o.state != Closed }

// Bring is one of the changes Post, Lend, Tick and Done. Its event is in the mailbox already.
func (o *Owner) Bring(how Change) Next { return o.change(how) }

// Open begins a loop, whose own goroutine start must start. The caller has it, as a lent goroutine.
func (o *Owner) Open(start func(Held)) Held {
	o.start = start
	return o.change(open).Held
}

// Rest gives the loop up. No event may wait. If waits is set, the loop's own goroutine calls it and must
// wait for woken, from where it gets its next token. It always waits for the last events.
func (o *Owner) Rest(held Held, waits bool) (woken <-chan Held) {
	o.check(held)
	if !waits && held.in != Last {
		if o.change(rest); o.state == Parked {
			o.woken = nil
		}
		return nil
	}
	if o.change(wait); o.woken == nil {
		o.woken = make(chan Held, 1)
	}
	return o.woken
}

// Resume gives the loop from a lent goroutine to the loop's own.
func (o *Owner) Resume(held Held) Next {
	o.check(held)
	return o.change(resume)
}

// Adopt makes a lent goroutine the loop's own. There must be no other that waits.
func (o *Owner) Adopt(held Held) Held {
	o.check(held)
	return o.change(adopt).Held
}

// Last keeps the loop for the goroutine that ends it: events are accepted, but no goroutine is lent any
// more. After a panic it may even be called on a loop that has ended.
func (o *Owner) Last() Held { return o.change(last).Held }

// End ends the loop. Its own goroutine calls it; no further event is accepted.
func (o *Owner) End() { o.change(end) }

// check panics if a token was used twice: another goroutine may have the loop.
func (o *Owner) check(held Held) {
	if held.in != o.state {
		panic("actor: a goroutine that has a loop as " + held.in.String() + " found it " + o.state.String())
	}
}

// change looks the change up in the table and makes it.
func (o *Owner) change(how Change) Next {
	found := table[o.state][how]
	if found.then == impossible {
		panic("actor: " + how.String() + " is impossible while the loop is " + o.state.String())
	}
	o.state = found.to
	switch found.then {
	case starts:
		return Next{Held: Held{found.to}, start: o.start}
	case wakes:
		return Next{Held: Held{found.to}, woken: o.woken}
	case has:
		return Next{Held: Held{found.to}}
	}
	return Next{}
}

// A Promise keeps the token of a goroutine that has the loop, but will run it only later, perhaps on
// another goroutine. Its methods may be called on any goroutine without a lock. The zero Promise is
// empty.
type Promise struct{ in atomic.Uint32 }

// Keep keeps a token.
func (p *Promise) Keep(held Held) { p.in.Store(uint32(held.in)) }

// Take takes the token out. Only one goroutine gets it.
func (p *Promise) Take() Held {
	if p.in.Load() == 0 { // as almost always
		return Held{}
	}
	return Held{State(p.in.Swap(0))}
}
