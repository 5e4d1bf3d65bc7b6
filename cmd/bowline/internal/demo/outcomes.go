package demo

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/ledger"
)

// outcome is how a call ended, and its reason.
type outcome struct {
	ledger.Outcome
	reason string
}

// An outcomes counts the outcomes that the callers of one server got, once for each
// call.
type outcomes struct {
	ledger.Ledger

	mu        sync.Mutex
	unprinted map[outcome]int // failures that were not printed yet
}

// record counts how one call ended, from the error that its caller got.
func (o *outcomes) record(err error) {
	ended := o.Report(err)
	var call *conn.CallError
	if !errors.As(err, &call) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unprinted == nil {
		o.unprinted = make(map[outcome]int)
	}
	o.unprinted[outcome{ended, brief(call.Err)}]++
}

// failures returns the failures that callers got since the last call of
// failures.
func (o *outcomes) failures() []event {
	o.mu.Lock()
	defer o.mu.Unlock()
	var events []event
	for _, t := range slices.SortedFunc(maps.Keys(o.unprinted), compareOutcomes) {
		events = append(events, outcomeEvent(o.unprinted[t], t))
	}
	clear(o.unprinted)
	return events
}

func compareOutcomes(a, b outcome) int {
	return cmp.Or(cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Delivery, b.Delivery), cmp.Compare(a.reason, b.reason))
}
