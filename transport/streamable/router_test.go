package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A fixedRouter router knows another node for each session, and records the sessions that
// were looked up.
type fixedRouter struct {
	to    http.Handler
	asked []string
}

func (*fixedRouter) Node() string { return "here" }

func (r *fixedRouter) ReachNode(string) http.Handler { return nil }

func (r *fixedRouter) Another(string, ...string) string { return "" }

func (r *fixedRouter) Reach(session string) http.Handler {
	r.asked = append(r.asked, session)
	return r.to
}

// firstAsked returns the handler that forwards a request first, or nil.
func firstAsked(h *Handler, r *http.Request) http.Handler {
	a := h.arrive(httptest.NewRecorder(), r, expectedBody{})
	if !a.isAway() {
		return nil
	}
	to, _ := a.firstHop()
	return to
}

func routed(t *testing.T, to http.Handler) (*Handler, *fixedRouter) {
	t.Helper()
	router := &fixedRouter{to: to}
	h := NewHandler(accepting(func(link transport.Link) { link.Bind(&mute{link: link}) }), HandlerOptions{Router: router, MaxBody: 100})
	t.Cleanup(func() { h.Close(0) })
	return h, router
}

// The router is asked for sessions of other nodes only.
func TestRouterIsAskedForSessionsOfOtherNodes(t *testing.T) {
	h, router := routed(t, http.NotFoundHandler())
	here := fuzzed(h, "POST", "Content-Type: application/json", initializeBody("2025-06-18")).Header().Get(headerSession)
	if NodeOf(here) != "here" {
		t.Fatalf("got the session %q, want %q", here, "here")
	}
	for _, c := range []struct {
		name   string
		header map[string]string
		asked  bool
	}{
		{"another's", map[string]string{headerSession: "there.1"}, true},
		{"another's, of an old revision", map[string]string{headerSession: "there.1", headerVersion: "2025-06-18"}, true},
		{"no session", nil, false},
		{"its own", map[string]string{headerSession: here}, false},
		{"a revision without sessions", map[string]string{headerSession: "there.1", headerVersion: "2026-07-28"}, false},
		{"forwarded already", map[string]string{headerSession: "there.1", headerForwarded: "1"}, false},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		router.asked = nil
		to := firstAsked(h, r)
		if (to != nil) != c.asked || (len(router.asked) > 0) != c.asked {
			t.Errorf("%s: got %v after the lookups %q", c.name, to, router.asked)
		}
	}
	alone := NewHandler(accepting(func(transport.Link) {}), HandlerOptions{})
	defer alone.Close(0)
	r := httptest.NewRequest("POST", "/", nil)
	if r.Header.Set(headerSession, "there.1"); firstAsked(alone, r) != nil {
		t.Error("got another node without a router, want none")
	}
}

// A deadlineRecorder response records its read deadlines.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (d *deadlineRecorder) SetReadDeadline(at time.Time) error {
	d.deadlines = append(d.deadlines, at)
	return nil
}

