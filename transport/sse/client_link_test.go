package sse

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A posting is a RoundTripper for the POSTs of a link.
type posting func(*http.Request) (*http.Response, error)

func (p posting) RoundTrip(r *http.Request) (*http.Response, error) { return p(r) }

// postingLink returns a link that posts with p, and has no stream.
func postingLink(t *testing.T, p posting) (*clientLink, *recorder) {
	t.Helper()
	l, r := newClientLink(&http.Client{Transport: p}, nil, 0), newRecorder()
	l.endpoint = &url.URL{Scheme: "http", Host: "there.test", Path: "/messages"}
	l.Bind(r)
	return l, r
}

func mustSend(t *testing.T, l *clientLink, all ...transport.Outbound) {
	t.Helper()
	for _, o := range all {
		if err := l.Send(o); err != nil {
			t.Fatalf("message %d: %v", o.Tag, err)
		}
	}
}

// A link posts any number of requests one after the other. Each response shows that the server is there.
//
// Guarantees: G-0034.5
func TestAnAcceptedRequestMakesRoomForAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var posted atomic.Int64
		l, _ := postingLink(t, func(*http.Request) (*http.Response, error) {
			posted.Add(1)
			return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
		})
		for n := range transport.Tag(3 * maxBeside) {
			<-time.NewTimer(time.Second).C
			mustSend(t, l, request(n+1))
			synctest.Wait()
			if heard := l.LinkTraits().LastRead; !heard.Equal(time.Now()) {
				t.Fatalf("after request %d the server was heard at %v, want now, at %v", n+1, heard, time.Now())
			}
		}
		if n := posted.Load(); n != 3*maxBeside {
			t.Errorf("%d requests were posted, want %d", n, 3*maxBeside)
		}
		l.Close(time.Minute)
	})
}

// A server has ten seconds to accept a notification or a response. Those behind it wait as long.
//
// Guarantees: G-0034.5
func TestANotificationIsAcceptedInTime(t *testing.T) {
	response := transport.Outbound{Tag: 1, Frame: []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), Route: transport.Route{Kind: jsonrpc.KindResult}}
	for name, first := range map[string]transport.Outbound{"a notification": notification(1), "a response": response} {
		bubble(t, func(t *testing.T) {
			began, posted := time.Now(), new(atomic.Int64)
			l, r := postingLink(t, func(r *http.Request) (*http.Response, error) {
				if posted.Add(1) > 1 {
					return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
				}
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			mustSend(t, l, first, notification(2))
			failed := r.awaitFailure(t)
			if took := time.Since(began); failed.Tag != 1 || took != postPatience {
				t.Errorf("%s: message %d failed after %v, want 1 after %v", name, failed.Tag, took, postPatience)
			}
			if synctest.Wait(); posted.Load() != 2 {
				t.Errorf("%s: %d messages were posted, want both", name, posted.Load())
			}
			l.Close(time.Minute)
		})
	}
}

// What has no connection when the link ends was not sent: neither what is being posted nor what is queued. The loss lists all of it,
// in the order of Send.
//
// Guarantees: G-0014.6, G-0034.3
func TestALossListsWhatIsBeingPostedAndWhatIsQueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var posted atomic.Int64
		l, r := postingLink(t, func(r *http.Request) (*http.Response, error) {
			late := 10*time.Millisecond - time.Duration(posted.Add(1))*time.Millisecond // the first one ends last
			httptrace.ContextClientTrace(r.Context()).GetConn("there.test:80")
			<-r.Context().Done()
			<-time.NewTimer(late).C
			return nil, r.Context().Err()
		})
		mustSend(t, l, request(1), request(2), notification(3), notification(4), request(5))
		<-time.NewTimer(5 * time.Second).C
		if n := posted.Load(); n != 3 {
			t.Fatalf("%d messages are being posted, want 3", n)
		}
		if err := l.Close(0); err != nil && !strings.Contains(err.Error(), "sse:") {
			t.Error(err)
		}
		if loss := r.awaitLoss(t); !slices.Equal(loss.Unsent, []transport.Tag{1, 2, 3, 4, 5}) || len(r.failed) > 0 {
			t.Errorf("got unsent %v and the failures %v, want 1 to 5 and none", loss.Unsent, r.failed)
		}
	})
}

// The POST of a request delays the next message for a second, and no more than 64 of them delay it longer: the next
// request waits until one of them has ended. What is not posted when the link ends was not sent.
//
// Guarantees: G-0034.3, G-0034.5
func TestRequestsThatAreNotAcceptedAreBounded(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond} { // after which a request that is cancelled has ended
		bubble(t, func(t *testing.T) { boundedRequests(t, late) })
	}
}

