package conn

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// spares hold the memory that Conns give up when they park, for those that become
// busy. It belongs to a Wheel, and so to the Conns that share it: what it holds
// must not pass from one test in a bubble of its own to another.
type spares struct {
	buffers  sync.Pool // of *buffers
	calls    sync.Pool // of *call
	attempts sync.Pool // of *attempts, empty
	timers   sync.Pool // of *time.Timer, stopped
}

// buffers are what only a busy loop needs, and its mailbox and core.
type buffers struct {
	batch       []event    // taken from the mailbox, not stepped yet
	spare       []event    // for the mailbox to fill
	current     *event     // being stepped; nil between steps
	unperformed []effect   // of the present step
	returned    []event    // what the link did not take, for the core
	following   []event    // what else the present step has brought about, for the core
	pace        pace       // of handlers
	keepUpTo    pace       // a request is kept for the goroutine of the link unless handlers take longer
	kept        served     // what was kept
	events      [2][]event // the mailbox's, while the loop is parked
	scratch     scratch    // the core's, likewise
}

// forMailbox returns the events that the mailbox may fill.
func (b *buffers) forMailbox() []event {
	if b == nil {
		return nil
	}
	return b.spare
}

func (s *spares) takeBuffers() *buffers {
	if spare, ok := s.buffers.Get().(*buffers); ok {
		return spare
	}
	return new(buffers)
}

// newCall takes a call from the pool. It holds the send slot just acquired.
func (c *Conn) newCall() *call {
	waiting, ok := c.spares().calls.Get().(*call)
	if !ok {
		waiting = &call{done: make(chan outcome, 1)}
	}
	waiting.reset(c.slots)
	return waiting
}

// keepCall takes a call back that was settled, and of which nobody else knows any more.
func (c *Conn) keepCall(settled *call) {
	settled.out = outboundFrame{} // it may be large; in one statement, the stack of the caller would be larger
	settled.route = transport.Route{}
	c.spares().calls.Put(settled)
}

// newAttempts takes empty attempts from the pool. On the stack of a caller who waits they
// would make that twice as large.
func (c *Conn) newAttempts() *attempts {
	if a, ok := c.spares().attempts.Get().(*attempts); ok {
		return a
	}
	return new(attempts)
}

// keepAttempts takes back attempts whose call has ended without a panic.
func (c *Conn) keepAttempts(over *attempts) {
	*over = attempts{}
	c.spares().attempts.Put(over)
}

// newTimer takes a timer from the pool: a crowd of callers needs one for each call.
func (c *Conn) newTimer(wait time.Duration) *time.Timer {
	timer, ok := c.spares().timers.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(wait)
	}
	timer.Reset(wait)
	return timer
}

func (c *Conn) keepTimer(timer *time.Timer) {
	timer.Stop() // its channel is empty then
	c.spares().timers.Put(timer)
}

func (c *Conn) spares() *spares { return &c.options.Wheel.spares }
