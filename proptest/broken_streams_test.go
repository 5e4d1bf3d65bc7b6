package proptest_test

import (
	"bytes"
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// streamContract runs LinkContract on sessions over HTTP, where each request has a
// stream. What the client's receiver is told is bent.
func streamContract(bend, late func(transport.Receiver, transport.Inbound)) func(*testing.T) {
	return func(t *testing.T) {
		for name, value := range map[string]string{"rapid.checks": "10", "rapid.shrinktime": "0s"} {
			if err := flag.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
		proptest.LinkContract(t, func(t *testing.T) (client, server transport.Link) {
			client, server = openSession(t)
			return &bentStreams{Link: client, bend: bend, late: late}, server
		}, proptest.ContractOptions{Guard: 5 * time.Second})
	}
}

type bentStreams struct {
	transport.Link
	bend func(transport.Receiver, transport.Inbound) // tells of what is no message of Main
	late func(transport.Receiver, transport.Inbound) // tells of the last such after Lost

	mu   sync.Mutex
	last transport.Inbound
}

func (b *bentStreams) Bind(to transport.Receiver) { b.Link.Bind(bendingStreams{to, b}) }

type bendingStreams struct {
	transport.Receiver
	*bentStreams
}

func (b bendingStreams) Receive(in transport.Inbound) {
	if in.Stream == transport.Main {
		b.Receiver.Receive(in)
		return
	}
	b.mu.Lock()
	b.last = in
	b.mu.Unlock()
	b.bend(b.Receiver, in)
}

func (b bendingStreams) Lost(loss transport.Loss) {
	b.Receiver.Lost(loss)
	b.mu.Lock()
	last := b.last
	b.mu.Unlock()
	if last.Stream != transport.Main {
		b.late(b.Receiver, last)
	}
}

func intact(to transport.Receiver, in transport.Inbound) { to.Receive(in) }

func silent(transport.Receiver, transport.Inbound) {}

func misnumber(to transport.Receiver, in transport.Inbound) {
	in.Frame = bytes.Replace(in.Frame, []byte(`"params":[2,`), []byte(`"params":[0,`), 1)
	to.Receive(in)
}

func twice(to transport.Receiver, in transport.Inbound) {
	if !in.Last {
		to.Receive(in)
	}
	to.Receive(in)
}

func goOn(to transport.Receiver, in transport.Inbound) {
	to.Receive(in)
	if in.Last {
		to.Receive(in)
	}
}

func endAgain(to transport.Receiver, in transport.Inbound) {
	to.Receive(in)
	if in.Last {
		to.StreamLost(transport.StreamLoss{Stream: in.Stream, Reason: transport.ErrPeerClosed})
	}
}

// openSession returns both links of a session, as if they had not been bound.
func openSession(t *testing.T) (client, server transport.Link) {
	t.Helper()
	accepted, begun := make(chan transport.Link, 1), make(chan struct{})
	h := streamable.NewHandler(&initializing{accepted, begun}, streamable.HandlerOptions{})
	listening := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w = &flushed{ResponseWriter: w, begun: listening}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		h.Close(0)
		s.Close()
	})
	client, err := (&streamable.Client{URL: s.URL}).Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	client.Bind(&greeting{link: client, received: func(transport.Inbound) { close(answered) }})
	for _, o := range []transport.Outbound{
		{
			Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`),
			Route: transport.Route{Kind: jsonrpc.KindRequest, Method: "initialize", ID: jsonrpc.IntegerID(1)},
		},
		{
			Frame: []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`),
			Route: transport.Route{Kind: jsonrpc.KindNotification, Method: "notifications/initialized"},
		},
	} {
		if err := client.Send(o); err != nil {
			t.Fatal(err)
		}
		<-answered
	}
	server = <-accepted
	server.Grant(transport.Main, 1)
	<-begun
	<-listening
	return client, server
}

// initializing accepts one session, answers its initialize, and closes begun when its
// client has said that it is initialized.
type initializing struct {
	accepted chan<- transport.Link
	begun    chan struct{}
}

func (i *initializing) Accept(link transport.Link) {
	link.Bind(&greeting{link: link, received: func(in transport.Inbound) {
		if in.Stream == transport.Main {
			close(i.begun)
		} else {
			go link.Send(transport.Outbound{
				Stream: in.Stream, Last: true,
				Frame: []byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}`),
				Route: transport.Route{Kind: jsonrpc.KindResult, ID: jsonrpc.IntegerID(1)},
			})
		}
	}})
	i.accepted <- link
}

func (*initializing) Close(context.Context) error { return nil }

// greeting takes a session through its first request, from either side.
type greeting struct {
	link     transport.Link
	received func(transport.Inbound)
}

func (g *greeting) StreamOpened(stream transport.Stream, _ transport.Tag) {
	go g.link.Grant(stream, 1)
}
func (g *greeting) Receive(in transport.Inbound)  { g.received(in) }
func (*greeting) StreamLost(transport.StreamLoss) {}
func (*greeting) Writable()                       {}
func (*greeting) Failed(transport.Failure)        {}
func (*greeting) Ended()                          {}
func (*greeting) Lost(transport.Loss)             {}

// flushed tells of the first flush of a response.
type flushed struct {
	http.ResponseWriter
	begun chan struct{}
	once  sync.Once
}

func (f *flushed) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *flushed) FlushError() error {
	err := http.NewResponseController(f.ResponseWriter).Flush()
	f.once.Do(func() { close(f.begun) })
	return err
}