func boundedRequests(t *testing.T, late time.Duration) {
	t.Helper()
	began, posted, accept := time.Now(), make(chan time.Duration, 2*maxBeside), make(chan struct{})
	l, r := postingLink(t, func(r *http.Request) (*http.Response, error) {
		posted <- time.Since(began)
		select {
		case <-accept:
			return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
		case <-r.Context().Done():
			sleep(late)
			return nil, r.Context().Err()
		}
	})
	for n := range transport.Tag(maxBeside + 3) {
		mustSend(t, l, request(n+1))
	}
	for n := range maxBeside {
		if after := <-posted; after != time.Duration(n)*time.Second {
			t.Fatalf("request %d was posted after %v, want a second after the one before", n+1, after)
		}
	}
	if sleep(time.Hour); len(posted) > 0 {
		t.Fatalf("request %d was posted after %v, want that it waits", maxBeside+1, <-posted)
	}
	accept <- struct{}{}
	if synctest.Wait(); len(posted) != 1 || <-posted != time.Since(began) {
		t.Error("the next request was not posted as soon as one was accepted")
	}
	sleep(time.Second)
	if err := l.Close(0); err != nil {
		t.Error(err)
	}
	if loss := r.awaitLoss(t); !slices.Equal(loss.Unsent, []transport.Tag{maxBeside + 2, maxBeside + 3}) {
		t.Errorf("got unsent %v, want the two that were not posted", loss.Unsent)
	}
}

// Close posts what is queued for 70 % of its grace, cancels what is being posted then, and returns at once. It names what
// takes longer than five seconds to return.
func TestTheGraceOfAClientLink(t *testing.T) {
	for name, test := range map[string]struct {
		takes  time.Duration // for each message
		deaf   bool          // it does not return when it is cancelled
		grace  time.Duration
		after  time.Duration // which Close takes
		unsent []transport.Tag
		left   string
	}{
		"all in time":       {time.Second, false, 10 * time.Second, 3 * time.Second, nil, ""},
		"some in time":      {3 * time.Second, false, 10 * time.Second, 7 * time.Second, nil, ""},
		"the first in time": {4 * time.Second, false, 10 * time.Second, 7 * time.Second, []transport.Tag{3}, ""},
		"none in time":      {9 * time.Second, false, 10 * time.Second, 7 * time.Second, []transport.Tag{2, 3}, ""},
		"no grace":          {9 * time.Second, false, 0, 0, []transport.Tag{2, 3}, ""},
		"late":              {9 * time.Second, true, 0, 5 * time.Second, []transport.Tag{2, 3}, "sse: an HTTP request has not returned"},
		"just not late":     {4 * time.Second, true, 0, 4 * time.Second, []transport.Tag{2, 3}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l, r := postingLink(t, func(r *http.Request) (*http.Response, error) {
					stopped := r.Context().Done()
					if test.deaf {
						stopped = nil
					}
					select {
					case <-time.NewTimer(test.takes).C:
						return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
					case <-stopped:
						return nil, r.Context().Err()
					}
				})
				mustSend(t, l, notification(1), notification(2), notification(3))
				synctest.Wait()
				began, text := time.Now(), ""
				err := l.Close(test.grace)
				if err != nil {
					text = err.Error()
				}
				if took := time.Since(began); took != test.after || text != test.left {
					t.Errorf("Close returned %q after %v, want %q after %v", text, took, test.left, test.after)
				}
				if len(r.lost) != 1 || r.lost[0].Reason != transport.ErrClosed || !slices.Equal(r.lost[0].Unsent, test.unsent) || len(r.failed) > 0 {
					t.Errorf("got %+v and the failures %v, want unsent %v", r.lost, r.failed, test.unsent)
				}
				if again := l.Close(time.Hour); again != err {
					t.Errorf("Close again returned %v, want %v", again, err)
				}
				sleep(time.Minute)
			})
		})
	}
}

