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

// The client remembers a limited number of tools, and the latest list counts.
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
		t.Errorf("%d tools are remembered, want %d", len(l.tools), maxNotes-1)
	}
	l.learn([]*protocol.Tool{{Name: "1"}, {Name: "new", Annotations: readOnly}}, true)
	if l.of("1").repeatable || !l.of("new").repeatable {
		t.Error("an earlier list counts, want the latest one")
	}
	l.learn([]*protocol.Tool{{Name: "the last that has room", Annotations: readOnly}}, true)
	l.learn([]*protocol.Tool{{Name: "2", Annotations: readOnly, Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskRequired}}, {Name: "one more", Annotations: readOnly}}, true)
	if len(l.tools) != maxNotes || !l.of("2").taskOnly || l.of("one more").repeatable {
		t.Errorf("%d tools are remembered, want %d, and what is new of those that are known", len(l.tools), maxNotes)
	}
}

// A call of a stateful tool that may have been executed is not repeated in its server
// session either, because that session may have the state of the first execution.
//
// Guarantees: G-0012.1
func TestStatefulCallIsNeverRepeatable(t *testing.T) {
	for _, status := range []conn.Status{{State: conn.Ready, Epoch: 3}, {State: conn.Backoff, Epoch: 3}} {
		for _, epoch := range []uint64{0, 2} {
			o := CallOptions{Repeatable: true, Retries: 5, WaitForReady: true, Epoch: epoch}
			if o.stateful(status); o.Repeatable {
				t.Errorf("%s, for %d: got %+v", status.State, epoch, o)
			}
		}
	}
}

// A request that was made for a server session that has been replaced is not sent to
// the next one.
//
// Guarantees: G-0023.8
func TestRequestOfAServerThatWasReplaced(t *testing.T) {
	s := &Session{session: &session{client: new(Client)}}
	s.peer.Store(&peer{incarnation: new(conn.Incarnation), server: Server{ProtocolVersion: protocol.LatestLegacy}}) // belongs to epoch 0
	c := outgoing[protocol.PingParams, protocol.EmptyResult, *protocol.PingParams]{session: s.session, method: ping}
	if _, err := c.MakeMessage(context.Background(), 1, 0); err != nil {
		t.Errorf("for the present session: %v", err)
	}
	if _, err := c.MakeMessage(context.Background(), 2, 1); !errors.Is(err, conn.ErrStale) {
		t.Errorf("for another session: %v, want %v", err, conn.ErrStale)
	}
}
