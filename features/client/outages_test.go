package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A flakyEndpoint is an endpoint that can have an outage.
type flakyEndpoint struct {
	*fakeServer
	name  string
	err   error // why it cannot be reached
	out   atomic.Bool
	opens atomic.Int64
	back  func() // called when a session has connected; may be nil
}

func newFlakyEndpoint(name string, err error) *flakyEndpoint {
	return &flakyEndpoint{fakeServer: answering(map[string]string{protocol.MethodPing: `{}`}), name: name, err: err}
}

func (p *flakyEndpoint) Traits() transport.Traits { return transport.Traits{Endpoint: p.name} }

func (p *flakyEndpoint) Open(ctx context.Context) (transport.Link, error) {
	if p.opens.Add(1); p.out.Load() {
		return nil, p.err
	}
	if p.back != nil {
		p.back()
	}
	return p.fakeServer.Open(ctx)
}

// cutOff cuts the link of every session, and refuses new ones for a time.
func (p *flakyEndpoint) cutOff(t *testing.T, outage time.Duration) {
	t.Helper()
	p.out.Store(true)
	p.cut()
	passAndWait(t, outage)
	p.out.Store(false)
}

func passAndWait(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

// startAll starts sessions and waits until they have been ready for a minute.
func startAll(t *testing.T, c *client.Client, n int, at transport.Transport) (all []*client.Session) {
	t.Helper()
	for i := range n {
		s, err := c.Start(t.Context(), fmt.Sprintf("%s-%d", transport.TraitsOf(at).Endpoint, i), at)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	passAndWait(t, time.Minute)
	return all
}

// returnTimes reports after what time the first and the last session were ready again.
func returnTimes(t *testing.T, all []*client.Session) (first, last time.Duration) {
	t.Helper()
	began := time.Now()
	first = time.Hour
	for _, s := range all {
		if err := s.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := s.Status().Since.Sub(began)
		first, last = min(first, at), max(last, at)
	}
	return first, last
}

// After an outage, the first session that connects wakes all other sessions of that
// endpoint, however long their backoff is.
//
// Guarantees: G-0001.19
func TestSessionsReturnTogether(t *testing.T) {
	gateway := &transport.StatusError{Status: 502}
	for name, err := range map[string]error{"refused": errors.New("connection refused"), "gateway": fmt.Errorf("initialize: %w", gateway)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFlakyEndpoint("https://a", err)
				defer server.close()
				c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy})
				all := startAll(t, c, 100, server)
				for _, outage := range []time.Duration{10 * time.Second, time.Minute} {
					server.cutOff(t, outage)
					if first, last := returnTimes(t, all); last-first > time.Second {
						t.Errorf("after an outage of %v, the first session is ready after %v and the last after %v", outage, first, last)
					}
					passAndWait(t, time.Minute)
				}
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A recovery does not wake a session of another endpoint, a session that the server
// denies, or one that the server has asked to wait.
//
// Guarantees: G-0001.19, G-0001.14
func TestRecoveryWakesOnlyItsEndpoint(t *testing.T) {
	for _, endpoint := range []string{"https://a", ""} {
		t.Run("when "+endpoint+" is back", func(t *testing.T) { othersAreNotWoken(t, endpoint) })
	}
}

func othersAreNotWoken(t *testing.T, endpoint string) {
	synctest.Test(t, func(t *testing.T) {
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy})
		server := newFlakyEndpoint(endpoint, errors.New("connection refused"))
		alone := []*flakyEndpoint{
			newFlakyEndpoint("https://b", errors.New("connection refused")),
			newFlakyEndpoint("", errors.New("connection refused")),
			newFlakyEndpoint("https://a", &transport.StatusError{Status: 503, RetryAfter: 15 * time.Second}),
			newFlakyEndpoint("https://a", &transport.StatusError{Status: 500}),
		}
		defer server.close()
		ours := startAll(t, c, 1, server)
		var opens []int64
		for i, other := range alone {
			defer other.close()
			other.out.Store(true)
			if _, err := c.Start(t.Context(), fmt.Sprint(i), other); err != nil {
				t.Fatal(err)
			}
		}
		server.back = func() {
			for _, other := range alone {
				opens = append(opens, other.opens.Load())
			}
		}
		server.cutOff(t, 10*time.Second)
		returnTimes(t, ours)
		synctest.Wait()
		for i, other := range alone {
			if n := other.opens.Load() - opens[i]; n > 0 {
				t.Errorf("session %d made %d attempts", i, n)
			}
		}
		_ = c.Close(t.Context()) // the other sessions have no server
	})
}

