package conn

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/transport"
)

// A call that is kept for reuse holds neither a frame nor a route.
func TestSpareCallHoldsNothing(t *testing.T) {
	c := New(deadTransport{}, Options{})
	ended := &call{out: outboundFrame{frame: make([]byte, 1)}, route: transport.Route{Arguments: new(transport.Arguments)}}
	c.pools().putCall(ended)
	if ended.out.frame != nil || ended.route.Arguments != nil {
		t.Errorf("it holds %+v with the route %+v, want nothing", ended.out, ended.route)
	}
}

// A notification whose caller leaves while the link accepts it is not used for another one: the loop may
// still get the event that the caller has left, and would withdraw the next notification.
//
// Guarantees: G-0007.3
func TestNotificationOfACallerThatLeftIsNotUsedAgain(t *testing.T) {
	for range 20 { // a pool may forget what it was given
		synctest.Test(t, func(t *testing.T) {
			c := New(deadTransport{}, Options{})
			ctx, leave := context.WithCancel(t.Context())
			leave()
			waiting := c.pools().getCall(nil)
			go func() {
				synctest.Wait() // until the caller waits for the loop
				waiting.settle(outcome{ending: ending{cause: Answered}})
			}()
			if o := c.awaitTaken(ctx, waiting); o.cause != Answered {
				t.Fatalf("the notification was %v, want that it was accepted", o.cause)
			}
			if next := c.pools().getCall(nil); next == waiting {
				t.Fatal("the next notification uses the same call")
			}
		})
	}
}
