package streamable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A closingServer is a server that reports when Close begins and when it has ended.
type closingServer struct {
	*server.Server
	begun, ended chan struct{}
	late         atomic.Int32 // links that arrived after Close had begun
}

func (c *closingServer) Accept(link transport.Link) {
	select {
	case <-c.begun:
		c.late.Add(1)
	default:
	}
	c.Server.Accept(link)
}

func (c *closingServer) Close(ctx context.Context) error {
	close(c.begun)
	defer close(c.ended)
	return c.Server.Close(ctx)
}

// A servedHandler is a handler that serves at a port. Its tool "wait" returns when released is
// closed and, if it obeys, when its context ends.
type servedHandler struct {
	t        *testing.T
	acceptor *closingServer
	handler  *streamable.Handler
	http     *http.Server
	url      string
	entered  chan struct{}
	released chan struct{}
	stop     context.CancelFunc
	ended    chan error
}

// serving begins to serve. The test stops it, and reads the result from ended.
func serving(t *testing.T, obeys bool, o streamable.HandlerOptions, srv *http.Server) *servedHandler {
	s, listener := newServedHandler(t, obeys, o, srv)
	if srv.Handler == nil {
		srv.Handler = s.handler
	}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.ended <- s.handler.Serve(ctx, srv, listener) }()
	return s
}

// newServedHandler returns a servedHandler that does not serve yet, and its listener.
func newServedHandler(t *testing.T, obeys bool, o streamable.HandlerOptions, srv *http.Server) (*servedHandler, net.Listener) {
	s := &servedHandler{
		t: t, http: srv, entered: make(chan struct{}, 10), released: make(chan struct{}), ended: make(chan error, 1),
		acceptor: &closingServer{
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

// connect opens a session that listens for changes of the tools: a legacy session with
// a GET stream, a modern one with a subscription.
func (s *servedHandler) connect(version string) *client.Session {
	s.t.Helper()
	listens := make(chan struct{}, 10)
	o := client.Options{ProtocolVersion: version, OnEvent: func(context.Context, *client.Session, client.Event) {}}
	ctx, cancel := context.WithTimeout(s.t.Context(), guard)
	defer cancel()
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).
		Connect(ctx, &streamable.Client{URL: s.url, HTTP: &http.Client{Transport: listenTripper{listens}}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { session.Close(context.Background()) })
	within(s.t, listens)
	return session
}

// call calls the tool, and returns when the tool runs.
func (s *servedHandler) call(session *client.Session) <-chan string {
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

// listenTripper is a client's transport that reports when a stream begins on which the
// client listens.
type listenTripper struct{ listens chan<- struct{} }

func (w listenTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK && (r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen") {
		w.listens <- struct{}{}
	}
	return response, err
}

// guard limits how long a test waits for something that does not come.
const guard = time.Minute

func within[T any](t *testing.T, c <-chan T) (value T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	select {
	case value = <-c:
	case <-ctx.Done():
		t.Fatal("got no value in time, want one")
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

// initializing returns the status of the response to initialize.
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

// When Serve is stopped, it lets calls finish, accepts no new session, and closes the
// acceptor, the handler and the http.Server in this order, even if clients listen.
//
// Guarantees: G-0022.17
func TestServeFinishesItsCalls(t *testing.T) {
	inBothEras(t, func(t *testing.T, version string) {
		var opened atomic.Int32
		srv := &http.Server{ConnState: func(_ net.Conn, state http.ConnState) { // the program's own is called, too
			if state == http.StateNew {
				opened.Add(1)
			}
		}}
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
			t.Errorf("a new session: got status %d, want %v", status, http.StatusServiceUnavailable)
		}
		if n := s.acceptor.late.Load(); n != 0 {
			t.Errorf("%d links were accepted after Close had begun, want none", n)
		}
		closed := httptest.NewRecorder()
		s.handler.ServeHTTP(closed, httptest.NewRequest(http.MethodPut, "/", nil))
		if closed.Code != http.StatusMethodNotAllowed {
			t.Errorf("the handler returns %d while calls run", closed.Code)
		}
		close(s.released)
		for n, answer := range answers {
			if text := within(t, answer); text != "finished" {
				t.Errorf("call %d: got %s, want %q", n, text, "finished")
			}
		}
		if err := within(t, s.ended); err != nil {
			t.Errorf("Serve returned %v", err)
		}
		if opened.Load() == 0 {
			t.Error("the program's ConnState was not called")
		}
		if order := within(t, atShutdown); order != "handler 503, acceptor closed" {
			t.Errorf("at srv.Shutdown: got %s, want %q", order, "handler 503, acceptor closed")
		}
	})
}

// What does not finish within the grace is cut off, and the error names it.
//
// Guarantees: G-0022.17
func TestServeCutsOffWhatDoesNotFinish(t *testing.T) {
	for name, c := range map[string]struct {
		obeys bool
		want  string
	}{
		"a call":                     {true, "close an Acceptor of type *streamable_test.closingServer"},
		"an acceptor":                {false, "closingServer: it has not ended"},
		"a handler of the program's": {true, "HTTP connections are cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
					t.Errorf("Serve returned %v, want the error %v and %v in it", err, context.DeadlineExceeded, c.want)
				}
				if within(t, own) == nil {
					t.Error("the program's handler was not cut off, want it to be")
				}
				if text := within(t, answer); text == "finished" {
					t.Error("the call has finished, want an error")
				}
				close(s.released)
				within(t, s.acceptor.ended)
			})
		})
	}
}

// A server whose listener fails is shut down, too.
//
// Guarantees: G-0022.17
func TestServeEndsWithItsListener(t *testing.T) {
	srv := &http.Server{}
	s := serving(t, true, streamable.HandlerOptions{}, srv)
	session := s.connect(protocol.LatestLegacy)
	srv.Close()
	if err := within(t, s.ended); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve returned %v, want %v", err, http.ErrServerClosed)
	}
	within(t, s.acceptor.ended)
	session.Close(context.Background())
	err := s.handler.ListenAndServe(t.Context(), &http.Server{Addr: "127.0.0.1:none"})
	if err == nil || !strings.HasPrefix(err.Error(), "streamable: listen") || !errors.As(err, new(*net.OpError)) {
		t.Errorf("ListenAndServe returned %v, want an error and the prefix %q", err, "streamable: listen")
	}
}

