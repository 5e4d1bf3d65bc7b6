package streamable

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// The bytes of an event that is not complete count as a sign of life.
//
// Guarantees: G-0025.2
func TestBytesOfAnUnfinishedEventCount(t *testing.T) {
	more, release := make(chan struct{}), make(chan struct{})
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", web.TypeEvents)
		w.(http.Flusher).Flush()
		<-more
		w.Write([]byte(": alive\n\n"))
		w.(http.Flusher).Flush()
		hold(req, release)
	})
	if is := transport.LinkTraitsOf(r.link); !is.LastRead.IsZero() || !is.RecordsReads {
		t.Errorf("got the traits %+v before any bytes came", is)
	}
	r.call(1, 1)
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	var before time.Time
	heardMore := func() {
		t.Helper()
		for {
			if last := transport.LinkTraitsOf(r.link).LastRead; last.After(before) {
				before = last
				return
			}
			select {
			case <-look.C:
			case <-guard.C:
				t.Fatal("got no time of the last bytes")
			}
		}
	}
	heardMore() // for the headers
	close(more)
	heardMore()
	close(release)
}

// Events on a stream between two failed dials reset the count of failed dials.
//
// Guarantees: G-0022.5
func TestEventResetsFailedDials(t *testing.T) {
	more, release := make(chan struct{}), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		io.ReadAll(req.Body)
		stream(w, "data: "+notification("n")+"\n\n")
		<-more
		stream(w, "data: "+notification("n")+"\n\n")
		hold(req, release)
	}))
	t.Cleanup(site.Close)
	t.Cleanup(func() { close(release) })
	r := open(t, &Client{URL: site.URL})
	r.call(1, 5)
	r.frame(0)
	site.Listener.Close() // the stream stays open, and new connections are refused
	r.call(2, 5)
	r.failure(0)
	close(more)
	r.frame(1)
	r.call(3, 5)
	if f := r.failure(1); !f.Unsent { // fails without the loss of the link
		t.Errorf("got %+v", f)
	}
}

// Waiting for a connection of a full pool does not count as a failed dial.
//
// Guarantees: G-0022.5
func TestFullPoolIsNotAFailedDial(t *testing.T) {
	release := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		io.ReadAll(req.Body)
		stream(w, "data: "+notification("n")+"\n\n")
		hold(req, release)
	})
	t.Cleanup(func() { close(release) })
	pool := transportOf(t)
	pool.MaxConnsPerHost = 1
	r := open(t, &Client{URL: url, HTTP: &http.Client{Transport: pool}})
	r.call(1, 5)
	r.frame(0)
	for n := range 2 { // each request ends while it waits
		r.link.End(r.call(2+n, 1))
	}
	a := &httpRequest{to: new(remote), handedOver: true}
	a.waiting.Store(true)
	if !a.unsent() || a.count(t.Context(), nil, net.ErrClosed) != nil || a.to.failedDials != 0 {
		t.Errorf("got unsent %v and %d failed dials", a.unsent(), a.to.failedDials)
	}
}

// Failed dials do not lose the link while a response is open: a server that drains
// refuses connections while it finishes its requests.
//
// Guarantees: G-0022.5
func TestFailedDialsDoNotCountWhileAResponseIsOpen(t *testing.T) {
	release := make(chan struct{})
	drains := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		stream(w, "data: "+notification("n")+"\n\n")
		hold(req, release)
		stream(w, "data: "+result(1)+"\n\n")
	})
	pool, refusing := transportOf(t), strings.TrimPrefix(closedPort, "http://")
	pool.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if wait.IsClosed(drains) {
			address = refusing
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	r := open(t, &Client{URL: url, HTTP: &http.Client{Transport: pool}})
	lasting := r.call(1, 5)
	r.frame(0)
	close(drains)
	for n := range 3 {
		r.call(2+n, 1)
		if f := r.failure(n); !f.Unsent {
			t.Errorf("got %+v", f)
		}
	}
	close(release)
	r.wantFrame(1, lasting, result(1), true)
}

