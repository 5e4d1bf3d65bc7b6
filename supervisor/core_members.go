//bowline:pure

package supervisor

import (
	"iter"
	"time"
)

// A State is a stage in the life of a child, or of a supervisor.
type State string

const (
	Waiting  State = "waiting"  // waits for the children before it to start
	Starting State = "starting" // its Init is running
	Running  State = "running"  // its Run is running
	Draining State = "draining" // finishes its work before it stops
	Stopping State = "stopping" // was told to stop and has not returned yet
	Stopped  State = "stopped"  // terminated: it was stopped, or returned without an error
	Failed   State = "failed"   // terminated: it failed and was not restarted
)

// traits is the part of a ChildSpec that the core needs.
type traits struct {
	restart  Restart
	shutdown time.Duration // negative: unlimited
	inits    bool          // has an Init
	drains   bool          // has a Drain
	early    bool          // Drain may be called while Init runs
}

// A member is a child that has not terminated, as the core sees it.
type member struct {
	traits
	key    uint64
	handle *Child // the child itself, for the shell
	state  State
	since  instant // when it entered that state

	firstStart bool    // its Init has not returned yet in any Run
	rerun      bool    // stopping, or about to be stopped: it runs again afterwards
	queued     bool    // is in core.stopQueue
	resumes    bool    // waiting: a resource of its last Run must be closed if no other Run follows
	stuck      bool    // stopping: its shutdown time has passed
	due        instant // stopping: when its shutdown time passes; 0: never, or it has passed

	previous, next *member
}

// mayDrain reports whether the member can be asked to finish its work.
func (m *member) mayDrain() bool {
	return m.drains && (m.state == Running || m.state == Starting && m.early)
}

// members is a linked list in start order, with an index and counts by state.
type members struct {
	first, last *member
	byKey       map[uint64]*member
	stateCounts
}

// stateCounts counts the members in states that make others wait.
type stateCounts struct{ waiting, starting, stopping int }

func (n *stateCounts) count(s State, by int) {
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

// inOrder iterates from the first member started to the last.
func (all *members) inOrder() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for m := all.first; m != nil && yield(m); m = m.next {
		}
	}
}

// backward iterates from the last member started to the first.
func (all *members) backward() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for m := all.last; m != nil && yield(m); m = m.previous {
		}
	}
}
