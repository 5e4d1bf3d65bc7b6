package conn

import (
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// What a call that was refused wanted to send is not kept for the next one.
func TestKeptCallHoldsNothing(t *testing.T) {
	c := New(deadTransport{}, Options{})
	over := &call{out: outboundFrame{frame: make([]byte, 1)}, route: transport.Route{Arguments: new(transport.Arguments)}}
	c.spares().keepCall(over)
	if over.out.frame != nil || over.route.Arguments != nil {
		t.Errorf("it keeps %+v with the route %+v", over.out, over.route)
	}
}
