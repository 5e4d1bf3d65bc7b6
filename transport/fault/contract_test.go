package fault_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func TestLinkContractWithoutFaults(t *testing.T) {
	proptest.LinkContract(t, func(*testing.T) (a, b transport.Link) {
		a, b = inmem.Pipe(inmem.Options{})
		return fault.Wrap(a, fault.Plan{}), fault.Wrap(b, fault.Plan{})
	})
}
