package streamable

import (
	"io"
	"net/http"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// A lender keeps the work that it is lent for until the test does it.
type workLender struct{ work chan func() }

func (l *workLender) Lend(work func()) bool {
	l.work <- work
	return true
}

// A refuser lends nothing.
type refuser struct{}

func (refuser) Lend(func()) bool { return false }

// lent sends a request with a lender, and grants credit for its answer.
func (r *testReceiver) lent(id int, lender transport.Lender) transport.Stream {
	r.t.Helper()
	o := outbound(transport.Tag(id), request(id, "tools/call", `"name":"echo"`))
	o.Lender = lender
	if err := r.link.Send(o); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	stream := r.opened[o.Tag]
	r.mu.Unlock()
	r.link.Grant(stream, 10)
	return stream
}

// A request is posted, and its answer delivered, by who waits for it, if that lends its
// goroutine, and otherwise by a goroutine of the link.
//
// Guarantees: G-0059.4
func TestWhoWaitsPosts(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, result(1))
	})
	lender := &workLender{make(chan func(), 1)}
	s := r.lent(1, lender)
	(<-lender.work)()
	if running := r.link.(*clientLink).running; len(r.received) != 1 || running != 0 {
		t.Fatalf("%d frames were delivered, and %d goroutines run", len(r.received), running)
	}
	r.wantFrame(0, s, result(1), true)
	s = r.lent(1, refuser{})
	r.wantFrame(1, s, result(1), true)
}

// A stream of events can last longer than until the answer, and longer than who waits for
// the answer does. So a goroutine of the link reads it.
//
// Guarantees: G-0059.4
func TestWhoWaitsReadsNoEvents(t *testing.T) {
	release := make(chan struct{})
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		stream(w, ":\n\n")
		hold(req, release)
		stream(w, "data: "+result(1)+"\n\n")
	})
	lender := &workLender{make(chan func(), 1)}
	s := r.lent(1, lender)
	(<-lender.work)() // it returns before the answer comes
	close(release)
	r.wantFrame(0, s, result(1), true)
}

// The end of the stream ends the work of who waits for its answer, and the end of the link
// waits for that.
//
// Guarantees: G-0059.4
func TestLentWorkEndsWithItsStream(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	posted := make(chan struct{}, 2)
	r := connect(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.ReadAll(req.Body)
		posted <- struct{}{}
		hold(req, release)
	})
	for _, end := range []func(transport.Stream){r.link.End, func(transport.Stream) { r.link.Close(0) }} {
		lender := &workLender{make(chan func(), 1)}
		s := r.lent(1, lender)
		worked := make(chan struct{})
		go func() {
			(<-lender.work)()
			close(worked)
		}()
		wait(t, "the POST", posted)
		end(s)
		wait(t, "the end of the work", worked)
	}
}

// What a program puts between the link and net/http need not return when a request is
// cancelled, and who waits for an answer must: it lends nothing there.
//
// Guarantees: G-0059.5
func TestOnlyPlainClientsBorrow(t *testing.T) {
	for name, c := range map[string]struct {
		client *http.Client
		want   bool
	}{
		"none":         {nil, true},
		"a Transport":  {&http.Client{Transport: &http.Transport{}}, true},
		"RoundTripper": {&http.Client{Transport: silent{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			link, err := (&Client{URL: "http://localhost:1", HTTP: c.client}).Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer link.Close(0)
			if got := link.(transport.Lending).Borrows(); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
