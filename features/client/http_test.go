package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A site is an HTTP server on a real socket that can be killed and started again at the
// same address.
type site struct {
	t       *testing.T
	server  *server.Server
	address string
	handler *streamable.Handler
	http    *http.Server
	ended   chan error
}

func newSite(t *testing.T, s *server.Server) *site {
	t.Helper()
	w := &site{t: t, server: s}
	w.serve(listenAlone(t))
	t.Cleanup(w.kill)
	return w
}

func (w *site) start() {
	w.t.Helper()
	listener, err := net.Listen("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.serve(listener)
}

func (w *site) serve(listener net.Listener) {
	w.address = listener.Addr().String()
	w.handler = streamable.NewHandler(w.server, streamable.HandlerOptions{})
	w.http, w.ended = &http.Server{Handler: w.handler}, make(chan error, 1)
	go func() { w.ended <- w.http.Serve(listener) }()
}

// kill closes every connection and forgets every session.
func (w *site) kill() {
	w.http.Close()
	<-w.ended
	if err := w.handler.Close(0); err != nil {
		w.t.Error(err)
	}
}

func (w *site) open(o client.Options) *client.Session {
	w.t.Helper()
	o.Conn.BackoffMin = time.Millisecond
	session, err := client.New(clientInfo, o).Connect(timeoutContext(w.t), specification.WatchClient(w.t, &streamable.Client{URL: "http://" + w.address}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

// listenAlone listens at a loopback address of its own, where the system has more than
// one: nobody else is given the port while the test has closed the listener.
func listenAlone(t *testing.T) net.Listener {
	t.Helper()
	alone := fmt.Sprintf("127.%d.%d.%d:0", 1+rand.N(254), rand.N(256), 1+rand.N(254))
	listener, err := net.Listen("tcp", alone)
	if err != nil {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func timeoutContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// overHTTP runs a test in each era.
func overHTTP(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range []string{protocol.Version20250326, protocol.Version20250618, protocol.Version20251125, protocol.Version20260728} {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

// Tools work over HTTP as they do over pipes.
//
// Guarantees: G-0021.1
func TestToolsOverHTTP(t *testing.T) {
	overHTTP(t, func(t *testing.T, version string) {
		session := newSite(t, newServer(server.Options{PageSize: 2})).open(client.Options{ProtocolVersion: version})
		if got := session.Server().ProtocolVersion; got != version {
			t.Fatalf("got revision %s, want %v", got, version)
		}
		if err := session.Ping(timeoutContext(t)); err != nil {
			t.Error(err)
		}
		if names, err := toolNames(t, session); err != nil || len(names) < 3 {
			t.Errorf("tools %q, %v, want at least 3", names, err)
		}
		progress := 0
		view := session.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) { progress++ }})
		result, err := view.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "count"})
		if err != nil || result.IsError || progress == 0 {
			t.Errorf("got %+v, %v with progress %d times", result, err, progress)
		}
	})
}

// If a server is killed during calls, each caller gets one outcome, and the same
// session becomes ready again and serves calls.
func TestSessionSurvivesAKilledHTTPServer(t *testing.T) {
	overHTTP(t, func(t *testing.T, version string) {
		w := newSite(t, newServer(server.Options{}))
		session := w.open(client.Options{ProtocolVersion: version})
		const callers = 20
		outcomes := make(chan error, callers)
		var calling sync.WaitGroup
		for range callers {
			calling.Go(func() {
				_, err := session.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "hang"})
				outcomes <- err
			})
		}
		awaitPending(timeoutContext(t), t, session, callers)
		w.kill()
		calling.Wait()
		close(outcomes)
		for err := range outcomes {
			var failed *conn.CallError
			if !errors.As(err, &failed) || failed.Cause == conn.Answered {
				t.Errorf("a caller got %v", err)
			}
		}
		w.start()
		// The client detects the loss of the session at its next messages, which then
		// fail.
		persistent := session.With(client.CallOptions{WaitForReady: true, Retries: 3, Repeatable: true})
		if _, err := persistent.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "count"}); err != nil {
			t.Fatalf("after the restart: %v", err)
		}
		if stats := session.Conn().Stats(); stats.Calls != stats.Ended() {
			t.Errorf("the totals do not add up: got %+v", stats)
		}
	})
}

