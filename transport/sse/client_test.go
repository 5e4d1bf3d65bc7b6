package sse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// hangLimit ends a test that waits for what never comes.
const hangLimit = time.Minute

// A recorder is a receiver that records its calls.
type recorder struct {
	mu       sync.Mutex
	frames   []transport.Inbound
	failed   []transport.Failure
	lost     []transport.Loss
	lostAt   time.Time
	writable int
	changed  chan struct{}
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{}, 1)} }

func (r *recorder) note(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	select {
	case r.changed <- struct{}{}:
	default: // a change is already signalled
	}
}

func (r *recorder) Receive(in transport.Inbound) { r.note(func() { r.frames = append(r.frames, in) }) }
func (r *recorder) Failed(f transport.Failure)   { r.note(func() { r.failed = append(r.failed, f) }) }
func (r *recorder) Lost(l transport.Loss) {
	r.note(func() { r.lost, r.lostAt = append(r.lost, l), time.Now() })
}
func (r *recorder) StreamLost(transport.StreamLoss)              {}
func (r *recorder) Writable()                                    { r.note(func() { r.writable++ }) }
func (r *recorder) Ended()                                       {}
func (r *recorder) StreamOpened(transport.Stream, transport.Tag) {}

// await waits until reached returns true.
func (r *recorder) await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	for {
		r.mu.Lock()
		ok := reached()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			t.Fatalf("got no %s in time", what)
		}
	}
}

func (r *recorder) awaitLoss(t *testing.T) transport.Loss {
	t.Helper()
	r.await(t, "loss", func() bool { return len(r.lost) > 0 })
	return r.lost[0]
}

func (r *recorder) awaitFailure(t *testing.T) transport.Failure {
	t.Helper()
	r.await(t, "failure", func() bool { return len(r.failed) > 0 })
	return r.failed[0]
}

// A scriptedServer is a server whose responses to GET and POST a test writes.
type scriptedServer struct {
	get  func(w http.ResponseWriter, r *http.Request)
	post http.HandlerFunc
}

func (s scriptedServer) serve(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.post(w, r)
			return
		}
		w.Header().Set("Content-Type", web.TypeEvents)
		s.get(w, r)
	}))
	t.Cleanup(func() {
		if !t.Failed() {
			testenv.Within(t, "the server closes", server.Close)
		}
	})
	return server.URL
}

// says returns a handler that sends text and keeps the stream open.
func says(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, text)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

const endpoint = "event: endpoint\ndata: /messages?sessionId=1\n\n"

// open opens a link, binds it to a recorder, and closes it at the end of the test.
func open(t *testing.T, c *Client) (transport.Link, *recorder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	link, err := c.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	link.Bind(r)
	t.Cleanup(func() {
		if t.Failed() {
			return // what the test has waited for would be waited for again
		}
		testenv.Within(t, "the link closes", func() {
			if err := link.Close(0); err != nil {
				t.Error(err)
			}
		})
	})
	return link, r
}

func request(tag transport.Tag) transport.Outbound {
	return transport.Outbound{Tag: tag, Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m"}`, tag),
		Route: transport.Route{Kind: jsonrpc.KindRequest, Method: "m"}}
}

func notification(tag transport.Tag) transport.Outbound {
	return transport.Outbound{Tag: tag, Frame: []byte(`{"jsonrpc":"2.0","method":"n"}`),
		Route: transport.Route{Kind: jsonrpc.KindNotification, Method: "n"}}
}

// The end of the stream is the loss of the link, whatever ends it.
//
// Guarantees: G-0034.3
func TestEndOfTheStreamLosesTheLink(t *testing.T) {
	for name, test := range map[string]struct {
		then func(w http.ResponseWriter)
		want func(error) bool
	}{
		"proper end": {func(http.ResponseWriter) {}, func(err error) bool { return errors.Is(err, transport.ErrPeerClosed) }},
		"cut off":    {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"an event above the limit": {func(w http.ResponseWriter) { io.WriteString(w, "data: "+strings.Repeat("x", 1025)) },
			func(err error) bool { return errors.As(err, new(*transport.OversizedError)) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := scriptedServer{get: func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, endpoint+": comment\n\nevent: other\ndata: 1\n\ndata:\n\nid: 7\ndata: {\ndata: }\n\n")
				http.NewResponseController(w).Flush()
				test.then(w)
			}}
			link, r := open(t, &Client{URL: s.serve(t), MaxFrame: 1024})
			link.Grant(transport.Main, 2)
			if loss := r.awaitLoss(t); !test.want(loss.Reason) {
				t.Errorf("got the reason %v", loss.Reason)
			}
			if len(r.frames) != 1 || string(r.frames[0].Frame) != "{\n}" {
				t.Errorf("got the frames %v, want len(r.frames) == 1 and string(r.frames[0].Frame) == %q", r.frames, "{\n}")
			}
		})
	}
}

