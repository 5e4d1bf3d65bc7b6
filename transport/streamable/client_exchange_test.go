package streamable

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

func endpointOf(t *testing.T, text string) *url.URL {
	endpoint, err := web.ParseEndpoint(text)
	if err != nil {
		t.Fatal(err)
	}
	return endpoint
}

// Requests with equal headers share the header map, unless something can change it.
// Each request has the headers of its own message and session.
//
// Guarantees: G-0058.1
func TestRequestsThatArePostedAlikeShareTheirHeaders(t *testing.T) {
	m := newRemote(endpointOf(t, "http://example.com"), new(http.Client), http.Header{"X-Own": append(make([]string, 0, 2), "1")})
	header := func(o transport.Outbound) http.Header { return m.newPost(t.Context(), &outgoing{Outbound: o}).header }
	legacy := transport.Outbound{Route: transport.Route{Method: "tools/call"}}
	modern := func(name string) transport.Outbound {
		return transport.Outbound{Route: transport.Route{Version: "2026-07-28", Method: "tools/call", Name: name}}
	}
	before := header(legacy)
	if own := before["X-Own"]; cap(own) != 1 {
		t.Errorf("a header has room for %d values, so that one request could add to that of another; want 1", cap(own))
	}
	m.mu.Lock()
	m.session, m.posted = session{id: "s", ids: []string{"s"}}, postHeader{}
	m.mu.Unlock()
	if got := header(legacy); got.Get(headerSession) != "s" || before.Get(headerSession) != "" || got.Get("X-Own") != "1" {
		t.Errorf("%v after %v", got, before)
	}
	if n := testing.AllocsPerRun(100, func() { m.preparePost(t.Context(), new(httpRequest), &outgoing{Outbound: modern("a")}) }); n > 2 { // the request and its context
		t.Errorf("%v allocations", n)
	}
	bearing := newRemote(m.endpoint, m.client, nil)
	bearing.auth = sameBearer{new(tokenAuthorizer), []string{"Bearer 0"}}
	first, second := bearing.newPost(t.Context(), &outgoing{Outbound: legacy}), bearing.newPost(t.Context(), &outgoing{Outbound: legacy})
	one, two := first.attempt(t.Context()).Header, second.attempt(t.Context()).Header
	if one["X-One-Map"] = nil; len(two) != len(one) || one.Get("Authorization") != "Bearer 0" {
		t.Errorf("requests with the credentials of a Bearer have the headers %v and %v, want one map", one, two)
	}
	bearing.auth = sameBearer{new(tokenAuthorizer), []string{"Bearer 1"}}
	if got := bearing.newPost(t.Context(), &outgoing{Outbound: legacy}).header.Get("Authorization"); got != "Bearer 1" {
		t.Errorf("after new credentials the next request has %q, want those", got)
	}
	arguments := transport.Arguments{"Region": "é"}
	later := modern("a")
	later.Route.Version = "2026-11-01"
	mirrored := modern("a")
	mirrored.Route.Arguments = &arguments
	for range 2 {
		for _, test := range []struct {
			o                   transport.Outbound
			name, session, more string
		}{{modern("a"), "a", "", ""}, {later, "a", "", ""}, {modern("b"), "b", "", ""}, {mirrored, "a", "", "=?base64?w6k=?="}, {modern(""), "", "", ""}, {legacy, "", "s", ""}} {
			got := header(test.o)
			if version := got.Get(headerVersion); version != test.o.Route.Version {
				t.Errorf("%+v: the revision is %q", test, version)
			}
			if got.Get(headerName) != test.name || got.Get(headerSession) != test.session || got.Get(headerArgument+"Region") != test.more {
				t.Errorf("%+v: %v", test, got)
			}
		}
	}
}

// A sameBearer has the same credentials for all requests.
type sameBearer struct {
	*tokenAuthorizer
	values []string
}

func (b sameBearer) Bearer(context.Context, *url.URL) []string { return b.values }