// A message fails as what its POST has met. It was certainly not sent if no connection was made for it, and the error wraps
// what the RoundTripper has returned. A message without a tag is forgotten.
//
// Guarantees: G-0034.4
func TestHowAMessageFails(t *testing.T) {
	broken := errors.New("broken")
	gone := func(got, have bool) posting {
		return func(r *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(r.Context())
			if got {
				trace.GetConn("there.test:80")
			}
			if have {
				trace.GotConn(httptrace.GotConnInfo{})
			}
			return nil, broken
		}
	}
	status := func(code int, header http.Header) posting {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader("so"))}, nil
		}
	}
	for name, test := range map[string]struct {
		post   posting
		fails  bool
		unsent bool
		want   error // nil: a *transport.StatusError
	}{
		"no connection":          {gone(true, false), true, true, broken},
		"a connection":           {gone(true, true), true, false, broken},
		"without a trace":        {gone(false, false), true, false, broken},
		"200":                    {status(200, nil), false, false, nil},
		"204":                    {status(204, nil), false, false, nil},
		"299":                    {status(299, nil), false, false, nil},
		"300":                    {status(300, nil), true, false, nil},
		"199":                    {status(199, nil), true, false, nil},
		"503":                    {status(503, nil), true, false, nil},
		"503, please come again": {status(503, http.Header{"Retry-After": {"7"}}), true, true, nil},
		"404 at first":           {status(404, nil), true, true, nil},
	} {
		bubble(t, func(t *testing.T) {
			l, r := postingLink(t, test.post)
			mustSend(t, l, notification(0), notification(2), request(0), request(4))
			synctest.Wait()
			tags := map[transport.Tag]bool{}
			for _, f := range r.failed {
				tags[f.Tag] = true
				var refused *transport.StatusError
				if f.Unsent != test.unsent || test.want != nil && !errors.Is(f.Err, test.want) || test.want == nil && (!errors.As(f.Err, &refused) || refused.Body != "so") {
					t.Errorf("%s: got %+v, want unsent %t", name, f, test.unsent)
				}
			}
			if want := (map[transport.Tag]bool{2: true, 4: true}); test.fails && (len(r.failed) != 2 || !maps.Equal(tags, want)) || !test.fails && len(r.failed) > 0 {
				t.Errorf("%s: got the failures %+v", name, r.failed)
			}
			l.Close(time.Minute)
			if loss := r.awaitLoss(t); loss.Reason != transport.ErrClosed || len(loss.Unsent) > 0 {
				t.Errorf("%s: got %+v", name, loss)
			}
		})
	}
}

// A message that an Authorizer does not let pass was certainly not sent.
//
// Guarantees: G-0034.4
func TestAMessageThatIsNotAuthorizedIsUnsent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, r := postingLink(t, func(*http.Request) (*http.Response, error) {
			t.Error("the message was posted")
			return nil, errors.New("posted")
		})
		denied := errors.New("denied")
		l.auth = denyFunc(func() error { return denied })
		mustSend(t, l, notification(1))
		if failed := r.awaitFailure(t); failed.Tag != 1 || !failed.Unsent || !errors.Is(failed.Err, denied) {
			t.Errorf("got %+v, want that the message was not sent: %v", failed, denied)
		}
		l.Close(time.Minute)
	})
}

// A denyFunc is an Authorizer that asks it about each request.
type denyFunc func() error

func (f denyFunc) Authorize(context.Context, *http.Request) error { return f() }

func (denyFunc) Challenged(context.Context, *http.Request, *transport.StatusError) (bool, error) {
	return false, nil
}

// Nothing is left of a message that was accepted: its context has ended, and the body of the response is closed.
func TestAnAcceptedMessageLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var posted context.Context
		body := &closedBody{Reader: strings.NewReader("Accepted")}
		l, _ := postingLink(t, func(r *http.Request) (*http.Response, error) {
			posted = r.Context()
			return &http.Response{StatusCode: http.StatusAccepted, Body: body}, nil
		})
		mustSend(t, l, notification(1))
		if synctest.Wait(); posted.Err() == nil || !body.closed {
			t.Errorf("the context has ended with %v, and that the body is closed is %t", posted.Err(), body.closed)
		}
		l.Close(time.Minute)
	})
}

// A full queue refuses a message, and the link says once that there is room again.
func TestAFullQueueOfAClientLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		accept := make(chan struct{})
		l, r := postingLink(t, func(r *http.Request) (*http.Response, error) {
			select {
			case <-accept:
			case <-r.Context().Done():
			}
			return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
		})
		for n := range transport.Tag(257) { // one of them is being posted
			mustSend(t, l, notification(n+1))
			synctest.Wait()
		}
		for range 2 {
			if err := l.Send(notification(999)); err != transport.ErrBusy || r.writable > 0 {
				t.Fatalf("got %v, want %v", err, transport.ErrBusy)
			}
		}
		for range 3 {
			accept <- struct{}{}
			if synctest.Wait(); r.writable != 1 {
				t.Errorf("the receiver was told %d times that there is room, want once", r.writable)
			}
		}
		l.Close(0)
	})
}
