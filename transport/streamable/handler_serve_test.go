package streamable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A closing is a server that says when it is being closed, and when it was.
type closing struct {
	*server.Server
	begun, ended chan struct{}
	late         atomic.Int32 // links that came while it was being closed
}

func (c *closing) Accept(link transport.Link) {
	select {
	case <-c.begun:
		c.late.Add(1)
	default:
	}
	c.Server.Accept(link)
}

func (c *closing) Close(ctx context.Context) error {
	close(c.begun)
	defer close(c.ended)
	return c.Server.Close(ctx)
}

// A served is a handler that serves at a port, with a server whose tool "wait"
// returns when released is closed, and when its context ends if it obeys.
type served struct {
	t        *testing.T
	acceptor *closing
	handler  *streamable.Handler
	http     *http.Server
	url      string
	entered  chan struct{}
	released chan struct{}
	stop     context.CancelFunc
	ended    chan error
}

// serving begins to serve. The test stops it, and takes the result from ended.
func serving(t *testing.T, obeys bool, o streamable.HandlerOptions, srv *http.Server) *served {
	s, listener := listening(t, obeys, o, srv)
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.ended <- s.handler.Serve(ctx, srv, listener) }()
	return s
}

// listening is what serves, and where, before it does.
func listening(t *testing.T, obeys bool, o streamable.HandlerOptions, srv *http.Server) (*served, net.Listener) {
	s := &served{
		t: t, http: srv, entered: make(chan struct{}, 10), released: make(chan struct{}), ended: make(chan error, 1),
		acceptor: &closing{
			Server: server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{}),
			begun:  make(chan struct{}), ended: make(chan struct{}),
		},
	}
	server.AddTool(s.acceptor.Server, protocol.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		s.entered <- struct{}{}
		over := ctx.Done()
		if !obeys {
			over = nil
		}
		select {
		case <-s.released:
			return "finished", nil
		case <-over:
			return "", context.Cause(ctx)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	s.handler = streamable.NewHandler(s.acceptor, o)
	return s, listener
}

// connect opens a session that listens for changes of the tools: a legacy one has
// a GET stream, a modern one a request that is being served.
func (s *served) connect(version string) *client.Session {
	s.t.Helper()
	listens := make(chan struct{}, 10)
	o := client.Options{ProtocolVersion: version, OnEvent: func(context.Context, *client.Session, client.Event) {}}
	ctx, cancel := context.WithTimeout(s.t.Context(), guard)
	defer cancel()
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).
		Connect(ctx, &streamable.Client{URL: s.url, HTTP: &http.Client{Transport: watching{listens}}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { session.Close(context.Background()) })
	within(s.t, listens)
	return session
}

// call calls the tool, and returns when the tool runs.
func (s *served) call(session *client.Session) <-chan string {
	s.t.Helper()
	answers := make(chan string, 1)
	go func() {
		result, err := session.CallTool(s.t.Context(), &protocol.CallToolParams{Name: "wait"})
		if err != nil {
			answers <- err.Error()
			return
		}
		answers <- result.Content[0].(*protocol.TextContent).Text
	}()
	within(s.t, s.entered)
	return answers
}

// watching is a client's way out that says when a stream begins on which the
// client listens.
type watching struct{ listens chan<- struct{} }

func (w watching) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK && (r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen") {
		w.listens <- struct{}{}
	}
	return response, err
}

// guard turns waiting for what never comes into a failure.
const guard = time.Minute

func within[T any](t *testing.T, c <-chan T) (value T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	select {
	case value = <-c:
	case <-ctx.Done():
		t.Fatal("nothing came")
	}
	return value
}

// inBothEras runs a test with a legacy and a modern client.
func inBothEras(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		t.Run(version, func(t *testing.T) {
			t.Cleanup(http.DefaultClient.CloseIdleConnections)
			test(t, version)
		})
	}
}

