package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// A server that says something of ever more tools does not make its client
// grow, and what was noted before stays.
//
// Guarantees: G-0012.4
func TestToolNotesAreBounded(t *testing.T) {
	readOnly := &protocol.ToolAnnotations{ReadOnlyHint: true}
	var l toolNotes
	for n := range maxNotes + 10 {
		l.learn([]*protocol.Tool{{Name: fmt.Sprint(n), Annotations: readOnly}}, true)
	}
	long := strings.Repeat("x", maxNotedName+1)
	l.learn([]*protocol.Tool{{Name: "0"}, {Name: long, Annotations: readOnly}}, true)
	if len(l.tools) != maxNotes-1 || !l.of("1").repeatable || l.of("0").repeatable || l.of(long).repeatable {
		t.Errorf("%d are noted", len(l.tools))
	}
	l.learn([]*protocol.Tool{{Name: "1"}, {Name: "new", Annotations: readOnly}}, true)
	if l.of("1").repeatable || !l.of("new").repeatable {
		t.Error("what was listed last is not what counts")
	}
}

// What may have been executed is not repeated in its own session either, where
// it has a state to be executed on.
//
// Guarantees: G-0012.1
func TestStatefulCallIsNeverRepeatable(t *testing.T) {
	for _, status := range []conn.Status{{State: conn.Ready, Epoch: 3}, {State: conn.Backoff, Epoch: 3}} {
		for _, epoch := range []uint64{0, 2} {
			o := CallOptions{Repeatable: true, Retries: 5, WaitForReady: true, Epoch: epoch}
			if o.stateful(status); o.Repeatable {
				t.Errorf("%s, for %d: %+v", status.State, epoch, o)
			}
		}
	}
}

// A server that was replaced while a request was made for it is not spoken to
// as the one that has replaced it.
//
// Guarantees: G-0023.8
func TestRequestOfAServerThatWasReplaced(t *testing.T) {
	s := &Session{session: &session{client: new(Client)}}
	s.peer.Store(&peer{incarnation: new(conn.Incarnation), server: Server{ProtocolVersion: protocol.LatestLegacy}}) // of epoch 0
	c := outgoing[protocol.PingParams, protocol.EmptyResult, *protocol.PingParams]{session: s.session, method: ping}
	if _, err := c.MakeMessage(context.Background(), 1, 0); err != nil {
		t.Errorf("for the present one: %v", err)
	}
	if _, err := c.MakeMessage(context.Background(), 2, 1); !errors.Is(err, conn.ErrStale) {
		t.Errorf("for another: %v", err)
	}
}
