package streamable

import (
	"net/http"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A lender answers each request, and uses its link in Work alone: nobody else gives it
// a goroutine.
type lender struct {
	mute
	begun []transport.Stream
	came  []transport.Inbound
	kept  int // frames that came without the promise of Work
	turns int // calls of Work that had something to do
}

func (l *lender) StreamOpened(transport.Stream, transport.Tag) { l.kept++ }

func (l *lender) StreamBegun(stream transport.Stream) bool {
	l.begun = append(l.begun, stream)
	return true
}

func (l *lender) Receive(in transport.Inbound) {
	if l.came = append(l.came, in); !in.Work {
		l.kept++
	}
}

func (l *lender) Work(depth int) {
	for _, stream := range l.begun {
		l.link.Grant(stream, depth)
	}
	for _, in := range l.came {
		l.link.Send(transport.Outbound{Stream: in.Stream, Last: true, Frame: jsonrpc.AppendResult(nil, in.Message.ID, []byte(`{}`)),
			Route: transport.Route{Kind: jsonrpc.KindResult, ID: in.Message.ID}})
	}
	if len(l.begun)+len(l.came) > 0 {
		l.turns++
	}
	l.begun, l.came = nil, nil
}

// The goroutine of an HTTP request works for its receiver, once, and holds nothing of
// the link meanwhile.
//
// Guarantees: G-0050.1, G-0050.5
func TestRequestsLendTheirGoroutine(t *testing.T) {
	var l *lender
	h := NewHandler(accepting(func(link transport.Link) {
		l = &lender{mute: mute{link: link}}
		link.Bind(l)
	}), HandlerOptions{})
	defer h.Close(0)
	for requests := 1; requests <= 3; requests++ {
		got := fuzzed(h, "POST", "Content-Type: application/json\n"+strings.Join(modernHeader("echo"), "\n"), modernBody("echo", ""))
		if got.Code != http.StatusOK || l.kept != 0 {
			t.Fatalf("%d %s, and %d were not promised work", got.Code, got.Body, l.kept)
		}
		if l.turns != requests {
			t.Fatalf("%d turns for %d requests", l.turns, requests)
		}
	}
}

// A waiter is a receiver that is closing: it takes no request without credit, and grants
// none.
type waiter struct {
	lender
	opened chan struct{}
}

func (w *waiter) StreamOpened(transport.Stream, transport.Tag) { close(w.opened) }

func (w *waiter) StreamBegun(transport.Stream) bool { return false }

// A request that comes while its receiver closes was surely not executed, so the client
// is told to repeat it.
//
// Guarantees: G-0050.5
func TestRequestOfAClosingReceiverIsNotExecuted(t *testing.T) {
	w := &waiter{opened: make(chan struct{})}
	h := NewHandler(accepting(func(link transport.Link) {
		w.link = link
		link.Bind(w)
	}), HandlerOptions{})
	defer h.Close(0)
	answered := make(chan *recorded)
	go func() {
		answered <- fuzzed(h, "POST", "Content-Type: application/json\n"+strings.Join(modernHeader("echo"), "\n"), modernBody("echo", ""))
	}()
	<-w.opened
	w.link.Close(0)
	got := <-answered
	if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" || len(w.came) > 0 {
		t.Errorf("%d, Retry-After %q, %d frames delivered", got.Code, got.Header().Get("Retry-After"), len(w.came))
	}
}