// Failed dials do not lose the link while a request waits for its response: a server
// that answers in JSON sends nothing before it has finished.
//
// Guarantees: G-0022.5
func TestFailedDialsDoNotCountWhileARequestWaits(t *testing.T) {
	const waiting = 20
	arrived, release, drains := make(chan struct{}, waiting), make(chan struct{}), make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body) // makes the end of the request visible
		arrived <- struct{}{}
		hold(req, release)
		answerJSON(result(0))(w, req)
	})
	pool, refusing := transportOf(t), strings.TrimPrefix(closedPort, "http://")
	pool.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if wait.IsClosed(drains) {
			address = refusing
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	r := open(t, &Client{URL: url, HTTP: &http.Client{Transport: pool}})
	for n := range waiting {
		r.call(n, 1)
		receive(t, "a call", arrived)
	}
	close(drains)
	for n := range 3 {
		r.call(100+n, 1)
		if f := r.failure(n); !f.Unsent {
			t.Errorf("got %+v", f)
		}
	}
	close(release)
	r.frame(waiting - 1)
	r.link.(*clientLink).awaitNoneAlive(t)
	pool.CloseIdleConnections()
	for n := range 2 { // no exchange is open now, and earlier failures do not count
		r.call(200+n, 1)
	}
	if loss := r.loss(); !errors.As(loss.Reason, new(*transport.UnreachableError)) {
		t.Errorf("got %+v, want a *transport.UnreachableError", loss)
	}
}

// A request does not count as open after it has ended, however it ended.
//
// Guarantees: G-0022.5
func TestEndedRequestsDoNotCountAsOpen(t *testing.T) {
	arrived := make(chan struct{}, 10)
	url := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		arrived <- struct{}{}
		if req.Header.Get("Mcp-Method") == "ping" {
			panic(http.ErrAbortHandler)
		}
		<-req.Context().Done()
	})
	pool := transportOf(t)
	r := open(t, &Client{URL: url, HTTP: &http.Client{Transport: pool}})
	left := r.call(1, 1)
	receive(t, "a call", arrived)
	r.link.End(left)
	r.request(2, 1, request(2, "ping", modernMeta))
	r.failure(0)
	r.link.(*clientLink).awaitNoneAlive(t)
}

// awaitNoneAlive waits until the link has no open exchange.
func (l *clientLink) awaitNoneAlive(t *testing.T) {
	t.Helper()
	look, guard := time.NewTicker(time.Millisecond), time.NewTimer(hangGuard)
	defer look.Stop()
	defer guard.Stop()
	for {
		l.remote.mu.Lock()
		alive := l.remote.alive
		l.remote.mu.Unlock()
		if alive == 0 {
			return
		}
		select {
		case <-look.C:
		case <-guard.C:
			t.Fatalf("%d exchanges count as open, want none", alive)
		}
	}
}

// A POST that fails, in whatever way, fails one call only.
//
// Guarantees: G-0022.1, G-0022.5
func TestOneFailedPostFailsOneCall(t *testing.T) {
	const calls = 30
	for name, fail := range map[string]http.HandlerFunc{
		"hung up":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"status 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"status 502": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
		"cut in JSON": func(w http.ResponseWriter, req *http.Request) {
			answerJSON(`{"jsonrpc"`)(w, req)
			panic(http.ErrAbortHandler)
		},
		"cut in event": func(w http.ResponseWriter, _ *http.Request) { stream(w, "data: {"); panic(http.ErrAbortHandler) },
		"a page":       func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
	} {
		t.Run(name, func(t *testing.T) {
			var arrived sync.WaitGroup
			arrived.Add(calls)
			s := &legacyServer{session: "s-1"}
			r := connect(t, func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				m, _ := jsonrpc.Decode(body, jsonrpc.Limits{})
				if m.Method != "tools/call" {
					req.Body = io.NopCloser(bytes.NewReader(body))
					s.ServeHTTP(w, req)
					return
				}
				arrived.Done()
				arrived.Wait() // all have arrived
				if id, _ := m.ID.Int64(); id == 10+calls/2 {
					fail(w, req)
					return
				}
				answerJSON(result(m.ID))(w, req)
			})
			r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
			r.send(0, initialized)
			for n := range calls {
				r.callLegacy(10+n, 1)
			}
			r.frame(calls - 1) // initialize and all calls but one
			r.await("the failure", func() bool { return len(r.failed)+len(r.broken) == 1 })
			r.request(100, 1, request(100, "ping", ""))
			r.frame(calls)
			if len(r.losses) > 0 {
				t.Errorf("got the losses %+v, want none", r.losses)
			}
		})
	}
}

