package sse

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/internal/turn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// virtually runs a test in virtual time. Its site has a real HTTP server, whose connections are pipes.
func virtually(t *testing.T, o HandlerOptions, test func(t *testing.T, s *site)) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		s := &site{t: t, ctx: t.Context(), url: "http://localhost/sse", conns: make(pipeListener)}
		s.handler = NewHandler(s, o)
		server := &http.Server{Handler: s.handler, BaseContext: func(net.Listener) context.Context { return t.Context() }}
		served := make(chan error, 1)
		go func() { served <- server.Serve(s.conns) }()
		pool := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return s.conns.dial(), nil }}
		s.via = pool
		defer func() {
			if err := s.handler.Close(0); err != nil {
				t.Errorf("the handler closed with %v", err)
			}
			server.Close()
			pool.CloseIdleConnections()
			<-served
			sleep(time.Second) // net/http waits before it closes a connection after a refusal
		}()
		test(t, s)
	})
}

// A pipeListener accepts the connections that dial has made.
type pipeListener chan net.Conn

func (l pipeListener) dial() net.Conn {
	here, there := net.Pipe()
	l <- there
	return here
}

func (l pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error   { close(l); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// A slowPost is a POST whose body a test writes bit by bit.
type slowPost struct {
	net.Conn
	answered chan answer // gets the response
}

// An answer is the response to a slowPost.
type answer struct {
	status int // 0 if there was none
	text   string
	at     time.Time
}

// begin sends the head of a POST. A negative length is unknown.
func (v *testClient) begin(length int) slowPost {
	v.t.Helper()
	p := slowPost{v.conns.dial(), make(chan answer, 1)}
	size := fmt.Sprint("Content-Length: ", length)
	if length < 0 {
		size = "Transfer-Encoding: chunked"
	}
	path := strings.TrimPrefix(v.endpoint, "http://localhost")
	if _, err := fmt.Fprintf(p, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n%s\r\n\r\n", path, web.TypeJSON, size); err != nil {
		v.t.Fatal(err)
	}
	go func() {
		response, err := http.ReadResponse(bufio.NewReader(p), nil)
		if err != nil {
			p.answered <- answer{at: time.Now()}
			return
		}
		text, _ := io.ReadAll(response.Body)
		p.answered <- answer{response.StatusCode, strings.TrimSpace(string(text)), time.Now()}
		p.Close()
	}()
	return p
}

// await returns the response, and how long it took from began.
func (p slowPost) await(began time.Time) (status int, took time.Duration) {
	a := <-p.answered
	p.Close()
	return a.status, a.at.Sub(began)
}

// bubble runs a test in virtual time, which stands still while the test waits for a lock. So the test is guarded in real time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	testenv.Within(t, "the test in virtual time ends", func() { synctest.Test(t, test) })
}

// sleep waits in virtual time.
func sleep(d time.Duration) { <-time.NewTimer(d).C }

// While the acceptor closes, no session begins: it would be cut off. An acceptor that was also chosen for a session is closed once.
//
// Guarantees: G-0034.10
func TestNoSessionBeginsDuringAShutdown(t *testing.T) {
	var s *site
	choose := func(*http.Request) transport.Acceptor { return s }
	virtually(t, HandlerOptions{Choose: choose}, func(t *testing.T, of *site) {
		s = of
		s.visit()
		closes, end := 0, make(chan struct{})
		s.close = func(context.Context) error {
			closes++
			<-end
			return nil
		}
		ended := make(chan error, 1)
		go func() { ended <- s.handler.Shutdown(t.Context(), nil) }()
		synctest.Wait()
		if got := s.do(t.Context(), "GET", s.url, "").StatusCode; got != http.StatusServiceUnavailable {
			t.Errorf("during the shutdown, a GET got %d, want 503", got)
		}
		close(end)
		if err := <-ended; err != nil || closes != 1 {
			t.Errorf("the acceptor was closed %d times, want once; Shutdown returned %v", closes, err)
		}
	})
}

// The end of a session whose messages were read leaves what other sessions of the client have not read.
//
// Guarantees: G-0083.6
func TestTheEndOfASessionLeavesWhatOthersHaveNotRead(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
		send := func(n int) {
			t.Helper()
			link, _ := s.session(n)
			for _, size := range []int{8 << 10, 100 << 10} {
				if err := link.Send(transport.Outbound{Frame: []byte(`"` + strings.Repeat("x", size) + `"`)}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		s.visit() // it reads nothing
		send(0)
		small, large := s.handler.unread.Small.Held(), s.handler.unread.Large.Held()
		if small == 0 || large == 0 {
			t.Fatalf("%d and %d bytes count as unread, want some", small, large)
		}
		v := s.visit()
		for n := range 4 {
			if n%2 == 0 {
				send(1)
			}
			if _, err := v.events.Next(); err != nil {
				t.Fatal(err)
			}
		}
		stays := func(after string) {
			t.Helper()
			synctest.Wait()
			if gotSmall, gotLarge := s.handler.unread.Small.Held(), s.handler.unread.Large.Held(); gotSmall != small || gotLarge != large {
				t.Errorf("after %s, %d and %d bytes count as unread, want %d and %d of the other session", after, gotSmall, gotLarge, small, large)
			}
		}
		go v.events.Next() // takes what frames the last one, and waits
		stays("all was read")
		v.leave()
		_, r := s.session(1)
		r.awaitLoss(t)
		stays("the end of the session")
	})
}

// A stuckWriter has no deadlines. It takes the endpoint, and does not return from the next write before a channel is closed.
type stuckWriter struct {
	*httptest.ResponseRecorder
	goesOn chan struct{}
}

func (w stuckWriter) Write(p []byte) (int, error) {
	if w.Body.Len() > 0 {
		<-w.goesOn
	}
	return w.ResponseRecorder.Write(p)
}

// A session gives back what it has not written when it ends. What its request writes after that counts for nothing.
//
// Guarantees: G-0034.8, G-0083.6
func TestARequestThatWritesAfterTheEndOfItsSession(t *testing.T) {
	virtually(t, HandlerOptions{Identify: func(*http.Request) string { return "ada" }}, func(t *testing.T, s *site) {
		var requests sync.WaitGroup
		goesOn := []chan struct{}{make(chan struct{}), make(chan struct{})}
		for n := range goesOn {
			requests.Go(func() {
				s.handler.ServeHTTP(stuckWriter{httptest.NewRecorder(), goesOn[n]}, httptest.NewRequest("GET", s.url, nil))
			})
			synctest.Wait()
			link, _ := s.session(n)
			for _, size := range []int{8 << 10, 100 << 10} {
				if err := link.Send(transport.Outbound{Frame: bytes.Repeat([]byte{'x'}, size)}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
		}
		small, large := s.handler.unread.Small.Held()/2, s.handler.unread.Large.Held()/2
		check := func(small, large int) {
			t.Helper()
			if gotSmall, gotLarge := s.handler.unread.Small.Held(), s.handler.unread.Large.Held(); gotSmall != small || gotLarge != large {
				t.Errorf("%d and %d bytes count as unread, want %d and %d", gotSmall, gotLarge, small, large)
			}
		}
		link, _ := s.session(0)
		if err := link.Close(0); err == nil {
			t.Error("the request has ended, want that it writes")
		}
		check(small, large) // of the other session
		close(goesOn[0])
		synctest.Wait()
		check(small, large)
		close(goesOn[1])
		link, _ = s.session(1)
		if err := link.Close(time.Minute); err != nil {
			t.Error(err)
		}
		requests.Wait()
		check(0, 0)
	})
}

// A deadlineWriter records the deadlines of reading that a handler sets.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (w *deadlineWriter) SetReadDeadline(at time.Time) error {
	w.set = append(w.set, at)
	return nil
}

// A POST leaves no deadline on its connection, which serves other sessions next, and neither does the end of its session.
//
// Guarantees: G-0034.7, G-0034.8
func TestAPostLeavesItsConnectionToOthers(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
		v := s.visit()
		link, _ := s.session(0)
		link.Grant(transport.Main, 1)
		w, post := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}, httptest.NewRequestWithContext(t.Context(), "POST", v.endpoint, strings.NewReader(ping))
		post.Header.Set("Content-Type", web.TypeJSON)
		s.handler.ServeHTTP(w, post)
		began := len(w.set)
		if err := link.Close(0); err != nil {
			t.Error(err)
		}
		if w.Code != 202 || began < 2 || !w.set[began-1].IsZero() || len(w.set) != began {
			t.Errorf("got %d, and the deadlines %v, of which the POST set %d, want 202, some, and none at its end", w.Code, w.set, began)
		}
	})
}