// initializing is the status of the answer to a new session.
func initializing(t *testing.T, url string) int {
	t.Helper()
	const body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// A server that is told to stop finishes its calls, takes no new session, and
// closes the acceptor, the handler and the http.Server in this order, although
// clients listen.
//
// Guarantees: G-0022.17
func TestServeFinishesItsCalls(t *testing.T) {
	inBothEras(t, func(t *testing.T, version string) {
		srv := &http.Server{}
		s := serving(t, true, streamable.HandlerOptions{ShutdownGrace: guard}, srv)
		atShutdown := make(chan string, 1)
		srv.RegisterOnShutdown(func() {
			closed := httptest.NewRecorder()
			s.handler.ServeHTTP(closed, httptest.NewRequest(http.MethodPut, "/", nil))
			order := fmt.Sprintf("handler %d, ", closed.Code)
			select {
			case <-s.acceptor.ended:
				order += "acceptor closed"
			default:
				order += "acceptor open"
			}
			atShutdown <- order
		})
		first, second := s.connect(version), s.connect(version)
		answers := []<-chan string{s.call(first), s.call(second)}
		s.stop()
		within(t, s.acceptor.begun)
		if status := initializing(t, s.url); status != http.StatusServiceUnavailable {
			t.Errorf("a new session: status %d", status)
		}
		if n := s.acceptor.late.Load(); n != 0 {
			t.Errorf("%d links came while the acceptor was being closed", n)
		}
		closed := httptest.NewRecorder()
		s.handler.ServeHTTP(closed, httptest.NewRequest(http.MethodPut, "/", nil))
		if closed.Code != http.StatusMethodNotAllowed {
			t.Errorf("the handler answers %d while calls are in flight", closed.Code)
		}
		close(s.released)
		for n, answer := range answers {
			if text := within(t, answer); text != "finished" {
				t.Errorf("call %d: %s", n, text)
			}
		}
		if err := within(t, s.ended); err != nil {
			t.Errorf("Serve: %v", err)
		}
		if order := within(t, atShutdown); order != "handler 503, acceptor closed" {
			t.Errorf("at srv.Shutdown: %s", order)
		}
	})
}

// What does not finish within the grace is cut off, and the error says what.
//
// Guarantees: G-0022.17
func TestServeCutsOffWhatDoesNotFinish(t *testing.T) {
	for name, c := range map[string]struct {
		obeys bool
		want  string
	}{
		"a call":                     {true, "close an Acceptor of type *streamable_test.closing"},
		"an acceptor":                {false, "closing: it has not ended"},
		"a handler of the program's": {true, "HTTP connections are cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			inBothEras(t, func(t *testing.T, version string) {
				mux := http.NewServeMux()
				s := serving(t, c.obeys, streamable.HandlerOptions{ShutdownGrace: time.Second / 2}, &http.Server{Handler: mux})
				mux.Handle("/", s.handler)
				mux.HandleFunc("/own", func(w http.ResponseWriter, r *http.Request) {
					s.entered <- struct{}{}
					<-r.Context().Done()
				})
				answer := s.call(s.connect(version))
				own := make(chan error, 1)
				go func() {
					response, err := http.Get(s.url + "/own")
					if err == nil {
						response.Body.Close()
					}
					own <- err
				}()
				within(t, s.entered)
				s.stop()
				err := within(t, s.ended)
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), c.want) {
					t.Errorf("Serve: %v", err)
				}
				if within(t, own) == nil {
					t.Error("the program's handler was not cut off")
				}
				if text := within(t, answer); text == "finished" {
					t.Error("the call has finished")
				}
				close(s.released)
				within(t, s.acceptor.ended)
			})
		})
	}
}

// A server whose listener fails is shut down too.
//
// Guarantees: G-0022.17
func TestServeEndsWithItsListener(t *testing.T) {
	srv := &http.Server{}
	s := serving(t, true, streamable.HandlerOptions{}, srv)
	session := s.connect(protocol.LatestLegacy)
	srv.Close()
	if err := within(t, s.ended); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
	within(t, s.acceptor.ended)
	session.Close(context.Background())
	err := s.handler.ListenAndServe(t.Context(), &http.Server{Addr: "127.0.0.1:none"})
	if err == nil || !strings.HasPrefix(err.Error(), "streamable: listen") {
		t.Errorf("ListenAndServe: %v", err)
	}
}

