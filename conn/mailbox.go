package conn

import "github.com/bowline-mcp/bowline/internal/actor"

// A mailbox carries events to a loop. Posting never blocks. What posts is bounded:
// callers hold a send slot each, streams deliver against credit, and a task posts
// one event.
type mailbox struct {
	owner   actor.Owner // who has the loop; its lock guards the other fields
	events  []event
	pools   *pools
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

// post adds an event, and wakes the loop if nobody has it. It reports false
// when no loop will take the event.
func (m *mailbox) post(ev event) bool {
	posted, next := m.add(&ev, actor.Post)
	next.Go()
	return posted
}

// lend is post for a goroutine that lends itself to the loop. If that goroutine has the loop
// now, lend returns its token, and it must call loop.turn soon.
func (m *mailbox) lend(ev *event, how actor.Change) (posted bool, held actor.Held) {
	posted, next := m.add(ev, how)
	return posted, next.Go()
}

// add adds an event, and says what its goroutine has to do then.
func (m *mailbox) add(ev *event, how actor.Change) (added bool, next actor.Next) {
	m.owner.Lock()
	defer m.owner.Unlock()
	if !m.owner.Accepts() {
		return false, next
	}
	if m.events == nil {
		m.begin()
	}
	m.events = append(m.events, *ev)
	return true, m.owner.Bring(how)
}

// begin gets memory for the mailbox.
func (m *mailbox) begin() {
	if m.buffers == nil {
		m.buffers = m.pools.getBuffers()
		m.events, m.buffers.events[0] = m.buffers.events[0], nil // the mailbox alone owns these slices, however long they become
	}
	if m.events == nil {
		m.events = make([]event, 0, firstEvents)
	}
}

// take returns the waiting events, and keeps a cleared slice for the next ones. If no events
// wait, this goroutine does not have the loop any longer: the next event gives it to another one,
// perhaps before take has returned.
func (m *mailbox) take(held actor.Held, cleared []event) []event {
	taken, _ := m.takeOrWait(held, cleared, false)
	return taken
}

// takeOrWait is take for the loop's own goroutine. If no events wait and waits is set, that goroutine
// must wait for woken, which gives it the loop again.
func (m *mailbox) takeOrWait(held actor.Held, cleared []event, waits bool) (taken []event, woken <-chan actor.Held) {
	m.owner.Lock()
	defer m.owner.Unlock()
	if taken = m.events; len(taken) == 0 {
		return nil, m.owner.Rest(held, waits)
	}
	if cleared == nil {
		cleared, m.buffers.events[1] = m.buffers.events[1], nil
	}
	m.events = cleared[:0]
	size := cap(cleared)
	if m.buffers.unused++; size <= fewEvents || len(taken) >= size/16 {
		m.buffers.unused = 0
	}
	if size > keepEvents || m.buffers.unused >= keepUnused {
		m.events = nil
	}
	return taken, nil
}

// rest gives the loop back, as take does. If events wait, it does nothing and reports false.
func (m *mailbox) rest(held actor.Held) bool {
	m.owner.Lock()
	defer m.owner.Unlock()
	if len(m.events) > 0 {
		return false
	}
	m.owner.Rest(held, false)
	return true
}

func (m *mailbox) len() int {
	m.owner.Lock()
	defer m.owner.Unlock()
	return len(m.events)
}

// unpark returns the buffers for a loop that is busy.
func (m *mailbox) unpark() *buffers {
	m.owner.Lock()
	defer m.owner.Unlock()
	if m.events == nil {
		m.begin()
	}
	return m.buffers
}

// park returns the buffers, for use by other loops. They contain the memory of the mailbox
// and the cleared slice, which the next take would have got. If an event waits, the loop is
// not idle: park returns nil, and the mailbox keeps its memory.
func (m *mailbox) park(cleared []event) *buffers {
	m.owner.Lock()
	defer m.owner.Unlock()
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

// open opens the mailbox for a loop, whose own goroutine start starts. The caller has the loop.
func (m *mailbox) open(start func(actor.Held)) actor.Held {
	m.owner.Lock()
	defer m.owner.Unlock()
	return m.owner.Open(start)
}

// resume gives the loop from a lent goroutine to its own.
func (m *mailbox) resume(held actor.Held) {
	m.owner.Lock()
	next := m.owner.Resume(held)
	m.owner.Unlock()
	next.Go()
}

// adopt makes a lent goroutine the loop's own.
func (m *mailbox) adopt(held actor.Held) actor.Held {
	m.owner.Lock()
	defer m.owner.Unlock()
	return m.owner.Adopt(held)
}

// last keeps the loop for the goroutine that calls it, which is the loop's own, until close.
func (m *mailbox) last() actor.Held {
	m.owner.Lock()
	defer m.owner.Unlock()
	return m.owner.Last()
}

// close closes the mailbox and returns the events that nobody has taken.
func (m *mailbox) close() []event {
	m.owner.Lock()
	defer m.owner.Unlock()
	m.owner.End()
	remaining := m.events
	m.events = nil
	return remaining
}

// keep gives the memory of the events that close returned back to the mailbox. It clears it.
func (m *mailbox) keep(taken []event) {
	clear(taken)
	m.owner.Lock()
	defer m.owner.Unlock()
	m.events = taken[:0]
}
