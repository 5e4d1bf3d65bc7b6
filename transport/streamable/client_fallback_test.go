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
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
	"github.com/bowline-mcp/bowline/transport/sse"
)

// An sseServer is a server of HTTP+SSE. The test writes its stream and chooses how it
// refuses other requests.
type sseServer struct {
	status int    // the status for a POST to the address of the stream
	body   string // the body of that response
	get    http.HandlerFunc

	mu      sync.Mutex
	seen    []string
	streams chan http.ResponseWriter
}

// olderEndpoint is the event that names the endpoint.
const olderEndpoint = "event: endpoint\ndata: /messages?session=1\n\n"

func (s *sseServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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

func (s *sseServer) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// opens sends the endpoint event, and keeps the stream open until its client
// disconnects.
func (s *sseServer) opens(w http.ResponseWriter, req *http.Request) {
	own := &sharedWriter{ResponseWriter: w}
	stream(own, olderEndpoint)
	s.streams <- own
	<-req.Context().Done()
	own.mu.Lock() // waits for a write of the test that is in progress
	defer own.mu.Unlock()
}

// A sharedWriter can be used outside of its handler.
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

// newSSEServer returns a server with HTTP+SSE only.
func newSSEServer() *sseServer {
	s := &sseServer{status: http.StatusMethodNotAllowed, streams: make(chan http.ResponseWriter, 1)}
	s.get = s.opens
	return s
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`

// If a server refuses the POST of a legacy initialize as HTTP+SSE servers do, the link
// falls back to HTTP+SSE.
//
// Guarantees: G-0034.9
func TestFallbackToHTTPSSE(t *testing.T) {
	for _, status := range []int{400, 404, 405} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s := newSSEServer()
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
			is := transport.LinkTraitsOf(r.link)
			if is.Network != (transport.Network{HTTP: "1.1"}) {
				t.Errorf("the link has the network %+v", is.Network)
			}
			if !is.RecordsReads || is.LastRead.Before(wrote) {
				t.Errorf("the last bytes came at %v, known: %v; they were written after %v", is.LastRead, is.RecordsReads, wrote)
			}
			if err := r.link.Close(hangGuard); err != nil {
				t.Fatal(err)
			}
			r.wantQuiet(2) // no credit for another frame
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

// A server that answers with JSON-RPC, or refuses initialize in another way, causes no
// fallback.
//
// Guarantees: G-0034.9
func TestOtherRefusalsOfInitializeCauseNoFallback(t *testing.T) {
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
			s := newSSEServer()
			s.status, s.body = c.status, c.body
			r := connect(t, s.ServeHTTP)
			r.request(1, 1, c.frame)
			r.await("the answer", func() bool { return len(r.received)+len(r.failed) > 0 })
			if got := s.log(); len(got) != 1 {
				t.Errorf("the server saw %q, want 1 element", got)
			}
		})
	}
}

// If the GET request finds no endpoint of HTTP+SSE, the request fails with the refusal
// of its POST.
//
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
			s := &sseServer{status: http.StatusNotFound, get: c.get}
			r := connect(t, s.ServeHTTP)
			r.request(1, 1, initialize)
			var status *transport.StatusError
			f := r.failure(0)
			if !errors.As(f.Err, &status) || status.Status != c.status || !strings.Contains(f.Err.Error(), c.says) || f.Tag != 1 || !f.Unsent {
				t.Errorf("got %+v, want status %d and %q", f, c.status, c.says)
			}
			r.wantFrameAfterRefusal(t, s)
		})
	}
}

// wantFrameAfterRefusal checks that the link still works, without a fallback.
func (r *testReceiver) wantFrameAfterRefusal(t *testing.T, s *sseServer) {
	t.Helper()
	r.call(2, 1)
	if f := r.failure(1); f.Tag != 2 {
		t.Errorf("got %+v, want 2", f)
	}
	if got := s.log(); !strings.HasPrefix(got[len(got)-1], "POST / ") {
		t.Errorf("the server saw %q, want the prefix %q", got, "POST / ")
	}
}

// If the server opens a stream and sends nothing, the fallback is given up after a
// time.
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

// Close ends the attempt to fall back, and reports the request as unsent.
//
// Guarantees: G-0034.9
func TestCloseEndsTheFallback(t *testing.T) {
	getting := make(chan struct{})
	s := &sseServer{status: http.StatusNotFound, get: func(_ http.ResponseWriter, req *http.Request) {
		close(getting)
		<-req.Context().Done()
	}}
	r := connect(t, s.ServeHTTP)
	r.request(1, 1, initialize)
	receive(t, "the GET request", getting)
	if err := r.link.Close(0); err != nil {
		t.Fatal(err)
	}
	if loss := r.loss(); loss.Reason != transport.ErrClosed || !slices.Equal(loss.Unsent, []transport.Tag{1}) {
		t.Errorf("got %+v, want loss.Reason == %v and %v", loss, transport.ErrClosed, []transport.Tag{1})
	}
}

// A closingBody says when it was closed.
type closingBody struct {
	io.ReadCloser
	closed func()
}

func (b closingBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// A fallback that succeeds while the link is being closed leaves no stream of HTTP+SSE.
//
// Guarantees: G-0034.9
func TestAFallbackThatComesTooLateLeavesNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events, server := io.Pipe()
		closed := make(chan struct{})
		body := closingBody{events, sync.OnceFunc(func() { close(closed) })}
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodGet {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {web.TypeEvents}}, Body: body, Request: req}, nil
			}
			if sent, _ := io.ReadAll(req.Body); string(sent) != initialize {
				return silentTripper{}.RoundTrip(req)
			}
			return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		})}})
		r.request(1, 1, initialize)
		r.send(0, notification("n")) // Close waits for it
		synctest.Wait()
		go r.link.Close(time.Minute)
		synctest.Wait()
		if _, err := io.WriteString(server, olderEndpoint); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !wait.IsClosed(closed) {
			t.Error("the stream is still open")
		}
	})
}

// scriptedTripper answers each POST with 404.
type scriptedTripper struct {
	get func(*http.Request) (*http.Response, error)
}

func (s *scriptedTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return s.get(req)
	}
	return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// After a fallback, the end of the event stream is the loss of the link.
//
// Guarantees: G-0034.9
func TestTheEndOfTheOlderStreamIsTheLoss(t *testing.T) {
	gone := make(chan struct{})
	s := newSSEServer()
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
		t.Errorf("got %+v, want %v", loss, transport.ErrPeerClosed)
	}
	if err := r.link.Send(outbound(0, initialized)); err != transport.ErrClosed {
		t.Errorf("Send after the loss: %v", err)
	}
}

// After a fallback, the program's header is sent with each request, also to the
// endpoint of the messages.
//
// Guarantees: G-0034.1
func TestFallbackSendsTheHeader(t *testing.T) {
	s := newSSEServer()
	r := open(t, &Client{
		URL: serve(t, func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("X-Key") != "secret" {
				t.Errorf("got %s %s without the header, want %q", req.Method, req.URL.Path, "secret")
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

// After a fallback, a message may be as long as before, and no longer.
//
// Guarantees: G-0034.9
func TestFallbackKeepsTheLimit(t *testing.T) {
	s := newSSEServer()
	r := open(t, &Client{URL: serve(t, s.ServeHTTP), MaxFrame: 1000})
	r.link.Grant(transport.Main, 3)
	r.request(1, 1, initialize)
	w := <-s.streams
	stream(w, "data: "+initializeResult+"\n\n")
	r.wantFrame(0, transport.Main, initializeResult, false)
	longest := notification("n") + strings.Repeat(" ", 1000-len(notification("n")))
	stream(w, "data: "+longest+"\n\n")
	r.wantFrame(1, transport.Main, longest, false)
	stream(w, "data: "+longest+" \n\n")
	var oversized *transport.OversizedError
	if loss := r.loss(); !errors.As(loss.Reason, &oversized) || oversized.Limit != 1000 {
		t.Errorf("got %v, want an error that names the limit", loss.Reason)
	}
}

// The fallback has the connection on which initialize was refused, whatever the server says with that: it may be the only one.
//
// Guarantees: G-0034.9
func TestFallbackOnOneConnection(t *testing.T) {
	s := newSSEServer()
	s.body = strings.Repeat("no ", web.MaxErrorBody) // longer than what is read of it
	s.get = func(w http.ResponseWriter, req *http.Request) {
		stream(w, olderEndpoint+"data: "+initializeResult+"\n\n")
		<-req.Context().Done()
	}
	pool := transportOf(t)
	pool.MaxConnsPerHost = 1
	r := open(t, &Client{URL: serve(t, s.ServeHTTP), HTTP: &http.Client{Transport: pool}})
	r.link.Grant(transport.Main, 1)
	r.request(1, 1, initialize)
	r.await("the answer", func() bool { return len(r.received)+len(r.failed) > 0 })
	if len(r.failed) > 0 {
		t.Errorf("got %+v, want an answer", r.failed)
	}
}

// The suites pass over a link that has fallen back to HTTP+SSE.
//
// Guarantees: G-0034.9
func TestSuitesAfterAFallback(t *testing.T) {
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

// What waits behind initialize goes to the older server in its order, and room that was missing before is told.
//
// Guarantees: G-0034.9
func TestWhatWaitsFollowsAFallback(t *testing.T) {
	refuse, accept, arrived := make(chan struct{}), make(chan struct{}), make(chan struct{}, 10)
	s := newSSEServer()
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost && req.URL.Path == "/" {
			body, _ := io.ReadAll(req.Body)
			req.Body = io.NopCloser(strings.NewReader(string(body)))
			arrived <- struct{}{}
			if strings.Contains(string(body), "n/1") {
				hold(req, accept)
				w.WriteHeader(http.StatusAccepted)
				return
			}
			hold(req, refuse)
		}
		s.ServeHTTP(w, req)
	})
	r.request(1, 1, initialize)
	r.send(0, notification("n/1")) // it is on its way, and keeps the next ones
	receive(t, "initialize", arrived)
	receive(t, "the notification", arrived)
	r.send(0, notification("n/2"))
	r.send(2, request(2, "ping", ""))
	r.send(0, notification("n/3"))
	if err := r.link.Send(outbound(3, request(3, "ping", `"pad":"`+strings.Repeat("x", parts.DefaultBytes-100)+`"`))); err != transport.ErrBusy {
		t.Errorf("a message for which there is no room: %v", err)
	}
	close(refuse)
	stream(<-s.streams, ": hello\n\n")
	r.await("room", func() bool { return r.writable > 0 })
	r.send(0, notification("n/4"))
	close(accept)
	if err := r.link.Close(hangGuard); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"POST / " + initialize, "GET / ", // and nothing more as before the fallback
		"POST /messages " + initialize, "POST /messages " + notification("n/2"), "POST /messages " + request(2, "ping", ""), "POST /messages " + notification("n/3"), "POST /messages " + notification("n/4"),
	}
	if got := s.log(); !slices.Equal(got, want) || r.writable != 1 {
		t.Errorf("the server saw %q, want %q; room was told %d times, want once", got, want, r.writable)
	}
}

// What a link over HTTP+SSE has not sent when it is closed is unsent of the link that has fallen back, in its order.
//
// Guarantees: G-0034.9
func TestWhatIsUnsentAfterAFallback(t *testing.T) {
	arrived := make(chan struct{}, 1)
	s := newSSEServer()
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if strings.Contains(string(body), "n/1") {
			arrived <- struct{}{}
			<-req.Context().Done()
			return
		}
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		s.ServeHTTP(w, req)
	})
	r.link.Grant(transport.Main, 1)
	r.request(1, 1, initialize)
	stream(<-s.streams, "data: "+initializeResult+"\n\n")
	r.wantFrame(0, transport.Main, initializeResult, false)
	r.send(4, notification("n/1"))
	receive(t, "the notification", arrived)
	r.send(3, request(3, "ping", ""))
	r.send(2, request(2, "ping", ""))
	if err := r.link.Close(0); err != nil {
		t.Fatal(err)
	}
	if loss := r.loss(); loss.Reason != transport.ErrClosed || !slices.Equal(loss.Unsent, []transport.Tag{3, 2}) || len(r.failed) > 0 {
		t.Errorf("lost %+v, and failed %v; want the two that were not posted in their order", loss, r.failed)
	}
}

// After a fallback, a message that the server refuses fails, and a queue that was full is reported to have room.
//
// Guarantees: G-0034.9
func TestReportsAfterAFallback(t *testing.T) {
	arrived, accept := make(chan struct{}, 1), make(chan struct{})
	s := newSSEServer()
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		switch {
		case strings.Contains(string(body), "n/refused"):
			w.WriteHeader(http.StatusBadRequest)
		case strings.Contains(string(body), "n/held"):
			arrived <- struct{}{}
			hold(req, accept)
			w.WriteHeader(http.StatusAccepted)
		default:
			req.Body = io.NopCloser(strings.NewReader(string(body)))
			s.ServeHTTP(w, req)
		}
	})
	r.link.Grant(transport.Main, 1)
	r.request(1, 1, initialize)
	stream(<-s.streams, "data: "+initializeResult+"\n\n")
	r.wantFrame(0, transport.Main, initializeResult, false)
	r.send(2, notification("n/refused"))
	var refused *transport.StatusError
	if f := r.failure(0); f.Tag != 2 || !f.Unsent || !errors.As(f.Err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("got %+v, want the refusal of the message", f)
	}
	r.send(0, notification("n/held"))
	receive(t, "the message that is held", arrived)
	var err error
	for n := 0; err == nil && n < 2*parts.DefaultFrames; n++ {
		err = r.link.Send(outbound(0, notification("n")))
	}
	if err != transport.ErrBusy || r.writable > 0 {
		t.Errorf("with the queue full: got %v, and room was told %d times, want %v and none", err, r.writable, transport.ErrBusy)
	}
	close(accept)
	r.await("room", func() bool { return r.writable > 0 })
}
