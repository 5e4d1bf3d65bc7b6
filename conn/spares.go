package conn

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// spares holds the memory that Conns give up when they park, for those that become busy. It
// belongs to a Wheel, and so to the Conns that share it. It is not global, because its
// timers and channels must not pass from one synctest bubble to another.
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

// takeCall returns a call that holds a send slot of these.
func (s *spares) takeCall(slots chan struct{}) *call {
	waiting, ok := s.calls.Get().(*call)
	if !ok {
		waiting = &call{done: make(chan outcome, 1)}
	}
	waiting.reset(slots)
	return waiting
}

// keepCall keeps a settled call for reuse. Nobody else may refer to it.
func (s *spares) keepCall(settled *call) {
	settled.out = outboundFrame{} // it may be large; in one statement, the stack of the caller would be larger
	settled.route = transport.Route{}
	s.calls.Put(settled)
}

// takeAttempts returns empty attempts. On the stack of a caller who waits, they would make
// that twice as large.
func (s *spares) takeAttempts() *attempts {
	if a, ok := s.attempts.Get().(*attempts); ok {
		return a
	}
	return new(attempts)
}

// keepAttempts keeps the attempts of a call that has ended without a panic.
func (s *spares) keepAttempts(over *attempts) {
	*over = attempts{}
	s.attempts.Put(over)
}

// takeTimer returns a running timer. A crowd of callers needs one for each call.
func (s *spares) takeTimer(wait time.Duration) *time.Timer {
	timer, ok := s.timers.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(wait)
	}
	timer.Reset(wait)
	return timer
}

func (s *spares) keepTimer(timer *time.Timer) {
	timer.Stop() // its channel is empty then
	s.timers.Put(timer)
}
