package sse

import (
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

// An auditingSite is a site that is told of refusals.
type auditingSite struct {
	site
	deaf    bool
	refused []transport.Refusal
}

func (s *auditingSite) Audits() bool { return !s.deaf }

func (s *auditingSite) Refused(r transport.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, r)
}

// The acceptor is told of each request that is refused: by whom, why, since when, and which message it had.
func TestRefusalsAreAudited(t *testing.T) {
	s := &auditingSite{site: site{t: t, ctx: t.Context()}}
	s.handler = NewHandler(s, HandlerOptions{MaxBody: 100, Identify: func(r *http.Request) string { return r.Header.Get("X-User") }})
	s.url = serve(t, s.handler)
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
	for range maxLarge {
		s.handler.large <- struct{}{}
	}
	if got := v.post(ping + strings.Repeat(" ", web.SmallBody-len(ping))); got != 202 {
		t.Errorf("a body that is just small: got %d, want 202", got)
	}
	for name, body := range map[string]io.Reader{"large": strings.NewReader(large), "of unknown length": struct{ io.Reader }{strings.NewReader(ping)}} {
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
		<-s.handler.large // one place becomes free
		if got := <-answered; got != 202 {
			t.Errorf("with a place, a body %s: got %d, want 202", name, got)
		}
		cancel()
		s.handler.large <- struct{}{}
	}
	for range maxLarge {
		<-s.handler.large
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
		l.mu.Lock()
		defer l.mu.Unlock()
		l.uses += n
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
	link.Grant(transport.Main, 3)
	for _, body := range []string{`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, ping, `{"no": "message"}`} {
		if got := v.post(body); got != 202 {
			t.Errorf("%s: got %d, want 202", body, got)
		}
	}
	if len(r.frames) != 3 || r.frames[0].Message.Method != "initialize" || r.frames[1].Message.Method != "ping" || r.frames[2].Message != nil {
		t.Errorf("got %+v", r.frames)
	}
}

// Close names a request that does not end although its time is over, as under a ResponseWriter without deadlines.
//
// Guarantees: G-0034.8
func TestCloseNamesWhatHasNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, ctx: t.Context()}
		s.handler = NewHandler(s, HandlerOptions{})
		var requests sync.WaitGroup
		requests.Go(func() {
			s.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/sse", nil))
		})
		synctest.Wait()
		link, _ := s.session(0)
		body, more := io.Pipe()
		post := httptest.NewRequest("POST", "http://localhost/sse?sessionId="+link.(*serverLink).id, body)
		post.Header.Set("Content-Type", web.TypeJSON)
		requests.Go(func() { s.handler.ServeHTTP(httptest.NewRecorder(), post) })
		synctest.Wait()
		err := link.Close(time.Millisecond)
		more.Close()
		requests.Wait()
		if err == nil || !strings.Contains(err.Error(), "an HTTP request has not ended") {
			t.Errorf("got %v, want that a request has not ended", err)
		}
	})
}