// If a running server has forgotten the session, the client begins a new one without a
// delay.
//
// Guarantees: G-0001.18
func TestAForgottenSessionIsReplacedAtOnce(t *testing.T) {
	s := newServer(server.Options{})
	var handler atomic.Pointer[streamable.Handler]
	forget := func() {
		if before := handler.Swap(streamable.NewHandler(s, streamable.HandlerOptions{})); before != nil {
			before.Close(0)
		}
	}
	forget()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.Load().ServeHTTP(w, r) }))
	t.Cleanup(site.Close)
	t.Cleanup(forget)
	options := client.Options{
		ProtocolVersion: protocol.Version20251125,
		Conn:            conn.Tuning{ProvenAfter: 1, BackoffMin: time.Hour},
	}
	session, err := client.New(clientInfo, options).Connect(timeoutContext(t), specification.WatchClient(t, &streamable.Client{URL: site.URL}))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	forget()
	persistent := session.With(client.CallOptions{WaitForReady: true, Retries: 1})
	if _, err := persistent.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "count"}); err != nil || session.Conn().Status().Epoch != 2 {
		t.Fatalf("in incarnation %d: %v, want 2", session.Conn().Status().Epoch, err)
	}
	if why := session.Conn().Status().LastFailure.Kind; why != conn.SessionExpired {
		t.Errorf("the reason of the first loss is %q, want %v", why, conn.SessionExpired)
	}
}

// A request that an overloaded server refuses is repeated after the delay that the
// server names.
//
// Guarantees: G-0023.11
func TestRequestIsRepeatedAfterRetryAfter(t *testing.T) {
	overHTTP(t, func(t *testing.T, version string) {
		t.Parallel()
		s := newServer(server.Options{})
		handler := streamable.NewHandler(s, streamable.HandlerOptions{})
		var refuse atomic.Bool
		var refused atomic.Int64
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(protocol.MethodCallTool)) && refuse.CompareAndSwap(true, false) {
				refused.Add(1)
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			handler.ServeHTTP(w, r)
		}))
		t.Cleanup(site.Close)
		t.Cleanup(func() { handler.Close(0) })
		session, err := client.New(clientInfo, client.Options{ProtocolVersion: version}).Connect(timeoutContext(t), specification.WatchClient(t, &streamable.Client{URL: site.URL}))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(context.Background())
		refuse.Store(true)
		_, err = session.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "count"})
		if !client.NotExecuted(err) {
			t.Errorf("without retries: %v", err)
		}
		refuse.Store(true)
		_, err = session.With(client.CallOptions{Retries: 1}).CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "count"})
		if err != nil || refused.Load() != 2 {
			t.Errorf("after %d refusals: %v", refused.Load(), err)
		}
	})
}

// A refreshingAuthorizer is an Authorizer that refreshes its token when the server refuses it.
type refreshingAuthorizer struct {
	token, fresh *atomic.Pointer[string] // fresh is nil if only a login helps
	refreshes    atomic.Int64
}

func (k *refreshingAuthorizer) Authorize(_ context.Context, r *http.Request) error {
	if k.token.Load() == nil {
		return fmt.Errorf("no token: %w", transport.ErrAuthRequired)
	}
	r.Header.Set("Authorization", *k.token.Load())
	return nil
}

func (k *refreshingAuthorizer) Challenged(context.Context, *http.Request, *transport.StatusError) (bool, error) {
	k.refreshes.Add(1)
	k.token.Store(k.fresh.Load())
	return true, nil
}