// A server that is up and down in turn cannot cause more than twice the attempts that
// the backoff allows.
//
// Guarantees: G-0001.19
func TestWakingAtMostDoublesTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := newFlakyEndpoint("https://a", nil), newFlakyEndpoint("https://a", errors.New("connection refused"))
		defer good.close()
		defer bad.close()
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{BackoffMin: time.Minute, BackoffMax: time.Minute}})
		bad.out.Store(true)
		if _, err := c.Start(t.Context(), "bad", bad); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 600 { // for ten minutes
			s, err := c.Connect(t.Context(), good)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			passAndWait(t, time.Second)
		}
		if n := bad.opens.Load(); n < 15 || n > 22 {
			t.Errorf("got %d attempts in ten minutes, want n >= 15 and n <= 22", n)
		}
		_ = c.Close(t.Context())
	})
}

// Over sockets, too, the first session that connects after an outage wakes the others.
//
// Guarantees: G-0001.19
func TestSessionsReturnTogetherOverHTTP(t *testing.T) {
	s := echoServer(false)
	defer s.Close(context.Background())
	woken := make(chan struct{}, 100)
	c := client.New(clientInfo, client.Options{Conn: conn.Tuning{
		BackoffMin: 10 * time.Millisecond, Liveness: 50 * time.Millisecond,
		Hooks: telemetry.Hooks{Transition: func(e telemetry.Transition) {
			if e.Kind == string(conn.Woken) {
				woken <- struct{}{}
			}
		}},
	}})
	listener := listenAlone(t)
	address := listener.Addr().String()
	stop := serveAt(listener, s)
	var all []*client.Session
	door := new(door)
	for i := range 4 {
		at := &streamable.Client{URL: "http://" + address, HTTP: &http.Client{Transport: &visitor{door: door, opens: i == 0}}}
		session, err := c.Connect(t.Context(), specification.WatchClient(t, at))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, session)
	}
	stop()
	for _, session := range all { // waits until their backoff is long
		for status := session.Status(); status.State != conn.Backoff || time.Until(status.NextAttempt) < 200*time.Millisecond; status = session.Status() {
			<-status.Changed()
		}
	}
	door.shut.Store(true)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer serveAt(listener, s)()
	for _, session := range all {
		if err := session.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	<-woken
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A door that is shut opens when a visitor who may open it has got an answer. Those who may
// not are refused until then, so that they still wait when the first session returns.
type door struct{ shut atomic.Bool }

type visitor struct {
	door  *door
	opens bool
}

func (v *visitor) RoundTrip(r *http.Request) (*http.Response, error) {
	if !v.opens && v.door.shut.Load() {
		return nil, syscall.ECONNREFUSED
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && v.opens {
		v.door.shut.Store(false)
	}
	return response, err
}

// serveAt serves over HTTP until it is stopped.
func serveAt(listener net.Listener, s *server.Server) (stop func()) {
	handler := streamable.NewHandler(s, streamable.HandlerOptions{})
	site := &http.Server{Handler: handler}
	served := make(chan error, 1)
	go func() { served <- site.Serve(listener) }()
	return func() {
		_ = site.Close()
		_ = handler.Close(0)
		<-served
	}
}
