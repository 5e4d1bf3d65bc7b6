package sse

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// An acceptFunc is a function as an Acceptor.
type acceptFunc func(transport.Link)

func (f acceptFunc) Accept(link transport.Link)  { f(link) }
func (f acceptFunc) Close(context.Context) error { return nil }

// serve serves a handler over a real socket, and returns its address.
func serve(t *testing.T, h *Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		if t.Failed() {
			return // what the test has waited for would be waited for again
		}
		testenv.Within(t, "the handler and its server close", func() {
			if err := h.Close(0); err != nil {
				t.Error(err)
			}
			s.Close()
		})
	})
	return s.URL + "/sse"
}

// openSession returns both links of a session.
func openSession(t *testing.T) (client, server transport.Link) {
	t.Helper()
	accepted := make(chan transport.Link, 1)
	h := NewHandler(acceptFunc(func(link transport.Link) {
		link.Bind(peertest.Ignore{}) // the handler needs a bound link; LinkContract binds it again
		accepted <- link
	}), HandlerOptions{})
	client, err := (&Client{URL: serve(t, h)}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return client, testenv.Receive(t, accepted, "the link of the server")
}

// The links of a session over a real socket keep the contract in both directions.
func TestContract(t *testing.T) { proptest.LinkContract(t, openSession, proptest.ContractOptions{}) }

// The same holds under package fault without faults.
func TestContractUnderFaults(t *testing.T) {
	proptest.LinkContract(t, func(t *testing.T) (client, server transport.Link) {
		client, server = openSession(t)
		return fault.Wrap(client, fault.Plan{}), fault.Wrap(server, fault.Plan{})
	}, proptest.ContractOptions{})

}

// The suites pass over a real socket, with faults that interrupt the server.
func TestSuites(t *testing.T) {
	for name, suite := range map[string]func(*testing.T, transport.Transport, proptest.Options){
		"Correlation":      proptest.Correlation,
		"NoLeaks":          proptest.NoLeaks,
		"CancelIdempotent": proptest.CancelIdempotent,
		"StopAnywhere":     proptest.StopAnywhere,
		"Restart":          proptest.Restart,
	} {
		t.Run(name, func(t *testing.T) {
			suite(t, &Client{URL: serveWith(t, proptest.EchoHandler(), nil)}, atWork(proptest.Options{}))
		})
	}
}

func TestSoak(t *testing.T) {
	o := atWork(proptest.Options{})
	o.Calls, o.Window, o.Conn.RequestTimeout = 500, 50*time.Millisecond, 500*time.Millisecond
	proptest.Soak(t, func(t *testing.T, h conn.Handler) transport.Transport {
		return &Client{URL: serveWith(t, h, nil)}
	}, o)
}

// atWork returns options for a real socket, where responses come soon or never.
func atWork(o proptest.Options) proptest.Options {
	o.RealTime, o.Iterations, o.Concurrent, o.Window = true, 1, 10, 5*time.Millisecond
	o.Conn.RequestTimeout = 100 * time.Millisecond
	return o
}

func serveWith(t *testing.T, handler conn.Handler, through func(http.Handler) http.Handler) (url string) {
	t.Helper()
	h := NewHandler(acceptFunc(func(link transport.Link) {
		c := conn.Accept(link, conn.Options{Handler: handler})
		c.Start(context.Background(), func(error) {})
	}), HandlerOptions{})
	if through == nil {
		return serve(t, h)
	}
	s := httptest.NewServer(through(h))
	t.Cleanup(func() {
		if t.Failed() {
			return // what the test has waited for would be waited for again
		}
		testenv.Within(t, "the handler and its server close", func() {
			h.Close(time.Second)
			s.Close()
		})
	})
	return s.URL
}
