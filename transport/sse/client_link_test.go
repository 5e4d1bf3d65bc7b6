package sse

import (
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	synctest.Test(t, func(t *testing.T) {
		var posted atomic.Int64
		l, _ := postingLink(t, func(*http.Request) (*http.Response, error) {
			posted.Add(1)
			return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
		})
		for n := range transport.Tag(3 * maxBeside) {
			<-time.NewTimer(time.Second).C
			mustSend(t, l, request(n+1))
			synctest.Wait()
			if heard, _ := l.Heard(); !heard.Equal(time.Now()) {
				t.Fatalf("after request %d the server was heard at %v, want now, at %v", n+1, heard, time.Now())
			}
		}
		if n := posted.Load(); n != 3*maxBeside {
			t.Errorf("%d requests were posted, want %d", n, 3*maxBeside)
		}
		l.Close(time.Minute)
	})
}

// A server has ten seconds to accept a notification. Those behind it wait as long.
//
// Guarantees: G-0034.5
func TestANotificationIsAcceptedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, posted := time.Now(), new(atomic.Int64)
		l, r := postingLink(t, func(r *http.Request) (*http.Response, error) {
			if posted.Add(1) > 1 {
				return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody}, nil
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		mustSend(t, l, notification(1), notification(2))
		failed := r.awaitFailure(t)
		if took := time.Since(began); failed.Tag != 1 || took != postPatience {
			t.Errorf("message %d failed after %v, want 1 after %v", failed.Tag, took, postPatience)
		}
		if synctest.Wait(); posted.Load() != 2 {
			t.Errorf("%d messages were posted, want both", posted.Load())
		}
		l.Close(time.Minute)
	})
}

// What has no connection when the link ends was not sent: neither what is being posted nor what is queued. The loss lists all of it,
// in the order of Send.
//
// Guarantees: G-0014.6, G-0034.3
func TestALossListsWhatIsBeingPostedAndWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
