//go:build unix

package sessions

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A recordedLogin adds nothing to requests, and calls closing when it is closed.
type recordedLogin struct{ closing func() }

func (recordedLogin) Authorize(context.Context, *http.Request) error { return nil }

func (recordedLogin) Challenged(context.Context, *http.Request, *transport.StatusError) (bool, error) {
	return false, nil
}

func (recordedLogin) OnLogin(func()) {}

func (l recordedLogin) Close() error {
	l.closing()
	return nil
}

// TestALoginIsClosedAfterItsSession removes a server from the file during a call. The call
// still needs its login when it is sent again, so the login is closed only after the session
// has ended.
//
// Guarantees: G-0041.5
func TestALoginIsClosedAfterItsSession(t *testing.T) {
	working, finish := make(chan struct{}), make(chan struct{})
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "work"}, func(context.Context, struct{}) (string, error) {
		close(working)
		<-finish
		return "done", nil
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	site := httptest.NewServer(endpoint)
	defer site.Close()
	defer endpoint.Close(time.Second)
	var session *client.Session
	atClose := make(chan conn.State, 1)
	set := newSet(t, Options{Login: func(*mcpjson.Server) (Login, error) {
		return recordedLogin{func() { atClose <- session.Status().State }}, nil
	}})
	if err := apply(t, set, parse(t, `"a": {"url": "`+site.URL+`"}`), Changes{Started: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	session, _ = set.Session("a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answers := make(chan error, 1)
	go func() {
		_, err := client.Call[string](ctx, session.With(client.CallOptions{WaitForReady: true}), "work", struct{}{})
		answers <- err
	}()
	select {
	case <-working:
	case <-ctx.Done():
		t.Fatal("the call did not begin")
	}
	applied := make(chan error, 1)
	go func() {
		_, err := set.Apply(ctx, parse(t, ``))
		applied <- err
	}()
	for session.Ping(ctx) == nil { // until the session is being closed
	}
	close(finish)
	if err := errors.Join(<-answers, <-applied); err != nil {
		t.Error(err)
	}
	if state := <-atClose; state != conn.Closing {
		t.Errorf("the login was closed when its session was %v", state)
	}
}

// TestAServerThatCannotBeStartedKeepsNoLogin starts a server whose name another child of the
// program's supervisor has.
//
// Guarantees: G-0041.3, G-0041.5
func TestAServerThatCannotBeStartedKeepsNoLogin(t *testing.T) {
	shared := supervisor.New(supervisor.Options{})
	defer shared.Stop(context.Background())
	other := client.New(protocol.Implementation{Name: "other", Version: "1"}, client.Options{Supervisor: shared})
	defer other.Close(context.Background())
	if _, err := other.Start(t.Context(), "taken", away{}); err != nil {
		t.Fatal(err)
	}
	closed := 0
	set := newSet(t, Options{
		Client: client.Options{Supervisor: shared},
		Login:  func(*mcpjson.Server) (Login, error) { return recordedLogin{func() { closed++ }}, nil },
	})
	err := apply(t, set, parse(t, `"taken": {"url": "http://127.0.0.1:1/mcp"}`), Changes{Failed: []string{"taken"}})
	if err == nil {
		t.Error("a server was started whose name is taken")
	}
	if closed != 1 {
		t.Errorf("its login was closed %d times, want once", closed)
	}
}
