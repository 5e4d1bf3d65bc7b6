package client

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/internal/reports"
)

// An inFlight is an undecoded request that has not ended.
type inFlight struct {
	ctx context.Context
	id  atomic.Int64 // of the last attempt; 0 before the first
}

// rawCallsIn returns the calls of a session, which gets them with its first call: most sessions never have one.
func rawCallsIn(p *atomic.Pointer[rawCalls]) *rawCalls {
	if cs := p.Load(); cs != nil {
		return cs
	}
	p.CompareAndSwap(nil, new(rawCalls))
	return p.Load()
}

// rawCalls are the undecoded requests of a session that have not ended, so that a question of a legacy server can be brought to
// whoever it is for.
type rawCalls struct {
	mu    sync.Mutex
	calls map[*inFlight]struct{}
}

// begin adds a call, until end.
func (cs *rawCalls) begin(ctx context.Context) *inFlight {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.calls == nil {
		cs.calls = make(map[*inFlight]struct{})
	}
	one := &inFlight{ctx: ctx}
	cs.calls[one] = struct{}{}
	return one
}

func (cs *rawCalls) end(one *inFlight) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.calls, one)
}

// An asking is a question that came as a request: the calls of its session, and the id of the one that it is for, or 0.
type asking struct {
	calls    *atomic.Pointer[rawCalls] // to nil if there was never one
	by       int64
	progress *reports.Reports // nil if the server has not asked for progress
}

type askingKey struct{}

// Asking returns the contexts of the calls of Relay and Request to which a question or a log message of the server may belong, in no
// particular order. Ctx is that of Options.Elicit, ElicitURL, Sample, Roots or OnLog. Over HTTP that is the one call on whose stream the question
// came. Over pipes nothing says it: it may be any call in flight. In 2026-07-28 a question is a part of the answer to a
// call, so it is the context of that. There may be none, if the server asks outside of a call.
func Asking(ctx context.Context) (calls []context.Context) {
	asked, ok := ctx.Value(askingKey{}).(asking)
	if !ok {
		return []context.Context{ctx}
	}
	all := asked.calls.Load()
	if all == nil {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for one := range all.calls {
		if asked.by == 0 || one.id.Load() == asked.by {
			calls = append(calls, one.ctx)
		}
	}
	return calls
}

// Progress tells the server how far the answer to its question is, if the server has asked for that. Ctx is that of Options.Elicit,
// ElicitURL, Sample or Roots. Done must grow from call to call; other values are dropped. Total is 0 if it is unknown. Progress never
// blocks. While the connection is busy, up to 16 reports wait; after that the newest replaces the one before it. All reports are sent
// before the answer. In 2026-07-28 a client cannot report progress, and Progress does nothing.
func Progress(ctx context.Context, done, total float64, message string) {
	if asked, _ := ctx.Value(askingKey{}).(asking); asked.progress != nil {
		asked.progress.Add(ctx, done, total, message)
	}
}
