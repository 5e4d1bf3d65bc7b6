package stdio

import (
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// Guarantees: G-0025.2
func TestBytesThatComeInAreHeard(t *testing.T) {
	p := open(t, roleCommand(t, "echo"))
	hearing := p.Link.(transport.Hearing)
	if bytes, ok := hearing.Heard(); bytes != 0 || !ok {
		t.Errorf("%d bytes before anything came in, counted: %v", bytes, ok)
	}
	p.send("four")
	p.want("four")
	if bytes, _ := hearing.Heard(); bytes != uint64(len("four\n")) {
		t.Errorf("%d bytes", bytes)
	}
	p.close(hangGuard)
}
