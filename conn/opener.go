package conn

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// An openingCaller lends a loop its goroutine for opening the first link and for its
// handshake: it waits for both in any case (ADR-0054). Nil: nobody does.
type openingCaller struct {
	mu   sync.Mutex
	gone bool // it takes nothing more
	job  *job // what is left to it; nil if that is nothing
}

// LeaveOpening makes the next Start or Begin leave opening the first link, and the
// handshake, to Open. Call it if you wait for the first link anyway: it saves goroutines.
// It does nothing unless the transport opens links at once (transport.Opening). If Open is
// not called, the attempt fails after Options.InitTimeout.
func (c *Conn) LeaveOpening() {
	if opening, ok := c.transport.(transport.Opening); ok {
		_ = guard(func() error { c.leaves.Store(opening.OpensAtOnce()); return nil })
	}
}

// Open does what Start has left to it, on the calling goroutine, and returns when the
// first attempt to connect is over, or goes on elsewhere. Stop ends it.
func (c *Conn) Open() {
	l := c.running.Load()
	if l == nil {
		return
	}
	for j := l.opening.take(); j != nil; j = l.opening.take() {
		if l.bring(j) {
			l.turn(0)
		}
	}
}

// offer leaves a job to the caller. It reports false if the caller takes none.
func (o *openingCaller) offer(j *job) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone || o.job != nil {
		return false
	}
	o.job = j
	return true
}

// take returns what was left to the caller. If that is nothing, nothing more is.
func (o *openingCaller) take() *job { return o.takeLast(false) }

// takeLast is take. If last is set, nothing more is left to the caller.
func (o *openingCaller) takeLast(last bool) *job {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.job
	o.job, o.gone = nil, o.gone || last || j == nil
	return j
}
