package cluster

import (
	"errors"
	"testing"

	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A session that ends just when its last save is written is known until its end is written too:
// before that, the engine has a record that could be taken.
//
// Guarantees: G-0082.4
func TestEndOfASessionIsKnownUntilItIsWritten(t *testing.T) {
	n := Alone(Options{Cluster: "test", Node: "a", Key: make([]byte, KeySize)})
	s := &sessions{node: n, own: map[string]*ownSession{}, taking: map[string]bool{}, idle: make(chan struct{}), flying: maxSaves}
	o := &ownSession{id: "s", queued: true}
	s.own["s"] = o
	if s.begin(o, new(sessionEnd)) {
		t.Fatal("there is nothing to write")
	}
	s.Forget("s")
	s.ended(o, true) // the writer of the last save goes on
	if err := s.beginTake(t.Context(), "s", ""); !errors.Is(err, streamable.ErrNoSession) {
		t.Errorf("the session has ended, and Take begins with %v", err)
	}
}
