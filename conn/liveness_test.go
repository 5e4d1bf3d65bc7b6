package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A pipe is a script that reports when bytes came in, as pipes and sockets do.
type pipe struct {
	*script
	last atomic.Pointer[time.Time]
}

// hear lets bytes come in.
func (p *pipe) hear() {
	now := time.Now()
	p.last.Store(&now)
}

func (p *pipe) LinkTraits() transport.LinkTraits {
	traits := transport.LinkTraits{RecordsReads: true}
	if last := p.last.Load(); last != nil {
		traits.LastRead = *last
	}
	return traits
}

// A silent peer is lost after three times the interval, and the Conn reconnects.
//
// Guarantees: G-0025.1, G-0025.5
func TestSilentPeerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var opened []*pipe
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			opened = append(opened, &pipe{script: &script{}})
			return opened[len(opened)-1], nil
		}), conn.Options{Dialect: dialect{}}))
		synctest.Wait()
		advance(15*time.Second - 1)
		if state := r.State(); state != conn.Ready {
			t.Fatalf("the state is %s, want ready", state)
		}
		if got := opened[0].frames(); len(got) != 2 {
			t.Fatalf("the peer got %q, want two probes", got)
		}
		advance(time.Second / 4) // the wheel rounds a deadline up
		if status := r.Status(); status.State != conn.Backoff || status.Reason.Kind != conn.LivenessLost {
			t.Fatalf("%s (%v), want backoff (LivenessLost)", status.State, status.Reason)
		}
		advance(2 * time.Second)
		if len(opened) != 2 || r.State() != conn.Ready {
			t.Fatalf("%d links, %s; want 2, ready", len(opened), r.State())
		}
		r.Stop()
		<-r.ended
	})
}

// If the link doubts that the peer is there, during the handshake or later, the peer is probed
// at once, with a new id.
//
// Guarantees: G-0025.8
func TestPeerInDoubtIsProbedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &pipe{script: &script{}}
		doubt := func() { p.receiver.(transport.Doubter).Doubt(0, errors.New("HTTP status 502")) }
		r := start(conn.New(opens(p), conn.Options{Dialect: dialect{}, Handshake: func(context.Context, *conn.Incarnation) error {
			doubt()
			return nil
		}}))
		synctest.Wait()
		if got := p.frames(); len(got) != 1 || !strings.Contains(got[0], `"id":2`) {
			t.Fatalf("after a doubt in the handshake the peer got %q, want a probe with the id 2, because the doubt has taken the first", got)
		}
		p.deliver(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		advance(time.Second)
		doubt()
		synctest.Wait()
		if got := p.frames(); len(got) != 2 || !strings.Contains(got[1], `"id":3`) {
			t.Fatalf("after another doubt the peer got %q, want a second probe", got)
		}
		r.Stop()
		<-r.ended
	})
}

// While bytes of an incomplete frame come in, the peer is not probed.
//
// Guarantees: G-0025.2
func TestSlowFrameKeepsTheLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &pipe{script: &script{}}
		r := start(conn.New(opens(p), conn.Options{Dialect: dialect{}}))
		synctest.Wait()
		for range 100 {
			p.hear()
			advance(time.Second)
		}
		if status := r.Status(); status.Epoch != 1 || len(p.frames()) != 0 {
			t.Fatalf("%s (%v), the peer got %q; want epoch 1 and no probe", status.State, status.Reason, p.frames())
		}
		r.Stop()
		<-r.ended
	})
}

// Over a link that does not report when bytes come in, the peer is not probed.
//
// Guarantees: G-0025.5
func TestLinkThatReportsNoBytesIsNotProbed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{Dialect: dialect{}})
		advance(time.Hour)
		if len(s.frames()) != 0 || r.State() != conn.Ready {
			t.Fatalf("%s, the peer got %q; want ready and no probe", r.State(), s.frames())
		}
		r.Stop()
		<-r.ended
	})
}

// A peer that stops in the middle of a frame is lost, too: the bytes before count once.
//
// Guarantees: G-0025.1, G-0025.2
func TestPeerThatStopsInAFrameIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &pipe{script: &script{}}
		r := start(conn.New(opens(p), conn.Options{Dialect: dialect{}}))
		synctest.Wait()
		advance(time.Second)
		p.hear()
		advance(15*time.Second - 1)
		if r.State() != conn.Ready || len(p.frames()) != 2 {
			t.Fatalf("%s, the peer got %q; want ready and two probes", r.State(), p.frames())
		}
		advance(time.Second/4 + 1)
		if r.State() != conn.Backoff {
			t.Fatalf("%s, the peer got %q; want backoff", r.State(), p.frames())
		}
		r.Stop()
		<-r.ended
	})
}

// A cover wraps a link that cannot report when bytes come in.
type cover struct{ *script }

func (cover) LinkTraits() transport.LinkTraits { return transport.LinkTraits{} }

// A link that does not record when bytes come in is not probed, whether it has LinkTraits or not.
//
// Guarantees: G-0025.5
func TestLinkThatRecordsNoReadsIsNotProbed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := start(conn.New(opens(cover{s}), conn.Options{Dialect: dialect{}}))
		synctest.Wait()
		advance(time.Hour)
		if len(s.frames()) != 0 || r.State() != conn.Ready {
			t.Fatalf("%s, the peer got %q; want ready and no probe", r.State(), s.frames())
		}
		r.Stop()
		<-r.ended
	})
}

