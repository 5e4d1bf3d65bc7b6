package streamable

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// Close returns after its grace even if the server does not answer.
//
// Guarantees: G-0022.15
func TestCloseIsBoundedThoughNothingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: silentTripper{}}})
		r.link.(*clientLink).remote.session = session{begun: true, id: "s"}
		r.call(1, 1)
		r.send(2, notification("n"))
		r.send(3, notification("n"))
		r.send(4, request(4, "ping", ""))
		begun := time.Now()
		r.link.Close(5 * time.Second)
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("Close took %v, want %v", took, 5*time.Second)
		}
		loss := r.loss()
		if loss.Reason != transport.ErrClosed || !slices.Equal(loss.Unsent, []transport.Tag{3, 4}) || len(r.failed) > 0 {
			t.Errorf("lost %+v, failed %+v", loss, r.failed)
		}
	})
}

// A Close with a shorter grace shortens an earlier Close.
func TestAShorterGraceShortensAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: silentTripper{}}})
		r.send(1, notification("n"))
		r.send(2, notification("n"))
		begun := time.Now()
		var closing sync.WaitGroup
		closing.Go(func() { r.link.Close(time.Hour) })
		closing.Go(func() { r.link.Close(time.Second) })
		closing.Wait()
		if took := time.Since(begun); took != 700*time.Millisecond {
			t.Errorf("Close took %v, want %v", took, 700*time.Millisecond)
		}
		if err := r.link.Send(outbound(0, initialized)); err != transport.ErrClosed {
			t.Errorf("Send after Close: %v", err)
		}
	})
}

// Close sends queued messages and then ends the session with DELETE.
//
// Guarantees: G-0022.15
func TestCloseFlushesAndDeletesTheSession(t *testing.T) {
	s := &legacyServer{session: "s-1"}
	r := handshake(t, s)
	for range 20 {
		r.send(1, notification("n"))
	}
	if err := r.link.Close(hangGuard); err != nil {
		t.Fatal(err)
	}
	got := s.log()
	notified := 0
	for _, line := range got {
		if line == "POST n s-1 2025-11-25" {
			notified++
		}
	}
	if notified != 20 || got[len(got)-1] != "DELETE - s-1 2025-11-25" || len(r.loss().Unsent) > 0 {
		t.Fatalf("the server saw %q, unsent %v, want notified == 20, got[len(got)-1] == %q and len(r.loss().Unsent) == 0", got, r.loss().Unsent, "DELETE - s-1 2025-11-25")
	}
}

// Close without a grace sends no DELETE, however soon the goroutines of the link have returned.
func TestCloseWithoutGraceSendsNoDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
				t.Errorf("the server got %s, want nothing", req.Method)
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})}})
			r.link.(*clientLink).remote.session = session{begun: true, id: "s-1", ids: []string{"s-1"}}
			r.link.Close(0)
		}
	})
}

// The loss does not list a request that its sender has ended, whether it waited behind another message or has ended while the link waited for
// what takes longer to return.
//
// Guarantees: G-0022.15
func TestTheLossListsNoRequestThatWasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
			if body, _ := io.ReadAll(req.Body); string(body) == notification("deaf") {
				<-release
				return nil, io.ErrUnexpectedEOF
			}
			httptrace.ContextClientTrace(req.Context()).GetConn("host") // there is no connection
			<-req.Context().Done()
			return nil, req.Context().Err()
		})}})
		r.call(1, 1)
		cancelled := r.call(2, 1)
		r.send(0, notification("deaf"))
		r.call(3, 1)
		r.link.End(r.call(4, 1))
		synctest.Wait() // until all of them are on their way, or wait
		go r.link.Close(0)
		synctest.Wait()
		r.link.End(cancelled)
		close(release)
		if loss := r.loss(); !slices.Equal(loss.Unsent, []transport.Tag{1, 3}) || len(r.failed) > 0 {
			t.Errorf("lost %+v, and failed %+v; want the requests 1 and 3 unsent", loss, r.failed)
		}
	})
}

