package proptest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// A Harness is a transport with its other side, for [All].
type Harness struct {
	// Listen returns a transport, and passes the other side of each of its links to
	// accept, which does not block, until the test is over. All calls it many times. Accept
	// must be called for each link that opens, also before a message is sent; if it is not,
	// All fails after Options.Guard.
	Listen func(t *testing.T, accept func(transport.Link)) transport.Transport

	// Options configure the suites. All runs them in real time, and has smaller
	// defaults: 5 Iterations, 10 Concurrent, a Window of 5 ms, 1,000 Calls, and a
	// Conn.RequestTimeout of 100 ms.
	Options Options
}

// All runs LinkContract and every suite for a Conn with a transport, in real time. It takes
// some seconds with a transport over a socket. The flags of the suites make it search for
// longer:
//
//	go test -run '^TestTransport$' . -args -bowline.iterations=100 -bowline.calls=20000
//
// Guarantees: G-0003.1, G-0003.2, G-0003.7, G-0003.12, G-0005.1, G-0005.2, G-0005.3,
// G-0005.4, G-0009.1, G-0009.2, G-0009.6, G-0009.7, G-0014.1, G-0014.2, G-0014.3,
// G-0014.4, G-0014.5, G-0014.6, G-0014.7, G-0014.11, G-0014.17, G-0014.18, G-0014.21
func All(t *testing.T, h Harness) {
	o := h.Options
	o.RealTime = true
	o.Iterations, o.Concurrent = cmp.Or(o.Iterations, 5), cmp.Or(o.Concurrent, 10)
	o.Window, o.Calls = cmp.Or(o.Window, 5*time.Millisecond), cmp.Or(o.Calls, 1000)
	o.Conn.RequestTimeout = cmp.Or(o.Conn.RequestTimeout, 100*time.Millisecond)
	t.Run("LinkContract", func(t *testing.T) { LinkContract(t, h.pairs(t), ContractOptions{Guard: o.Guard}) })
	for _, suite := range []struct {
		name string
		run  func(*testing.T, transport.Transport, Options)
	}{
		{"Correlation", Correlation},
		{"NoLeaks", NoLeaks},
		{"CancelIdempotent", CancelIdempotent},
		{"StopAnywhere", StopAnywhere},
		{"Restart", Restart},
	} {
		t.Run(suite.name, func(t *testing.T) {
			suite.run(t, h.Listen(t, func(link transport.Link) {
				go func() { _ = Echo(link) }() // the end of a link is no failure
			}), o)
		})
	}
	t.Run("Soak", func(t *testing.T) { Soak(t, h.serve, o) })
}

// pairs returns a function that opens a link, and returns it with its other side. If accept is
// not called for one link, it does not wait for the next.
func (h Harness) pairs(t *testing.T) func(*testing.T) (a, b transport.Link) {
	accepted := make(chan transport.Link, 1)
	from := h.Listen(t, func(link transport.Link) { accepted <- link })
	guard := ContractOptions{Guard: h.Options.Guard}.Wait()
	wait := guard
	return func(t *testing.T) (a, b transport.Link) {
		a, err := from.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		timeout := time.NewTimer(wait)
		defer timeout.Stop()
		select {
		case b = <-accepted:
			return a, b
		case <-timeout.C:
		}
		wait = 0
		a.Close(0)
		t.Fatalf("Open succeeded, and accept was not called within %v. Call it when the link opens; if the other side learns of a link only by its first message, as over HTTP, "+
			"let Open send one, or run LinkContract with a function that opens both sides, and each other suite by its name", guard)
		return nil, nil
	}
}

// serve returns a transport whose links are served by a handler.
func (h Harness) serve(t *testing.T, handler conn.Handler) transport.Transport {
	return h.Listen(t, func(link transport.Link) {
		go func() { _ = conn.Accept(link, conn.Options{Handler: handler}).Run(context.Background()) }()
	})
}
