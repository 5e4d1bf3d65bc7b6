package server_test

import (
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// namedNode returns a connection to a node of a fleet, whose nodes have a secret in common.
func namedNode(t *testing.T, s *shop, name string) *rawPeer {
	return dial(t, s.server(server.Options{Node: name, Asking: server.AskingOptions{Fleet: true, Secrets: fixed(make([]byte, 32))}}))
}

// In a fleet whose nodes have names, features may use Waits. The state of a call that waits
// begins with the name of its node, in clear. Only that node, and only the same process of
// it, continues the call; every other one says that the node has ended.
//
// Guarantees: G-0075.1, G-0075.3
func TestStateOfAWaitingCallNamesItsNode(t *testing.T) {
	s := new(shop)
	a, b := namedNode(t, s, "a"), namedNode(t, s, "b")
	first := a.round("one_waits", "")
	if !strings.HasPrefix(first.State, "1.a.") {
		t.Fatalf("got the state %q, want it to begin with %q", first.State, "1.a.")
	}
	s.runs.Store(0)
	for what, w := range map[string]*rawPeer{"another node": b, "the node after a restart": namedNode(t, s, "a")} {
		if got := w.round("one_waits", retryParams(first.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "node has ended") || !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
			t.Errorf("%s: got %+v, want the error %d with %q", what, got, jsonrpc.CodeInvalidParams, "node has ended")
		}
	}
	for _, changed := range []string{"1.b." + first.State[4:], "1." + first.State[4:], "1.A." + first.State[4:], "1.a.a." + first.State[4:], "1..a." + first.State[4:]} {
		for what, w := range map[string]*rawPeer{"a": a, "b": b} {
			if got := w.round("one_waits", retryParams(changed, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid or expired") {
				t.Errorf("%.10q at %s: got %+v, want the error %d with %q", changed, what, got, jsonrpc.CodeInvalidParams, "invalid or expired")
			}
		}
	}
	if s.runs.Load() != 0 {
		t.Errorf("the handler ran %d times for states of no call here, want 0", s.runs.Load())
	}
	if got := a.round("one_waits", retryParams(first.State, yes)); !strings.Contains(got.Text, "confirmed") {
		t.Errorf("got %+v, want %q in it", got, "confirmed")
	}
}

// A call that can continue anywhere names no node, so it is never forwarded.
//
// Guarantees: G-0075.1
func TestStateOfARerunNamesNoNode(t *testing.T) {
	s := new(shop)
	a, b := namedNode(t, s, "a"), namedNode(t, s, "b")
	for _, name := range []string{"one_reruns", "explicit"} {
		first := a.round(name, "")
		if strings.Count(first.State, ".") != 1 {
			t.Errorf("%s: got the state %q, want no name in it", name, first.State)
		}
		if got := b.round(name, retryParams(first.State, yes)); got.Error != nil {
			t.Errorf("%s: at another node: got %+v", name, got.Error)
		}
	}
}

// New refuses a name that could be mistaken for another part of an id. A fleet without names
// refuses features that use Waits, and says what to set.
//
// Guarantees: G-0075.1
func TestNamesOfNodesAreChecked(t *testing.T) {
	for _, wrong := range []string{"a.b", "a b", "é", strings.Repeat("a", 65)} {
		wantPanic(t, wrong, "Node", func() { newServer(server.Options{Node: wrong}) })
	}
	wantPanic(t, "waits in a fleet", "Options.Node", func() {
		server.AddTool(newServer(server.Options{Asking: server.AskingOptions{Fleet: true, Secrets: fixed(make([]byte, 32))}}),
			protocol.Tool{Name: "t"}, new(shop).one, server.Asks(server.Waits, forms))
	})
}
