package demo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// A ledger is the callers' own book: what each of them was told, once per call.
type ledger struct {
	mu      sync.Mutex
	total   map[account]int
	failed  map[string]int // failures of this chapter, by what the caller was told
	strange []error        // outcomes that are no *conn.CallError
}

func newLedger() *ledger {
	return &ledger{total: make(map[account]int), failed: make(map[string]int)}
}

// hooks enter the one kind of call that no caller of ours makes.
func (l *ledger) hooks() telemetry.Hooks {
	return telemetry.Hooks{RequestStopped: func(stopped telemetry.RequestStopped) {
		if stopped.Method == protocol.MethodInitialize {
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
		l.total[account{call.Cause, call.Delivery}]++
		l.failed[told(call)]++
	default:
		l.strange = append(l.strange, err)
	}
}

// told is what a caller can act on, on one line.
func told(call *conn.CallError) string {
	advice := "it may have run: the caller decides"
	if conn.NotExecuted(call) {
		advice = "it surely did not run: safe to repeat"
	}
	reason, _, _ := strings.Cut(call.Err.Error(), "\n")
	return fmt.Sprintf("%s (%s): %s [%s]", call.Cause, call.Delivery, reason, advice)
}

// chapter returns what callers were told since the last one, in order.
func (l *ledger) chapter() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, text := range slices.Sorted(maps.Keys(l.failed)) {
		lines = append(lines, fmt.Sprintf("%3d × %s", l.failed[text], text))
	}
	clear(l.failed)
	return lines
}

func (l *ledger) count(a account) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total[a]
}
