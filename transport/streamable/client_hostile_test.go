package streamable

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// A stream that was resumed can be resumed again, from where it was.
//
// Guarantees: G-0022.4
func TestAResumedStreamKeepsItsPlace(t *testing.T) {
	resumed := make(chan string, 2)
	s := &legacy{
		call: func(w http.ResponseWriter, _ *http.Request) { stream(w, "id: a1\ndata:\n\n") },
		get: func(w http.ResponseWriter, req *http.Request) {
			if id := req.Header.Get(headerLastEventID); id != "" {
				resumed <- id
			}
			stream(w, "retry: 10\n\n") // nothing that names a place
		},
	}
	r := connect(t, s.ServeHTTP)
	r.request(1, 1, request(1, "initialize", ""))
	r.frame(0)
	number := r.callLegacy(2, 5)
	for n := range 3 {
		if loss := r.streamLoss(n); loss.Stream != number || !loss.Resumable {
			t.Fatalf("%+v", loss)
		}
		if n < 2 {
			r.link.Resume(number)
			if id := <-resumed; id != "a1" {
				t.Fatalf("resumed at %q", id)
			}
		}
	}
}

// Events of other types are keep-alives and the like, and no messages.
//
// Guarantees: G-0022.14
func TestEventsOfOtherTypesAreNoMessages(t *testing.T) {
	r := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, "event: ping\ndata: now\n\ndata: "+result(1)+"\n\n")
	})
	r.wantFrame(0, r.call(1, 5), result(1), true)
}

// What comes on a stream between two failed dials is something received.
//
// Guarantees: G-0022.5
func TestAnEventForgivesAFailedDial(t *testing.T) {
	more, release := make(chan struct{}), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		io.ReadAll(req.Body)
		stream(w, "data: "+notification("n")+"\n\n")
		<-more
		stream(w, "data: "+notification("n")+"\n\n")
		hold(req, release)
	}))
	t.Cleanup(site.Close)
	t.Cleanup(func() { close(release) })
	r := open(t, &Client{URL: site.URL})
	r.call(1, 5)
	r.frame(0)
	site.Listener.Close() // the stream lives, and no new connection is to be had
	r.call(2, 5)
	r.failure(0)
	close(more)
	r.frame(1)
	r.call(3, 5)
	if f := r.failure(1); !f.Unsent { // and not the loss of the link
		t.Errorf("%+v", f)
	}
}

// Who waits for a connection of a full pool has not dialled.
//
// Guarantees: G-0022.5
func TestAFullPoolIsNoFailedDial(t *testing.T) {
	release := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		io.ReadAll(req.Body)
		stream(w, "data: "+notification("n")+"\n\n")
		hold(req, release)
	})
	t.Cleanup(func() { close(release) })
	pool := transportOf(t)
	pool.MaxConnsPerHost = 1
	r := open(t, &Client{URL: url, HTTP: &http.Client{Transport: pool}})
	r.call(1, 5)
	r.frame(0)
	for n := range 2 { // each ends while it waits
		r.link.End(r.call(2+n, 1))
	}
	a := &httpRequest{to: new(remote), handedOver: true}
	a.waiting.Store(true)
	if !a.unsent() || a.count(t.Context(), nil, net.ErrClosed) != nil || a.to.failedDials != 0 {
		t.Errorf("unsent %v, %d misses", a.unsent(), a.to.failedDials)
	}
}

// However a header is spelt, and whatever the address holds, another host does
// not get it.
//
// Guarantees: G-0022.7
func TestSecretsOfAnySpellingStayHere(t *testing.T) {
	seen := make(chan http.Header, 1)
	other := serve(t, func(w http.ResponseWriter, req *http.Request) {
		seen <- req.Header
		answerJSON(result(1))(w, req)
	})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, other, http.StatusTemporaryRedirect)
	})
	r := open(t, &Client{
		URL:    url + "/mcp?key=secret",
		Header: http.Header{"x-api-key": {"secret"}},
		HTTP:   &http.Client{Transport: transportOf(t), CheckRedirect: func(*http.Request, []*http.Request) error { return nil }},
	})
	r.wantFrame(0, r.call(1, 1), result(1), true)
	for name, values := range <-seen {
		if slices.ContainsFunc(values, func(value string) bool { return strings.Contains(value, "secret") }) {
			t.Errorf("%s: %v was given to another host", name, values)
		}
	}
}

// A GET stream that is refused for now, or for who asks, is told; one that the
// server does not have is not.
//
// Guarantees: G-0022.4
func TestAGetStreamThatIsRefusedForNow(t *testing.T) {
	for status, resumable := range map[int]bool{401: false, 403: false, 408: true, 429: true, 503: true} {
		r := handshake(t, &legacy{get: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}})
		loss := r.streamLoss(0)
		if loss.Stream != transport.Main || loss.Resumable != resumable || resumable && loss.Delay.Seconds() != 7 {
			t.Errorf("%d: %+v", status, loss)
		}
	}
}

// A server that drains refuses connections while it finishes what it has begun:
// the link lives on.
//
// Guarantees: G-0022.5
func TestFailedDialsDoNotCountWhileAResponseIsOpen(t *testing.T) {
	release := make(chan struct{})
	drains := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, req *http.Request) {
		stream(w, "data: "+notification("n")+"\n\n")
		hold(req, release)
		stream(w, "data: "+result(1)+"\n\n")
	})
	pool, refusing := transportOf(t), strings.TrimPrefix(closedPort(t), "http://")
	pool.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if latch.IsRaised(drains) {
			address = refusing
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	r := open(t, &Client{URL: url, HTTP: &http.Client{Transport: pool}})
	lasting := r.call(1, 5)
	r.frame(0)
	close(drains)
	for n := range 3 {
		r.call(2+n, 1)
		if f := r.failure(n); !f.Unsent {
			t.Errorf("%+v", f)
		}
	}
	close(release)
	r.wantFrame(1, lasting, result(1), true)
}
