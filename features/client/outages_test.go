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

// A place is an endpoint that can be out.
type place struct {
	*fakeServer
	name  string
	err   error // why it cannot be reached
	out   atomic.Bool
	opens atomic.Int64
	back  func() // called when a session has been let in; may be nil
}

func newPlace(name string, err error) *place {
	return &place{fakeServer: answering(map[string]string{protocol.MethodPing: `{}`}), name: name, err: err}
}

func (p *place) Endpoint() string { return p.name }

func (p *place) Open(ctx context.Context) (transport.Link, error) {
	if p.opens.Add(1); p.out.Load() {
		return nil, p.err
	}
	if p.back != nil {
		p.back()
	}
	return p.fakeServer.Open(ctx)
}

// lose has every session lose its server for a time.
func (p *place) lose(t *testing.T, outage time.Duration) {
	t.Helper()
	p.out.Store(true)
	p.cut()
	lasts(t, outage)
	p.out.Store(false)
}

func lasts(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

// startAll starts sessions that have been ready for a minute.
func startAll(t *testing.T, c *client.Client, n int, at transport.Transport) (all []*client.Session) {
	t.Helper()
	for i := range n {
		s, err := c.Start(t.Context(), fmt.Sprintf("%s-%d", at.(transport.Located).Endpoint(), i), at)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	lasts(t, time.Minute)
	return all
}

// returns says when the first and the last of some sessions were ready again.
func returns(t *testing.T, all []*client.Session) (first, last time.Duration) {
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

// After an outage, the first session that finds its server wakes all others of it,
// however long their backoff would still be.
//
// Guarantees: G-0001.19
func TestSessionsReturnTogether(t *testing.T) {
	gateway := &transport.StatusError{Status: 502}
	for name, err := range map[string]error{"refused": errors.New("connection refused"), "gateway": fmt.Errorf("initialize: %w", gateway)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newPlace("https://a", err)
				defer server.close()
				c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy})
				all := startAll(t, c, 100, server)
				for _, outage := range []time.Duration{10 * time.Second, time.Minute} {
					server.lose(t, outage)
					if first, last := returns(t, all); last-first > time.Second {
						t.Errorf("after %v the first is back after %v, the last after %v", outage, first, last)
					}
					lasts(t, time.Minute)
				}
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A session of another endpoint, one that its server refuses, and one that its server
// has asked to wait, are left alone.
//
// Guarantees: G-0001.19, G-0001.14
func TestOthersAreNotWoken(t *testing.T) {
	for _, endpoint := range []string{"https://a", ""} {
		t.Run("when "+endpoint+" is back", func(t *testing.T) { othersAreNotWoken(t, endpoint) })
	}
}

func othersAreNotWoken(t *testing.T, endpoint string) {
	synctest.Test(t, func(t *testing.T) {
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy})
		server := newPlace(endpoint, errors.New("connection refused"))
		alone := []*place{
			newPlace("https://b", errors.New("connection refused")),
			newPlace("", errors.New("connection refused")),
			newPlace("https://a", &transport.StatusError{Status: 503, RetryAfter: 15 * time.Second}),
			newPlace("https://a", &transport.StatusError{Status: 500}),
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
		server.lose(t, 10*time.Second)
		returns(t, ours)
		synctest.Wait()
		for i, other := range alone {
			if n := other.opens.Load() - opens[i]; n > 0 {
				t.Errorf("%d: %d attempts", i, n)
			}
		}
		_ = c.Close(t.Context()) // none of the others has a server
	})
}

// A server that comes and goes cannot make a session try more than twice as often as
// its backoff says.
//
// Guarantees: G-0001.19
func TestWakingAtMostDoublesTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := newPlace("https://a", nil), newPlace("https://a", errors.New("connection refused"))
		defer good.close()
		defer bad.close()
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Options{BackoffMin: time.Minute, BackoffMax: time.Minute}})
		bad.out.Store(true)
		if _, err := c.Start(t.Context(), "bad", bad); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 600 { // ten minutes
			s, err := c.Connect(t.Context(), good)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			lasts(t, time.Second)
		}
		if n := bad.opens.Load(); n < 15 || n > 22 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		_ = c.Close(t.Context())
	})
}

// It is so over sockets.
//
// Guarantees: G-0001.19
func TestSessionsReturnTogetherOverHTTP(t *testing.T) {
	s := echoServer(false)
	defer s.Close(context.Background())
	woken := make(chan struct{}, 100)
	c := client.New(clientInfo, client.Options{Conn: conn.Options{
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
	for _, session := range all { // until their backoff is long
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
