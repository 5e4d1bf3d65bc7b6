package conn

import (
	"sync"

	"github.com/bowline-mcp/bowline/internal/actor"
	"github.com/bowline-mcp/bowline/transport"
)

// An openingCaller is the caller of Open, who opens the first link and runs its handshake
// on his own goroutine (ADR-0054). Nil: there is none.
type openingCaller struct {
	mu   sync.Mutex
	gone bool // the caller accepts no further job
	job  *job // the next job for the caller; nil if there is none
}

// LeaveOpening tells the next Start or Begin not to connect. Call Open to make the first
// attempt on your own goroutine: if you wait for the first link anyway, this saves
// goroutines. It has an effect only if the transport opens links without waiting
// (transport.Traits). If nobody calls Open, the attempt fails after
// Options.InitTimeout.
func (c *Conn) LeaveOpening() {
	_ = guard(func() error { c.leaves.Store(transport.TraitsOf(c.transport).OpensAtOnce); return nil })
}

// Open makes the first attempt to connect, if LeaveOpening was called before Start: it opens
// the link and runs the handshake on the calling goroutine. It returns when the attempt has
// ended, or continues on another goroutine. Stop ends the attempt. If the Conn has not started
// yet, Open returns, and the Conn connects by itself when it starts.
func (c *Conn) Open() {
	l := c.running.Load()
	if l == nil {
		if c.leaves.Swap(false) {
			return // the Conn has not started; when it does, it connects by itself
		}
		if l = c.running.Load(); l == nil {
			return
		}
	}
	for j := l.opening.take(); j != nil; j = l.opening.take() {
		if held := l.bring(j, actor.Lend); held.OK() {
			l.turn(held, 0)
		}
	}
}

// offer leaves a job to the caller of Open. It reports false if the caller accepts none.
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

// take returns the job that was left to the caller. After it has returned nil, offer
// refuses every job.
func (o *openingCaller) take() *job { return o.takeLast(false) }

// takeLast is take. If last is set, offer refuses every further job.
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
