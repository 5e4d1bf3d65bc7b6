package sse

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// Close waits no longer than its grace for a client that reads nothing, and reports
// what was not written as unsent.
//
// Guarantees: G-0034.8
func TestCloseWhileTheClientReadsNothing(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	s.visit()
	link, r := s.session(0)
	for tag := transport.Tag(1); ; tag++ {
		o := transport.Outbound{Tag: tag, Frame: fmt.Appendf(nil, `{"pad":"%s"}`, strings.Repeat("x", 1<<20))}
		if err := link.Send(o); err != nil {
			break
		}
	}
	if err := s.handler.Close(10 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if loss := r.awaitLoss(t); loss.Reason != transport.ErrClosed || len(loss.Unsent) == 0 {
		t.Errorf("got the reason %v and %d unsent", loss.Reason, len(loss.Unsent))
	}
	if got := s.do(s.ctx, "GET", s.url, "").StatusCode; got != 503 {
		t.Errorf("after Close: got %d", got)
	}
}

// Close does not wait for a body that does not arrive.
//
// Guarantees: G-0034.8
func TestCloseWhileABodyArrives(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	v := s.visit()
	body, more := io.Pipe()
	request, err := http.NewRequestWithContext(s.ctx, "POST", v.endpoint, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", web.TypeJSON)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if response, err := http.DefaultTransport.RoundTrip(request); err == nil {
			response.Body.Close()
		}
	}()
	if _, err := io.WriteString(more, ping); err != nil {
		t.Fatal(err)
	}
	link, _ := s.session(0)
	for len(link.(*serverLink).turn) == 0 {
		if runtime.Gosched(); s.ctx.Err() != nil {
			t.Fatal("the POST has not arrived in time")
		}
	}
	if err := s.handler.Close(time.Millisecond); err != nil {
		t.Error(err)
	}
	more.Close()
	testenv.Receive(t, done, "the POST has ended")
}

// Close names a request that does not end although its time is over, as under a ResponseWriter without deadlines.
//
// Guarantees: G-0034.8
func TestCloseNamesWhatHasNotEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
		began := time.Now()
		var closing sync.WaitGroup
		for _, grace := range []time.Duration{10 * time.Second, 0} { // the second one waits for the first
			closing.Go(func() {
				err := link.Close(grace)
				if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "an HTTP request has not ended") || took != 7*time.Second+web.ForcedWait {
					t.Errorf("Close(%v) returned %v after %v, want that a request has not ended, after 12 s", grace, err, took)
				}
			})
			synctest.Wait()
		}
		closing.Wait()
		more.Close()
		requests.Wait()
	})
}

// Close interrupts a body when nothing is left to write, at the latest when 70 % of its grace have passed. The message was
// certainly not executed: its session is gone.
//
// Guarantees: G-0034.8
func TestCloseInterruptsABody(t *testing.T) {
	for name, test := range map[string]struct {
		grace  time.Duration
		queued int
		want   time.Duration
	}{
		"without grace":       {0, 0, 0},
		"no grace and frames": {0, 3, 0},
		"nothing to write":    {10 * time.Second, 0, 0},
		"nobody reads":        {10 * time.Second, 3, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
				v := s.visit()
				link, _ := s.session(0)
				for range test.queued {
					if err := link.Send(transport.Outbound{Frame: make([]byte, 1<<20)}); err != nil {
						t.Fatal(err)
					}
				}
				p := v.begin(len(ping))
				io.WriteString(p, ping[1:])
				synctest.Wait()
				began := time.Now()
				if err := s.handler.Close(test.grace); err != nil || time.Since(began) != test.want {
					t.Errorf("Close returned %v after %v, want nil after %v", err, time.Since(began), test.want)
				}
				if status, took := p.await(began); status != 404 || took != test.want {
					t.Errorf("the POST got %d after %v, want 404 after %v", status, took, test.want)
				}
			})
		})
	}
}

