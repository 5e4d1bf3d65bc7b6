package peertest_test

import (
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two peers at the ends of one link exchange frames in order, and see its end.
func TestPeer(t *testing.T) {
	ours, theirs := inmem.Pipe(inmem.Options{})
	near, far := peertest.Bind(t, ours), peertest.Bind(t, theirs)
	near.Send("one", "two")
	far.Want("on", "ne")
	if got := far.Next(); got != "two" {
		t.Errorf("got %q, want the second frame", got)
	}
	ours.Close(0)
	if frame, open := <-far.Frames; open {
		t.Errorf("got %q after the link was closed, want the end", frame)
	}
}

// Receive passes on the frames alone.
func TestReceive(t *testing.T) {
	var got []string
	r := peertest.Receive(func(in transport.Inbound) { got = append(got, string(in.Frame)) })
	r.Receive(transport.Inbound{Frame: []byte("one")})
	r.Writable()
	r.Ended()
	r.Lost(transport.Loss{})
	if !slices.Equal(got, []string{"one"}) {
		t.Errorf("got %q, want one frame", got)
	}
}
