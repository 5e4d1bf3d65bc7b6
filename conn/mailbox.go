package conn

import "sync"

// A mailbox carries events to the loop. Posting never blocks. Its bound is
// that of its sources: callers hold a send slot each, streams deliver against
// credit, and tasks report once.
type mailbox struct {
	mu     sync.Mutex
	events []event
	open   bool
	idle   bool   // the loop has taken all there was, and waits to be woken
	wake   func() // wakes it; called once per idleness, and never blocks
}

// keep is how many events of capacity an emptied mailbox holds on to.
const keep = 8

// post adds an event, or reports false when no loop will take it.
func (m *mailbox) post(ev event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return false
	}
	m.events = append(m.events, ev)
	if m.idle {
		m.idle = false
		m.wake()
	}
	return true
}

// take swaps all waiting events against a cleared slice. When none waits it
// takes nothing, and the next one wakes the loop.
func (m *mailbox) take(emptied []event) []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.events
	if m.idle = len(taken) == 0; m.idle {
		return nil
	}
	if m.events = emptied[:0]; cap(emptied) > keep {
		m.events = nil
	}
	return taken
}

// begin starts the taking of events.
func (m *mailbox) begin(wake func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open, m.idle, m.wake = true, false, wake
}

// end ends it, and returns what was left.
func (m *mailbox) end() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := m.events
	m.open, m.events, m.wake = false, nil, nil
	return left
}
