package conn

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// pools hold the memory that Conns give up when they park, for those that become busy. It
// belongs to a Wheel, and so to the Conns that share it. It is not global, because its
// timers and channels must not pass from one synctest bubble to another.
type pools struct {
	buffers  sync.Pool // values are *buffers
	calls    sync.Pool // values are *call
	attempts sync.Pool // values are *attempts, empty
	timers   sync.Pool // values are *time.Timer, stopped
}

// buffers are what only a busy loop needs, and its mailbox and core.
type buffers struct {
	batch       []event    // events that were taken from the mailbox and wait for their step
	spare       []event    // the slice that the mailbox fills next
	current     *event     // the event of the present step; nil between steps
	at          instant    // of the present step
	unperformed []effect   // effects of the present step that are not performed yet
	returned    []event    // events for the core: frames that the link did not accept
	following   []event    // events for the core: other results of the present step
	first       [1]event   // the memory of following, unless there are several
	pace        pace       // how long handlers take
	keepUpTo    pace       // if handlers take at most this long, the goroutine of the link gets a request to serve
	kept        served     // that request
	events      [2][]event // the memory of the mailbox, while the loop is parked
	unused      uint16     // how many times in a row less than a sixteenth of the mailbox's capacity was used
	scratch     scratch    // the memory of the core, while the loop is parked
}

// follow adds an event that the core gets in the present step.
func (b *buffers) follow(ev event) {
	if b.following == nil {
		b.following = b.first[:0]
	}
	b.following = append(b.following, ev)
}

// clearStep forgets what the present step has left, so that it keeps no frame in memory.
func (b *buffers) clearStep() {
	if b.following != nil {
		b.first = [1]event{}
	}
	b.returned, b.following = nil, nil
}

// forMailbox returns the events that the mailbox may fill.
func (b *buffers) forMailbox() []event {
	if b == nil {
		return nil
	}
	return b.spare
}

func (s *pools) getBuffers() *buffers {
	if spare, ok := s.buffers.Get().(*buffers); ok {
		return spare
	}
	return new(buffers)
}

// getCall returns a call that holds a send slot of these.
func (s *pools) getCall(slots chan struct{}) *call {
	waiting, ok := s.calls.Get().(*call)
	if !ok {
		waiting = &call{done: make(chan outcome, 1)}
	}
	waiting.reset(slots)
	return waiting
}

// putCall keeps a settled call for reuse. Nobody else may refer to it.
func (s *pools) putCall(settled *call) {
	settled.out = outboundFrame{} // cleared separately, because a single statement would need more of the caller's stack
	settled.route = transport.Route{}
	s.calls.Put(settled)
}

// getTimer returns a running timer. A crowd of callers needs one for each call.
func (s *pools) getTimer(wait time.Duration) *time.Timer {
	timer, ok := s.timers.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(wait)
	}
	timer.Reset(wait)
	return timer
}

func (s *pools) putTimer(timer *time.Timer) {
	timer.Stop() // after Stop its channel is empty
	s.timers.Put(timer)
}
