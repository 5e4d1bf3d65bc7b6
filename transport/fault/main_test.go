package fault_test

import (
	"errors"
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

// The first opens fail, and are in the log. Faults of one link hit no other, At counts whatever After says, and the plan of the program stays as
// it is. A link that is closed is broken by nothing.
func TestFaultsOfOneLink(t *testing.T) {
	faults := []fault.Fault{{Kind: fault.Drop, Direction: fault.Outbound, Link: 1, At: []int{1}, After: 5}}
	from := fault.New(inmem.New(func(peer transport.Link) { peer.Bind(new(recording)) }, inmem.Options{}), fault.Plan{FailOpens: 2, Faults: faults})
	for n := range 4 {
		link, err := from.Open(t.Context())
		var refused *fault.InjectedError
		if failed := errors.As(err, &refused); failed != (n < 2) || failed && (refused.Kind != fault.FailOpen || refused.Link != n+1) {
			t.Fatalf("open %d: got %v", n+1, err)
		} else if failed {
			continue
		}
		link.Bind(new(recording))
		if err := link.Send(transport.Outbound{Frame: []byte("x")}); err != nil {
			t.Error(err)
		}
		link.Close(0)
		from.Break()
	}
	log := from.Log()
	if got := log.String(); got != "link 1: fail open\nlink 2: fail open\nlink 1, outbound frame 1: drop x\n" {
		t.Errorf("got the log\n%s", got)
	}
	log[0].Link = 7
	if from.Log()[0].Link != 1 || faults[0].Frames != 0 || faults[0].For != 0 {
		t.Errorf("got %+v and %+v, want what they were", from.Log()[0], faults[0])
	}
}