// A request is forwarded with its headers. Its body is limited and has the same
// deadlines as without forwarding.
func TestRouterForwardsAtMostABody(t *testing.T) {
	for _, c := range []struct {
		name           string
		body           io.Reader // nil: no body
		length         int64
		refused, reads bool // whether the handler refuses it; whether the other node reads it
		tooLarge       bool
	}{
		{"of the limit", strings.NewReader(strings.Repeat("a", 100)), 100, false, true, false},
		{"beyond the limit", strings.NewReader(strings.Repeat("a", 101)), 101, true, false, false},
		{"of unknown length, beyond the limit", strings.NewReader(strings.Repeat("a", 101)), -1, false, true, true},
		{"empty", http.NoBody, 0, false, false, false},
		{"absent", nil, 0, false, false, false},
		{"absent, of some length", nil, 7, false, false, false},
	} {
		var got *http.Request
		var failed error
		h, router := routed(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got = r; r.Body != nil {
				_, failed = io.ReadAll(r.Body)
			}
		}))
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		w.Header().Set("Connection", "close")
		r := httptest.NewRequest("POST", "/", c.body)
		if r.ContentLength = c.length; c.body == nil {
			r.Body = nil
		}
		_, _, refused := h.arrive(w, r, expectedBody{control: *http.NewResponseController(w), since: time.Now()}).hop(router.to)
		if (refused != nil) != c.refused || (got == nil) != c.refused {
			t.Errorf("%s: got the refusal %v", c.name, refused)
			continue
		}
		if got == nil {
			continue
		}
		if got.Header.Get(headerForwarded) != "1" || r.Header.Get(headerForwarded) != "" {
			t.Errorf("%s: got the forwarded headers %v for %v, want got.Header.Get(headerForwarded) == %q and r.Header.Get(headerForwarded) == %q", c.name, got.Header, r.Header, "1", "")
		}
		if (got.Body == nil) != (c.body == nil) {
			t.Errorf("%s: got the body %v", c.name, got.Body)
		}
		if errors.As(failed, new(*http.MaxBytesError)) != c.tooLarge || (failed != nil) != c.tooLarge {
			t.Errorf("%s: reading the body: got %v", c.name, failed)
		}
		// The body arrives while the response is sent, for as long as it takes to read.
		if n := len(w.deadlines); (n > 0 && w.deadlines[n-1].IsZero()) != (c.reads && !c.tooLarge) {
			t.Errorf("%s: got the deadlines %v", c.name, w.deadlines)
		}
		if closes := w.Header().Get("Connection") != ""; closes == c.reads {
			t.Errorf("%s: got the headers %v", c.name, w.Header())
		}
	}
}

// A body that is forwarded has as much time as one that is served here: half a minute, and
// a second more for each 64 KiB. The time that the other node takes does not count.
//
// Guarantees: G-0022.13
func TestRouterForwardsABodyThatComesSlowly(t *testing.T) {
	for name, test := range map[string]struct {
		pace    time.Duration // between pieces of the body
		rest    time.Duration // how long the other node rests before each read
		chunk   int           // how many bytes it reads at a time
		timeout time.Duration // the ReadTimeout of the server
		want    error
		after   time.Duration
	}{
		"at the pace":             {time.Second, 0, web.PieceSize, 0, io.EOF, 100 * time.Second},
		"below the pace":          {2 * time.Second, 0, web.PieceSize, 0, os.ErrDeadlineExceeded, 59 * time.Second},
		"not at all":              {time.Hour, 0, web.PieceSize, 0, os.ErrDeadlineExceeded, 30 * time.Second},
		"to a node that rests":    {time.Second / 10, 20 * time.Second, web.PieceSize, 0, io.EOF, 101 * 20 * time.Second},
		"to a node that is slow":  {time.Second / 10, time.Second / 2, 2 << 10, 0, io.EOF, 1600 * time.Second},
		"beyond the read timeout": {time.Second, 0, web.PieceSize, 7 * time.Second, os.ErrDeadlineExceeded, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failed error
				router := &fixedRouter{to: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					for chunk := make([]byte, test.chunk); failed == nil; _, failed = io.ReadFull(r.Body, chunk) {
						pass(test.rest)
					}
				})}
				h := NewHandler(accepting(func(transport.Link) {}), HandlerOptions{Router: router, MaxBody: 16 << 20})
				defer h.Close(0)
				body := &steadyBody{ResponseRecorder: httptest.NewRecorder(), text: strings.Repeat("x", 100*web.PieceSize), pace: test.pace}
				r := newRequest(http.MethodPost, "", headerSession+": there.1")
				r.Body, r.ContentLength = io.NopCloser(body), int64(len(body.text))
				r = r.WithContext(context.WithValue(t.Context(), http.ServerContextKey, &http.Server{ReadTimeout: test.timeout}))
				begun := time.Now()
				serveHTTP(h, body, r)
				if took := time.Since(begun).Truncate(time.Second); !errors.Is(failed, test.want) || took != test.after {
					t.Errorf("got %v after %v, want %v after %v", failed, took, test.want, test.after)
				}
			})
		})
	}
}

// A node that reads a body when its request is over changes no deadline: the connection may
// have another request by then.
func TestRouterSetsNoDeadlineAfterTheRequest(t *testing.T) {
	var late io.Reader
	h, router := routed(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { late = r.Body }))
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest("POST", "/", strings.NewReader("body"))
	h.arrive(w, r, expectedBody{control: *http.NewResponseController(w)}).hop(router.to)
	if got, err := io.ReadAll(late); string(got) != "body" || err != nil || len(w.deadlines) > 0 {
		t.Errorf("got %q, %v and the deadlines %v, want the body and no deadline", got, err, w.deadlines)
	}
}

