package gateway

import (
	"testing"

	"github.com/bowline-mcp/bowline/gateway/internal/pool"
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
