package demo

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// An account is how a call ended.
type account struct {
	cause    conn.Cause
	delivery conn.Delivery
}

// told is an account and the reason that came with it.
type told struct {
	account
	reason string
}

// A ledger is the callers' own book of one server: what each of them was told,
// once per call.
type ledger struct {
	mu      sync.Mutex
	total   map[account]int
	failed  map[told]int // failures of the present chapter
	strange []error      // outcomes that are no *conn.CallError
}

func newLedger() *ledger {
	return &ledger{total: make(map[account]int), failed: make(map[told]int)}
}

// hooks enter the calls of handshakes, which no caller of ours makes.
func (l *ledger) hooks() telemetry.Hooks {
	return telemetry.Hooks{RequestStopped: func(_ context.Context, stopped telemetry.RequestStopped) {
		if stopped.Method == protocol.MethodInitialize || stopped.Method == protocol.MethodDiscover {
			l.record(stopped.Err)
		}
	}}
}

// record enters how one call ended, by what its caller was told.
func (l *ledger) record(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var call *conn.CallError
	switch {
	case err == nil:
		l.total[account{conn.Answered, conn.Sent}]++
	case errors.As(err, &call):
		ended := account{call.Cause, call.Delivery}
		l.total[ended]++
		l.failed[told{ended, brief(call.Err)}]++
	default:
		l.strange = append(l.strange, err)
	}
}

// chapter returns what callers were told of failures since the last one.
func (l *ledger) chapter() []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var events []event
	for _, t := range slices.SortedFunc(maps.Keys(l.failed), inOrder) {
		events = append(events, toldEvent(l.failed[t], t))
	}
	clear(l.failed)
	return events
}

func inOrder(a, b told) int {
	return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.delivery, b.delivery), cmp.Compare(a.reason, b.reason))
}

func (l *ledger) count(a account) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total[a]
}
