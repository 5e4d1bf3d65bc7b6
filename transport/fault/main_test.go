package fault_test

import (
	"testing"
	"time"

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
	}, proptest.ContractOptions{})

}

// hearing is a link that says when it has received something.
type hearing struct {
	transport.Link
	last time.Time
}

func (h *hearing) Heard() (time.Time, bool) { return h.last, true }

func TestHalfOpenLinkHearsNothing(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	before := time.Now()
	inner := &hearing{Link: a, last: before}
	link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{{Kind: fault.HalfOpen, Direction: fault.Outbound, At: []int{1}}}})
	link.Bind(new(told))
	if last, ok := link.Heard(); last != before || !ok {
		t.Errorf("heard at %v, %v", last, ok)
	}
	link.Send(transport.Outbound{Tag: 1, Frame: []byte("x")})
	inner.last = before.Add(1)
	if last, _ := link.Heard(); last != before {
		t.Errorf("it has heard something at %v", last)
	}
	link.Close(0)
	b.Close(0)
}

func TestLinkHearsWhatItWraps(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	link := fault.Wrap(a, fault.Plan{})
	if _, ok := link.Heard(); ok {
		t.Error("a link in memory hears nothing")
	}
	link.Close(0)
	b.Close(0)
}
