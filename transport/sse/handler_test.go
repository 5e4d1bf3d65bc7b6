package sse

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A site is a handler behind a real HTTP server. Its links are bound to recorders.
type site struct {
	t       *testing.T
	handler *Handler
	url     string
	ctx     context.Context
	via     http.RoundTripper // nil: http.DefaultTransport
	conns   pipeListener      // of a site in virtual time

	mu        sync.Mutex
	links     []transport.Link
	recorders []*recorder
	close     func(context.Context) error // of the acceptor; nil: at once
	refused   []transport.Refusal
	deaf      bool // it does not want to know what is refused
}

func newSite(t *testing.T, o HandlerOptions) *site {
	s := &site{t: t}
	s.handler = NewHandler(s, o)
	s.url = serve(t, s.handler)
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	t.Cleanup(cancel)
	s.ctx = ctx
	return s
}

func (s *site) Accept(link transport.Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := newRecorder()
	link.Bind(r)
	s.links, s.recorders = append(s.links, link), append(s.recorders, r)
}

func (s *site) Close(ctx context.Context) error {
	if s.close == nil {
		return nil
	}
	return s.close(ctx)
}

func (s *site) Audits() bool { return !s.deaf }

func (s *site) Refused(r transport.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, r)
}

// session returns the link and the recorder of session n, from 0.
func (s *site) session(n int) (transport.Link, *recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[n], s.recorders[n]
}

// A testClient is a client of a site.
type testClient struct {
	*site
	endpoint string
	events   *eventstream.Reader
	leave    context.CancelFunc
}

func (s *site) do(ctx context.Context, method, url, body string, lines ...string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", web.TypeJSON)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	response, err := cmp.Or(s.via, http.DefaultTransport).RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { response.Body.Close() })
	return response
}

// visit opens a session.
func (s *site) visit(lines ...string) *testClient {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.ctx)
	s.t.Cleanup(leave)
	response := s.do(ctx, "GET", s.url, "", lines...)
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != web.TypeEvents {
		s.t.Fatalf("got %v", response)
	}
	v := &testClient{site: s, events: eventstream.NewReader(response.Body, 1<<20), leave: leave}
	first, err := v.events.Next()
	if err != nil || first.Type != "endpoint" {
		s.t.Fatalf("%+v, %v, want %q", first, err, "endpoint")
	}
	v.endpoint = strings.TrimSuffix(s.url, "/sse") + string(first.Data)
	return v
}

// post posts a message, and returns the status.
func (v *testClient) post(body string, lines ...string) int {
	v.t.Helper()
	return v.do(v.ctx, "POST", v.endpoint, body, lines...).StatusCode
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// Session ids are long and random, and a wrong one is refused.
//
// Guarantees: G-0034.6
func TestSessionsCannotBeGuessed(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	a, b := s.visit(), s.visit()
	_, id, _ := strings.Cut(a.endpoint, "/sse?sessionId=")
	if len(id) < 26 || a.endpoint == b.endpoint { // 5 bits for each character
		t.Errorf("got the endpoints %s and %s, want long and different ids", a.endpoint, b.endpoint)
	}
	for endpoint, want := range map[string]int{
		s.url:                            400,
		s.url + "?sessionId=":            400,
		s.url + "?sessionId=" + id[1:]:   404,
		s.url + "?sessionId=" + id + "x": 404,
	} {
		if got := s.do(s.ctx, "POST", endpoint, ping).StatusCode; got != want {
			t.Errorf("%s: got %d, want %d", endpoint, got, want)
		}
	}
}

// A message of another identity than the one that opened the session is refused.
//
// Guarantees: G-0034.6
func TestSessionBelongsToItsIdentity(t *testing.T) {
	s := newSite(t, HandlerOptions{Identify: func(r *http.Request) string { return r.Header.Get("X-User") }})
	v := s.visit("X-User: ada")
	link, r := s.session(0)
	link.Grant(transport.Main, 1)
	if got := v.post(ping, "X-User: eve"); got != 403 {
		t.Errorf("eve: got %d, want 403", got)
	}
	if got := v.post(ping, "X-User: ada"); got != 202 {
		t.Errorf("ada: got %d, want 202", got)
	}
	if len(r.frames) != 1 || r.frames[0].Origin.Identity != "ada" || r.frames[0].Origin.Header("x-user") != "ada" {
		t.Errorf("got the frames %+v", r.frames)
	}
}

// A request that a page of another site, or with a rebound name, makes a browser send
// is refused.
//
// Guarantees: G-0034.6
func TestForeignRequestsAreRefused(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxBody: 100})
	v := s.visit()
	large := ping + strings.Repeat(" ", 100)
	for name, test := range map[string]struct {
		method string
		body   string
		line   string
		want   int
	}{
		"a page":            {"POST", ping, "Origin: http://evil.example", 403},
		"a rebound name":    {"POST", ping, "Host: evil.example", 403},
		"a form":            {"POST", ping, "Content-Type: text/plain", 415},
		"a compressed body": {"POST", ping, "Content-Encoding: gzip", 415},
		"no body":           {"POST", "", "X-A: b", 400},
		"a large body":      {"POST", large, "X-A: b", 413},
		"another method":    {"DELETE", "", "X-A: b", 405},
		"a stream by POST":  {"GET", "", "Origin: http://evil.example", 403},
		"a GET with body":   {"GET", ping, "X-A: b", 400},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.do(s.ctx, test.method, v.endpoint, test.body, test.line).StatusCode; got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
	if got := s.do(s.ctx, "POST", v.endpoint, "", "Transfer-Encoding: chunked").StatusCode; got != 400 {
		t.Errorf("an empty body of unknown length: got %d, want 400", got)
	}
	link, r := s.session(0)
	link.Grant(transport.Main, 1)
	if got := v.post(ping); got != 202 || len(r.frames) != 1 {
		t.Errorf("afterwards: got %d and %d frames, want got == 202 and len(r.frames) == 1", got, len(r.frames))
	}
}

