package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
	"github.com/bowline-mcp/bowline/transport/sse"
)

// An older is a server of HTTP+SSE whose refusals, and whose stream, a test writes.
type older struct {
	status int    // of a POST to the address of the stream
	body   string // of that
	get    http.HandlerFunc

	mu      sync.Mutex
	seen    []string
	streams chan http.ResponseWriter
}

// olderEndpoint is the event that names the endpoint.
const olderEndpoint = "event: endpoint\ndata: /messages?session=1\n\n"

func (s *older) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	s.mu.Lock()
	s.seen = append(s.seen, fmt.Sprintf("%s %s %s", req.Method, req.URL.Path, body))
	s.mu.Unlock()
	switch {
	case req.Method == http.MethodGet:
		s.get(w, req)
	case req.URL.Path == "/messages":
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(s.status)
		io.WriteString(w, s.body)
	}
}

func (s *older) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// opens says where to post, hands out the stream, and keeps it until its client goes.
func (s *older) opens(w http.ResponseWriter, req *http.Request) {
	own := &sharedWriter{ResponseWriter: w}
	stream(own, olderEndpoint)
	s.streams <- own
	<-req.Context().Done()
	own.mu.Lock() // a test has written all that its client has read
	defer own.mu.Unlock()
}

// A sharedWriter is written to outside of its handler.
type sharedWriter struct {
	http.ResponseWriter
	mu sync.Mutex
}

func (w *sharedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *sharedWriter) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ResponseWriter.(http.Flusher).Flush()
}

// newOlder is a server that speaks HTTP+SSE and nothing else.
func newOlder() *older {
	s := &older{status: http.StatusMethodNotAllowed, streams: make(chan http.ResponseWriter, 1)}
	s.get = s.opens
	return s
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`

// Guarantees: G-0034.9
func TestAServerThatSpeaksOnlyHTTPSSEIsSpokenTo(t *testing.T) {
	for _, status := range []int{400, 404, 405} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s := newOlder()
			s.status = status
			r := connect(t, s.ServeHTTP)
			r.link.Grant(transport.Main, 1)
			r.request(1, 1, initialize)
			w := <-s.streams
			stream(w, "data: "+initializeResult+"\n\n")
			r.wantFrame(0, transport.Main, initializeResult, false)
			r.send(0, initialized)
			r.send(2, request(2, "tools/call", `"name":"echo"`))
			r.link.Grant(transport.Main, 1)
			wrote := time.Now()
			stream(w, "data: "+result(2)+"\n\ndata: "+result(3)+"\n\n")
			r.wantFrame(1, transport.Main, result(2), false)
			if got := r.link.(transport.Networked).Network(); got != (transport.Network{HTTP: "1.1"}) {
				t.Errorf("the link tells %+v", got)
			}
			if last, ok := r.link.(transport.ActivityRecorder).Heard(); !ok || last.Before(wrote) {
				t.Errorf("something was heard last at %v, known: %v; it was written after %v", last, ok, wrote)
			}
			if err := r.link.Close(hangGuard); err != nil {
				t.Fatal(err)
			}
			r.wantQuiet(2) // there was no credit for another
			want := []string{
				"POST / " + initialize, "GET / ", "POST /messages " + initialize, "POST /messages " + initialized,
				"POST /messages " + request(2, "tools/call", `"name":"echo"`),
			}
			if got := s.log(); !slices.Equal(got, want) {
				t.Errorf("the server saw\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// A server that answers by JSON-RPC, or refuses in another way, knows what a POST is.
//
// Guarantees: G-0034.9
func TestOtherRefusalsOfInitializeAreAnswers(t *testing.T) {
	const fault = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no"}}`
	for name, c := range map[string]struct {
		status int
		body   string
		frame  string
	}{
		"an answer":              {400, fmt.Sprintf(fault, "1"), initialize},
		"an error of no id":      {400, fmt.Sprintf(fault, "null"), initialize},
		"an error with 404":      {404, fmt.Sprintf(fault, "1"), initialize},
		"unauthorised":           {401, "", initialize},
		"forbidden":              {403, "", initialize},
		"a failure":              {500, "", initialize},
		"overloaded":             {429, "", initialize},
		"another request":        {404, "", request(1, "tools/call", `"name":"echo"`)},
		"a modern initialize":    {404, "", request(1, "initialize", modernMeta)},
		"a modern other request": {405, "", request(1, "server/discover", modernMeta)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOlder()
			s.status, s.body = c.status, c.body
			r := connect(t, s.ServeHTTP)
			r.request(1, 1, c.frame)
			r.await("the answer", func() bool { return len(r.received)+len(r.failed) > 0 })
			if got := s.log(); len(got) != 1 {
				t.Errorf("the server saw %q", got)
			}
		})
	}
}

