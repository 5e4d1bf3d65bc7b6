package streamable

import (
	"net/http"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A workReceiver answers each request, and uses its link in Work only, because nothing else
// runs it.
type workReceiver struct {
	mute
	begun []transport.Stream
	came  []transport.Inbound
	kept  int // frames for which Work was not announced
	turns int // calls of Work that had work
}

func (l *workReceiver) StreamOpened(transport.Stream, transport.Tag) { l.kept++ }

func (l *workReceiver) StreamBegun(stream transport.Stream) bool {
	l.begun = append(l.begun, stream)
	return true
}

func (l *workReceiver) Receive(in transport.Inbound) {
	if l.came = append(l.came, in); !in.Work {
		l.kept++
	}
}

func (l *workReceiver) Serve(bool, func()) { l.Work(1) }

func (l *workReceiver) Work(depth int) {
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

// The goroutine of an HTTP request calls Work of its receiver once, and holds no lock
// of the link meanwhile.
//
// Guarantees: G-0050.1, G-0050.5
func TestRequestsLendTheirGoroutine(t *testing.T) {
	var l *workReceiver
	h := NewHandler(accepting(func(link transport.Link) {
		l = &workReceiver{mute: mute{link: link}}
		link.Bind(l)
	}), HandlerOptions{})
	defer h.Close(0)
	for requests := 1; requests <= 3; requests++ {
		got := fuzzed(h, "POST", "Content-Type: application/json\n"+strings.Join(modernHeader("echo"), "\n"), modernBody("echo", ""))
		if got.Code != http.StatusOK || l.kept != 0 {
			t.Fatalf("got %d %s, and %d frames without Work, want got.Code == %v and l.kept == 0", got.Code, got.Body, l.kept, http.StatusOK)
		}
		if l.turns != requests {
			t.Fatalf("got %d calls of Work for %d requests", l.turns, requests)
		}
	}
}

// A closingReceiver is a receiver that is closing: it accepts no request without credit, and
// grants none.
type closingReceiver struct {
	workReceiver
	opened chan struct{}
}

func (w *closingReceiver) StreamOpened(transport.Stream, transport.Tag) { close(w.opened) }

func (w *closingReceiver) StreamBegun(transport.Stream) bool { return false }

// A request that arrives while its receiver closes was certainly not executed, so the
// client is asked to repeat it.
//
// Guarantees: G-0050.5
func TestRequestOfAClosingReceiverIsNotExecuted(t *testing.T) {
	w := &closingReceiver{opened: make(chan struct{})}
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
		t.Errorf("got %d, Retry-After %q, %d frames", got.Code, got.Header().Get("Retry-After"), len(w.came))
	}
}
