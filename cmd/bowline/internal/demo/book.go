package demo

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/protocol"
)

// told is the outcome of a call, and its reason.
type told struct {
	ledger.Outcome
	reason string
}

// A book counts the outcomes that the callers of one server got, once for each
// call.
type book struct {
	ledger.Ledger

	mu     sync.Mutex
	failed map[told]int // failures that were not printed yet
}

// byCallers reports whether a method is one that the demo calls. The others are
// of handshakes.
func byCallers(method string) bool {
	return method != protocol.MethodInitialize && method != protocol.MethodDiscover
}

// record counts how one call ended, from the error that its caller got.
func (b *book) record(err error) {
	outcome := b.Tell(err)
	var call *conn.CallError
	if !errors.As(err, &call) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		b.failed = make(map[told]int)
	}
	b.failed[told{outcome, brief(call.Err)}]++
}

// failures returns the failures that callers got since the last call of
// failures.
func (b *book) failures() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	var events []event
	for _, t := range slices.SortedFunc(maps.Keys(b.failed), inOrder) {
		events = append(events, toldEvent(b.failed[t], t))
	}
	clear(b.failed)
	return events
}

func inOrder(a, b told) int {
	return cmp.Or(cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Delivery, b.Delivery), cmp.Compare(a.reason, b.reason))
}
