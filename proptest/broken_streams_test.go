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
// stream. On those streams, deliver replaces what the client's receiver gets, and afterLost
// adds an event after Lost.
func streamContract(deliver, afterLost func(transport.Receiver, transport.Inbound)) func(*testing.T) {
	return func(t *testing.T) {
		for name, value := range map[string]string{"rapid.checks": "10", "rapid.shrinktime": "0s"} {
			if err := flag.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
		proptest.LinkContract(t, func(t *testing.T) (client, server transport.Link) {
			client, server = openSession(t)
			return &brokenStreams{Link: client, deliver: deliver, afterLost: afterLost}, server
		}, proptest.ContractOptions{Guard: 5 * time.Second})
	}
}

type brokenStreams struct {
	transport.Link
	deliver   func(transport.Receiver, transport.Inbound) // delivers a message of a stream other than Main
	afterLost func(transport.Receiver, transport.Inbound) // delivers the last of these messages again, after Lost

	mu   sync.Mutex
	last transport.Inbound
}

func (b *brokenStreams) Bind(to transport.Receiver) { b.Link.Bind(brokenStreamReceiver{to, b}) }

type brokenStreamReceiver struct {
	transport.Receiver
	*brokenStreams
}

func (b brokenStreamReceiver) Receive(in transport.Inbound) {
	if in.Stream == transport.Main {
		b.Receiver.Receive(in)
		return
	}
	b.mu.Lock()
	b.last = in
	b.mu.Unlock()
	b.deliver(b.Receiver, in)
}

func (b brokenStreamReceiver) Lost(loss transport.Loss) {
	b.Receiver.Lost(loss)
	b.mu.Lock()
	last := b.last
	b.mu.Unlock()
	if last.Stream != transport.Main {
		b.afterLost(b.Receiver, last)
	}
}

func deliver(to transport.Receiver, in transport.Inbound) { to.Receive(in) }

func ignore(transport.Receiver, transport.Inbound) {}

func renumber(to transport.Receiver, in transport.Inbound) {
	in.Frame = bytes.Replace(in.Frame, []byte(`"params":[2,`), []byte(`"params":[0,`), 1)
	to.Receive(in)
}

func deliverTwice(to transport.Receiver, in transport.Inbound) {
	if !in.Last {
		to.Receive(in)
	}
	to.Receive(in)
}

func deliverAfterEnd(to transport.Receiver, in transport.Inbound) {
	to.Receive(in)
	if in.Last {
		to.Receive(in)
	}
}

func loseAfterEnd(to transport.Receiver, in transport.Inbound) {
	to.Receive(in)
	if in.Last {
		to.StreamLost(transport.StreamLoss{Stream: in.Stream, Reason: transport.ErrPeerClosed})
	}
}

// openSession returns both links of a session, as if they had not been bound.
func openSession(t *testing.T) (client, server transport.Link) {
	t.Helper()
	accepted, initialized := make(chan transport.Link, 1), make(chan struct{})
	h := streamable.NewHandler(&handshakeAcceptor{accepted, initialized}, streamable.HandlerOptions{})
	listening := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w = &flushNotifier{ResponseWriter: w, flushed: listening}
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
	client.Bind(&handshakeReceiver{link: client, received: func(transport.Inbound) { close(answered) }})
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
	<-initialized
	<-listening
	return client, server
}

// handshakeAcceptor accepts one session, answers its initialize, and closes initialized when its
// client has sent notifications/initialized.
type handshakeAcceptor struct {
	accepted    chan<- transport.Link
	initialized chan struct{}
}

func (i *handshakeAcceptor) Accept(link transport.Link) {
	link.Bind(&handshakeReceiver{link: link, received: func(in transport.Inbound) {
		if in.Stream == transport.Main {
			close(i.initialized)
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

func (*handshakeAcceptor) Close(context.Context) error { return nil }

// A handshakeReceiver receives the frames of a handshake, on either side.
type handshakeReceiver struct {
	link     transport.Link
	received func(transport.Inbound)
}

func (g *handshakeReceiver) StreamOpened(stream transport.Stream, _ transport.Tag) {
	go g.link.Grant(stream, 1)
}
func (g *handshakeReceiver) Receive(in transport.Inbound)  { g.received(in) }
func (*handshakeReceiver) StreamLost(transport.StreamLoss) {}
func (*handshakeReceiver) Writable()                       {}
func (*handshakeReceiver) Failed(transport.Failure)        {}
func (*handshakeReceiver) Ended()                          {}
func (*handshakeReceiver) Lost(transport.Loss)             {}

// A flushNotifier closes flushed at the first flush of a response.
type flushNotifier struct {
	http.ResponseWriter
	flushed chan struct{}
	once    sync.Once
}

func (f *flushNotifier) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *flushNotifier) FlushError() error {
	err := http.NewResponseController(f.ResponseWriter).Flush()
	f.once.Do(func() { close(f.flushed) })
	return err
}
