package sse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A body has thirty seconds, and one more for each 64 KiB of it that have arrived. A body that is late is
// refused, and takes no place from those after it.
//
// Guarantees: G-0034.7
func TestABodyArrivesInTime(t *testing.T) {
	const piece = 64 << 10
	type part struct {
		at    time.Duration // since the request began
		bytes int
	}
	for name, test := range map[string]struct {
		length int // -1: unknown
		parts  []part
		status int
		after  time.Duration
	}{
		"at once":                           {len(ping), []part{{0, len(ping)}}, 202, 0},
		"nothing":                           {len(ping), nil, 408, 30 * time.Second},
		"the last moment":                   {len(ping), []part{{29 * time.Second, len(ping)}}, 202, 29 * time.Second},
		"a byte buys no time":               {len(ping), []part{{29 * time.Second, 1}}, 408, 30 * time.Second},
		"just under a piece buys no time":   {2 * piece, []part{{time.Second, piece - 1}}, 408, 30 * time.Second},
		"a piece buys a second":             {2 * piece, []part{{time.Second, piece}}, 408, 31 * time.Second},
		"three pieces buy three":            {4 * piece, []part{{time.Second, 3 * piece}, {32 * time.Second, 1}}, 408, 33 * time.Second},
		"all of it while there is time":     {2 * piece, []part{{time.Second, piece}, {30500 * time.Millisecond, piece}}, 202, 30500 * time.Millisecond},
		"unknown length":                    {-1, []part{{29 * time.Second, 0}}, 408, 30 * time.Second},
		"as long as a body may be":          {4 << 20, []part{{0, 4 << 20}}, 202, 0},
		"longer than that, before it comes": {4<<20 + 1, nil, 413, 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
				v := s.visit()
				link, r := s.session(0)
				link.Grant(transport.Main, 2)
				s.handler.large.Take(web.ClientOf("", "pipe"), 1) // another body of the same client
				began := time.Now()
				p := v.begin(test.length)
				sent := 0
				for _, part := range test.parts {
					sleep(time.Until(began.Add(part.at)))
					text := ping + strings.Repeat(" ", 4<<20)
					if _, err := io.WriteString(p, text[sent:sent+part.bytes]); err != nil {
						t.Fatalf("after %v: %v", part.at, err)
					}
					sent += part.bytes
				}
				if status, took := p.await(began); status != test.status || took != test.after {
					t.Errorf("got %d after %v, want %d after %v", status, took, test.status, test.after)
				}
				if got := v.post(ping); got != 202 || s.handler.large.Held() != 1 {
					t.Errorf("the next one: got %d, and %d places for large bodies are taken, want 202 and that of the other body", got, s.handler.large.Held())
				}
				if accepted := test.status == 202; accepted != (len(r.frames) == 2) {
					t.Errorf("after %d and 202 got %d frames", test.status, len(r.frames))
				}
			})
		})
	}
}

// The time for a body ends with it: a message that has arrived waits for credit as long as it must.
//
// Guarantees: G-0034.5
func TestAMessageMayWaitLongerForCreditThanItsBodyMayTake(t *testing.T) {
	virtually(t, HandlerOptions{KeepAlive: 2 * time.Hour}, func(t *testing.T, s *site) {
		v := s.visit()
		link, r := s.session(0)
		began := time.Now()
		p := v.begin(len(ping))
		io.WriteString(p, ping)
		sleep(time.Hour)
		if synctest.Wait(); len(r.frames) > 0 {
			t.Errorf("without credit got %d frames", len(r.frames))
		}
		link.Grant(transport.Main, 1)
		if status, took := p.await(began); status != 202 || took != time.Hour {
			t.Errorf("got %d after %v, want 202 after an hour", status, took)
		}
	})
}

