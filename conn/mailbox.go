package conn

import "sync"

// A mailbox carries events to the loop. Posting never blocks. Its bound is
// that of its sources: callers hold a send slot each, streams deliver against
// credit, and tasks report once.
type mailbox struct {
	mu     sync.Mutex
	events []event
	open   bool
	wake   chan struct{} // capacity one: a token waits while there are events
}

// keep is how many events of capacity an emptied mailbox holds on to.
const keep = 8

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

// post adds an event, or reports false when no loop will take it.
func (m *mailbox) post(ev event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return false
	}
	m.events = append(m.events, ev)
	select {
	case m.wake <- struct{}{}:
	default: // the loop has been woken already
	}
	return true
}

// take swaps all waiting events against a cleared slice.
func (m *mailbox) take(emptied []event) []event {
	if cap(emptied) > keep {
		emptied = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.events
	m.events = emptied[:0]
	return taken
}

// setOpen starts or ends the taking of events.
func (m *mailbox) setOpen(open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = open
}