// A body of unknown length is limited, too.
//
// Guarantees: G-0034.7
func TestBodyWithoutALength(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxBody: 1000})
	v := s.visit()
	link, r := s.session(0)
	link.Grant(transport.Main, 2)
	for size, want := range map[int]int{1000: 202, 1001: 413} {
		body := struct{ io.Reader }{strings.NewReader(strings.Repeat(" ", size))}
		request, err := http.NewRequestWithContext(s.ctx, "POST", v.endpoint, body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", web.TypeJSON)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%d bytes: got %d, want %v", size, response.StatusCode, want)
		}
	}
	if len(r.frames) != 1 {
		t.Errorf("got %d frames, want 1 element", len(r.frames))
	}
}

// initialize is limited in size.
//
// Guarantees: G-0034.7
func TestInitializeIsBounded(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	v := s.visit()
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"pad":"` + strings.Repeat("x", web.MaxInitialize) + `"}}`
	if got := v.post(body); got != 413 {
		t.Errorf("got %d, want 413", got)
	}
}

// The number of sessions is limited. Closed ones make room.
//
// Guarantees: G-0034.7
func TestSessionsAreBounded(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 2})
	a := s.visit()
	s.visit()
	if got := s.do(s.ctx, "GET", s.url, "").StatusCode; got != 503 {
		t.Errorf("the third session: got %d, want 503", got)
	}
	a.leave()
	_, r := s.session(0)
	if loss := r.awaitLoss(t); !errors.Is(loss.Reason, transport.ErrPeerClosed) {
		t.Errorf("got the reason %v, want %v", loss.Reason, transport.ErrPeerClosed)
	}
	s.visit()
}

// A POST waits until the link has credit. If its client gives up before, the message is
// not delivered.
//
// Guarantees: G-0034.5
func TestPostWaitsForCredit(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	v := s.visit()
	link, r := s.session(0)
	ctx, cancel := context.WithCancel(s.ctx)
	request, err := http.NewRequestWithContext(ctx, "POST", v.endpoint, strings.NewReader(`{"jsonrpc":"2.0","method":"given up"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", web.TypeJSON)
	given := make(chan error, 1)
	go func() {
		_, err := http.DefaultTransport.RoundTrip(request)
		given <- err
	}()
	serverLink := link.(*serverLink)
	for len(serverLink.turn) == 0 {
		if runtime.Gosched(); s.ctx.Err() != nil {
			t.Fatal("the POST has not arrived in time")
		}
	}
	cancel()
	if err := testenv.Receive(t, given, "the POST has ended"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for len(serverLink.turn) > 0 {
		if runtime.Gosched(); s.ctx.Err() != nil {
			t.Fatal("the POST that was given up still has its turn, want the turn free")
		}
	}
	link.Grant(transport.Main, 1)
	if got := v.post(ping); got != 202 {
		t.Fatal(got)
	}
	if len(r.frames) != 1 || string(r.frames[0].Frame) != ping {
		t.Errorf("got the frames %+v, want len(r.frames) == 1 and string(r.frames[0].Frame) == %v", r.frames, ping)
	}
}

// Comments keep a silent stream open.
func TestKeepAlive(t *testing.T) {
	s := newSite(t, HandlerOptions{KeepAlive: time.Millisecond})
	response := s.do(s.ctx, "GET", s.url, "")
	lines, comments := bufio.NewScanner(response.Body), 0
	for lines.Scan() {
		if lines.Text() == ":" {
			comments++
		}
		if comments == 3 {
			return
		}
	}
	t.Errorf("after %d comments: %v", comments, lines.Err())
}

// With Endpoint, a handler below a prefix or behind a proxy sends the address that its
// clients can reach. Without it, that is the path that the client has sent, as it is written there.
func TestEndpointOption(t *testing.T) {
	for _, c := range []struct{ endpoint, path, want string }{
		{"", "/api/sse", "/api/sse?sessionId="},
		{"", "/api/a%2Fb/sse", "/api/a%2Fb/sse?sessionId="},
		{"/public/m", "/api/sse", "/public/m?sessionId="},
		{"/m?v=1", "/api/sse", "/m?v=1&sessionId="},
	} {
		h := NewHandler(acceptFunc(func(link transport.Link) { link.Bind(peertest.Ignore{}) }), HandlerOptions{Endpoint: c.endpoint})
		server := httptest.NewServer(http.StripPrefix("/api", h))
		response, err := http.Get(server.URL + c.path + "?key=secret")
		if err != nil {
			t.Fatal(err)
		}
		first, err := eventstream.NewReader(response.Body, 1000).Next()
		if err != nil || !strings.HasPrefix(string(first.Data), c.want) {
			t.Errorf("%q: got %s, %v, want the prefix %v", c.endpoint, first.Data, err, c.want)
		}
		response.Body.Close()
		if err := h.Close(0); err != nil {
			t.Error(err)
		}
		server.Close()
	}
}

// Choose decides which server has a session. Without a server the session is refused, and the refusal is told to the acceptor of the
// handler. Shutdown closes each server that has sessions once, whether it was chosen or not.
//
// Guarantees: G-0106.5
func TestChooseTheServerOfASession(t *testing.T) {
	var mu sync.Mutex
	closed := map[string]int{}
	closes := func(name string) func(context.Context) error {
		return func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			closed[name]++
			return nil
		}
	}
	one, other := &site{t: t, close: closes("one")}, &site{t: t, close: closes("other")}
	s := newSite(t, HandlerOptions{Choose: func(r *http.Request) transport.Acceptor {
		switch r.Header.Get("Server") {
		case "one":
			return one
		case "other":
			return other
		case "function":
			return acceptFunc(func(transport.Link) {})
		default:
			return (*site)(nil)
		}
	}})
	s.close = closes("default")
	for _, name := range []string{"one", "one", "other"} {
		s.visit("Server: " + name)
	}
	if len(one.links) != 2 || len(other.links) != 1 || len(s.links) != 0 {
		t.Errorf("got %d, %d and %d links, want 2, 1 and 0", len(one.links), len(other.links), len(s.links))
	}
	for name, want := range map[string]int{"none": http.StatusNotFound, "function": http.StatusInternalServerError} {
		if response := s.do(s.ctx, "GET", s.url, "", "Server: "+name); response.StatusCode != want {
			t.Errorf("%s: got %d, want %d", name, response.StatusCode, want)
		}
	}
	if len(s.refused) != 2 || len(one.refused) != 0 {
		t.Errorf("the acceptor of the handler learned of %d refusals, want 2", len(s.refused))
	}
	if err := s.handler.Shutdown(s.ctx, nil); err != nil {
		t.Error(err)
	}
	if len(closed) != 3 || closed["one"] != 1 || closed["other"] != 1 || closed["default"] != 1 {
		t.Errorf("closed %v, want each once", closed)
	}
}