// A body that may be large waits for a place as long as a body may take, and no longer than its client and its session
// are there. One that waits holds the turn of its session, and gives it back.
//
// Guarantees: G-0034.7
func TestALargeBodyWaitsForAPlace(t *testing.T) {
	for name, test := range map[string]struct {
		then  func(give func(), p slowPost, v *testClient)
		want  int // 0: there is no response
		after time.Duration
		text  string
	}{
		"no place becomes free": {func(func(), slowPost, *testClient) {}, 503, 30 * time.Second, "too much is waiting to be served"},
		"a place becomes free": {func(give func(), p slowPost, _ *testClient) {
			give()
			go io.WriteString(p, " ")
		}, 202, 10 * time.Second, ""},
		"one becomes free late": { // the wait does not count as time that the body took
			func(give func(), p slowPost, _ *testClient) {
				sleep(15 * time.Second)
				give()
				sleep(15 * time.Second)
				go io.WriteString(p, " ")
			}, 202, 40 * time.Second, "",
		},
		"the session ends":   {func(_ func(), _ slowPost, v *testClient) { v.leave() }, 404, 10 * time.Second, "session not found"},
		"the client is gone": {func(_ func(), p slowPost, _ *testClient) { p.Close() }, 0, 10 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
				v := s.visit()
				link, r := s.session(0)
				link.Grant(transport.Main, 2)
				if test.want != 202 { // a client that has a place gets no other one yet
					s.handler.large.Take(web.ClientOf("", "pipe"), 1) // another body of the same client, whose place nobody else gives back
				}
				give := fillLarge(t, s.handler)
				began := time.Now()
				p := v.begin(web.SmallBody + 1)
				io.WriteString(p, ping+strings.Repeat(" ", web.SmallBody-len(ping)))
				sleep(10 * time.Second)
				test.then(give, p, v)
				a := <-p.answered
				if took := a.at.Sub(began); a.status != test.want || took != test.after || a.text != test.text {
					t.Errorf("got %d %q after %v, want %d %q after %v", a.status, a.text, took, test.want, test.text, test.after)
				}
				p.Close()
				synctest.Wait()
				if taken, want := s.handler.large.Held(), maxLarge; test.want == 202 && taken != want-1 || test.want != 202 && taken != want {
					t.Errorf("%d of %d places are taken", taken, want)
				}
				if test.want == 404 {
					if loss := r.awaitLoss(t); !errors.Is(loss.Reason, transport.ErrPeerClosed) {
						t.Errorf("the session ended with %v", loss.Reason)
					}
				} else if got := v.post(ping); got != 202 {
					t.Errorf("a small body after it: got %d, want 202", got)
				}
				if test.want != 202 { // the place that becomes free now is for others
					s.handler.large.Give(web.ClientOf("", "pipe"), 1)
				}
				if taken := s.handler.large.Held(); taken != maxLarge-1 {
					t.Errorf("at the end %d of %d places are taken, want all but one", taken, maxLarge)
				}
			})
		})
	}
}

// A body that is not large takes no place, also if it is as long as such a body may be, or if nobody knows its length before its end.
//
// Guarantees: G-0034.7
func TestASmallBodyNeedsNoPlace(t *testing.T) {
	chunked := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(text), text) }
	for name, test := range map[string]struct {
		length int // -1: unknown
		text   string
		after  time.Duration
		want   int
	}{
		"as long as it may be": {web.SmallBody, ping + strings.Repeat(" ", web.SmallBody-len(ping)), 0, 202},
		"of unknown length":    {-1, chunked(ping + strings.Repeat(" ", 2000)), 0, 202},
		"a large one":          {-1, chunked(ping + strings.Repeat(" ", web.SmallBody)), web.BodyPatience, 503},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
				v := s.visit()
				link, _ := s.session(0)
				link.Grant(transport.Main, 1)
				fillLarge(t, s.handler)
				began := time.Now()
				p := v.begin(test.length)
				go io.WriteString(p, test.text)
				if status, took := p.await(began); status != test.want || took != test.after {
					t.Errorf("got %d after %v, want %d after %v", status, took, test.want, test.after)
				}
			})
		})
	}
	t.Run("its end comes after it", func(t *testing.T) { // and not with its last bytes, as in HTTP/1
		virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
			v := s.visit()
			link, _ := s.session(0)
			link.Grant(transport.Main, 1)
			fillLarge(t, s.handler)
			w, post := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", v.endpoint, strings.NewReader(ping+strings.Repeat(" ", web.SmallBody-len(ping))))
			post.Header.Set("Content-Type", web.TypeJSON)
			if s.handler.ServeHTTP(w, post); w.Code != 202 {
				t.Errorf("got %d %s, want 202", w.Code, w.Body)
			}
		})
	})
}

