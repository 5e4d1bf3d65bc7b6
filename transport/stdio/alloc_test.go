//go:build !race

package stdio

import (
	"bytes"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// A frame to a child and back allocates at most this much in the link. The race
// detector allocates too, so the test does not run with it.
func TestRoundTripAllocates(t *testing.T) {
	p := open(t, roleCommand(t, "echo"))
	frame := bytes.Repeat([]byte("x"), 64)
	allocated := testing.AllocsPerRun(500, func() {
		p.Grant(transport.Main, 1)
		if err := p.Send(transport.Outbound{Frame: frame}); err != nil {
			t.Fatal(err)
		}
		<-p.received
	})
	if allocated > 1 {
		t.Errorf("%v allocations, want 1 at most", allocated)
	}
}
