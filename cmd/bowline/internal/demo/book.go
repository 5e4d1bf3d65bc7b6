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

// told is what a caller was told: the outcome of its call, and the reason.
type told struct {
	ledger.Outcome
	reason string
}

// A book is what the callers of one server were told, once per call.
type book struct {
	ledger.Ledger

	mu     sync.Mutex
	failed map[told]int // failures that the story has not told of yet
}

// byCallers reports whether a method is one that the demo calls. The others are
// of handshakes.
func byCallers(method string) bool {
	return method != protocol.MethodInitialize && method != protocol.MethodDiscover
}

// record enters how one call ended, by what its caller was told.
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

// failures returns what callers were told of failures since the last time.
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
