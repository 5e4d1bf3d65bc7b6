//bowline:pure

package supervisor

import (
	"iter"
	"time"
)

// traits are what the core knows of a child's spec.
type traits struct {
	restart  Restart
	shutdown time.Duration // negative: for ever
	inits    bool          // it has an Init
	drains   bool          // it has a Drain
	early    bool          // that may be called while its Init runs
}

// A member is a child that is not over, as the core sees it. Members are
// linked in the order of their start.
type member struct {
	traits
	key   uint64
	state State
	since instant // of the state

	fresh   bool    // it has never got past its Init
	again   bool    // stopping, or doomed: it is to run again
	doomed  bool    // it is to be stopped when its turn comes
	resumes bool    // waiting: its last Run left something that is closed if no other goes on with it
	stuck   bool    // stopping: it has ignored its stop
	due     instant // stopping: when it will have; 0: never, or it has

	previous, next *member
}

// mayDrain reports whether a member can be asked to finish.
func (m *member) mayDrain() bool {
	return m.drains && (m.state == Running || m.state == Starting && m.early)
}

// members are in the order of their start.
type members struct {
	first, last *member
	byKey       map[uint64]*member
	census
}

// A census is how many members are in the states that others wait for.
type census struct{ waiting, starting, stopping int }

func (n *census) count(s State, by int) {
	switch s {
	case Waiting:
		n.waiting += by
	case Starting:
		n.starting += by
	case Stopping:
		n.stopping += by
	}
}

func (all *members) link(m *member) {
	if m.previous = all.last; all.last == nil {
		all.first = m
	} else {
		all.last.next = m
	}
	all.last = m
	all.byKey[m.key] = m
}

func (all *members) unlink(m *member) {
	if m.previous == nil {
		all.first = m.next
	} else {
		m.previous.next = m.next
	}
	if m.next == nil {
		all.last = m.previous
	} else {
		m.next.previous = m.previous
	}
	delete(all.byKey, m.key)
}

// inOrder goes from the first that was started to the last.
func (all *members) inOrder() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for m := all.first; m != nil && yield(m); m = m.next {
		}
	}
}

// backward goes from the last that was started to the first.
func (all *members) backward() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for m := all.last; m != nil && yield(m); m = m.previous {
		}
	}
}
