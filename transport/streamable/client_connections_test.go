package streamable

import (
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// serveCounting serves a handler, and counts its connections.
func serveCounting(t *testing.T, handler http.Handler) (url string, connections *atomic.Int64) {
	connections = new(atomic.Int64)
	site := httptest.NewUnstartedServer(handler)
	site.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	site.Start()
	t.Cleanup(site.Close)
	t.Cleanup(site.CloseClientConnections)
	return site.URL, connections
}

// Whatever the server answers, connections are reused: sequential calls share one, and
// the GET stream has another.
//
// Guarantees: G-0022.21
func TestConnectionsAreUsedAgain(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"json": func(w http.ResponseWriter, req *http.Request) { answerJSON(result(req.Header.Get("X-ID")))(w, req) },
		"events": func(w http.ResponseWriter, req *http.Request) {
			stream(w, "data: "+result(req.Header.Get("X-ID"))+"\n\n")
		},
		"refusal": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			io.WriteString(w, strings.Repeat("x", 10_000))
		},
		"page": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 1000)) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			s := &legacyServer{session: "s-1", get: func(w http.ResponseWriter, req *http.Request) {
				stream(w, ": hello\n\n")
				hold(req, release)
			}}
			url, connections := serveCounting(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(strings.NewReader(string(body)))
				if m, err := jsonrpc.Decode(body, jsonrpc.Limits{}); err == nil && m.Method == "tools/call" {
					req.Header.Set("X-ID", m.ID.String())
					answer(w, req)
					return
				} else if err == nil && m.Method == "n" {
					w.WriteHeader(http.StatusAccepted)
					io.WriteString(w, strings.Repeat("x", 10_000))
					return
				}
				s.ServeHTTP(w, req)
			}))
			r := open(t, &Client{URL: url})
			r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
			r.send(0, initialized)
			const calls = 50
			for n := range calls {
				r.callLegacy(2+n, 1)
				r.await("the end of the call", func() bool { return len(r.received)+len(r.failed) == 2+n })
				r.send(0, notification("n"))
			}
			if err := r.link.Close(hangGuard); err != nil {
				t.Fatal(err)
			}
			// One for the calls, one for the GET stream, and a few more if the
			// goroutine that reads the rest of a body is slower than the next call.
			if got := connections.Load(); got > 2+calls/5 {
				t.Errorf("%d connections for %d calls", got, calls)
			}
		})
	}
}

// A link that was closed leaves no connection of the pool that is the Client's own.
//
// Guarantees: G-0022.21
func TestCloseLeavesNoConnection(t *testing.T) {
	closed := make(chan struct{}, 1)
	site := httptest.NewUnstartedServer(answerJSON(result(1)))
	site.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	site.Start()
	defer site.Close()
	r := open(t, &Client{URL: site.URL})
	r.wantFrame(0, r.call(1, 1), result(1), true)
	if err := r.link.Close(hangGuard); err != nil {
		t.Fatal(err)
	}
	receive(t, "the end of the connection", closed)
}

// After many calls at the same time, as many find a connection.
//
// Guarantees: G-0022.21
func TestManyConnectionsAreUsedAgain(t *testing.T) {
	const calls, rounds = 10, 3
	arrived, answer := make(chan struct{}, calls), make(chan struct{})
	url, connections := serveCounting(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		m, _ := jsonrpc.Decode(body, jsonrpc.Limits{})
		arrived <- struct{}{}
		hold(req, answer)
		answerJSON(result(m.ID.String()))(w, req)
	}))
	r := open(t, &Client{URL: url})
	for round := range rounds {
		for n := range calls {
			r.call(round*calls+n+1, 1)
		}
		for range calls {
			receive(t, "a call", arrived)
		}
		for range calls {
			answer <- struct{}{}
		}
		r.await("the answers", func() bool { return len(r.received) == (round+1)*calls })
	}
	if got := connections.Load(); got > calls+calls/2 { // a few may be returned later than the next call comes
		t.Errorf("%d connections for %d calls at a time", got, calls)
	}
}

