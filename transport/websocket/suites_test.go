package websocket

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// An acceptFunc is a function as an Acceptor.
type acceptFunc func(transport.Link)

func (f acceptFunc) Accept(link transport.Link)  { f(link) }
func (f acceptFunc) Close(context.Context) error { return nil }

// A later is a link that a handler takes for bound already: one that is not bound when Accept returns was refused.
type later struct {
	transport.Link
	recv parts.Receiver
}

func newLater(link transport.Link) *later {
	l := &later{Link: link}
	link.Bind(l)
	return l
}

func (l *later) Bind(to transport.Receiver) { l.recv.Bind(to) }
func (l *later) Receive(in transport.Inbound) {
	l.recv.Tell(func(to transport.Receiver) { to.Receive(in) })
}
func (l *later) Writable()                                  { l.recv.Tell(transport.Receiver.Writable) }
func (l *later) Lost(loss transport.Loss)                   { l.recv.Lose(loss) }
func (*later) StreamOpened(transport.Stream, transport.Tag) {}
func (*later) StreamLost(transport.StreamLoss)              {}
func (*later) Failed(transport.Failure)                     {}
func (*later) Ended()                                       {}

// listen serves links over real sockets until the test is over, and returns a transport to them.
func listen(t *testing.T, accept func(transport.Link)) transport.Transport {
	t.Helper()
	acceptor := acceptFunc(func(link transport.Link) { accept(newLater(link)) })
	return &Client{URL: serve(t, NewHandler(acceptor, HandlerOptions{MaxFrame: 16 << 20}))}
}

// serve serves a handler over a real socket, and returns its address.
func serve(t *testing.T, h *Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := h.Close(time.Second); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

// The links keep the contract, and a Conn over them what it guarantees.
//
// Guarantees: G-0108.1
func TestTransport(t *testing.T) { proptest.All(t, proptest.Harness{Listen: listen}) }
