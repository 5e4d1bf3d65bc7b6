package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// Of clients that have left nothing is kept, and there is a bound for the others, of whom nobody says when they leave.
//
// Guarantees: G-0095.7
func TestStatesAreBounded(t *testing.T) {
	var s states
	for i := range mostStates + 10 {
		s.move(pool.Owner{User: "ann", Session: i}, incarnation{epoch: 1})
	}
	if len(s.of) != mostStates {
		t.Errorf("%d clients are known, want %d", len(s.of), mostStates)
	}
	for i := range mostStates + 10 {
		s.left(i)
	}
	if len(s.of) != 0 {
		t.Errorf("%d clients are known that have left", len(s.of))
	}
}

// The process that a report names is that of the shared connection, also after one of an owner has started.
//
// Guarantees: G-0095.6
func TestTheProcessIsTheSharedOne(t *testing.T) {
	u := &traffic{notifier: newNotifier()}
	for pid, shared := range map[int]bool{1: true, 2: false} {
		child := new(stdio.Command)
		if u.observe(child, shared); child.Stderr == nil {
			t.Error("what it writes is lost")
		}
		if child.Started != nil {
			child.Started(pid)
		}
	}
	if got := u.pid.Load(); got != 1 {
		t.Errorf("process %d", got)
	}
}

// What became of a call is not in the reason, whatever stands behind it or before it there: the answer says it at the end.
func TestAReasonWithoutItsDelivery(t *testing.T) {
	for delivery, attempts := range map[conn.Delivery]int{conn.NotSent: 0, conn.Unknown: 2} {
		call := &conn.CallError{Method: "tools/call", Cause: conn.Refused, Delivery: delivery, Err: errors.New("no"), Attempts: make([]conn.Attempt, attempts)}
		text := withoutDelivery(fmt.Errorf("before: %w", call), call)
		if strings.Contains(text, "executed") || !strings.HasPrefix(text, "before: tools/call: no") || strings.Contains(text, "(3 attempts)") != (attempts > 0) {
			t.Errorf("%d attempts: %q of %q", attempts, text, call)
		}
	}
}