// What the program has set of its http.Server stays as it is.
func TestServeKeepsWhatTheProgramHasSet(t *testing.T) {
	mux := http.NewServeMux()
	for _, c := range []struct {
		given  *http.Server
		header time.Duration
		idle   time.Duration
	}{
		{&http.Server{}, 10 * time.Second, 2 * time.Minute},
		{&http.Server{Handler: mux, ReadHeaderTimeout: time.Second, IdleTimeout: time.Minute}, time.Second, time.Minute},
		{&http.Server{ReadHeaderTimeout: -1, IdleTimeout: -1}, -1, -1},
		{&http.Server{ReadTimeout: time.Hour}, 0, 0},
	} {
		handler := c.given.Handler
		s := serving(t, true, streamable.HandlerOptions{}, c.given)
		s.stop()
		if err := within(t, s.ended); err != nil {
			t.Errorf("Serve: %v", err)
		}
		if handler == nil {
			handler = s.handler
		}
		if c.given.Handler != handler || c.given.ReadHeaderTimeout != c.header || c.given.IdleTimeout != c.idle {
			t.Errorf("%T, headers %v, idle %v", c.given.Handler, c.given.ReadHeaderTimeout, c.given.IdleTimeout)
		}
	}
}

// A server that shuts down with a thousand open streams of every kind takes its
// grace and no more, and ends every one of them.
//
// Guarantees: G-0022.17
func TestShutdownWithAThousandStreams(t *testing.T) {
	const streams = 1000
	grace := 20 * time.Second
	s := serving(t, true, streamable.HandlerOptions{ShutdownGrace: grace, MaxClientSessions: streams}, new(http.Server))
	transport := &http.Transport{MaxIdleConnsPerHost: streams}
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: transport}
	post := func(session, body string) *http.Response {
		r, err := http.NewRequest("POST", s.url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		response, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	var ending sync.WaitGroup
	var open atomic.Int32
	for range streams {
		begun := post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		begun.Body.Close()
		session := begun.Header.Get("Mcp-Session-Id")
		post(session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`).Body.Close()
		r, _ := http.NewRequest("GET", s.url, nil)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Mcp-Session-Id", session)
		response, err := web.Do(r)
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("a stream: %v", err)
		}
		open.Add(1)
		ending.Go(func() {
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body) // it ends, or breaks off
			open.Add(-1)
		})
	}
	if n := open.Load(); n != streams {
		t.Fatalf("%d streams are open", n)
	}
	s.stop()
	if err := within(t, s.ended); err != nil {
		t.Errorf("Serve returned %v", err)
	}
	ending.Wait()
}

// A program that serves the handler by itself shuts down by one call: calls in flight
// finish, streams end, and so does the http.Server, if it is given.
//
// Guarantees: G-0022.17
func TestShutdownOfAServerOfTheProgram(t *testing.T) {
	for name, given := range map[string]bool{"with its http.Server": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			inBothEras(t, func(t *testing.T, version string) {
				srv := &http.Server{}
				s, listener := listening(t, true, streamable.HandlerOptions{ShutdownGrace: guard}, srv)
				srv.Handler = s.handler
				go func() { s.ended <- srv.Serve(listener) }()
				answer := s.call(s.connect(version))
				down := make(chan error, 1)
				go func() {
					if given {
						down <- s.handler.Shutdown(t.Context(), srv)
					} else {
						down <- s.handler.Shutdown(t.Context(), nil)
					}
				}()
				within(t, s.acceptor.begun)
				close(s.released)
				if text := within(t, answer); text != "finished" {
					t.Errorf("the call: %s", text)
				}
				if err := within(t, down); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				if !given {
					srv.Close()
				}
				if err := within(t, s.ended); !errors.Is(err, http.ErrServerClosed) {
					t.Errorf("the http.Server: %v", err)
				}
			})
		})
	}
}

// The deadline of its context bounds Shutdown, and what is left is cut off.
//
// Guarantees: G-0022.17
func TestShutdownHeedsItsContext(t *testing.T) {
	srv := &http.Server{}
	s, listener := listening(t, true, streamable.HandlerOptions{ShutdownGrace: time.Hour}, srv)
	srv.Handler = s.handler
	go func() { s.ended <- srv.Serve(listener) }()
	answer := s.call(s.connect(protocol.LatestLegacy))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	if err := s.handler.Shutdown(ctx, srv); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if text := within(t, answer); text == "finished" {
		t.Error("the call has finished")
	}
	within(t, s.ended)
	close(s.released)
}
