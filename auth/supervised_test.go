package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/conn"
	session "github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A safeBuffer may be written by several goroutines.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// mcp makes the server of a fixture an MCP server with one tool.
func (f *fixture) mcp(t *testing.T) {
	t.Helper()
	s := server.New(protocol.Implementation{Name: "vault", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "open"}, func(context.Context, struct{}) (string, error) { return "opened", nil })
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	t.Cleanup(func() { endpoint.Close(time.Second) })
	f.serve = f.as.Protect(endpoint).ServeHTTP
}

// startSession starts a session over HTTP, whose Authorizer has these options.
func startSession(t *testing.T, f *fixture, o Options, co conn.Tuning) *session.Session {
	t.Helper()
	if co.Log == nil {
		co.Log = slog.New(slog.NewJSONHandler(f.printed, nil))
	}
	c := session.New(protocol.Implementation{Name: "test", Version: "1"}, session.Options{Conn: co})
	t.Cleanup(func() {
		fmt.Fprintf(f.printed, "%+v\n", c.Report())
		c.Close(context.Background())
	})
	s, err := c.Start(t.Context(), "vault", &streamable.Client{URL: f.url, Authorizer: f.login(t, o)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A session without a login waits with the longest backoff. A login wakes it.
//
// Guarantees: G-0044.9
func TestALoginWakesASession(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	f.mcp(t)
	store := NewMemory()
	waiting := make(chan telemetry.Transition, 10)
	s := startSession(t, f, Options{Store: store}, conn.Tuning{BackoffMin: time.Hour, BackoffMax: time.Hour, Hooks: telemetry.Hooks{
		Transition: func(to telemetry.Transition) {
			if to.To == string(conn.Backoff) {
				waiting <- to
			}
		},
	}})
	if why := testenv.Receive(t, waiting, "the session waits"); why.Kind != string(conn.AuthRequired) || !strings.Contains(why.Reason.Error(), "log in to") {
		t.Fatalf("the session waits because of %v", why.Reason)
	}
	person := f.login(t, Options{Store: store, Interact: consent})
	person.OnLogin(s.Wake)
	if err := person.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := session.Call[string](t.Context(), s, "open", nil); err != nil || got != "opened" {
		t.Errorf("%q, %v", got, err)
	}
}

// A login during a handshake may take longer than the handshake. The handshake is tried
// several times, and one login is started.
//
// Guarantees: G-0044.9
func TestAHandshakeWaitsForAPerson(t *testing.T) {
	f, p := newFixture(t, authtest.Options{}), newLoginPage()
	f.mcp(t)
	timedOut := make(chan telemetry.Transition, 100)
	s := startSession(t, f, Options{Interact: p.interact}, conn.Tuning{
		InitTimeout: 100 * time.Millisecond, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
		Hooks: telemetry.Hooks{Transition: func(to telemetry.Transition) {
			if to.To == string(conn.Backoff) {
				timedOut <- to
			}
		}},
	})
	testenv.Receive(t, p.opened, "the login page is open")
	for range 3 {
		testenv.Receive(t, timedOut, "a handshake times out")
	}
	close(p.answer)
	if err := s.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := session.Call[string](t.Context(), s, "open", nil); err != nil || got != "opened" {
		t.Errorf("%q, %v", got, err)
	}
	if len(p.opened) > 0 {
		t.Errorf("%d more logins were started", len(p.opened))
	}
}

// A session without a login tries to connect repeatedly. It logs that once, and sends
// nothing to the authorization server.
//
// Guarantees: G-0044.2, G-0044.16
func TestAMissingLoginIsSaidOnce(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	f.mcp(t)
	log := new(safeBuffer)
	tried := make(chan struct{}, 100)
	serve := f.serve
	f.serve = func(rw http.ResponseWriter, r *http.Request) {
		tried <- struct{}{}
		serve(rw, r)
	}
	s := startSession(t, f, Options{}, conn.Tuning{BackoffMin: time.Millisecond, BackoffMax: time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil))})
	for range 5 {
		testenv.Receive(t, tried, "the session tries to connect")
	}
	s.Stop()
	_ = s.Wait()
	if text := log.String(); strings.Count(text, "connecting failed") != 1 || !strings.Contains(text, "log in to") {
		t.Errorf("log: %s", text)
	}
	if n := len(f.as.Sink.Requests(authtest.Metadata, authtest.Register, authtest.Token)); n > 0 {
		t.Errorf("%d requests to the authorization server", n)
	}
}

// After the login was revoked, a call fails with ErrAuthRequired. After the next login in the
// same store, calls succeed again.
//
// Guarantees: G-0044.4
func TestCallsOfASessionAcrossRefreshes(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	f.mcp(t)
	store := NewMemory()
	person := f.login(t, Options{Store: store, Interact: consent, Offline: true})
	if err := person.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := startSession(t, f, Options{Store: store}, conn.Tuning{})
	if err := s.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.as.RevokeAll()
	if _, err := session.Call[string](t.Context(), s, "open", nil); err == nil || !strings.Contains(err.Error(), transport.ErrAuthRequired.Error()) && !strings.Contains(err.Error(), "log in to") {
		t.Errorf("with a revoked login: %v", err)
	}
	if err := person.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := session.Call[string](t.Context(), s, "open", nil); err != nil || got != "opened" {
		t.Errorf("%q, %v", got, err)
	}
}