// If the acceptor does not bind or closes its link, the request is refused as busy.
func TestAcceptorThatRefuses(t *testing.T) {
	for name, accept := range map[string]acceptFunc{
		"binds nothing": func(transport.Link) {},
		"closes": func(link transport.Link) {
			link.Bind(peertest.Ignore{})
			go link.Close(0)
			<-link.(*serverLink).closing
		},
	} {
		h := NewHandler(accept, HandlerOptions{})
		w := httptest.NewRecorder()
		testenv.Within(t, "the request of a link that is refused ends", func() {
			h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/sse", nil))
		})
		if w.Code != 503 || len(h.sessions) > 0 {
			t.Errorf("%s: got %d and %d sessions, want w.Code == 503 and len(h.sessions) == 0", name, w.Code, len(h.sessions))
		}
	}
}

// A number in the options that is not above zero means the default.
func TestDefaultsOfTheHandler(t *testing.T) {
	type bounds struct {
		body, frame, sessions int
		keepAlive             time.Duration
	}
	defaults := bounds{4 << 20, 16 << 20, 1000, 15 * time.Second}
	for _, test := range []struct{ given, want bounds }{
		{bounds{}, defaults},
		{bounds{-1, -1, -1, -1}, defaults},
		{bounds{1, 2, 3, 4}, bounds{1, 2, 3, 4}},
	} {
		o := NewHandler(nil, HandlerOptions{MaxBody: test.given.body, MaxFrame: test.given.frame, MaxSessions: test.given.sessions, KeepAlive: test.given.keepAlive}).options
		if got := (bounds{o.MaxBody, o.MaxFrame, o.MaxSessions, o.KeepAlive}); got != test.want {
			t.Errorf("%+v: got %+v, want %+v", test.given, got, test.want)
		}
	}
}