// Guarantees: G-0034.9
func TestWithoutAnEndpointTheAnswerToThePostCounts(t *testing.T) {
	answers := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		get    http.HandlerFunc
		status int
		says   string
	}{
		"not found either":    {answers(404, "text/plain", "no"), 404, "status 404"},
		"not allowed either":  {answers(405, "text/plain", "no"), 404, "status 404"},
		"fails":               {answers(500, "text/plain", "no"), 404, "status 404"},
		"a page":              {answers(200, "text/html", "<p>"), 404, "no HTTP+SSE"},
		"another event":       {answers(200, web.TypeEvents, "data: {}\n\n"), 404, "not endpoint"},
		"another origin":      {answers(200, web.TypeEvents, "event: endpoint\ndata: http://evil.test/\n\n"), 404, "evil.test"},
		"an end":              {answers(200, web.TypeEvents, ""), 404, "ended before its first event"},
		"hung up":             {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 404, "EOF"},
		"access to be proved": {answers(401, "text/plain", ""), 401, "status 401"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &older{status: http.StatusNotFound, get: c.get}
			r := connect(t, s.ServeHTTP)
			r.request(1, 1, initialize)
			var status *transport.StatusError
			f := r.failure(0)
			if !errors.As(f.Err, &status) || status.Status != c.status || !strings.Contains(f.Err.Error(), c.says) || f.Tag != 1 || !f.Unsent {
				t.Errorf("%+v, want status %d and %q", f, c.status, c.says)
			}
			r.wantFrameAfterRefusal(t, s)
		})
	}
}

// wantFrameAfterRefusal checks that the link lives on as it was.
func (r *testReceiver) wantFrameAfterRefusal(t *testing.T, s *older) {
	t.Helper()
	r.call(2, 1)
	if f := r.failure(1); f.Tag != 2 {
		t.Errorf("%+v", f)
	}
	if got := s.log(); !strings.HasPrefix(got[len(got)-1], "POST / ") {
		t.Errorf("the server saw %q", got)
	}
}

// A server that opens a stream and says nothing is not waited for: the answer to the
// POST is there already.
//
// Guarantees: G-0034.9
func TestASilentStreamIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := &scriptedTripper{get: func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}}
		r := open(t, &Client{URL: "http://server.test", HTTP: &http.Client{Transport: pool}})
		began := time.Now()
		r.request(1, 1, initialize)
		var status *transport.StatusError
		if f := r.failure(0); !errors.As(f.Err, &status) || status.Status != 404 || time.Since(began) != fallbackPatience {
			t.Errorf("%+v after %v", f, time.Since(began))
		}
		r.link.Close(0)
	})
}

// Closing does not wait for the look, and the request has surely not been executed.
//
// Guarantees: G-0034.9
func TestClosingEndsTheLook(t *testing.T) {
	looking := make(chan struct{})
	s := &older{status: http.StatusNotFound, get: func(_ http.ResponseWriter, req *http.Request) {
		close(looking)
		<-req.Context().Done()
	}}
	r := connect(t, s.ServeHTTP)
	r.request(1, 1, initialize)
	wait(t, "the look", looking)
	if err := r.link.Close(0); err != nil {
		t.Fatal(err)
	}
	if loss := r.loss(); loss.Reason != transport.ErrClosed || !slices.Equal(loss.Unsent, []transport.Tag{1}) {
		t.Errorf("%+v", loss)
	}
}

// scriptedTripper refuses every POST with 404.
type scriptedTripper struct {
	get func(*http.Request) (*http.Response, error)
}

func (s *scriptedTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return s.get(req)
	}
	return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// The stream of events is the session: its end is that of the link.
//
// Guarantees: G-0034.9
func TestTheEndOfTheOlderStreamIsTheLoss(t *testing.T) {
	gone := make(chan struct{})
	s := newOlder()
	s.get = func(w http.ResponseWriter, _ *http.Request) {
		stream(w, olderEndpoint+"data: "+initializeResult+"\n\n")
		<-gone
	}
	r := connect(t, s.ServeHTTP)
	r.link.Grant(transport.Main, 2)
	r.request(1, 1, initialize)
	r.wantFrame(0, transport.Main, initializeResult, false)
	close(gone)
	if loss := r.loss(); !errors.Is(loss.Reason, transport.ErrPeerClosed) {
		t.Errorf("%+v", loss)
	}
	if err := r.link.Send(outbound(0, initialized)); err != transport.ErrClosed {
		t.Errorf("Send after the loss: %v", err)
	}
}

// The header goes along, and the endpoint of the messages counts as the server's.
//
// Guarantees: G-0034.1
func TestTheOlderLinkHasTheHeader(t *testing.T) {
	s := newOlder()
	r := open(t, &Client{
		URL: serve(t, func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("X-Key") != "secret" {
				t.Errorf("%s %s without the header", req.Method, req.URL.Path)
			}
			s.ServeHTTP(w, req)
		}),
		Header: http.Header{"X-Key": {"secret"}},
		HTTP:   &http.Client{Transport: transportOf(t)},
	})
	r.link.Grant(transport.Main, 1)
	r.request(1, 1, initialize)
	stream(<-s.streams, "data: "+initializeResult+"\n\n")
	r.wantFrame(0, transport.Main, initializeResult, false)
}

// The suites over a link that has fallen back.
//
// Guarantees: G-0034.9
func TestSuitesOfAnOlderServer(t *testing.T) {
	runSuites(t, func(t *testing.T) transport.Transport {
		h := sse.NewHandler(accepting(func(link transport.Link) {
			c := conn.Accept(link, conn.Options{Handler: proptest.EchoHandler()})
			c.Start(context.Background(), func(error) {})
		}), sse.HandlerOptions{})
		site := httptest.NewServer(h)
		t.Cleanup(func() {
			h.Close(time.Second)
			site.Close()
		})
		return &Client{URL: site.URL}
	}, proptest.Options{Conn: conn.Options{Handshake: beginSession}})
}
