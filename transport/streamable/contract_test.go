package streamable

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// The links of a legacy session over a real socket keep the contract of transport.Link
// in both directions.
func TestContractOfASession(t *testing.T) {
	proptest.LinkContract(t, openSession, proptest.ContractOptions{})
}

// The same holds under package fault without faults.
func TestContractOfASessionUnderFaults(t *testing.T) {
	proptest.LinkContract(t, func(t *testing.T) (client, server transport.Link) {
		client, server = openSession(t)
		return fault.Wrap(client, fault.Plan{}), fault.Wrap(server, fault.Plan{})
	}, proptest.ContractOptions{})

}

func openSession(t *testing.T) (client, server transport.Link) {
	t.Helper()
	client, server, err := newOpener(t).open()
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// An opener opens sessions, one at a time.
type opener struct {
	url      string
	accepted chan transport.Link

	mu       sync.Mutex
	listened map[string]chan struct{} // for each session, closed when its GET stream is open
}

func newOpener(t *testing.T) *opener {
	t.Helper()
	l := &opener{accepted: make(chan transport.Link, 1), listened: make(map[string]chan struct{})}
	h := NewHandler(accepting(func(link transport.Link) {
		link.Bind(&initializer{link: link, answer: fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":%q}}`, protocol.LatestLegacy)})
		l.accepted <- link
	}), HandlerOptions{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w = &flushed{ResponseWriter: w, flushes: l.listener(r.Header.Get(headerSession))}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		h.Close(0)
		s.Close()
	})
	l.url = s.URL
	return l
}

func (l *opener) listener(session string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listened[session] == nil {
		l.listened[session] = make(chan struct{})
	}
	return l.listened[session]
}

// open returns both links of a session after its handshake and with a GET stream, as if
// they had not been bound.
func (l *opener) open() (client, server transport.Link, err error) {
	client, err = (&Client{URL: l.url}).Open(context.Background())
	if err != nil {
		return nil, nil, err
	}
	receiver := &initializer{link: client, answered: make(chan struct{})}
	client.Bind(receiver)
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize"}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		if err := client.Send(outbound(0, frame)); err != nil {
			return nil, nil, err
		}
		if receiver.answered != nil {
			<-receiver.answered
			receiver.answered = nil
		}
	}
	server = <-l.accepted
	server.Grant(transport.Main, 1) // for notifications/initialized
	<-l.listener(server.(*serverLink).session)
	return client, server, nil
}

// An initializer performs the handshake of a session, from either side.
type initializer struct {
	link     transport.Link
	answer   string        // for the server's side
	answered chan struct{} // for the client's side
}

func (i *initializer) StreamOpened(stream transport.Stream, _ transport.Tag) {
	go i.link.Grant(stream, 1)
}

func (i *initializer) Receive(in transport.Inbound) {
	switch {
	case i.answer == "":
		close(i.answered)
	case in.Stream != transport.Main:
		go i.link.Send(answering(in.Stream, i.answer))
	}
}

func (*initializer) StreamLost(transport.StreamLoss) {}
func (*initializer) Writable()                       {}
func (*initializer) Failed(transport.Failure)        {}
func (*initializer) Ended()                          {}
func (*initializer) Lost(transport.Loss)             {}

// A flushed closes its channel at the first flush of a response.
type flushed struct {
	http.ResponseWriter
	flushes chan struct{}
}

func (f *flushed) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *flushed) FlushError() error {
	err := http.NewResponseController(f.ResponseWriter).Flush()
	if !wait.IsClosed(f.flushes) {
		close(f.flushes)
	}
	return err
}