// The connections that Serve accepts poll before they wait.
//
// Guarantees: G-0065.4
func TestServedConnectionsPoll(t *testing.T) {
	polls := make(chan bool, 100)
	srv := &http.Server{ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		_, ok := c.(interface{ NetConn() net.Conn })
		polls <- ok
		return ctx
	}}
	s := serving(t, true, streamable.HandlerOptions{}, srv)
	session := s.connect(protocol.LatestLegacy)
	if got, want := within(t, polls), runtime.GOOS != "windows"; got != want {
		t.Errorf("a connection polls: %t, want %t", got, want)
	}
	session.Close(context.Background())
}

// Serve does not change the fields that the program has set in its http.Server.
func TestServeKeepsFieldsOfTheHTTPServer(t *testing.T) {
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
		{&http.Server{ReadTimeout: -1}, 0, 0},
	} {
		s, listener := newServedHandler(t, true, streamable.HandlerOptions{}, c.given)
		handler := c.given.Handler
		ctx, stop := context.WithCancel(t.Context())
		stop()
		s.ended <- s.handler.Serve(ctx, c.given, listener)
		if err := within(t, s.ended); err != nil {
			t.Errorf("Serve returned %v", err)
		}
		if c.given.Handler != handler || c.given.ReadHeaderTimeout != c.header || c.given.IdleTimeout != c.idle {
			t.Errorf("got the handler %T, ReadHeaderTimeout %v and IdleTimeout %v", c.given.Handler, c.given.ReadHeaderTimeout, c.given.IdleTimeout)
		}
	}
}

// A shutdown with a thousand open streams of all kinds takes no longer than the grace,
// and ends every stream.
//
// Guarantees: G-0022.17
func TestShutdownWithAThousandStreams(t *testing.T) {
	testenv.Crowd(t)
	const streams = 1000
	grace := 20 * time.Second
	s := serving(t, true, streamable.HandlerOptions{ShutdownGrace: grace}, new(http.Server))
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
			t.Fatalf("got no stream: %v, want 200", err)
		}
		open.Add(1)
		ending.Go(func() {
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body) // ends, or is cut off
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

// A program that serves the handler itself shuts down with one call: running calls
// finish, streams end, and then the http.Server, if it is given, shuts down.
//
// Guarantees: G-0022.17
func TestShutdownOfTheProgramsHTTPServer(t *testing.T) {
	for name, given := range map[string]bool{"with its http.Server": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			inBothEras(t, func(t *testing.T, version string) {
				srv := &http.Server{}
				s, listener := newServedHandler(t, true, streamable.HandlerOptions{ShutdownGrace: guard}, srv)
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
					t.Errorf("the call: got %s, want %q", text, "finished")
				}
				if err := within(t, down); err != nil {
					t.Errorf("Shutdown returned %v", err)
				}
				if !given {
					srv.Close()
				}
				if err := within(t, s.ended); !errors.Is(err, http.ErrServerClosed) {
					t.Errorf("the http.Server returned %v, want %v", err, http.ErrServerClosed)
				}
			})
		})
	}
}

// Shutdown ends at the deadline of its context, and cuts off what is left.
//
// Guarantees: G-0022.17
func TestShutdownEndsWithItsContext(t *testing.T) {
	srv := &http.Server{}
	s, listener := newServedHandler(t, true, streamable.HandlerOptions{ShutdownGrace: time.Hour}, srv)
	srv.Handler = s.handler
	go func() { s.ended <- srv.Serve(listener) }()
	answer := s.call(s.connect(protocol.LatestLegacy))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	if err := s.handler.Shutdown(ctx, srv); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v, want %v", err, context.DeadlineExceeded)
	}
	if text := within(t, answer); text == "finished" {
		t.Error("the call has finished, want an error")
	}
	within(t, s.ended)
	close(s.released)
}

// When its context ends, Shutdown cuts off what other handlers of the server still do.
//
// Guarantees: G-0022.17
func TestShutdownCutsOffOtherHandlers(t *testing.T) {
	h := streamable.NewHandler(server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{}), streamable.HandlerOptions{ShutdownGrace: time.Hour})
	arrived, left, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	site := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	defer site.Close()
	defer site.CloseClientConnections()
	go func() {
		defer close(left)
		if response, err := site.Client().Get(site.URL); err == nil {
			response.Body.Close()
			t.Error("the request was answered")
		}
	}()
	within(t, arrived)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() { ended <- h.Shutdown(ctx, site.Config) }()
	if err := within(t, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown returned %v, want %v", err, context.Canceled)
	}
	within(t, left)
}