// A request whose session ends while it waits for credit gives back its room. One whose client gives up while it waits for a place
// is refused.
//
// Guarantees: G-0034.7, G-0083.6
func TestARequestThatIsNotDeliveredTakesNothing(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
		v := s.visit()
		_, r := s.session(0)
		status := make(chan int, 1)
		for _, body := range []string{`{"jsonrpc":"2.0","id":1,"method":"a"}`, `[{"jsonrpc":"2.0","id":1,"method":"a"}]`} { // a batch may contain a request
			ctx, giveUp := context.WithCancel(t.Context())
			post := httptest.NewRequestWithContext(ctx, "POST", v.endpoint, strings.NewReader(body))
			post.Header.Set("Content-Type", web.TypeJSON)
			go func() {
				w := httptest.NewRecorder()
				s.handler.ServeHTTP(w, post)
				status <- w.Code
			}()
			synctest.Wait()
			if s.handler.served.Held() == 0 {
				t.Errorf("%s waits for credit, and takes no room", body)
			}
			if giveUp(); <-status != 404 || s.handler.served.Held() > 0 {
				t.Errorf("%s was not delivered, and %d bytes are taken, want none", body, s.handler.served.Held())
			}
		}
		go func() { status <- v.post(`{"jsonrpc":"2.0","id":1,"method":"a"}`) }()
		synctest.Wait()
		v.leave()
		r.awaitLoss(t)
		if got := <-status; got != 404 || s.handler.served.Held() > 0 {
			t.Errorf("got %d, and %d bytes are taken, want 404 and none", got, s.handler.served.Held())
		}
		v = s.visit()
		fillLarge(t, s.handler)
		ctx, giveUp := context.WithCancel(t.Context())
		w, answered := httptest.NewRecorder(), make(chan struct{})
		post := httptest.NewRequestWithContext(ctx, "POST", v.endpoint, strings.NewReader(strings.Repeat(" ", web.SmallBody+1)))
		post.Header.Set("Content-Type", web.TypeJSON)
		go func() {
			defer close(answered)
			s.handler.ServeHTTP(w, post)
		}()
		synctest.Wait()
		giveUp()
		if <-answered; w.Code != 400 || s.handler.large.Held() != maxLarge {
			t.Errorf("got %d %s, and %d places are taken, want 400 and all of the others", w.Code, w.Body, s.handler.large.Held())
		}
	})
}

// A pipeWriter is the ResponseWriter of a request whose body comes from a pipe.
type pipeWriter struct {
	*httptest.ResponseRecorder
	body net.Conn
}

func (w pipeWriter) SetReadDeadline(at time.Time) error { return w.body.SetReadDeadline(at) }