// A ResponseWriter that cannot flush is a mistake in the program, and no session begins.
func TestAWriterThatCannotFlush(t *testing.T) {
	for name, test := range map[string]struct {
		wrap func(http.ResponseWriter) http.ResponseWriter
		want int
	}{
		"hidden":  {func(w http.ResponseWriter) http.ResponseWriter { return struct{ http.ResponseWriter }{w} }, 500},
		"wrapped": {func(w http.ResponseWriter) http.ResponseWriter { return wrapping{struct{ http.ResponseWriter }{w}, w} }, 503},
	} {
		h := NewHandler(acceptFunc(func(transport.Link) {}), HandlerOptions{}) // which binds nothing
		w := httptest.NewRecorder()
		if h.ServeHTTP(test.wrap(w), httptest.NewRequest("GET", "http://localhost/sse", nil)); w.Code != test.want {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, test.want)
		}
	}
}

// A wrapping ResponseWriter can be unwrapped.
type wrapping struct {
	http.ResponseWriter
	inner http.ResponseWriter
}

func (w wrapping) Unwrap() http.ResponseWriter { return w.inner }

// Without MaxFrame, both sides limit a message to 16 MiB.
//
// Guarantees: G-0008.2
func TestDefaultLimitOfAFrame(t *testing.T) {
	const limit = 16 << 20
	link, _ := open(t, &Client{URL: scriptedServer{get: says(endpoint)}.serve(t)})
	err := link.Send(transport.Outbound{Tag: 1, Frame: make([]byte, limit+1)})
	var oversized *transport.OversizedError
	if !errors.As(err, &oversized) || oversized.Limit != limit {
		t.Errorf("the client: %v, want a *transport.OversizedError and oversized.Limit == %v", err, limit)
	}
	if got := NewHandler(acceptFunc(func(transport.Link) {}), HandlerOptions{}).options.MaxFrame; got != limit {
		t.Errorf("the server: the limit is %d bytes", got)
	}
}

// A quiet stream over HTTP/2 lives longer than a write may take, both before its first message and
// after one, even if comments are rarer.
func TestQuietStreamOverHTTP2Lives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &site{t: t, ctx: t.Context()}
		handler := NewHandler(s, HandlerOptions{KeepAlive: time.Minute})
		conns := make(pipeListener)
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Handler: handler, Protocols: protocols, BaseContext: func(net.Listener) context.Context { return t.Context() }}
		served := make(chan error, 1)
		go func() { served <- server.Serve(conns) }()
		client := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return conns.dial(), nil
		}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/sse", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.RoundTrip(r)
		if err != nil || response.ProtoMajor != 2 || response.StatusCode != http.StatusOK {
			t.Fatalf("got %+v, %v, want a stream over HTTP/2", response, err)
		}
		events := eventstream.NewReader(response.Body, 1<<20)
		if first, err := events.Next(); err != nil || first.Type != "endpoint" {
			t.Fatalf("got %+v, %v", first, err)
		}
		link, _ := s.session(0)
		for range 2 {
			<-time.NewTimer(40 * time.Second).C
			if err := link.Send(notification(0)); err != nil {
				t.Fatal(err)
			}
			if e, err := events.Next(); err != nil || string(e.Data) != string(notification(0).Frame) {
				t.Fatalf("after 40 s got %+v, %v, want the message", e, err)
			}
		}
		response.Body.Close()
		if err := handler.Close(0); err != nil {
			t.Error(err)
		}
		client.CloseIdleConnections()
		server.Close()
		<-served
	})
}