// A 404 for a session is the loss of the link.
//
// Guarantees: G-0022.5
func TestAnExpiredSessionIsALoss(t *testing.T) {
	body := `{"jsonrpc":"2.0","id":2,"error":{"code":-32001,"message":"no session"}}`
	s := &legacyServer{session: "s-1", call: func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, body)
	}}
	r := handshake(t, s)
	r.callLegacy(2, 1)
	if loss := r.loss(); loss.Reason != transport.ErrSessionExpired || !slices.Equal(loss.Unsent, []transport.Tag{2}) {
		t.Errorf("got %+v, want loss.Reason == %v and %v", loss, transport.ErrSessionExpired, []transport.Tag{2})
	}
	if err := r.link.Send(outbound(0, initialized)); err != transport.ErrClosed {
		t.Errorf("Send after the loss: %v", err)
	}
}

// A new connection that breaks before the response is no failed dial: the server is there.
//
// Guarantees: G-0022.5
func TestBrokenConnectionsAreNoFailedDials(t *testing.T) {
	r := open(t, &Client{HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, URL: serve(t, func(_ http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		panic(http.ErrAbortHandler)
	})})
	for n := range 2 * maxFailedDials {
		r.call(1+n, 1)
		if f := r.failure(n); f.Tag != transport.Tag(1+n) || f.Unsent {
			t.Errorf("got %+v", f)
		}
	}
	r.wantQuietAfter(t, 2*maxFailedDials)
}

// A link whose session has expired waits a moment for what the server says of its other messages: those that it refuses
// were not executed. The GET stream does not delay the loss.
//
// Guarantees: G-0022.5
func TestAnExpiredSessionWaitsForOtherRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		first  string        // the message that is refused at once
		second time.Duration // when the next one is refused
		after  time.Duration // of the loss
		unsent []transport.Tag
	}{
		"a request":           {request(1, "ping", ""), 999 * time.Millisecond, 999 * time.Millisecond, []transport.Tag{1, 2}},
		"a notification":      {notification("n"), 999 * time.Millisecond, 999 * time.Millisecond, []transport.Tag{1, 2}},
		"the other is late":   {request(1, "ping", ""), time.Minute, time.Second, []transport.Tag{1}},
		"both are refused":    {request(1, "ping", ""), 0, 0, []transport.Tag{1, 2}},
		"a late notification": {notification("n"), time.Minute, time.Second, []transport.Tag{1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				expired := make(chan struct{})
				var both sync.WaitGroup
				both.Add(2)
				r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
					if req.Method == http.MethodGet {
						return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {web.TypeEvents}}, Body: silentBody{req.Context()}}, nil
					}
					body, err := io.ReadAll(req.Body)
					if err != nil || string(body) == initialized {
						return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, err
					}
					both.Done()
					both.Wait() // both are under way
					<-expired
					if string(body) != test.first && wait.Sleep(req.Context(), test.second) != nil {
						return nil, req.Context().Err()
					}
					return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
				})}})
				l := r.link.(*clientLink)
				l.remote.session = session{begun: true, id: "s-1", ids: []string{"s-1"}}
				r.send(0, initialized)
				r.link.Grant(transport.Main, 1)
				r.send(2, request(2, "ping", ""))
				r.send(1, test.first)
				synctest.Wait()
				began := time.Now()
				close(expired)
				loss := r.loss()
				slices.Sort(loss.Unsent)
				if took := time.Since(began); loss.Reason != transport.ErrSessionExpired || took != test.after || !slices.Equal(loss.Unsent, test.unsent) || len(r.failed) > 0 {
					t.Errorf("after %v lost %+v, and failed %v; want %v after %v and unsent %v", took, loss, r.failed, transport.ErrSessionExpired, test.after, test.unsent)
				}
			})
		})
	}
}