// An expired token is refreshed within the call. Without a token, the session waits,
// and Wake ends the wait after a login.
//
// Guarantees: G-0040.2, G-0040.5
func TestExpiredTokenIsRefreshed(t *testing.T) {
	s := newServer(server.Options{})
	handler := streamable.NewHandler(s, streamable.HandlerOptions{})
	var valid atomic.Pointer[string]
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != *valid.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(site.Close)
	t.Cleanup(func() { handler.Close(0) })
	overHTTP(t, func(t *testing.T, version string) {
		first, second := "Bearer 1", "Bearer 2"
		valid.Store(&first)
		k := &refreshingAuthorizer{token: new(atomic.Pointer[string]), fresh: &valid}
		c := client.New(clientInfo, client.Options{ProtocolVersion: version, Conn: conn.Tuning{BackoffMin: time.Hour, BackoffMax: time.Hour}})
		over := &streamable.Client{URL: site.URL, Authorizer: k}
		var failed *client.ConnectError
		if _, err := c.Connect(timeoutContext(t), over); !errors.As(err, &failed) || failed.Last.Kind != conn.AuthRequired || !errors.Is(err, transport.ErrAuthRequired) {
			t.Fatalf("without a token: %v", err)
		}
		session, err := c.Start(timeoutContext(t), "waits", over)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(context.Background())
		for status := session.Conn().Status(); status.State != conn.Backoff; status = session.Conn().Status() {
			<-status.Changed()
		}
		k.token.Store(&first)
		session.Wake()
		patient := session.With(client.CallOptions{WaitForReady: true})
		if _, err := patient.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "count"}); err != nil || k.refreshes.Load() != 0 {
			t.Fatalf("after the login: %v, with %d refreshes", err, k.refreshes.Load())
		}
		valid.Store(&second)
		if _, err := session.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "count"}); err != nil || k.refreshes.Load() == 0 || session.Conn().Status().Epoch != 2 {
			t.Errorf("with an expired token: %v, after %d refreshes, in incarnation %d", err, k.refreshes.Load(), session.Conn().Status().Epoch)
		}
	})
}

// A server with HTTP+SSE only is found and used, and found again after it was away.
//
// Guarantees: G-0034.9
func TestServerWithSSEOnlyIsFound(t *testing.T) {
	s := newServer(server.Options{})
	var handler atomic.Pointer[sse.Handler]
	forget := func() *sse.Handler { return handler.Swap(sse.NewHandler(s, sse.HandlerOptions{})) }
	forget()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.Load().ServeHTTP(w, r) }))
	t.Cleanup(site.Close)
	t.Cleanup(func() { forget().Close(0) })
	for _, version := range []string{"", protocol.Version20241105} {
		t.Run(version, func(t *testing.T) {
			silently := version == "" // the stream continues, and the next POST gets 404
			options := client.Options{ProtocolVersion: version, Conn: conn.Tuning{BackoffMin: time.Millisecond}}
			session, err := client.New(clientInfo, options).Connect(timeoutContext(t), specification.WatchClient(t, &streamable.Client{URL: site.URL}))
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			for epoch := range uint64(2) {
				progress := 0
				view := session.With(client.CallOptions{
					WaitForReady: true, Retries: 3, Repeatable: true, OnProgress: func(*protocol.ProgressParams) { progress++ },
				})
				result, err := view.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "count"})
				if err != nil || result.IsError || progress == 0 || session.Conn().Status().Epoch < epoch+1 {
					t.Fatalf("got %+v, %v with progress %d times in incarnation %d", result, err, progress, session.Conn().Status().Epoch)
				}
				before := forget()
				defer before.Close(0)
				if !silently {
					before.Close(0)
				}
			}
		})
	}
}

// Cancelling a call cancels its handler at the server, and nothing else.
func TestCancelOverHTTP(t *testing.T) {
	overHTTP(t, func(t *testing.T, version string) {
		s, left := newServer(server.Options{}), make(chan error, 1)
		begun := make(chan struct{})
		server.AddTool(s, protocol.Tool{Name: "wait", InputSchema: []byte(`{"type":"object"}`)},
			func(ctx context.Context, _ *protocol.CallToolParams) (*protocol.CallToolResult, error) {
				close(begun)
				<-ctx.Done()
				left <- context.Cause(ctx)
				return nil, ctx.Err()
			})
		session := newSite(t, s).open(client.Options{ProtocolVersion: version})
		ctx, cancel := context.WithCancel(timeoutContext(t))
		go func() {
			<-begun
			cancel()
		}()
		_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "wait"})
		var failed *conn.CallError
		if !errors.As(err, &failed) || failed.Cause != conn.Cancelled || failed.Delivery != conn.Unknown {
			t.Errorf("the caller got %v, want a *conn.CallError, failed.Cause == %v and failed.Delivery == %v", err, conn.Cancelled, conn.Unknown)
		}
		if why := <-left; !errors.Is(why, conn.ErrPeerCancelled) {
			t.Errorf("the cause for the handler is %v, want %v", why, conn.ErrPeerCancelled)
		}
		if err := session.Ping(timeoutContext(t)); err != nil {
			t.Errorf("after it: %v", err)
		}
	})
}

