package fault

import (
	"context"
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A Transport opens links that go wrong according to its plan.
type Transport struct {
	inner  transport.Transport
	plan   *Plan
	record record

	mu      sync.Mutex
	opens   int
	links   int
	present *link // the last that was opened
}

// New wraps a transport in the faults of a plan. It panics when the plan names
// a fault that there is not.
func New(inner transport.Transport, plan Plan) *Transport {
	return &Transport{inner: inner, plan: plan.withDefaults()}
}

// Open implements transport.Transport.
func (t *Transport) Open(ctx context.Context) (transport.Link, error) {
	t.mu.Lock()
	t.opens++
	attempt := t.opens
	t.mu.Unlock()
	if attempt <= t.plan.FailOpens {
		t.record.add(Entry{Link: attempt, Kind: FailOpen})
		return nil, &InjectedError{Kind: FailOpen, Link: attempt}
	}
	inner, err := t.inner.Open(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.links++
	t.present = newLink(inner, t.plan, t.links, &t.record)
	return t.present, nil
}

// Log returns what was done so far. After 4,096 entries no more are added.
func (t *Transport) Log() Log { return t.record.read() }

// Break loses the link that was opened last, between two frames, as a peer
// does that is gone. It does not wait, and does nothing when there is none.
func (t *Transport) Break() {
	t.mu.Lock()
	present := t.present
	t.mu.Unlock()
	if present != nil {
		present.die(Entry{Link: present.number, Kind: Break})
	}
}

// Wrap wraps one link, for instance an acceptor's, in the faults of a plan. It
// is link 1. It panics when the plan names a fault that there is not.
func Wrap(inner transport.Link, plan Plan) *Link {
	wrapped := &Link{}
	wrapped.link = newLink(inner, plan.withDefaults(), 1, &wrapped.record)
	return wrapped
}

// A Link is a link that goes wrong according to its plan.
type Link struct {
	*link
	record record
}

// Log returns what was done so far. After 4,096 entries no more are added.
func (l *Link) Log() Log { return l.record.read() }
