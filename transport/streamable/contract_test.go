package streamable

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A legacy session over a real socket keeps the contract in both directions.
func TestContractOfASession(t *testing.T) { proptest.LinkContract(t, openSession) }

// openSession returns both links of a session that is initialized and listened
// to, as if they had not been bound yet.
func openSession(t *testing.T) (client, server transport.Link) {
	t.Helper()
	accepted := make(chan transport.Link, 1)
	h := NewHandler(func(link transport.Link) {
		link.Bind(&usher{link: link, answer: fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":%q}}`, protocol.LatestLegacy)})
		accepted <- link
	}, HandlerOptions{})
	listened := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w = &flushed{ResponseWriter: w, told: listened}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		h.Close(0)
		s.Close()
	})
	client, err := (&Client{URL: s.URL}).Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	guest := &usher{link: client, answered: make(chan struct{})}
	client.Bind(guest)
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize"}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		if err := client.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
			t.Fatal(err)
		}
		if guest.answered != nil {
			<-guest.answered
			guest.answered = nil
		}
	}
	server = <-accepted
	server.Grant(transport.Main, 1) // for notifications/initialized
	<-listened
	return client, server
}

// An usher sees a session through initialize, from either side.
type usher struct {
	link     transport.Link
	answer   string        // of the server's side
	answered chan struct{} // of the client's side
}

func (u *usher) StreamOpened(stream transport.Stream, _ transport.Tag) {
	go u.link.Grant(stream, 1)
}

func (u *usher) Receive(in transport.Inbound) {
	switch {
	case u.answer == "":
		close(u.answered)
	case in.Stream != transport.Main:
		go u.link.Send(transport.Outbound{Stream: in.Stream, Last: true, Frame: []byte(u.answer)})
	}
}

func (*usher) StreamLost(transport.StreamLoss) {}
func (*usher) Writable()                       {}
func (*usher) Failed(transport.Failure)        {}
func (*usher) Ended()                          {}
func (*usher) Lost(transport.Loss)             {}

// flushed tells of the first flush of a response.
type flushed struct {
	http.ResponseWriter
	told chan struct{}
	done bool
}

func (f *flushed) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *flushed) FlushError() error {
	err := http.NewResponseController(f.ResponseWriter).Flush()
	if !f.done {
		f.done = true
		close(f.told)
	}
	return err
}