// If a link was lost before Bind, Bind reports the loss.
func TestLossBeforeBindIsReportedAtBind(t *testing.T) {
	link, err := (&Client{URL: "http://host/"}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	link.Close(hangGuard)
	r := &testReceiver{t: t, calls: make(chan struct{}, 1), changed: make(chan struct{})}
	link.Bind(r)
	if loss := r.loss(); loss.Reason != transport.ErrClosed {
		t.Fatalf("got %+v, want %v", loss, transport.ErrClosed)
	}
}

// Close posts what is queued for 70 % of its grace, cancels then what is being posted, and has the rest of the grace to delete the
// session. It names what takes more than five seconds to return after it was cancelled.
//
// Guarantees: G-0022.15
func TestTheGraceOfAClient(t *testing.T) {
	for name, test := range map[string]struct {
		post, remove time.Duration // how long the server takes for a POST, and for a DELETE
		deaf         bool          // a POST does not return when it is cancelled
		grace        time.Duration
		after        time.Duration // which Close takes
		removed      time.Duration // when the DELETE was sent; -1: never
		unsent       []transport.Tag
		left         string
	}{
		"all in time":          {time.Second, 0, false, 10 * time.Second, 3 * time.Second, 3 * time.Second, nil, ""},
		"some in time":         {4 * time.Second, 0, false, 10 * time.Second, 7 * time.Second, 7 * time.Second, []transport.Tag{3}, ""},
		"none in time":         {time.Hour, 2 * time.Second, false, 10 * time.Second, 9 * time.Second, 7 * time.Second, []transport.Tag{2, 3}, ""},
		"nor is the session":   {time.Hour, time.Hour, false, 10 * time.Second, 10 * time.Second, 7 * time.Second, []transport.Tag{2, 3}, ""},
		"just not the session": {time.Second, time.Hour, false, 10 * time.Second, 10 * time.Second, 3 * time.Second, nil, ""},
		"no grace":             {time.Hour, 0, false, 0, 0, -1, []transport.Tag{2, 3}, ""},
		"late":                 {time.Hour, 0, true, time.Second, 5700 * time.Millisecond, 700 * time.Millisecond, []transport.Tag{2, 3}, "streamable: an HTTP request has not returned"},
		"just not late":        {5 * time.Second, 0, true, time.Second, 5 * time.Second, 700 * time.Millisecond, []transport.Tag{2, 3}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				removed := make(chan time.Time, 1)
				link, err := (&Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(r *http.Request) (*http.Response, error) {
					takes, cancelled := test.post, r.Context().Done()
					if r.Method == http.MethodDelete {
						takes = test.remove
						removed <- time.Now()
					} else if test.deaf {
						cancelled = nil
					}
					select {
					case <-time.NewTimer(takes).C:
						return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
					case <-cancelled:
						return nil, r.Context().Err()
					}
				})}}).Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				r := &testReceiver{t: t, link: link, calls: make(chan struct{}, 1), changed: make(chan struct{})}
				link.Bind(r)
				link.(*clientLink).remote.session = session{begun: true, id: "s"}
				for tag := range transport.Tag(3) {
					r.send(tag+1, notification("n"))
				}
				synctest.Wait()
				began, text := time.Now(), ""
				if err := link.Close(test.grace); err != nil {
					text = err.Error()
				}
				if took := time.Since(began); took != test.after || text != test.left {
					t.Errorf("Close returned %q after %v, want %q after %v", text, took, test.left, test.after)
				}
				if loss := r.loss(); loss.Reason != transport.ErrClosed || !slices.Equal(loss.Unsent, test.unsent) || len(r.failed) > 0 {
					t.Errorf("lost %+v, failed %+v, want unsent %v", loss, r.failed, test.unsent)
				}
				got := time.Duration(-1)
				if len(removed) > 0 {
					got = (<-removed).Sub(began)
				}
				if got != test.removed {
					t.Errorf("the session was deleted after %v, want %v", got, test.removed)
				}
				<-time.NewTimer(time.Hour).C // what was late returns
			})
		})
	}
}

// After a fallback, Close does not wait for messages that the older server has got, and names what does not return.
//
// Guarantees: G-0034.9
func TestCloseAfterAFallbackDoesNotWait(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			refuse, accept := make(chan struct{}), make(chan struct{})
			events, server := io.Pipe()
			respond := func(req *http.Request, status int) (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
			}
			link, err := (&Client{URL: "http://host/", HTTP: &http.Client{Transport: tripperFunc(func(req *http.Request) (*http.Response, error) {
				sent := []byte(nil)
				if req.Body != nil {
					sent, _ = io.ReadAll(req.Body)
				}
				switch {
				case req.Method == http.MethodGet:
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {web.TypeEvents}}, Body: events, Request: req}, nil
				case req.URL.Path == "/messages" && deaf && string(sent) == notification("n/3"):
					<-time.NewTimer(time.Hour).C
					return respond(req, http.StatusAccepted)
				case req.URL.Path == "/messages":
					return respond(req, http.StatusAccepted)
				}
				if string(sent) == initialize {
					<-refuse
					return respond(req, http.StatusNotFound)
				}
				<-accept
				return respond(req, http.StatusAccepted)
			})}}).Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r := &testReceiver{t: t, link: link, calls: make(chan struct{}, 1), changed: make(chan struct{}), opened: make(map[transport.Tag]transport.Stream)}
			link.Bind(r)
			r.request(1, 1, initialize)
			r.send(0, notification("n/1")) // it is on its way, and keeps the next one
			r.send(0, notification("n/2"))
			close(refuse)
			if _, err := io.WriteString(server, olderEndpoint); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			close(accept)
			synctest.Wait()
			r.send(0, notification("n/3"))
			synctest.Wait()
			began, grace, text, after := time.Now(), time.Second, "", time.Duration(0)
			if deaf {
				text, after = "sse: an HTTP request has not returned", 5700*time.Millisecond
			}
			said := ""
			if err := r.link.Close(grace); err != nil {
				said = err.Error()
			}
			if took := time.Since(began); said != text || took != after || len(r.loss().Unsent) > 0 {
				t.Errorf("Close returned %q after %v, and unsent are %v; want %q after %v, and none", said, took, r.loss().Unsent, text, after)
			}
			<-time.NewTimer(time.Hour).C // what was deaf returns
		})
	}
}

// A tripperFunc is a function as an HTTP transport.
type tripperFunc func(*http.Request) (*http.Response, error)

func (f tripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