// Some servers answer 400 for a session that they do not know. One such refusal fails
// its message, and two in a row lose the link.
//
// Guarantees: G-0022.5
func TestUnknownSessionIsALoss(t *testing.T) {
	const unknown = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"no valid session"},"id":null}`
	accepts := make(chan bool, 10)
	r := handshake(t, &legacyServer{session: "s-1", call: func(w http.ResponseWriter, _ *http.Request) {
		if <-accepts {
			stream(w, "data: "+notification("n")+"\n\n")
			return
		}
		w.Header().Set("Content-Type", web.TypeJSON)
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, unknown)
	}, get: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }})
	r.streamLoss(0)
	for n, accept := range []bool{false, true, false} {
		accepts <- accept
		if number := r.callLegacy(2+n, 5); accept {
			r.wantFrame(1, number, notification("n"), false)
		} else if f := r.failure(n / 2); !f.Unsent {
			t.Fatalf("got %+v", f)
		}
	}
	r.link.Resume(transport.Main) // refused as well, which says nothing of the session
	r.streamLoss(2)               // after that of the call which was accepted
	accepts <- false
	r.callLegacy(9, 5)
	var refused *transport.StatusError
	if loss := r.loss(); !errors.Is(loss.Reason, transport.ErrSessionExpired) || !errors.As(loss.Reason, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("got %+v, want %v because of status 400", loss, transport.ErrSessionExpired)
	}
}

// A refusal that says nothing of the session fails its message, however many there are: outside of a session, with
// another status, or without a JSON-RPC error.
//
// Guarantees: G-0022.5
func TestRefusalsThatSayNothingOfTheSession(t *testing.T) {
	const fault = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"no"},"id":null}`
	for name, test := range map[string]struct {
		session string
		status  int
		body    string
	}{
		"outside of a session": {"", http.StatusBadRequest, fault},
		"another status":       {"s-1", http.StatusMethodNotAllowed, fault},
		"no error":             {"s-1", http.StatusBadRequest, "no"},
		"neither":              {"s-1", http.StatusMethodNotAllowed, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", web.TypeJSON)
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			})
			r.link.(*clientLink).remote.session = session{begun: test.session != "", id: test.session, ids: []string{test.session}}
			for n := range 2 * maxDisowned {
				r.callLegacy(1+n, 1)
				if f := r.failure(n); f.Tag != transport.Tag(1+n) || !f.Unsent {
					t.Errorf("got %+v", f)
				}
			}
			r.wantQuietAfter(t, 2*maxDisowned)
		})
	}
}

// wantQuietAfter checks that the link was not lost before it is closed, after so many failures.
func (r *testReceiver) wantQuietAfter(t *testing.T, failures int) {
	t.Helper()
	r.link.Close(0)
	if loss := r.loss(); loss.Reason != transport.ErrClosed || len(r.failed) != failures || len(r.received) > 0 {
		t.Errorf("the link has ended with %+v after %d failures, want it open after %d", loss, len(r.failed), failures)
	}
}

// A name that cannot be resolved is a failed dial, too.
//
// Guarantees: G-0022.5
func TestNamesThatCannotBeResolvedAreFailedDials(t *testing.T) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no way") }}
	pool := &http.Transport{DialContext: (&net.Dialer{Resolver: resolver}).DialContext}
	t.Cleanup(pool.CloseIdleConnections)
	r := open(t, &Client{URL: "http://server.test/", HTTP: &http.Client{Transport: pool}})
	r.call(1, 1)
	if f := r.failure(0); !f.Unsent {
		t.Errorf("got %+v", f)
	}
	r.call(2, 1)
	var unknown *net.DNSError
	if loss := r.loss(); !errors.As(loss.Reason, &unknown) {
		t.Errorf("got %+v, want a *net.DNSError", loss)
	}
}

// An exchange that is over does not count any more, if the HTTP client reports its connection only then.
//
// Guarantees: G-0022.5
func TestALateReportCountsNoExchange(t *testing.T) {
	var late *httptrace.ClientTrace
	to := newRemote(endpointOf(t, "http://host/"), &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
		late = httptrace.ContextClientTrace(req.Context())
		return nil, errors.New("given up")
	})}, nil)
	if _, err := to.newPost(t.Context(), &outgoing{Outbound: outbound(0, result(1))}).do(t.Context()); err == nil {
		t.Fatal("the request has not failed")
	}
	if late.GotConn(httptrace.GotConnInfo{}); to.alive != 0 {
		t.Errorf("%d exchanges are alive after the only one", to.alive)
	}
}

// An exchange counts once, however often its response is closed.
//
// Guarantees: G-0022.5
func TestAnExchangeEndsOnce(t *testing.T) {
	to := newRemote(endpointOf(t, serve(t, answerJSON(result(1)))), &http.Client{Transport: transportOf(t)}, nil)
	for range 2 {
		response, err := to.newPost(t.Context(), &outgoing{Outbound: outbound(0, result(1))}).do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		to.mu.Lock()
		alive := to.alive
		to.mu.Unlock()
		if alive != 1 {
			t.Errorf("%d exchanges are alive while one is read", alive)
		}
		for range 3 {
			response.Body.Close()
		}
		if to.alive != 0 {
			t.Errorf("%d exchanges are alive after the only one", to.alive)
		}
	}
}

