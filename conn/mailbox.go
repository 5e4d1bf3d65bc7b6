package conn

import "sync"

// A mailbox carries events to a loop. Posting never blocks. What posts is bounded:
// callers hold a send slot each, streams deliver against credit, and a task posts
// one event.
type mailbox struct {
	mu      sync.Mutex
	events  []event
	open    bool
	lends   bool   // the loop can work on the goroutine of whoever posts
	running bool   // the loop is going to call take, so nobody need wake it
	unused  uint16 // how many times in a row less than a sixteenth of its capacity was used
	wake    func() // wakes the loop; never blocks
	spares  *spares
	buffers *buffers // shared with the loop; nil while the loop is parked
}

// A busy mailbox keeps a capacity of fewEvents. It keeps up to keepEvents until it has used
// less than a sixteenth of it keepUnused times in a row; that number is large because even
// while many callers call, most batches contain one event. A parked mailbox keeps nothing.
const (
	firstEvents = 2
	fewEvents   = 64
	keepEvents  = 2048 // twice the default of Options.SendSlots
	keepUnused  = 10_000
)

// post adds an event, and wakes the loop if it does not run. It reports false
// when no loop will take the event.
func (m *mailbox) post(ev event) bool {
	posted, wake, _ := m.add(&ev)
	if wake != nil {
		wake()
	}
	return posted
}

// lend is post for a goroutine that lends itself to the loop. If it reports that the
// goroutine is taken, the goroutine has the loop now, and must call loop.turn soon.
func (m *mailbox) lend(ev *event) (posted, taken bool) {
	posted, wake, lends := m.add(ev)
	if wake != nil && !lends {
		wake()
	}
	return posted, wake != nil && lends
}

// add adds an event. If the loop does not run, add returns the function that wakes it. The
// caller cannot read that later without the lock, since the next run may use the mailbox.
func (m *mailbox) add(ev *event) (added bool, wake func(), lends bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return false, nil, false
	}
	if m.events == nil {
		m.begin()
	}
	m.events = append(m.events, *ev)
	if !m.running {
		wake, m.running = m.wake, true
	}
	return true, wake, m.lends
}

// begin gets memory for the mailbox.
func (m *mailbox) begin() {
	if m.buffers == nil && m.spares != nil {
		m.buffers = m.spares.takeBuffers()
		m.events, m.buffers.events[0] = m.buffers.events[0], nil // the mailbox alone owns these slices, however long they become
	}
	if m.events == nil {
		m.events = make([]event, 0, firstEvents)
	}
}

// take returns the waiting events, and keeps a cleared slice for the next ones. If no events
// wait, the loop stops running: the next event wakes it, perhaps on another goroutine and
// before take has returned.
func (m *mailbox) take(cleared []event) []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.events
	if m.running = len(taken) > 0; !m.running {
		return nil
	}
	if cleared == nil && m.buffers != nil {
		cleared, m.buffers.events[1] = m.buffers.events[1], nil
	}
	m.events = cleared[:0]
	size := cap(cleared)
	if m.unused++; size <= fewEvents || len(taken) >= size/16 {
		m.unused = 0
	}
	if size > keepEvents || m.unused >= keepUnused {
		m.events = nil
	}
	return taken
}

// rest notes that the loop stops running, as take does. If events wait, it does nothing and
// reports false.
func (m *mailbox) rest() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = len(m.events) > 0
	return !m.running
}

func (m *mailbox) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.events)
}

// unpark returns the buffers for a loop that is busy.
func (m *mailbox) unpark() *buffers {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events == nil {
		m.begin()
	}
	return m.buffers
}

// park returns the buffers, for use by other loops. They contain the memory of the mailbox
// and the cleared slice, which the next take would have got. If an event waits, the loop is
// not idle: park returns nil, and the mailbox keeps its memory.
func (m *mailbox) park(cleared []event) *buffers {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) > 0 {
		return nil
	}
	given := m.buffers
	given.events = [2][]event{m.events, cleared[:0]}
	for i, events := range given.events {
		if cap(events) > fewEvents {
			given.events[i] = nil
		}
	}
	m.events, m.buffers = nil, nil
	return given
}

// start opens the mailbox for a loop that is about to run.
func (m *mailbox) start(wake func(), lends bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open, m.running, m.wake, m.lends = true, true, wake, lends
}

// close closes the mailbox and returns the events that nobody has taken.
func (m *mailbox) close() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	remaining := m.events
	m.open, m.events = false, nil
	return remaining
}

// keep gives the memory of the events that close returned back to the mailbox. It clears it.
func (m *mailbox) keep(taken []event) {
	clear(taken)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = taken[:0]
}