// Large messages are decoded in turn, and small ones do not wait for them.
//
// Guarantees: G-0085.3, G-0085.6
func TestLargeMessagesAreDecodedInTurn(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
		large, small := s.visit(), s.visit()
		for n := range 2 {
			link, _ := s.session(n)
			link.Grant(transport.Main, 1)
		}
		end, ended := make(chan struct{}), make(chan struct{})
		places := max(1, runtime.GOMAXPROCS(0)-1)
		for n := range places {
			go func() {
				_ = s.handler.turns.Do(t.Context(), share.Client{Identity: fmt.Sprint(n)}, turn.Small+1, nil, func() { <-end })
				ended <- struct{}{}
			}()
		}
		synctest.Wait()
		status := make(chan int, 1)
		go func() { status <- large.post(`{"jsonrpc":"2.0","method":"` + strings.Repeat("x", turn.Small) + `"}`) }()
		synctest.Wait()
		if got := small.post(ping); got != 202 || len(status) > 0 {
			t.Errorf("beside other work: a small message got %d, and %d large ones were answered, want 202 and none", got, len(status))
		}
		close(end)
		if got := <-status; got != 202 {
			t.Errorf("in its turn, a large message got %d, want 202", got)
		}
		for range places {
			<-ended
		}
	})
}