// Without a session, a 404 fails its request only.
//
// Guarantees: G-0022.5
func TestWithoutASession404IsOneFailure(t *testing.T) {
	s := &legacyServer{call: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }}
	r := handshake(t, s)
	r.callLegacy(2, 1)
	r.failure(0)
	r.wantFrame(1, r.request(3, 1, request(3, "ping", "")), result(3), true)
}

// closedPort is an address where nobody listens: no system gives this port to who asks for any.
const closedPort = "http://127.0.0.1:1"

// Two failed dials in a row lose the link.
//
// Guarantees: G-0022.5
func TestTwoFailedDialsAreALoss(t *testing.T) {
	r := open(t, &Client{URL: closedPort})
	r.call(1, 1)
	if f := r.failure(0); f.Tag != 1 || !f.Unsent {
		t.Fatalf("got %+v", f)
	}
	r.call(2, 1)
	var dial *net.OpError
	if loss := r.loss(); !errors.As(loss.Reason, &dial) || dial.Op != "dial" || !slices.Equal(loss.Unsent, []transport.Tag{2}) {
		t.Fatalf("got %+v, want a *net.OpError, dial.Op == %q and %v", loss, "dial", []transport.Tag{2})
	}
}

// A dial that takes longer than a message that is not a request may take has failed.
//
// Guarantees: G-0022.5
func TestDialsThatTakeTooLongAreALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GetConn("host:80")
			trace.ConnectStart("tcp", "192.0.2.1:80")
			<-req.Context().Done()
			return nil, req.Context().Err()
		})}})
		r.send(1, notification("n"))
		r.send(2, notification("n"))
		if loss := r.loss(); !errors.Is(loss.Reason, context.DeadlineExceeded) || !slices.Equal(loss.Unsent, []transport.Tag{2}) || time.Since(begun) != 2*postPatience {
			t.Errorf("after %v got %+v, want %v after %v", time.Since(begun), loss, context.DeadlineExceeded, 2*postPatience)
		}
		if f := r.failure(0); f.Tag != 1 || !f.Unsent {
			t.Errorf("got %+v, want the first message as unsent", f)
		}
	})
}

// Calls that their callers cancel while they dial are no failed dials: nothing is known of the
// server then.
//
// Guarantees: G-0022.5
func TestCancelledDialsAreNoLoss(t *testing.T) {
	const cancelled = 2 * maxFailedDials
	dialling, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	var dials atomic.Int32
	dialer := &net.Dialer{Control: func(string, string, syscall.RawConn) error { // net tells a trace of this dial
		if dials.Add(1) > cancelled {
			return nil
		}
		dialling <- struct{}{}
		<-release
		return errors.New("no way")
	}}
	ended := make(chan struct{}, cancelled+1)
	pool := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(pool.CloseIdleConnections)
	r := open(t, &Client{URL: serve(t, answerJSON(result(9))), HTTP: &http.Client{Transport: endedTripper{pool, ended}}})
	for n := range cancelled {
		stream := r.call(1+n, 1)
		receive(t, "a dial", dialling)
		r.link.End(stream)
		receive(t, "the end of a call", ended)
	}
	r.wantFrame(0, r.call(9, 1), result(9), true)
	r.wantQuiet(1)
}

// An endedTripper reports the end of each round trip.
type endedTripper struct {
	http.RoundTripper
	ended chan struct{}
}

func (e endedTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	defer func() { e.ended <- struct{}{} }()
	return e.RoundTripper.RoundTrip(r)
}