// A server that says something in its response to a POST, as many do, gets the next message on the same connection.
//
// Guarantees: G-0034.5
func TestWhatAServerSaysCostsNoConnection(t *testing.T) {
	const posts = 5
	from := make(chan string, posts)
	s := scriptedServer{get: says(endpoint), post: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, strings.Repeat("Accepted ", 500))
		from <- r.RemoteAddr
	}}
	link, _ := open(t, &Client{URL: s.serve(t)})
	var first string
	for n := range posts {
		if err := link.Send(notification(transport.Tag(n + 1))); err != nil {
			t.Fatal(err)
		}
		if at := testenv.Receive(t, from, "a message arrives"); n == 0 {
			first = at
		} else if at != first {
			t.Errorf("message %d came from %s, want %s as the first", n+1, at, first)
		}
	}
}

// A POST that fails, fails one message only, and the failure says whether the message
// may have been executed.
//
// Guarantees: G-0034.4
func TestFailedPostFailsOneMessage(t *testing.T) {
	for status, unsent := range map[int]bool{400: true, 401: true, 404: true, 413: true, 429: true, 500: false, 503: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			posts := 0
			s := scriptedServer{get: says(endpoint), post: func(w http.ResponseWriter, _ *http.Request) {
				if posts++; posts == 1 {
					http.Error(w, "no", status)
				}
			}}
			link, r := open(t, &Client{URL: s.serve(t)})
			for tag := range transport.Tag(2) {
				if err := link.Send(request(tag + 1)); err != nil {
					t.Fatal(err)
				}
			}
			failed := r.awaitFailure(t)
			var refused *transport.StatusError
			if !errors.As(failed.Err, &refused) || refused.Status != status || failed.Tag != 1 || failed.Unsent != unsent {
				t.Fatalf("got %+v, want a *transport.StatusError, refused.Status == %v, failed.Tag == 1 and failed.Unsent == %v", failed, status, unsent)
			}
			if err := link.Close(hangLimit); err != nil {
				t.Fatal(err)
			}
			if len(r.failed) != 1 || len(r.lost[0].Unsent) > 0 || posts != 2 {
				t.Errorf("got %d POSTs, failures %v and losses %v, want len(r.failed) == 1, len(r.lost[0].Unsent) == 0 and posts == 2", posts, r.failed, r.lost)
			}
		})
	}
}

// A message that was denied, and finds no connection when it is sent again, was certainly not sent.
//
// Guarantees: G-0034.4, G-0003.2
func TestDeniedMessageWithoutAConnectionIsUnsent(t *testing.T) {
	var refuse atomic.Bool
	pool := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if refuse.Load() {
			return nil, errors.New("no way")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	defer pool.CloseIdleConnections()
	posts := 0
	s := scriptedServer{get: says(endpoint), post: func(w http.ResponseWriter, _ *http.Request) {
		posts++
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
	}}
	link, r := open(t, &Client{URL: s.serve(t), HTTP: &http.Client{Transport: pool}, Authorizer: challengeFunc(func() { refuse.Store(true) })})
	if err := link.Send(request(1)); err != nil {
		t.Fatal(err)
	}
	if failed := r.awaitFailure(t); failed.Tag != 1 || !failed.Unsent || !strings.Contains(failed.Err.Error(), "no way") || posts != 1 {
		t.Errorf("got %+v after %d POSTs, want a failure of the dial, unsent", failed, posts)
	}
}

// A challengeFunc is an Authorizer that calls it for each challenge, and always lets the request be
// sent again.
type challengeFunc func()

func (challengeFunc) Authorize(context.Context, *http.Request) error { return nil }

func (f challengeFunc) Challenged(context.Context, *http.Request, *transport.StatusError) (bool, error) {
	f()
	return true, nil
}

// If a server that has accepted a message answers 404 to a later one, it has forgotten
// the session, and the link is lost. The client may see that before the stream ends.
//
// Guarantees: G-0034.3
func TestForgottenSessionLosesTheLink(t *testing.T) {
	var posts atomic.Int32
	s := scriptedServer{get: says(endpoint), post: func(w http.ResponseWriter, _ *http.Request) {
		if posts.Add(1) > 2 {
			http.Error(w, "session not found", http.StatusNotFound)
		}
	}}
	link, r := open(t, &Client{URL: s.serve(t)})
	for _, o := range []transport.Outbound{request(1), notification(2), request(3), request(4)} {
		if err := link.Send(o); err != nil && !errors.Is(err, transport.ErrClosed) {
			t.Fatal(err)
		}
	}
	loss := r.awaitLoss(t)
	var refused *transport.StatusError
	if !errors.Is(loss.Reason, transport.ErrSessionExpired) || !errors.As(loss.Reason, &refused) || refused.Status != 404 {
		t.Errorf("got the reason %v, want the error %v, a *transport.StatusError and refused.Status == 404", loss.Reason, transport.ErrSessionExpired)
	}
	if len(loss.Unsent) == 0 || loss.Unsent[0] != 3 || len(r.failed) > 0 {
		t.Errorf("got unsent %v and failures %v", loss.Unsent, r.failed)
	}
}

// A waiting link cancels nothing before a channel is closed.
type waiting struct {
	*clientLink
	until <-chan struct{}
}

func (w waiting) AwaitAnswers(error) { <-w.until }

// A request that has left the queue when the link breaks is reported with the loss, and
// not as a failure of its own, even before the context of the link has ended.
//
// Guarantees: G-0014.6
func TestRequestAfterTheEndIsReportedWithTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, r, broken := newClientLink(http.DefaultClient, nil, 0), newRecorder(), errors.New("broken")
		l.Bind(r)
		posted := make(chan struct{})
		l.Link = waiting{l, posted} // the link has stopped then, but has cancelled nothing
		l.EndFor(broken)
		began := time.Now()
		if l.postRequest(numbered{request(1), 1}); time.Since(began) > 0 {
			t.Errorf("the end waits %v for a request that is not posted", time.Since(began))
		}
		close(posted)
		if loss := r.awaitLoss(t); loss.Reason != broken || len(loss.Unsent) != 1 || loss.Unsent[0] != 1 || len(r.failed) > 0 {
			t.Errorf("got the losses %+v and failures %v, want loss.Reason == %v, len(loss.Unsent) == 1, loss.Unsent[0] == 1 and len(r.failed) == 0", loss, r.failed, broken)
		}
	})
}