// Several calls of Close end together, when the first grace of them is over.
//
// Guarantees: G-0034.8
func TestTheShortestGraceCounts(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
		s.do(s.ctx, "GET", s.url, "")
		link, r := s.session(0)
		for tag := range transport.Tag(3) {
			if err := link.Send(transport.Outbound{Tag: tag + 1, Frame: make([]byte, 1<<20)}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		var closing sync.WaitGroup
		for after, grace := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Second: 2 * time.Second, 1500 * time.Millisecond: 20 * time.Second} {
			closing.Go(func() {
				sleep(after)
				if err := link.Close(grace); err != nil || time.Since(began) != 2400*time.Millisecond {
					t.Errorf("Close(%v) after %v returned %v after %v, want nil after 2.4 s", grace, after, err, time.Since(began))
				}
			})
		}
		closing.Wait()
		if len(r.lost) != 1 || !slices.Equal(r.lost[0].Unsent, []transport.Tag{2, 3}) {
			t.Errorf("got %+v, want one loss and the two frames that have not begun", r.lost)
		}
	})
}

// A link says how it ended, whichever end came first.
//
// Guarantees: G-0034.8
func TestALinkSaysWhyItEnded(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(leave func(), link transport.Link)
		want error
	}{
		"the client leaves":                   {func(leave func(), _ transport.Link) { leave() }, transport.ErrPeerClosed},
		"Close":                               {func(_ func(), link transport.Link) { link.Close(time.Minute) }, transport.ErrClosed},
		"Close, and then the client has gone": {func(leave func(), link transport.Link) { link.Close(time.Minute); leave() }, transport.ErrClosed},
		"the client leaves, and then it is closed": {func(leave func(), link transport.Link) {
			leave()
			synctest.Wait()
			link.Close(0)
		}, transport.ErrPeerClosed},
	} {
		bubble(t, func(t *testing.T) {
			s := &site{t: t}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			go func() {
				synctest.Wait()
				link, _ := s.session(0)
				test.end(leave, link)
			}()
			began := time.Now()
			NewHandler(s, HandlerOptions{}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "http://localhost/sse", nil))
			if _, r := s.session(0); len(r.lost) != 1 || r.lost[0].Reason != test.want || time.Since(began) != 0 {
				t.Errorf("%s: got %+v after %v, want %v at once", name, r.lost, time.Since(began), test.want)
			}
		})
	}
}

// Close ends a stream that is quiet like any response. Its client sees no broken connection.
//
// Guarantees: G-0034.8
func TestCloseEndsTheResponse(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
		v := s.visit()
		link, _ := s.session(0)
		if err := link.Send(notification(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := v.events.Next(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := v.events.Next()
			ended <- err
		}()
		synctest.Wait()
		if err := link.Close(0); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != io.EOF {
			t.Errorf("the stream ended with %v, want %v", err, io.EOF)
		}
	})
}

// If Accept panics after Bind, the session is closed.
func TestAPanicOfTheAcceptorEndsTheSession(t *testing.T) {
	r := newRecorder()
	h := NewHandler(acceptFunc(func(link transport.Link) { link.Bind(r); panic(http.ErrAbortHandler) }), HandlerOptions{})
	defer func() {
		if recover() != http.ErrAbortHandler || len(r.lost) != 1 || r.lost[0].Reason != transport.ErrClosed || len(h.sessions) > 0 {
			t.Errorf("got the losses %+v and %d sessions, want %v and none", r.lost, len(h.sessions), transport.ErrClosed)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/sse", nil))
}

// If writing panics, the session ends all the same, as one whose client has gone.
func TestAPanicOfTheWriterEndsTheSession(t *testing.T) {
	s := &site{t: t}
	h := NewHandler(s, HandlerOptions{})
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("the panic does not reach net/http")
		}
		if _, r := s.session(0); len(r.lost) != 1 || r.lost[0].Reason != transport.ErrPeerClosed || len(h.sessions) > 0 {
			t.Errorf("got the losses %+v and %d sessions, want %v and none", r.lost, len(h.sessions), transport.ErrPeerClosed)
		}
	}()
	h.ServeHTTP(&writesRecorder{ResponseRecorder: httptest.NewRecorder(), panics: true}, httptest.NewRequest("GET", "http://localhost/sse", nil))
}