// Bytes that came in on an earlier link are no sign of life on the next one.
//
// Guarantees: G-0025.1
func TestActivityOfAnOldLinkDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := &pipe{script: &script{}}, &pipe{script: &script{}}
		second.hear() // such as a greeting that the transport has read
		links := []*pipe{first, second}
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			next := links[0]
			links = links[1:]
			return next, nil
		}), conn.Options{Dialect: dialect{}}))
		synctest.Wait()
		first.hear()
		first.lose(transport.Loss{Reason: transport.ErrPeerClosed})
		status := r.Status()
		for ; status.Epoch < 2 || status.State != conn.Ready; status = r.Status() {
			<-status.Changed()
		}
		advance(15*time.Second + 2*time.Second/4) // the wheel rounds up at the beginning and at the end
		if r.State() != conn.Backoff {
			t.Fatalf("%s, the peer got %q; want backoff", r.State(), second.frames())
		}
		r.Stop()
		<-r.ended
	})
}

// The time after which a silent peer is lost begins with its last byte.
//
// Guarantees: G-0025.1
func TestSilentPeerIsLostInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &pipe{script: &script{}}
		r := start(conn.New(opens(p), conn.Options{Dialect: dialect{}}))
		synctest.Wait()
		advance(4300 * time.Millisecond)
		p.hear()
		p.deliver(`{"jsonrpc":"2.0","method":"n"}`)
		advance(15*time.Second - 1)
		if r.State() != conn.Ready {
			t.Fatalf("the state is %s, want ready", r.State())
		}
		advance(time.Second/4 + 1)
		if r.State() != conn.Backoff {
			t.Fatalf("the state is %s, want backoff", r.State())
		}
		r.Stop()
		<-r.ended
	})
}

// Progress that names a probe is ignored.
//
// Guarantees: G-0025.4
func TestProgressOfAProbeIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &pipe{script: &script{}}
		r := start(conn.New(opens(p), conn.Options{Dialect: dialect{}}))
		synctest.Wait()
		advance(6 * time.Second)
		var probe struct{ ID int64 }
		if err := json.Unmarshal([]byte(p.frames()[0]), &probe); err != nil {
			t.Fatal(err)
		}
		p.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","method":"progress","params":[%d,0]}`, probe.ID))
		synctest.Wait()
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Errorf("Run: %v, want no error", err)
		}
	})
}

// An HTTP server that accepts requests and answers none is lost, although each probe opens a stream.
//
// Guarantees: G-0025.2
func TestHangingHTTPServerIsLost(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	r := start(conn.New(&streamable.Client{URL: server.URL}, conn.Options{Dialect: dialect{}, Tuning: conn.Tuning{Liveness: time.Second / 4}}))
	guard := time.NewTimer(30 * time.Second)
	defer guard.Stop()
	for status := r.Status(); status.LastFailure.Kind == ""; status = r.Status() {
		select {
		case <-status.Changed():
		case <-guard.C:
			t.Fatalf("%s (%v), want a failure within 30s", status.State, status.Reason)
		}
	}
	if why := r.Status().LastFailure; why.Kind != conn.LivenessLost {
		t.Errorf("the failure is %v, want LivenessLost", why)
	}
	r.Stop()
	<-r.ended
}

// A detachable is a link to a client that listens on a connection of its own, as over HTTP.
type detachable struct {
	*script
	since    atomic.Pointer[time.Time] // nil: it does not listen
	detached atomic.Int64
}

func (l *detachable) listen() {
	now := time.Now()
	l.since.Store(&now)
}

func (l *detachable) ListensSince() time.Time {
	if since := l.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

func (l *detachable) Detach() {
	l.detached.Add(1)
	l.since.Store(nil)
}

// A wrapper is a link around another.
type wrapper struct{ transport.Link }

func (w wrapper) Unwrap() transport.Link { return w.Link }

// An acceptor whose client does not answer its probes closes the connection on which the client listens, and goes on. A
// client that does not listen is not probed. All of this holds if the link is wrapped, too.
//
// Guarantees: G-0025.1
func TestSilentListenerIsDetached(t *testing.T) {
	bubble(t, func(t *testing.T) {
		link := &detachable{script: &script{}}
		r := start(conn.Accept(wrapper{link}, conn.Options{Dialect: dialect{}, Tuning: conn.Tuning{Liveness: 5 * time.Second}}))
		advance(time.Minute)
		for range 2 {
			before := len(link.frames())
			link.listen()
			advance(5*time.Second - 1)
			if sent := len(link.frames()) - before; sent != 0 {
				t.Errorf("%d probes were sent within the time from which the client listens, want none", sent)
			}
			advance(11 * time.Second)
			if sent := len(link.frames()) - before; sent != 2 || r.State() != conn.Ready {
				t.Errorf("%s after %d probes, want ready after 2", r.State(), sent)
			}
			advance(time.Minute)
		}
		if got := link.detached.Load(); got != 2 {
			t.Errorf("the connection on which the client listens was closed %d times, want 2", got)
		}
		r.Stop()
		<-r.ended
	})
}
