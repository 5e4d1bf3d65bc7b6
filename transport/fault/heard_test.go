package fault_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// hearing is a link that says how much it has heard.
type hearing struct {
	transport.Link
	bytes uint64
}

func (h *hearing) Heard() (uint64, bool) { return h.bytes, true }

func TestHalfOpenLinkHearsNothing(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	inner := &hearing{Link: a, bytes: 5}
	link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{{Kind: fault.HalfOpen, Direction: fault.Outbound, At: []int{1}}}})
	link.Bind(new(told))
	if bytes, ok := link.Heard(); bytes != 5 || !ok {
		t.Errorf("%d bytes, counted: %v", bytes, ok)
	}
	link.Send(transport.Outbound{Tag: 1, Frame: []byte("x")})
	inner.bytes = 7
	if bytes, _ := link.Heard(); bytes != 5 {
		t.Errorf("it has heard %d bytes", bytes)
	}
	link.Close(0)
	b.Close(0)
}

func TestLinkHearsWhatItWraps(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	link := fault.Wrap(a, fault.Plan{})
	if _, ok := link.Heard(); ok {
		t.Error("a link in memory counts nothing")
	}
	link.Close(0)
	b.Close(0)
}
