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

// heardLink is a link with Heard.
type heardLink struct {
	transport.Link
	last time.Time
}

func (h *heardLink) Heard() (time.Time, bool) { return h.last, true }

// A half-open link does not report bytes that came after the fault.
func TestHalfOpenLinkReportsNoLaterBytes(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	before := time.Now()
	inner := &heardLink{Link: a, last: before}
	link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{{Kind: fault.HalfOpen, Direction: fault.Outbound, At: []int{1}}}})
	link.Bind(new(recording))
	if last, ok := link.Heard(); last != before || !ok {
		t.Errorf("got the last time %v, %v", last, ok)
	}
	link.Send(transport.Outbound{Tag: 1, Frame: []byte("x")})
	inner.last = before.Add(1)
	if last, _ := link.Heard(); last != before {
		t.Errorf("got the last time %v after the fault", last)
	}
	link.Close(0)
	b.Close(0)
}

// Heard of a link is that of the link it wraps, if that has one.
func TestHeardIsThatOfTheWrappedLink(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	link := fault.Wrap(a, fault.Plan{})
	if _, ok := link.Heard(); ok {
		t.Error("got a last time of a link in memory, want none")
	}
	link.Close(0)
	b.Close(0)
}
