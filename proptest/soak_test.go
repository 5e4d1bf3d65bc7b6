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

// served is a transport in memory whose peer serves with a handler.
func served(_ *testing.T, h conn.Handler) transport.Transport {
	return inmem.New(func(link transport.Link) {
		go conn.Accept(link, conn.Options{Handler: h}).Run(context.Background())
	}, inmem.Options{})
}

func TestSoak(t *testing.T) { proptest.Soak(t, served, proptest.Options{}) }

// A handler that asks back gets its own answer, once, or learns why not: across
// losses of the link, and whatever else happens to question and answer.
func TestSoakOfHandlersThatAsk(t *testing.T) {
	proptest.Soak(t, served, proptest.Options{Asks: true})
}

// A peer that is too slow for the first calls is given more time, so that
// something is tried on a slow machine as well.
func TestSoakGivesASlowPeerTime(t *testing.T) {
	slow := func(t *testing.T, h conn.Handler) transport.Transport { return served(t, lagging{h}) }
	proptest.Soak(t, slow, proptest.Options{
		Calls: 32, Concurrent: 2, RealTime: true, Window: time.Millisecond,
		Conn: conn.Options{RequestTimeout: 20 * time.Millisecond},
	})
}

// lagging answers no request at once.
type lagging struct{ conn.Handler }

func (l lagging) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	lag := time.NewTimer(30 * time.Millisecond)
	<-lag.C
	return l.Handler.ServeRequest(ctx, in)
}
