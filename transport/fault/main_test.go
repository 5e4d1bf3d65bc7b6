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

// heardLink is a link that records reads.
type heardLink struct {
	transport.Link
	last time.Time
}

func (h *heardLink) LinkTraits() transport.LinkTraits {
	return transport.LinkTraits{RecordsReads: true, LastRead: h.last}
}

// A half-open link does not report bytes that came after the fault.
func TestHalfOpenLinkReportsNoLaterBytes(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	before := time.Now()
	inner := &heardLink{Link: a, last: before}
	link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{{Kind: fault.HalfOpen, Direction: fault.Outbound, At: []int{1}}}})
	link.Bind(new(recording))
	if got := link.LinkTraits(); got.LastRead != before || !got.RecordsReads {
		t.Errorf("got the traits %+v", got)
	}
	link.Send(transport.Outbound{Tag: 1, Frame: []byte("x")})
	inner.last = before.Add(1)
	if got := link.LinkTraits(); got.LastRead != before {
		t.Errorf("got the traits %+v after the fault", got)
	}
	link.Close(0)
	b.Close(0)
}

// A link records reads if the link that it wraps does.
func TestTraitsAreThoseOfTheWrappedLink(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	link := fault.Wrap(a, fault.Plan{})
	if got := link.LinkTraits(); got != (transport.LinkTraits{}) {
		t.Errorf("a link in memory has the traits %+v, want none", got)
	}
	link.Close(0)
	b.Close(0)
}

// keptLink is a link with Keep and Kept.
type keptLink struct {
	transport.Link
	state []byte
}

func (k *keptLink) Keep(state []byte)                    { k.state = state }
func (k *keptLink) Kept() (state []byte, continues bool) { return k.state, true }

// Keep and Kept of a link are those of the link it wraps, if that has them.
func TestKeptIsThatOfTheWrappedLink(t *testing.T) {
	a, b := inmem.Pipe(inmem.Options{})
	inner := &keptLink{Link: a}
	link := fault.Wrap(inner, fault.Plan{})
	link.Keep([]byte("state"))
	if state, continues := link.Kept(); string(inner.state) != "state" || string(state) != "state" || !continues {
		t.Errorf("got %q, %v, and the inner link has %q", state, continues, inner.state)
	}
	plain := fault.Wrap(b, fault.Plan{})
	plain.Keep([]byte("state"))
	if state, continues := plain.Kept(); state != nil || continues {
		t.Errorf("a link in memory has kept %q, %v", state, continues)
	}
	link.Close(0)
	plain.Close(0)
}