// The user and the password of a URL are sent with each request, and with no header of another one.
//
// Guarantees: G-0058.1
func TestCredentialsOfTheURL(t *testing.T) {
	seen := make(chan string, 3)
	at := serve(t, func(w http.ResponseWriter, req *http.Request) {
		seen <- strings.Join(req.Header["Authorization"], ", ")
		body, _ := io.ReadAll(req.Body)
		m, _ := jsonrpc.Decode(body, jsonrpc.Limits{})
		answerJSON(result(m.ID.String()))(w, req)
	})
	r := open(t, &Client{URL: strings.Replace(at, "http://", "http://user:secret@", 1), HTTP: &http.Client{Transport: transportOf(t)}})
	for n := range cap(seen) {
		r.call(1+n, 1)
		r.await("the response", func() bool { return len(r.received) == 1+n })
		if got := <-seen; got != "Basic dXNlcjpzZWNyZXQ=" {
			t.Errorf("request %d has the credentials %q, want those of the URL", n, got)
		}
	}
}

// A RoundTripper that adds a header to a request, or changes its URL, changes that request only.
//
// Guarantees: G-0058.1
func TestARoundTripperMayAddHeaders(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		m, _ := jsonrpc.Decode(body, jsonrpc.Limits{})
		answerJSON(result(m.ID.String()))(w, req)
	})
	inUse := &http.DefaultTransport // a program may replace it
	defer func(standard http.RoundTripper) { *inUse = standard }(*inUse)
	own := transportOf(t)
	for _, test := range []struct {
		name          string
		own           bool // the program sets the client's transport
		replacedLater bool
	}{
		{name: "the client's own", own: true},
		{name: "http.DefaultTransport"},
		{name: "http.DefaultTransport, of late", replacedLater: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			adding := headerTripper{own, new(sync.Map)}
			client := new(http.Client)
			*inUse = adding
			switch {
			case test.own:
				client.Transport, *inUse = adding, own
			case test.replacedLater:
				*inUse = own
			}
			r := open(t, &Client{URL: url, HTTP: client})
			const calls = 20
			r.call(1, 1)
			r.await("the first response", func() bool { return len(r.received) == 1 })
			if test.replacedLater {
				*inUse = adding
			}
			for n := range calls {
				r.call(2+n, 1)
			}
			r.await("the responses", func() bool { return len(r.received) == 1+calls })
			added := 0
			adding.seen.Range(func(_, again any) bool {
				if added++; again.(bool) {
					t.Error("a request has the header or the URL of another, want its own only")
				}
				return true
			})
			if added < calls {
				t.Errorf("%d requests were seen", added)
			}
		})
	}
}

// A headerTripper adds a header and a fragment to the request that it gets.
type headerTripper struct {
	http.RoundTripper
	seen *sync.Map
}

func (a headerTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	_, again := maps.Clone(req.Header)["X-Added"]
	a.seen.Store(req, again || req.URL.Fragment != "")
	req.Header.Set("X-Added", "1")
	req.URL.Fragment = "added"
	return a.RoundTripper.RoundTrip(req)
}

// The trace of a request is reused when nothing can call it any more, so not if a
// connection was dialled for it, which may still be in progress.
//
// Guarantees: G-0058.2
func TestTracesAreUsedAgain(t *testing.T) {
	m := newRemote(endpointOf(t, serve(t, func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		answerJSON(result(1))(w, req)
	})), &http.Client{Transport: transportOf(t)}, nil)
	post := func() *requestTrace {
		r := m.newPost(t.Context(), &outgoing{Outbound: transport.Outbound{Frame: []byte(request(1, "tools/call", ""))}})
		response, err := r.do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if !r.connected.Load() || !r.waiting.Load() || !r.handedOver {
			t.Errorf("got %+v", r)
		}
		return r.trace.Load()
	}
	if post() == nil {
		t.Error("the trace of the first request is free although a connection was dialled for it")
	}
	freed := 0
	for range 20 {
		if post() == nil {
			freed++
		}
	}
	if freed == 0 {
		t.Error("no trace was reused, want one")
	}
}

