package conn

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn/internal/background"
	"github.com/bowline-mcp/bowline/conn/internal/inbox"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// A record is the part of a Conn that outlives each of its loops. A Conn and its present loop
// both refer to it. A loop knows nothing of its Conn but the record, and what handle allows.
type record struct {
	caller
	options   *Tuning // without the options in own; many Conns may share it
	own       ownOptions
	role      role
	isProcess bool                // the peer is a process that the transport starts
	leaves    atomic.Bool         // LeaveOpening was called: Open opens the first link, and not Start
	stopping  atomic.Bool         // Stop was called
	heard     atomic.Bool         // the peer has sent a message
	transport transport.Transport // nil for an acceptor
	link      transport.Link      // nil for an initiator

	lastID        atomic.Int64
	notifications atomic.Pointer[inbox.Inbox[notification]] // nil before the first that waits
	status        statusCell
	counters      counters
	background    atomic.Pointer[background.Group] // nil before the first
	done          wait.Signal                      // fires when the Conn has closed for good

	// Only the goroutine that has the loop uses these.
	epoch uint64 // with which the next loop continues
	gap   *gap   // nil while the Conn is ready, and before it was
}

// A gap is the time from the loss of a ready incarnation until the next is ready.
type gap struct {
	lost  uint64 // the incarnation that was lost
	why   Reason
	since time.Time
	calls int // how many calls ended with the loss
}

func (r *record) pools() *pools { return &r.options.Wheel.pools }

// now is the time on the Conn's monotonic clock.
func (r *record) now() instant { return time.Since(r.born) }

// nextID returns the id for a new request. Ids are positive, rise, and are never reused in the
// life of a Conn. A number that is used twice could give the answer of one call to another.
func (r *record) nextID() int64 { return r.lastID.Add(1) }

func (r *record) reporter() reporter { return reporter{r.options, r.own.name, &r.counters} }

// reportPanic reports the error of code of the program, if it is a panic, on this
// goroutine.
func (r *record) reportPanic(where string, err error) {
	if panicked := asPanic(err); panicked != nil {
		by := r.reporter()
		by.reportPanic(where, panicked, by.tell)
	}
}

// inBackground returns the background of a Conn, and creates it if necessary. A
// Conn that closes at the same time either ends it, or is seen to be closing.
func (r *record) inBackground() *background.Group {
	if r.background.Load() == nil {
		r.background.CompareAndSwap(nil, background.New())
		if now := r.status.read(); now.State == Closing {
			r.background.Load().End(now.Reason)
		}
	}
	return r.background.Load()
}

// servedBy is the context key under which a handler finds the Conn it serves.
type servedBy struct{}

// A servedContext has the values of a context, but not its end, and the Conn under servedBy.
// It does not refer to the loop, because a handler may keep a context for long.
type servedContext struct {
	values context.Context
	record *record
}

func newServedContext(ctx context.Context, r *record) *servedContext {
	if ctx.Done() != nil { // otherwise it has no end
		ctx = context.WithoutCancel(ctx)
	}
	return &servedContext{ctx, r}
}

func (*servedContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

func (*servedContext) Done() <-chan struct{} { return nil }

func (*servedContext) Err() error { return nil }

func (c *servedContext) Value(key any) any {
	if key == (servedBy{}) {
		return c.record
	}
	return c.values.Value(key)
}

// serves reports whether ctx is that of one of this Conn's handlers.
func (r *record) serves(ctx context.Context) bool { return ctx.Value(servedBy{}) == r }

// withValues adds the values of the HTTP request that brought a message. The parent's own
// values take precedence: by one of them, package context finds the parent's cancellation.
func withValues(parent context.Context, from *transport.Origin) context.Context {
	if from == nil || from.Value == nil {
		return parent
	}
	return requestContext{parent, from.Value}
}

type requestContext struct {
	context.Context
	request func(key any) any
}

func (c requestContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.request(key)
}