// A notification is posted although the POST of an earlier request has no response yet,
// because some servers respond only after they have served the request.
//
// Guarantees: G-0034.5
func TestSlowPostDelaysNoNotification(t *testing.T) {
	served, cancelled := make(chan struct{}), make(chan struct{})
	s := scriptedServer{get: says(endpoint), post: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"id"`) {
			<-cancelled
			close(served)
			return
		}
		close(cancelled)
	}}
	link, _ := open(t, &Client{URL: s.serve(t)})
	for _, o := range []transport.Outbound{request(1), notification(2)} {
		if err := link.Send(o); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Receive(t, served, "the first request was served")
}

// The header is sent with each request, and not to another host. What a request needs to be one is not taken from it.
//
// Guarantees: G-0034.1
func TestHeadersAndRedirects(t *testing.T) {
	seen := make(chan string, 4)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- "elsewhere " + r.Header.Get("X-Key")
	}))
	defer elsewhere.Close()
	s := scriptedServer{
		get: func(w http.ResponseWriter, r *http.Request) {
			seen <- r.Method + " " + r.Header.Get("X-Key") + " " + r.Header.Get("Accept")
			says(endpoint)(w, r)
		},
		post: func(w http.ResponseWriter, r *http.Request) {
			seen <- r.Method + " " + r.Header.Get("X-Key") + " " + r.Header.Get("Content-Type")
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
	}
	link, r := open(t, &Client{URL: s.serve(t), Header: http.Header{"X-Key": {"secret"}, "Content-Type": {"text/plain"}, "Accept": {"text/html"}}})
	if err := link.Send(request(1)); err != nil {
		t.Fatal(err)
	}
	var refused *transport.StatusError
	if failed := r.awaitFailure(t); !errors.As(failed.Err, &refused) || refused.Status != 307 || failed.Unsent {
		t.Errorf("got %+v", failed)
	}
	for _, want := range []string{"GET secret text/event-stream", "POST secret application/json"} {
		if got := testenv.Receive(t, seen, want); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if len(seen) > 0 {
		t.Errorf("the other host got %q, want no request", <-seen)
	}
}

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (b *closedBody) Close() error { b.closed = true; return nil }

// A link that ends closes the connections that it shared with no program.
func TestConnectionsOfAClosedLink(t *testing.T) {
	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	for name, test := range map[string]struct {
		http *http.Client
		want http.ConnState // of the connection of a POST
	}{
		"its own":       {nil, http.StateClosed},
		"the program's": {&http.Client{Transport: pool}, http.StateIdle},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			posts, states, changed := map[string]bool{}, map[string]http.ConnState{}, make(chan struct{}, 1000)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					mu.Lock()
					defer mu.Unlock()
					posts[r.RemoteAddr] = true
					return
				}
				w.Header().Set("Content-Type", web.TypeEvents)
				says(endpoint)(w, r)
			}))
			server.Config.ConnState = func(c net.Conn, state http.ConnState) {
				mu.Lock()
				defer mu.Unlock()
				states[c.RemoteAddr().String()] = state
				changed <- struct{}{}
			}
			server.Start()
			defer server.Close()
			link, r := open(t, &Client{URL: server.URL, HTTP: test.http})
			if err := link.Send(notification(1)); err != nil {
				t.Fatal(err)
			}
			if err := link.Close(hangLimit); err != nil || len(r.lost) != 1 {
				t.Fatalf("Close returned %v after %+v", err, r.lost)
			}
			for {
				mu.Lock()
				var got []http.ConnState
				for address := range posts {
					got = append(got, states[address])
				}
				mu.Unlock()
				if len(got) == 1 && got[0] == test.want {
					return
				}
				testenv.Receive(t, changed, fmt.Sprintf("the connection of the POST is %v", test.want))
			}
		})
	}
}

// Errors do not contain the query of the address, which may contain a key.
func TestErrorsShowNoQuery(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	address, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.RawQuery = "key=secret"
	if _, err := (&Client{URL: address.String()}).Open(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Fatal(err)
	}
}