// A client cannot have the mark of a forwarded request removed by naming it in its Connection
// header, which proxies obey. The other names there keep their meaning.
//
// Guarantees: G-0043.3
func TestForwardingMarkCannotBeRemoved(t *testing.T) {
	for _, listed := range [][]string{
		{"Mcp-Session-Forwarded"}, {"close, mcp-session-forwarded"}, {"X-Mine", " MCP-SESSION-FORWARDED ,,X-Mine"}, nil,
	} {
		var got http.Header
		h, router := routed(t, nil)
		router.to = newForwarder(&url.URL{Scheme: "http", Host: "there.test"}, roundTripper(func(r *http.Request) (*http.Response, error) {
			got = r.Header
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		r := httptest.NewRequest("POST", "/", strings.NewReader("{}"))
		r.Header.Set(headerSession, "there.1")
		r.Header.Set("X-Mine", "1")
		r.Header["Connection"] = listed
		h.ServeHTTP(httptest.NewRecorder(), r)
		removes := strings.Contains(strings.Join(listed, ","), "X-Mine")
		if got.Get(headerForwarded) != "1" || (got.Get("X-Mine") == "") != removes {
			t.Errorf("Connection: %q: the other node got %v, want the mark, and X-Mine unless it is listed", listed, got)
		}
	}
}

// What says that a node has checked a request cannot be removed either, and is not forgotten by a node that does not say so.
func TestTheMarkOfAChecksIsKept(t *testing.T) {
	for _, listed := range []string{"Mcp-Session-Checked", "close, mcp-session-checked"} {
		checked, r := true, newRequest("GET", "", "Connection: "+listed)
		forward(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(headerChecked) != "1" || strings.Contains(strings.ToLower(r.Header.Get("Connection")), "checked") {
				t.Errorf("the other node got %v, want the mark, which no proxy removes", r.Header)
			}
			w.WriteHeader(http.StatusMisdirectedRequest)
		}), httptest.NewRecorder(), r, nil, &checked)
		if !checked {
			t.Error("that a node has checked the request is forgotten")
		}
	}
}

// The nodes of as many sessions are remembered as there may be, and of those that are asked for again nobody is forgotten.
func TestOwnersAreBounded(t *testing.T) {
	var o owners
	for n := range mostOwners {
		o.put(fmt.Sprint(n), "there")
	}
	o.put("0", "elsewhere")
	for n := range mostOwners {
		if o.get(fmt.Sprint(n)) == "" {
			t.Fatalf("the node of session %d is forgotten", n)
		}
	}
	if o.put("new", "there"); len(o.of) != mostOwners || o.get("new") != "there" || o.get("new") == o.get("none") {
		t.Errorf("%d nodes are remembered, and %q for the last session", len(o.of), o.get("new"))
	}
}

// A request whose client leaves says nothing of its node, before or after the refusal of a connection, and its body is closed.
//
// Guarantees: G-0043.4
func TestForwardedRequestsThatAreCancelledDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, leave := 0, func() {}
		d := &dials{by: roundTripper(func(r *http.Request) (*http.Response, error) {
			if leave(); r.Context().Err() != nil {
				return nil, r.Context().Err()
			}
			return nil, errRefused
		})}
		send := func(ctx context.Context) error {
			r := newRequest("POST", "{}").WithContext(ctx)
			r.Body = closingBody{r.Body, func() { closed++ }}
			_, err := d.RoundTrip(r)
			return err
		}
		send(t.Context())
		left, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := send(left); !errors.Is(err, context.DeadlineExceeded) || closed != 1 {
			t.Errorf("a request that waited got %v, and %d bodies were closed, want 1", err, closed)
		}
		pass(2 * dialPause)
		left, leave = context.WithCancel(t.Context())
		send(left)
		leave = func() {}
		if err := send(t.Context()); !errors.Is(err, errNodeGone) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the second refusal: got %v, want %v with its cause", err, errNodeGone)
		}
	})
}

// A roundTripper answers requests without a socket.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
)

