package conn

import (
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// A call that is kept for reuse holds neither a frame nor a route.
func TestSpareCallHoldsNothing(t *testing.T) {
	c := New(deadTransport{}, Options{})
	ended := &call{out: outboundFrame{frame: make([]byte, 1)}, route: transport.Route{Arguments: new(transport.Arguments)}}
	c.spares().keepCall(ended)
	if ended.out.frame != nil || ended.route.Arguments != nil {
		t.Errorf("it holds %+v with the route %+v, want nothing", ended.out, ended.route)
	}
}
