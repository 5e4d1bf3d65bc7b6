package client_test

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A session is there before its server, which is installed and updated later:
// calls are refused, or wait.
func TestStartWaitsForNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, old := answering(map[string]string{protocol.MethodPing: `{}`}), speaking("1999-01-01")
		defer old.close()
		defer s.close()
		opens, told := 0, 0
		c := client.New(clientInfo, client.Options{OnEvent: onTools(func(context.Context, *client.Session) { told++ })})
		session, err := c.Start(t.Context(), "search", opener(func(ctx context.Context) (transport.Link, error) {
			switch opens++; opens {
			case 1:
				return nil, exec.ErrNotFound
			case 2:
				return old.Open(ctx)
			default:
				return s.Open(ctx)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		refused := new(conn.CallError)
		if err := session.Ping(t.Context()); !errors.As(err, &refused) || refused.Cause != conn.Refused || refused.Delivery != conn.NotSent {
			t.Errorf("before there was a server Ping returned %v", err)
		}
		if found, ok := client.SessionOf(session.Conn()); !ok || found.Conn() != session.Conn() || session.Conn().Name() != "search" {
			t.Errorf("the session of %q is not found", session.Conn().Name())
		}
		if err := session.With(client.CallOptions{WaitForReady: true}).Ping(t.Context()); err != nil || opens != 3 {
			t.Errorf("Ping returned %v after %d attempts", err, opens)
		}
		if synctest.Wait(); told != 1 {
			t.Errorf("told of the tools %d times", told)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A name that is taken is not another session's, be it taken here or elsewhere.
func TestStartWithANameThatIsTaken(t *testing.T) {
	names := registry.New(registry.Options{})
	here, elsewhere := supervisor.New(supervisor.Options{Registry: names}), supervisor.New(supervisor.Options{Registry: names})
	if _, err := client.New(clientInfo, client.Options{Supervisor: here}).Start(t.Context(), "search", nowhere); err != nil {
		t.Fatal(err)
	}
	for on, want := range map[*supervisor.Supervisor]any{here: new(*supervisor.DuplicateError), elsewhere: new(*registry.TakenError)} {
		defer on.Stop(context.Background())
		if _, err := client.New(clientInfo, client.Options{Supervisor: on}).Start(t.Context(), "search", nowhere); !errors.As(err, want) {
			t.Errorf("got %v", err)
		}
	}
}

var nowhere = opener(func(context.Context) (transport.Link, error) { return nil, exec.ErrNotFound })

// What the program calls final, and FailFast, ends a session that waits for its
// first server.
func TestStartedSessionEnds(t *testing.T) {
	for name, o := range map[string]client.Options{
		"FailFast": {FailFast: true},
		"Final":    {Conn: conn.Options{Final: func(why conn.Reason) bool { return why.Kind == conn.ExecutableMissing }}},
	} {
		synctest.Test(t, func(t *testing.T) {
			session, err := client.New(clientInfo, o).Start(t.Context(), "", nowhere)
			if err != nil {
				t.Fatal(err)
			}
			if err := session.Conn().AwaitReady(t.Context()); !errors.Is(err, exec.ErrNotFound) {
				t.Errorf("%s: AwaitReady returned %v", name, err)
			}
			if err := session.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Nothing is left of a session that is closed before its server was there.
func TestStartedSessionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := supervisor.New(supervisor.Options{})
		c := client.New(clientInfo, client.Options{Supervisor: all, OnEvent: onTools(func(context.Context, *client.Session) { t.Error("told of tools") })})
		session, err := c.Start(t.Context(), "search", nowhere)
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		synctest.Wait()
		if state := session.Conn().State(); state != conn.Backoff {
			t.Errorf("it is %s", state)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if child, ok := all.Child("search"); !ok || child.Err() != nil {
			t.Errorf("its child ended with %v", child.Err())
		}
		if err := all.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestStartIsRefused(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.New(clientInfo, client.Options{}).Start(ended, "search", nowhere); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := client.New(clientInfo, client.Options{ProtocolVersion: "1999-01-01"}).Start(t.Context(), "search", nowhere); err == nil {
		t.Error("an unknown revision was accepted")
	}
}

// slowly is the context of a program whose goroutine is not scheduled for a while: the
// context derived from this one ends with stop, on that goroutine.
type slowly struct {
	context.Context
	until chan struct{}
}

func (s slowly) Value(any) any { return nil } // context.WithCancel calls AfterFunc then

func (s slowly) AfterFunc(func()) (stop func() bool) {
	return func() bool { <-s.until; return true }
}

// OnEvent is told when the server of a Start is there for the first time,
// however fast it was there.
func TestStartTellsOfAFastServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ready, told := answering(nil), make(chan struct{}), 0
		var waiting sync.WaitGroup
		defer s.close()
		all := supervisor.New(supervisor.Options{Registry: registry.New(registry.Options{})})
		c := client.New(clientInfo, client.Options{
			Supervisor: all,
			Conn: conn.Options{Hooks: telemetry.Hooks{Transition: func(e telemetry.Transition) {
				if e.To == string(conn.Ready) {
					close(ready)
				}
			}}},
			OnEvent: onTools(func(_ context.Context, s *client.Session) {
				told++
				waiting.Go(func() { // Start has not returned yet
					if err := s.Wait(); err != nil {
						t.Error(err)
					}
				})
			}),
		})
		session, err := c.Start(slowly{t.Context(), ready}, "search", specification.WatchClient(t, s))
		if err != nil {
			t.Fatal(err)
		}
		<-ready
		if synctest.Wait(); told != 1 {
			t.Errorf("told %d times", told)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
		waiting.Wait()
		_ = all.Stop(t.Context())
	})
}
