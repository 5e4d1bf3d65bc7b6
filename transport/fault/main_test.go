package fault_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLinkContractWithoutFaults(t *testing.T) {
	proptest.LinkContract(t, func(*testing.T) (a, b transport.Link) {
		a, b = inmem.Pipe(inmem.Options{})
		return fault.Wrap(a, fault.Plan{}), fault.Wrap(b, fault.Plan{})
	})
}

// hearing is a link that counts the bytes it has received.
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
