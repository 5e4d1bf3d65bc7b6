package proptest_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// peerWith returns a transport in memory whose peer uses a handler.
func peerWith(_ *testing.T, h conn.Handler) transport.Transport {
	return inmem.New(func(link transport.Link) {
		go conn.Accept(link, conn.Options{Handler: h}).Run(context.Background())
	}, inmem.Options{})
}

func TestSoak(t *testing.T) { proptest.Soak(t, peerWith, proptest.Options{}) }

// A handler that sends a request to its caller gets the answer to that request, once, or an
// error. Meanwhile links are lost, and faults hit the request and the answer.
func TestSoakOfHandlersThatAsk(t *testing.T) {
	proptest.Soak(t, peerWith, proptest.Options{Asks: true})
}

// If the peer is too slow for the first calls, Soak gives it more time, so that a soak on a
// slow machine tests something, too.
func TestSoakGivesASlowPeerTime(t *testing.T) {
	slow := func(t *testing.T, h conn.Handler) transport.Transport { return peerWith(t, slowHandler{h}) }
	proptest.Soak(t, slow, proptest.Options{
		Calls: 32, Concurrent: 2, RealTime: true, Window: time.Millisecond,
		Conn: conn.Options{Tuning: conn.Tuning{RequestTimeout: 20 * time.Millisecond}},
	})
}

// A slowHandler answers each request after 30 ms.
type slowHandler struct{ conn.Handler }

func (l slowHandler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	delay := time.NewTimer(30 * time.Millisecond)
	<-delay.C
	return l.Handler.ServeRequest(ctx, in)
}