// A response between two failed dials resets the count.
//
// Guarantees: G-0022.5
func TestResponseResetsFailedDials(t *testing.T) {
	var fail sync.Map // whether to fail the next dial
	url := serve(t, new(legacyServer).ServeHTTP)
	pool := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if _, ok := fail.LoadAndDelete("next"); ok {
			address = strings.TrimPrefix(closedPort, "http://")
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	r := open(t, &Client{URL: url, HTTP: &http.Client{Transport: pool}})
	for turn := range 3 {
		r.link.(*clientLink).awaitNoneAlive(t)
		fail.Store("next", true)
		r.call(2*turn+1, 1)
		if f := r.failure(turn); !f.Unsent {
			t.Errorf("got %+v, want a failed dial", f)
		}
		r.wantFrame(turn, r.call(2*turn+2, 1), result(2*turn+2), true)
	}
}

// If the GET stream was open before and gets 404 for the session, the link is lost.
//
// Guarantees: G-0022.5
func TestAnExpiredSessionIsNoticedByTheGetStream(t *testing.T) {
	answers := make(chan bool, 2)
	answers <- true
	answers <- false
	s := &legacyServer{session: "s-1", get: func(w http.ResponseWriter, _ *http.Request) {
		if <-answers {
			stream(w, ": hello\n\n")
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}}
	r := handshake(t, s)
	r.link.Grant(transport.Main, 1)
	r.streamLoss(0)
	r.link.Resume(transport.Main)
	if loss := r.loss(); loss.Reason != transport.ErrSessionExpired {
		t.Fatalf("got %+v, want %v", loss, transport.ErrSessionExpired)
	}
	if len(r.doubts) > 0 {
		t.Errorf("got the doubts %v, want none", r.doubts)
	}
}

// A 404 to the request that resumes the stream of a call may mean that the server has no GET
// requests. It ends the call, and the link doubts. The 404 to a POST loses it.
//
// Guarantees: G-0022.5
func TestA404ToAResumptionIsADoubt(t *testing.T) {
	calls := make(chan string, 2)
	calls <- "id: 7\ndata:\n\n"
	s := &legacyServer{
		session: "s-1", get: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		call: func(w http.ResponseWriter, _ *http.Request) {
			select {
			case events := <-calls:
				stream(w, events)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		},
	}
	r := connect(t, s.ServeHTTP)
	r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
	number := r.callLegacy(2, 1)
	if loss := r.streamLoss(0); loss.Stream != number || !loss.Resumable {
		t.Fatalf("got %+v, want the stream of the call, which can be resumed", loss)
	}
	r.link.Resume(number)
	if loss := r.streamLoss(1); loss.Resumable || !slices.Equal(r.doubts, []transport.Tag{0}) {
		t.Fatalf("got %+v and the doubts %v, want the end of the stream and one doubt", loss, r.doubts)
	}
	r.callLegacy(3, 1)
	if loss := r.loss(); loss.Reason != transport.ErrSessionExpired {
		t.Fatalf("got %+v, want %v", loss, transport.ErrSessionExpired)
	}
}

// A link doubts that its server is there if a status from 500 on comes without a message. Such
// a response is no sign of life, whether it refuses a request, a notification or the GET stream.
//
// Guarantees: G-0025.8
func TestWhatIsNoSignOfLife(t *testing.T) {
	const fault = `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"out of order"}}`
	for name, c := range map[string]struct {
		status int
		header string // Retry-After
		body   string
		lives  bool
	}{
		"a bad gateway":        {502, "", "<h1>Bad Gateway</h1>", false},
		"a bare 500":           {500, "", "", false},
		"other JSON":           {504, "", `{"message":"Endpoint request timed out"}`, false},
		"unavailable":          {503, "", "", false},
		"a delayed 502":        {502, "1", "", false},
		"an error of its own":  {500, "", fault, true},
		"its answer":           {500, "", result(2), true},
		"overloaded":           {503, "1", "", true},
		"too many":             {429, "", "", true},
		"denied":               {403, "", "", true},
		"an unknown method":    {404, "", "", true},
		"a malformed message":  {400, "", "", true},
		"a status beyond HTTP": {599, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			refuse := func(w http.ResponseWriter, _ *http.Request) {
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}
			for sent, send := range map[string]func(r *testReceiver){
				"a request": func(r *testReceiver) {
					if r.callLegacy(2, 1); c.body == result(2) {
						r.frame(1)
					} else {
						r.failure(0)
					}
				},
				"a notification": func(r *testReceiver) {
					r.send(2, notification("refused"))
					r.failure(0)
				},
			} {
				s := &legacyServer{call: refuse}
				r := connect(t, func(w http.ResponseWriter, req *http.Request) {
					if isNotification(req, "refused") {
						refuse(w, req)
						return
					}
					s.ServeHTTP(w, req)
				})
				r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
				heard := r.link.(*clientLink).remote.reads.Last()
				send(r)
				var want []transport.Tag
				if !c.lives {
					want = []transport.Tag{2}
				}
				if lives := r.link.(*clientLink).remote.reads.Last().After(heard); lives != c.lives || !slices.Equal(r.doubts, want) {
					t.Errorf("%s: got a sign of life: %t, and the doubts %v; want %t and %v", sent, lives, r.doubts, c.lives, want)
				}
			}
		})
	}
}

// isNotification reports whether a POST contains a notification with that method. The body
// can be read again.
func isNotification(req *http.Request, method string) bool {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	m, _ := jsonrpc.Decode(body, jsonrpc.Limits{})
	return m.Method == method
}
