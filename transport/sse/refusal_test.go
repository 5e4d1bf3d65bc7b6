package sse

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A client that announces a body and never sends it gets its refusal, and soon afterwards
// loses its connection.
//
// Guarantees: G-0034.7
func TestRefusalEndsTheConnectionWithoutABody(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxBody: 100})
	v := s.visit()
	for name, test := range map[string]struct{ path, header, want string }{
		"a foreign host":   {"/sse", "Host: evil.example\r\nContent-Length: 9", "403"},
		"no session":       {"/sse", "Host: localhost\r\nTransfer-Encoding: chunked", "400"},
		"a body too large": {strings.TrimPrefix(v.endpoint, strings.TrimSuffix(s.url, "/sse")), "Host: localhost\r\nContent-Length: 101", "413"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/sse"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\n%s\r\nContent-Type: application/json\r\n\r\n", test.path, test.header)
			conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			said, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 "+test.want) {
				t.Errorf("got %.100q, %v, want status %s and the end of the connection", said, err, test.want)
			}
		})
	}
}

// The acceptor is told of each request that is refused: by whom, why, since when, and which message it had.
func TestRefusalsAreAudited(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxBody: 100, Identify: func(r *http.Request) string { return r.Header.Get("X-User") }})
	v := s.visit("X-User: ada")
	before := time.Now()
	for _, refused := range []struct {
		lines  []string
		body   string
		status int
	}{
		{[]string{"X-User: eve"}, ping, 403},
		{[]string{"X-User: ada"}, ping + strings.Repeat(" ", 100), 413},
		{[]string{"X-User: ada"}, "", 400},
	} {
		s.refused = nil
		if got := v.post(refused.body, refused.lines...); got != refused.status || len(s.refused) != 1 {
			t.Errorf("%v: got %d, and %d refusals, want %d and one", refused.lines, got, len(s.refused), refused.status)
			continue
		}
		told := s.refused[0]
		if told.Status != refused.status || told.Denied != (refused.status == 403) || told.Err == nil || told.Since.Before(before) || told.Message != nil {
			t.Errorf("got %+v, want status %d", told, refused.status)
		}
		if want := strings.TrimPrefix(refused.lines[0], "X-User: "); told.Origin.Identity != want {
			t.Errorf("it is of %q, want %q", told.Origin.Identity, want)
		}
	}
	link, _ := s.session(0)
	if err := link.Close(0); err != nil {
		t.Fatal(err)
	}
	s.refused = nil
	if got := v.post(ping, "X-User: ada"); got != 404 || len(s.refused) != 1 {
		t.Errorf("without a session: got %d, and %d refusals", got, len(s.refused))
	}
	s.deaf, s.refused = true, nil
	if got := v.post(ping, "X-User: ada"); got != 404 || len(s.refused) != 0 {
		t.Errorf("one that does not audit is told of %d refusals", len(s.refused))
	}
	w := httptest.NewRecorder()
	NewHandler((*site)(nil), HandlerOptions{}).ServeHTTP(w, httptest.NewRequest("PUT", "http://localhost/sse", nil))
	if w.Code != 405 {
		t.Errorf("without an acceptor, got %d, want 405", w.Code)
	}
}

// Who comes while the handler ends is refused, and the auditor is told who that was.
func TestTheAuditorIsToldWhoComesTooLate(t *testing.T) {
	virtually(t, HandlerOptions{Identify: func(r *http.Request) string { return r.Header.Get("X-User") }}, func(t *testing.T, s *site) {
		if err := s.handler.Close(0); err != nil {
			t.Fatal(err)
		}
		response := s.do(s.ctx, "GET", s.url, "", "X-User: ada")
		if response.StatusCode != 503 || len(s.refused) != 1 || s.refused[0].Origin.Identity != "ada" || s.refused[0].Err.Error() != "shutting down" {
			t.Errorf("got %d, and the auditor was told %+v", response.StatusCode, s.refused)
		}
	})
}