// The attempt after a refusal of credentials has the connection of the refused one, however long its text is: it may be the only one.
//
// Guarantees: G-0040.2
func TestARefusalLeavesItsConnection(t *testing.T) {
	for kind, k := range authorizers(func() *tokenAuthorizer { return new(tokenAuthorizer) }) {
		pool := transportOf(t)
		pool.MaxConnsPerHost = 1
		r := open(t, &Client{Authorizer: k, HTTP: &http.Client{Transport: pool}, URL: serve(t, func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Authorization") != "Bearer 1" {
				w.WriteHeader(http.StatusUnauthorized)
				io.WriteString(w, strings.Repeat("no ", web.MaxErrorBody)) // longer than what is read of it
				return
			}
			answerJSON(result(1))(w, req)
		})})
		r.call(1, 1)
		r.await("an answer, "+kind, func() bool { return len(r.received) > 0 })
	}
}

// The response by which a server says that it does not know the session is given up, whatever it was the response to.
func TestTheLastResponseOfASessionIsGivenUp(t *testing.T) {
	for name, last := range map[string]string{"a request": request(2, "ping", ""), "a notification": notification("n")} {
		var begun, closed atomic.Int64
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			if req.Header.Get(headerSession) != "" {
				w.WriteHeader(http.StatusNotFound)
			} else {
				(&legacyServer{session: "s-1"}).ServeHTTP(w, req)
			}
			begun.Add(1)
			response := w.Result()
			response.Body = closingBody{response.Body, sync.OnceFunc(func() { closed.Add(1) })}
			return response, nil
		})}})
		r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
		r.send(2, last)
		r.await("the loss", func() bool { return len(r.losses) > 0 })
		if begun.Load() != closed.Load() {
			t.Errorf("%s: %d of %d bodies were closed", name, closed.Load(), begun.Load())
		}
	}
}

// A server that switches to another protocol is hung up on.
func TestAnotherProtocolIsHungUp(t *testing.T) {
	ended := make(chan struct{})
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		io.Copy(io.Discard, c)
	})
	r.call(1, 1)
	r.failure(0)
	receive(t, "the end of the connection", ended)
}

// With the program's http.Client, all requests use its transport and its cookie jar.
// Its Timeout does not apply, because streams last longer.
func TestProgramsHTTPClientIsUsed(t *testing.T) {
	const cookie = "knot"
	s := &legacyServer{session: "s-1"}
	var carried, remembered atomic.Int64
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if _, err := req.Cookie(cookie); err == nil {
			remembered.Add(1)
		}
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: "bowline"})
		s.ServeHTTP(w, req)
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	own := &http.Client{Transport: countingTripper{transportOf(t), &carried, func() { t.Error("the link has closed the program's connections") }}, Jar: jar, Timeout: time.Nanosecond}
	r := open(t, &Client{URL: url, HTTP: own})
	r.wantFrame(0, r.request(1, 1, request(1, "initialize", "")), initializeResult, true)
	r.send(0, initialized)
	r.wantFrame(1, r.callLegacy(2, 1), result(2), true)
	if err := r.link.Close(hangGuard); err != nil {
		t.Fatal(err)
	}
	if want := int64(len(s.log())); carried.Load() != want || remembered.Load() != want-1 {
		t.Errorf("of %d requests it carried %d, and its jar had the cookie of %d, want carried.Load() == %v and remembered.Load() == %v", want, carried.Load(), remembered.Load(), want, want-1)
	}
}

// A countingTripper counts the requests that it sends.
type countingTripper struct {
	http.RoundTripper
	count *atomic.Int64
	close func() // called when idle connections are to be closed
}

// CloseIdleConnections is called by http.Client.
func (c countingTripper) CloseIdleConnections() { c.close() }

func (c countingTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	c.count.Add(1)
	return c.RoundTripper.RoundTrip(req)
}