// Forward answers 502 when its node refuses a connection, and 404 when it refuses the next one,
// too. The next one is made a second later at least. Any other result begins the count anew.
//
// Guarantees: G-0043.4
func TestForwardToANodeThatRefusesConnections(t *testing.T) {
	for name, c := range map[string]struct {
		results []error
		want    []int
		waited  time.Duration
	}{
		"gone":                    {[]error{errRefused, errRefused, errRefused}, []int{502, 404, 404}, time.Second},
		"gone and back":           {[]error{errRefused, errRefused, nil, errRefused, nil}, []int{502, 404, 200, 502, 200}, 2 * time.Second},
		"its socket was away":     {[]error{errRefused, nil, errRefused, nil}, []int{502, 200, 502, 200}, 2 * time.Second},
		"it resets":               {[]error{errReset, errReset, errReset}, []int{502, 502, 502}, 0},
		"it resets in between":    {[]error{errRefused, errReset, errRefused, errRefused}, []int{502, 502, 502, 404}, 2 * time.Second},
		"out of file descriptors": {[]error{syscall.EMFILE, syscall.EMFILE}, []int{502, 502}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, n := time.Now(), -1
				h := newForwarder(&url.URL{Scheme: "http", Host: "there.test"}, roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.URL.Host != "there.test" {
						t.Errorf("the request goes to %q, want there.test", r.URL.Host)
					}
					if n++; c.results[n] != nil {
						return nil, c.results[n]
					}
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				}))
				for n, want := range c.want {
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader("{}"))); w.Code != want {
						t.Errorf("request %d: got %d %q, want %d", n, w.Code, w.Body, want)
					}
					if _, err := jsonrpc.Decode(w.Body.Bytes(), jsonrpc.Limits{}); w.Code == http.StatusBadGateway && err == nil {
						t.Errorf("request %d: got the body %q, want none that a client takes for the node's", n, w.Body)
					}
				}
				if waited := time.Since(began); waited != c.waited {
					t.Errorf("the requests have waited %v, want %v", waited, c.waited)
				}
			})
		})
	}
}

// Many requests that a node refuses at the same time are one failed dial, because they say no
// more than one of them. A client that leaves does not wait.
//
// Guarantees: G-0043.4
func TestForwardCountsRefusalsAtOneTimeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newForwarder(&url.URL{Scheme: "http", Host: "there.test"}, roundTripper(func(r *http.Request) (*http.Response, error) {
			timer := time.NewTimer(time.Millisecond)
			defer timer.Stop()
			<-timer.C
			return nil, errRefused
		}))
		var work sync.WaitGroup
		all := func(want int) {
			for range 10 {
				work.Go(func() {
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader("{}"))); w.Code != want {
						t.Errorf("got %d, want %d", w.Code, want)
					}
				})
			}
			work.Wait()
		}
		all(http.StatusBadGateway)
		began := time.Now()
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader("{}"))); time.Since(began) > 0 {
			t.Errorf("a client that had left waited %v, want 0s", time.Since(began))
		}
		all(http.StatusNotFound)
	})
}

// Nodes spread the sessions of a node that shuts down over the others. All of them name the same one for a session, none that was tried and not
// itself.
func TestNodesNameAnother(t *testing.T) {
	all := map[string]http.Handler{"a": nil, "b": nil, "c": nil}
	names := make(map[string]int)
	for n := range 100 {
		session := nodename.Join("self", fmt.Sprint(n))
		first := (&Nodes{Self: "self", Others: all}).Another(session)
		again := (&Nodes{Self: "other", Others: all}).Another(session)
		second := (&Nodes{Self: "self", Others: all}).Another(session, first)
		third := (&Nodes{Self: "self", Others: all}).Another(session, second, first)
		none := (&Nodes{Self: "self", Others: all}).Another(session, third, second, first)
		if first != again || second == first || third == first || third == second || third == "" || second == "" || none != "" {
			t.Fatalf("got %q, again %q, then %q, %q and %q; want three that differ, and then none", first, again, second, third, none)
		}
		names[first]++
	}
	if len(names) != 3 || names["a"] < 10 || names["b"] < 10 || names["c"] < 10 {
		t.Errorf("100 sessions are spread as %v, want some on each node", names)
	}
}