// Close closes all sessions side by side, each within the grace, and names each that has left something behind. A later
// Close of a link waits for the first, and says the same.
//
// Guarantees: G-0034.8
func TestCloseOfManySessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &site{t: t}
		s.handler = NewHandler(s, HandlerOptions{})
		release := make(chan struct{})
		var requests sync.WaitGroup
		for n := range 3 {
			requests.Go(func() {
				s.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/sse", nil))
			})
			synctest.Wait()
			link, _ := s.session(n)
			if n == 0 { // nothing of it is left behind
				continue
			}
			post := httptest.NewRequest("POST", "http://localhost/sse?sessionId="+link.(*serverLink).id, blockedBody(release))
			post.Header.Set("Content-Type", web.TypeJSON)
			requests.Go(func() { s.handler.ServeHTTP(httptest.NewRecorder(), post) })
		}
		synctest.Wait()
		began := time.Now()
		err := s.handler.Close(time.Second)
		all := 700*time.Millisecond + web.ForcedWait
		if took := time.Since(began); err == nil || strings.Count(err.Error(), "sse: an HTTP request has not ended") != 2 || took != all {
			t.Errorf("Close returned %v after %v, want two that have not ended, after %v", err, took, all)
		}
		for n, want := range []string{"", "sse: an HTTP request has not ended", "sse: an HTTP request has not ended"} {
			link, r := s.session(n)
			if err := link.Close(time.Hour); (err != nil) != (want != "") || err != nil && err.Error() != want {
				t.Errorf("session %d: Close again returned %v, want %q", n, err, want)
			}
			if len(r.lost) != 1 || r.lost[0].Reason != transport.ErrClosed {
				t.Errorf("session %d: got the losses %+v, want one", n, r.lost)
			}
		}
		if took := time.Since(began); took != all {
			t.Errorf("closing again takes until %v, want no time", took)
		}
		for _, method := range []string{"GET", "POST"} {
			w := httptest.NewRecorder()
			if s.handler.ServeHTTP(w, httptest.NewRequest(method, "http://localhost/sse", nil)); w.Code < 400 {
				t.Errorf("after Close: %s got %d", method, w.Code)
			}
		}
		close(release)
		requests.Wait()
		if len(s.handler.sessions) != 0 {
			t.Errorf("%d sessions are kept, want none", len(s.handler.sessions))
		}
	})
}

// A blockedBody has no bytes, and ends when the channel is closed.
type blockedBody chan struct{}

func (b blockedBody) Read([]byte) (int, error) { <-b; return 0, io.EOF }

// Shutdown takes as long as its context says, or ten seconds. The acceptor has four fifths of it, and the handler a twentieth
// for what it has to write.
//
// Guarantees: G-0034.10
func TestTheTimesOfShutdown(t *testing.T) {
	for name, test := range map[string]struct {
		limit  time.Duration // of the context; -1: none, less: it has passed
		stuck  bool          // the acceptor does not close
		work   time.Duration // the acceptor has until then
		after  time.Duration // Shutdown returns
		failed bool
	}{
		"no deadline":                   {-1, false, 8 * time.Second, 350 * time.Millisecond, false},
		"no deadline, a stuck acceptor": {-1, true, 8 * time.Second, 9*time.Second + 350*time.Millisecond, true},
		"a deadline":                    {20 * time.Second, false, 16 * time.Second, 700 * time.Millisecond, false},
		"a deadline, a stuck acceptor":  {20 * time.Second, true, 16 * time.Second, 18*time.Second + 700*time.Millisecond, true},
		"a deadline that has passed":    {-time.Hour, true, -time.Hour, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, HandlerOptions{}, func(t *testing.T, s *site) {
				s.do(s.ctx, "GET", s.url, "")
				link, r := s.session(0)
				if err := link.Send(transport.Outbound{Frame: make([]byte, 1<<20)}); err != nil {
					t.Fatal(err)
				}
				ctx := t.Context()
				if test.limit != -1 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.limit)
					defer cancel()
				}
				began, stuck := time.Now(), make(chan struct{})
				defer close(stuck)
				s.close = func(ctx context.Context) error {
					if deadline, _ := ctx.Deadline(); deadline.Sub(began) != test.work {
						t.Errorf("the acceptor has %v, want %v", deadline.Sub(began), test.work)
					}
					if test.stuck {
						<-stuck
					}
					return nil
				}
				err := s.handler.Shutdown(ctx, nil)
				if took := time.Since(began); took != test.after || (err != nil) != test.failed {
					t.Errorf("Shutdown returned %v after %v, want after %v", err, took, test.after)
				}
				synctest.Wait()
				if err != nil && !strings.HasPrefix(err.Error(), "sse: shut down: close an Acceptor") {
					t.Errorf("got %v", err)
				}
				if len(r.lost) != 1 {
					t.Errorf("got the losses %+v, want one", r.lost)
				}
			})
		})
	}
}