// An added tool is announced, on the stream of a legacy session or in a subscription.
func TestToolsChangedOverHTTP(t *testing.T) {
	overHTTP(t, func(t *testing.T, version string) {
		s, events := newServer(server.Options{}), make(chan struct{}, 10)
		session := newSite(t, s).open(client.Options{
			ProtocolVersion: version,
			OnEvent:         onToolsChanged(func(context.Context, *client.Session) { events <- struct{}{} }),
		})
		ctx := timeoutContext(t)
		for n := 0; ; n++ { // the stream may open after Connect has returned
			server.AddTool(s, protocol.Tool{Name: "late", InputSchema: []byte(`{"type":"object"}`)},
				func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) { return nil, nil })
			select {
			case <-events:
				return
			case <-ctx.Done():
				t.Fatalf("got no event for %d changes", n)
			default:
				if err := session.Ping(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A delayedTransport delays the request for a legacy session's GET stream until the test
// releases it.
type delayedTransport struct{ release chan struct{} }

func (r delayedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet {
		select {
		case <-r.release:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	return http.DefaultTransport.RoundTrip(request)
}

// Middleware knows the connection that a request goes to before it is sent, and afterwards; so does the middleware of what the
// server sends.
//
// Guarantees: G-0030.8
func TestMiddlewareKnowsTheNetwork(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	overHTTP(t, func(t *testing.T, version string) {
		var calls atomic.Int64
		incoming := make(chan struct{}, 10)
		check := func(r *client.Request) {
			if n := r.Network(); n.HTTP != "1.1" || (n.Session != "") == protocol.IsModern(version) {
				t.Errorf("the network of %s is %+v", r.Method, n)
			}
		}
		s, changed := newServer(server.Options{}), make(chan struct{}, 10)
		onEvent := func(_ context.Context, _ *client.Session, e client.Event) {
			if _, ok := e.(*client.ToolsChanged); ok {
				changed <- struct{}{}
			}
		}
		session := newSite(t, s).open(client.Options{ProtocolVersion: version, OnEvent: onEvent, Middleware: []client.Middleware{func(next client.Handler) client.Handler {
			return func(ctx context.Context, r *client.Request) (any, error) {
				if r.Incoming {
					defer func() { incoming <- struct{}{} }()
				} else {
					calls.Add(1)
				}
				check(r)
				defer check(r)
				return next(ctx, r)
			}
		}}})
		if _, err := session.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "count"}); err != nil {
			t.Fatal(err)
		}
		if protocol.IsModern(version) {
			testenv.Receive(t, changed, "a subscription begins")
		}
		server.AddTool(s, protocol.Tool{Name: "late"}, func(context.Context, struct{}) (string, error) { return "", nil })
		testenv.Receive(t, incoming, "the change of the tools passes the middleware")
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls have passed the middleware", n)
		}
	})
}

// A change right after Connect is reported, although the client does not listen yet.
//
// Guarantees: G-0033.8
func TestChangeRightAfterConnectIsReported(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	overHTTP(t, func(t *testing.T, version string) {
		if protocol.IsModern(version) {
			return // a subscription begins with a ToolsChanged
		}
		sent := make(chan struct{}, 10)
		s := newServer(server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				result, err := next(ctx, r)
				if r.Method == protocol.NotificationToolsListChanged {
					sent <- struct{}{}
				}
				return result, err
			}
		}}})
		events := make(chan struct{}, 10)
		late := delayedTransport{make(chan struct{})}
		session, err := client.New(clientInfo, client.Options{ProtocolVersion: version, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, ok := e.(*client.ToolsChanged); ok {
				events <- struct{}{}
			}
		}}).Connect(timeoutContext(t), specification.WatchClient(t, &streamable.Client{URL: "http://" + newSite(t, s).address, HTTP: &http.Client{Transport: late}}))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(context.Background())
		server.AddTool(s, protocol.Tool{Name: "late"}, func(context.Context, struct{}) (string, error) { return "", nil })
		select {
		case <-sent: // the client does not listen yet
		case <-timeoutContext(t).Done():
			t.Error("the change was not sent, want it to be sent")
		}
		close(late.release)
		select {
		case <-events:
		case <-timeoutContext(t).Done():
			t.Error("the change was lost, want an event")
		}
	})
}