// Each kind of refusal has its status and its text, which the acceptor is told, with the sender where one was established, the
// message where one was read, and the time at which the request came in.
func TestWhatTheAuditorIsTold(t *testing.T) {
	large := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"pad":"` + strings.Repeat("x", web.MaxInitialize) + `"}}`
	identify := func(r *http.Request) string {
		user := r.Header.Get("X-User")
		if user == "late" {
			sleep(time.Second)
		}
		return user
	}
	virtually(t, HandlerOptions{MaxBody: 100_000, MaxSessions: 1, Identify: identify}, func(t *testing.T, s *site) {
		v := s.visit("X-User: ada")
		link, _ := s.session(0)
		link.Grant(transport.Main, 1)
		for name, test := range map[string]struct {
			method, url, line, body string
			status                  int
			identity, message, text string
		}{
			"another origin":            {"POST", v.endpoint, "Origin: http://evil.example", ping, 403, "", "", "origin not allowed"},
			"another method":            {"PUT", v.endpoint, "X-User: ada", ping, 405, "", "", "method not allowed"},
			"another type":              {"POST", v.endpoint, "Content-Type: text/plain", ping, 415, "", "", "Content-Type must be application/json"},
			"a body of a GET":           {"GET", s.url, "X-User: ada", ping, 400, "", "", "a GET has no body"},
			"a second session":          {"GET", s.url, "X-User: bob", "", 503, "bob", "", "no more sessions are possible for this client now"},
			"no session":                {"POST", s.url, "X-User: bob", ping, 400, "bob", "", "sessionId is missing: GET names the address to POST to"},
			"another session":           {"POST", s.url + "?sessionId=1", "X-User: bob", ping, 404, "bob", "", "session not found"},
			"another identity":          {"POST", v.endpoint, "X-User: bob", ping, 403, "bob", "", "the session belongs to another identity"},
			"after a slow login":        {"POST", v.endpoint, "X-User: late", ping, 403, "late", "", "the session belongs to another identity"},
			"too large":                 {"POST", v.endpoint, "X-User: ada", strings.Repeat(" ", 100_001), 413, "ada", "", "the body is above the limit of 100000 bytes"},
			"empty":                     {"POST", v.endpoint, "X-User: ada", "", 400, "ada", "", "the body is empty"},
			"too large to be the first": {"POST", v.endpoint, "X-User: ada", large, 413, "ada", "initialize", "initialize is above the limit of 65536 bytes"},
		} {
			s.refused = nil
			began := time.Now()
			response := s.do(s.ctx, test.method, test.url, test.body, test.line)
			text, _ := io.ReadAll(response.Body)
			if got := strings.TrimSpace(string(text)); response.StatusCode != test.status || got != test.text || len(s.refused) != 1 {
				t.Errorf("%s: got %d %q and %d refusals, want %d %q and one", name, response.StatusCode, got, len(s.refused), test.status, test.text)
				continue
			}
			told, method := s.refused[0], ""
			if told.Message != nil {
				method = told.Message.Method
			}
			if told.Status != test.status || told.Denied != (test.status == 403) || told.Err.Error() != test.text || !told.Since.Equal(began) || told.Origin.Identity != test.identity || method != test.message {
				t.Errorf("%s: the auditor is told %+v of %q, with the message %q", name, told, told.Origin.Identity, method)
			}
			if allow := response.Header.Get("Allow"); (allow == "GET, POST") != (test.status == 405) {
				t.Errorf("%s: got Allow: %q", name, allow)
			}
		}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequest("GET", s.url, struct{ io.Reader }{strings.NewReader(ping)}))
		if got := strings.TrimSpace(w.Body.String()); w.Code != 400 || got != "a GET has no body" {
			t.Errorf("a GET whose body has no known length: got %d %q, want 400", w.Code, got)
		}
		s.refused = nil
		began := time.Now()
		p := v.begin(9)
		p.await(began)
		if len(s.refused) != 1 || s.refused[0].Status != 403 { // it has no X-User
			t.Errorf("got %+v", s.refused)
		}
	})
}

// A refused request has a second for the rest of its body. What it sends in that time does no harm.
//
// Guarantees: G-0034.7
func TestTheBodyOfARefusedRequest(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
		v := s.visit()
		v.endpoint += "x"
		for _, length := range []int{100, -1} {
			began := time.Now()
			p := v.begin(length)
			a := <-p.answered
			if a.status != 404 || a.at.Sub(began) > time.Second {
				t.Errorf("a body of %d: got %d after %v, want 404 within a second", length, a.status, a.at.Sub(began))
			}
		}
		conn := s.conns.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "POST /sse HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n", web.TypeJSON)
		began := time.Now()
		if _, err := io.Copy(io.Discard, conn); err != nil || time.Since(began) != time.Second {
			t.Errorf("the connection ended with %v after %v, want after a second", err, time.Since(began))
		}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost/sse", strings.NewReader(ping)))
		if got := w.Header().Get("Connection"); got != "close" {
			t.Errorf("over HTTP/1: got Connection: %q, want close", got)
		}
		w = httptest.NewRecorder()
		r := httptest.NewRequest("POST", "http://localhost/sse", strings.NewReader(ping))
		r.ProtoMajor = 2
		if s.handler.ServeHTTP(w, r); w.Header().Get("Connection") != "" {
			t.Errorf("over HTTP/2: got Connection: %q, want none", w.Header().Get("Connection"))
		}
		w = httptest.NewRecorder()
		if s.handler.ServeHTTP(w, httptest.NewRequest("PUT", "http://localhost/sse", nil)); w.Header().Get("Connection") != "" {
			t.Errorf("without a body: got Connection: %q, want none", w.Header().Get("Connection"))
		}
	})
}

// A body takes one of the places for large ones exactly if it may be large, and gives it back.
//
// Guarantees: G-0034.7
func TestPlacesOfLargeBodies(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	v := s.visit()
	link, _ := s.session(0)
	link.Grant(transport.Main, 2*maxLarge)
	large := ping + strings.Repeat(" ", web.SmallBody)
	for n := range maxLarge + 1 {
		if got := v.post(large); got != 202 {
			t.Fatalf("large body %d: got %d, want 202", n+1, got)
		}
	}
	give := fillLarge(t, s.handler)
	if got := v.post(ping + strings.Repeat(" ", web.SmallBody-len(ping))); got != 202 {
		t.Errorf("a body that is just small: got %d, want 202", got)
	}
	for name, body := range map[string]io.Reader{"large": strings.NewReader(large), "of unknown length": struct{ io.Reader }{strings.NewReader(large)}} {
		ctx, cancel := context.WithCancel(s.ctx)
		request, err := http.NewRequestWithContext(ctx, "POST", v.endpoint, body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", web.TypeJSON)
		answered := make(chan int, 1)
		go func() {
			response, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				answered <- 0
				return
			}
			response.Body.Close()
			answered <- response.StatusCode
		}()
		for len(link.(*serverLink).turn) == 0 {
			if runtime.Gosched(); s.ctx.Err() != nil {
				t.Fatal("the POST has not arrived in time")
			}
		}
		select {
		case got := <-answered:
			t.Errorf("without a place, a body %s: got %d, want that it waits", name, got)
		default:
		}
		give()
		if got := testenv.Receive(t, answered, "the response to the POST"); got != 202 {
			t.Errorf("with a place, a body %s: got %d, want 202", name, got)
		}
		cancel()
		if !s.handler.large.Take(share.Client{Identity: name}, 1) {
			t.Fatal("the place was not given back")
		}
	}
}

// fillLarge takes all places for large bodies, as other clients do, and returns a function that gives one back.
func fillLarge(t *testing.T, h *Handler) (give func()) {
	t.Helper()
	var held []share.Client
	for h.large.Held() < maxLarge {
		of := share.Client{Identity: fmt.Sprint("other ", len(held))}
		if !h.large.Take(of, 1) {
			t.Fatal("a place is free and was not given")
		}
		held = append(held, of)
	}
	return func() {
		h.large.Give(held[0], 1)
		held = held[1:]
	}
}

// Clients share sessions and places for large bodies: one that takes all it can leaves room for another.
//
// Guarantees: G-0034.7, G-0083.6
func TestOneClientLeavesSessionsAndPlaces(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 100, Identify: func(r *http.Request) string { return r.Header.Get("X-User") }})
	open := func(user string) int {
		r, err := http.NewRequestWithContext(s.ctx, "GET", s.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-User", user)
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response.StatusCode
	}
	n := 0
	for open("greedy") == 200 {
		n++
	}
	if got := open("other"); n != 38 || got != 200 {
		t.Errorf("a greedy client has %d of 100 sessions, and another got %d, want 38 and 200", n, got)
	}
	greedy := share.Client{Identity: "greedy"}
	for n = 0; s.handler.large.Take(greedy, 1); n++ {
	}
	if n != maxLarge/2 || !s.handler.large.Take(share.Client{Identity: "other"}, 1) {
		t.Errorf("a greedy client has %d of %d places for large bodies, want half", n, maxLarge)
	}
}

// Clients behind a trusted proxy share sessions as if there were no proxy. Otherwise they are one client, and the log says so.
//
// Guarantees: G-0086.1, G-0086.3
func TestClientsBehindAProxy(t *testing.T) {
	for trusted, want := range map[string]int{"127.0.0.0/8": 200, "10.0.0.0/8": 503} {
		var log bytes.Buffer
		s := newSite(t, HandlerOptions{MaxSessions: 100, TrustedProxies: []netip.Prefix{netip.MustParsePrefix(trusted)}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		open := func(address string) int {
			r, err := http.NewRequestWithContext(s.ctx, "GET", s.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Forwarded-For", address)
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { response.Body.Close() })
			return response.StatusCode
		}
		n := 0
		for open("192.0.2.1") == 200 {
			n++
		}
		if got := open("192.0.2.2"); n != 38 || got != want {
			t.Errorf("%s is trusted: a greedy client has %d of 100 sessions, and another got %d, want 38 and %d", trusted, n, got, want)
		}
		if warned := strings.Count(log.String(), "set HandlerOptions.TrustedProxies"); (warned == 1) == (want == 200) {
			t.Errorf("%s is trusted: got %d warnings", trusted, warned)
		}
	}
}

// No more than a fixed number of POSTs of a session wait for each other.
//
// Guarantees: G-0034.7
func TestWaitingMessagesAreBounded(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	v := s.visit()
	link, _ := s.session(0)
	link.Grant(transport.Main, 1)
	l := link.(*serverLink)
	setUses := func(n int) {
		testenv.Within(t, "the lock of the link", func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.uses += n
		})
	}
	setUses(maxWaiting) // beside the GET
	if got := v.post(ping); got != 503 {
		t.Errorf("behind %d others: got %d, want 503", maxWaiting, got)
	}
	setUses(-1)
	if got := v.post(ping); got != 202 {
		t.Errorf("behind %d others: got %d, want 202", maxWaiting-1, got)
	}
	setUses(1 - maxWaiting)
}

// A message arrives decoded; initialize is a message like any other until it is too large.
func TestMessagesArriveDecoded(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	v := s.visit()
	link, r := s.session(0)
	link.Grant(transport.Main, 4)
	first := `{"jsonrpc":"2.0","id":1,"method":"initialize"}`
	for _, body := range []string{first, ping, `{"no": "message"}`, first + strings.Repeat(" ", web.MaxInitialize-len(first))} {
		if got := v.post(body); got != 202 {
			t.Errorf("%.50s: got %d, want 202", body, got)
		}
	}
	if len(r.frames) != 4 || r.frames[0].Message.Method != "initialize" || r.frames[1].Message.Method != "ping" || r.frames[2].Message != nil {
		t.Errorf("got %+v", r.frames)
	}
}

// A page of another site cannot open a session with an image or a link, for which browsers send no Origin.
//
// Guarantees: G-0034.6
func TestImagesOfOtherSitesOpenNoSession(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for site, want := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200, "": 200} {
		ctx, cancel := context.WithCancel(s.ctx)
		r, err := http.NewRequestWithContext(ctx, "GET", s.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
			r.Header.Set("Sec-Fetch-Mode", "no-cors")
		}
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != want {
			t.Errorf("Sec-Fetch-Site %q: got %d, want %d", site, response.StatusCode, want)
		}
		response.Body.Close()
		cancel()
	}
}
