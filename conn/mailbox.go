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
	turn   func() // takes the loop's turn on the goroutine it is called on; nil when the loop has one of its own
}

// keep is how many events of capacity an emptied mailbox holds on to.
const keep = 8

// post adds an event, or reports false when no loop will take it.
func (m *mailbox) post(ev event) bool {
	posted, first := m.add(&ev)
	if first {
		m.wake()
	}
	return posted
}

// goOn has the loop take its turn, as the last deed of a goroutine that has
// added the first event: on this goroutine if the loop has none.
func (m *mailbox) goOn() {
	if m.turn != nil {
		m.turn()
		return
	}
	m.wake()
}

// add adds an event, and reports whether it is the first since the loop was
// idle. Then it is for the caller, and nobody else, to see that it is taken.
func (m *mailbox) add(ev *event) (added, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return false, false
	}
	m.events = append(m.events, *ev)
	first, m.idle = m.idle, false
	return true, first
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

// rest gives up what only work needs, when none is in sight.
func (m *mailbox) rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) == 0 {
		m.events = nil
	}
}

// begin starts the taking of events.
func (m *mailbox) begin(wake, turn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open, m.idle, m.wake, m.turn = true, false, wake, turn
}

// end ends it, and returns what was left.
func (m *mailbox) end() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := m.events
	m.open, m.events = false, nil
	return left
}
