package conn

import (
	"context"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/transport"
)

// A lent is the goroutine of a caller, which works for the link while it waits for its
// answer (ADR-0059). The caller offers it once for each attempt, and the link may ask for
// it once.
type lent struct {
	offered atomic.Bool // and nobody has asked for it yet
	taken   bool        // the caller has taken the work; only the caller uses it
	work    chan func() // capacity one; nil before the first offer
}

// offer has the caller do the work of the link until withdraw.
func (l *lent) offer() {
	if l.work == nil {
		l.work = make(chan func(), 1)
	}
	l.taken = false
	l.offered.Store(true)
}

// Lend implements transport.Lender.
func (l *lent) Lend(work func()) bool {
	if !l.offered.Swap(false) {
		return false
	}
	l.work <- work // it has room, since nobody else has asked
	return true
}

// withdraw ends what offer has begun: the caller waits no longer. Work that came together
// with the outcome is done on a goroutine of its own. Withdraw reports false if nobody has
// asked for the offer: then the link may still know of it.
func (l *lent) withdraw() (forgotten bool) {
	switch {
	case l.offered.Swap(false):
		return false
	case l.work != nil && !l.taken:
		go (<-l.work)() // the link waits for it
	}
	return true
}

// workFor does the work of the link for a call. If the context ends meanwhile, the loop is
// asked to settle the call, which ends the work.
func (c *Conn) workFor(ctx context.Context, id int64, work func()) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { c.leaveCall(ctx, id) })()
	}
	work()
}

// lender returns the goroutine that waits for the answer to a frame, if it is lent.
func (o *outboundFrame) lender() transport.Lender {
	if o.call == nil || o.notification || !o.call.lent.offered.Load() {
		return nil
	}
	return &o.call.lent
}