// A body that begins to be read when its session was interrupted already is not read.
//
// Guarantees: G-0034.8
func TestABodyAfterTheInterruptionIsNotRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := NewHandler(acceptFunc(func(transport.Link) {}), HandlerOptions{})
		body, far := net.Pipe()
		defer far.Close()
		w := pipeWriter{httptest.NewRecorder(), body}
		r := httptest.NewRequest(http.MethodPost, "/sse", body)
		r.ContentLength = 10
		l := newServerLink(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/sse", nil), "", share.Client{}, newUnread(), 1<<20)
		l.Bind(newRecorder())
		if refused := l.enter(t.Context()); refused != nil {
			t.Fatal(refused)
		}
		l.leave() // the GET request
		ended := make(chan error, 1)
		go func() { ended <- l.Close(0) }()
		synctest.Wait()
		began := time.Now()
		if _, _, refused := h.read(w, r, l, share.Client{}); refused == nil || refused.status != 404 || time.Since(began) != 0 {
			t.Errorf("got %+v after %v, want 404 at once", refused, time.Since(began))
		}
		l.next()
		l.leave()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A failingBody fails after its text.
type failingBody struct {
	io.Reader
	err error
}

func (b failingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = b.err
	}
	return n, err
}

// A body that ends early is refused, whatever was in it.
//
// Guarantees: G-0034.7
func TestABodyThatEndsEarlyIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &site{t: t}
		s.handler = NewHandler(s, HandlerOptions{})
		ctx, leave := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() {
			defer close(served)
			s.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "http://localhost/sse", nil))
		}()
		synctest.Wait()
		link, r := s.session(0)
		link.Grant(transport.Main, 9)
		for err, want := range map[error]int{io.ErrUnexpectedEOF: 400, errors.New("reset"): 400, io.EOF: 202} {
			w := httptest.NewRecorder()
			post := httptest.NewRequest("POST", "http://localhost/sse?sessionId="+link.(*serverLink).id, failingBody{strings.NewReader(ping), err})
			post.Header.Set("Content-Type", web.TypeJSON)
			if s.handler.ServeHTTP(w, post); w.Code != want {
				t.Errorf("after %v: got %d %s, want %d", err, w.Code, w.Body, want)
			}
		}
		if len(r.frames) != 1 {
			t.Errorf("got %d frames, want the one that has arrived as a whole", len(r.frames))
		}
		leave()
		<-served
	})
}

// Requests that are served share what they take, in all sessions of a client, until the receiver releases it. Messages that are
// no requests take nothing.
//
// Guarantees: G-0083.6
func TestServedRequestsAreShared(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxBody: 2 * mostServed, Identify: func(r *http.Request) string { return r.Header.Get("X-User") }})
	large := `{"jsonrpc":"2.0","id":1,"method":"a","params":{"values":[` + strings.Repeat("0,", 200_000) + `0]}}` // it counts 8 MB
	var first *recorder
	greedy := func(session int) (status int) {
		v := s.visit("X-User: greedy")
		link, of := s.session(session)
		link.Grant(transport.Main, 2)
		if first == nil {
			first = of
		}
		if status := v.post(strings.Replace(large, `"id":1,`, "", 1), "X-User: greedy"); status != 202 {
			t.Errorf("a notification: got %d", status)
		}
		return v.post(large, "X-User: greedy")
	}
	sessions := 0
	for ; greedy(sessions) == 202; sessions++ {
	}
	if sessions < 2 || sessions > 4 {
		t.Errorf("%d of the requests of one client are served, want 38 %% of 64 MiB", sessions)
	}
	first.note(func() {
		for range 2 {
			first.frames[1].Room.Release() // a second time it does nothing
		}
	})
	if got := greedy(sessions + 1); got != 202 {
		t.Errorf("after one was released: got %d, want 202", got)
	}
	if got := greedy(sessions + 2); got != 503 {
		t.Errorf("after that: got %d, want 503", got)
	}
	v := s.visit("X-User: greedy")
	link, _ := s.session(sessions + 3)
	link.Grant(transport.Main, 1)
	if got := v.post("["+large+strings.Repeat(" ", mostServed)+"]", "X-User: greedy"); got != 503 {
		t.Errorf("a batch: got %d, want 503", got)
	}
	v = s.visit("X-User: other")
	link, _ = s.session(sessions + 4)
	if link.Grant(transport.Main, 1); v.post(large, "X-User: other") != 202 {
		t.Error("another client finds no room")
	}
}