// A trace is reused only if its attempt got one connection that existed before, and was written to
// it once: otherwise the HTTP client may still have something to report.
//
// Guarantees: G-0058.2
func TestTracesOfUnusualAttemptsAreNotUsedAgain(t *testing.T) {
	m := newRemote(endpointOf(t, "http://example.com"), new(http.Client), nil)
	used, made := httptrace.GotConnInfo{Reused: true, WasIdle: true}, httptrace.GotConnInfo{}
	for _, c := range []struct {
		connections []httptrace.GotConnInfo
		written     int
		again       bool
	}{
		{[]httptrace.GotConnInfo{used}, 1, true},
		{[]httptrace.GotConnInfo{used}, 0, false},
		{[]httptrace.GotConnInfo{used}, 2, false},
		{[]httptrace.GotConnInfo{used, used}, 1, false},
		{[]httptrace.GotConnInfo{used, used}, 2, false},
		{[]httptrace.GotConnInfo{made}, 1, false},
		{nil, 1, false},
		{nil, 0, false},
	} {
		r := m.newPost(t.Context(), new(outgoing))
		trace := httptrace.ContextClientTrace(r.attempt(t.Context()).Context())
		for _, info := range c.connections {
			trace.GotConn(info)
		}
		for range c.written {
			trace.WroteRequest(httptrace.WroteRequestInfo{})
		}
		body := countedBody{io.NopCloser(nil), r}
		body.Close()
		if again := r.trace.Load() == nil; again != c.again {
			t.Errorf("%d connections, the last reused: %v, written %d times: used again: %v", len(c.connections), len(c.connections) > 0 && c.connections[len(c.connections)-1].Reused, c.written, again)
		}
	}
}

// A further attempt of a request has not begun: what is known of the attempt before says nothing about it.
//
// Guarantees: G-0040.1
func TestAFurtherAttemptBeginsAnew(t *testing.T) {
	m := newRemote(endpointOf(t, "http://example.com"), new(http.Client), nil)
	r := m.newPost(t.Context(), new(outgoing))
	attempt := func() *httptrace.ClientTrace {
		return httptrace.ContextClientTrace(r.attempt(t.Context()).Context())
	}
	if trace := attempt(); trace != nil {
		trace.GetConn("")
		trace.DNSStart(httptrace.DNSStartInfo{})
		trace.ConnectStart("", "")
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if !r.dialing.Load() || r.unsent() || m.alive != 1 {
		t.Errorf("the first attempt has a connection: dialing %v, unsent %v, %d alive", r.dialing.Load(), r.unsent(), m.alive)
	}
	trace := attempt()
	if r.dialing.Load() || r.unsent() || m.alive != 0 {
		t.Errorf("the second has not begun: dialing %v, unsent %v, %d alive", r.dialing.Load(), r.unsent(), m.alive)
	}
	trace.GetConn("")
	if !r.unsent() {
		t.Error("a request that waits for a connection counts as sent")
	}
	if trace.GotConn(httptrace.GotConnInfo{}); r.unsent() || m.alive != 1 {
		t.Errorf("it has a connection: unsent %v, %d alive", r.unsent(), m.alive)
	}
}

// If two goroutines close a body at once, its trace is returned once, so two requests
// never share a trace.
//
// Guarantees: G-0058.2
func TestTraceIsReturnedOnce(t *testing.T) {
	m := newRemote(endpointOf(t, "http://example.com"), new(http.Client), nil)
	for range 20_000 {
		r := m.newPost(t.Context(), new(outgoing))
		r.attempt(t.Context())
		trace := r.trace.Load()
		trace.connections.Store(1)
		trace.written.Store(1)
		body := countedBody{new(twoCallerBody), r}
		var closing sync.WaitGroup
		for range 2 {
			closing.Go(func() { body.Close() })
		}
		closing.Wait()
		first, second := m.traces.Get(), m.traces.Get()
		if first != nil && first == second {
			t.Fatal("one trace was returned twice")
		}
	}
}

// A twoCallerBody is a body whose Close waits for a second caller.
type twoCallerBody struct{ closing atomic.Int32 }

func (*twoCallerBody) Read([]byte) (int, error) { return 0, io.EOF }

func (m *twoCallerBody) Close() error {
	for m.closing.Add(1); m.closing.Load() < 2; {
		runtime.Gosched()
	}
	return nil
}
