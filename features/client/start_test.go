package client_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
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

// Start returns a session without a server, which may be installed later. Until then
// calls are refused, or wait.
func TestStartWaitsForNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, old := answering(map[string]string{protocol.MethodPing: `{}`}), serverOfVersion("1999-01-01")
		defer old.close()
		defer s.close()
		opens, reported := 0, 0
		c := client.New(clientInfo, client.Options{OnEvent: onToolsChanged(func(context.Context, *client.Session) { reported++ })})
		session, err := c.Start(t.Context(), "search", openFunc(func(ctx context.Context) (transport.Link, error) {
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
			t.Errorf("without a server Ping returned %v", err)
		}
		if found, ok := client.SessionOf(session.Conn()); !ok || found.Conn() != session.Conn() || session.Conn().Name() != "search" {
			t.Errorf("the session of %q is not found, want it", session.Conn().Name())
		}
		if err := session.With(client.CallOptions{WaitForReady: true}).Ping(t.Context()); err != nil || opens != 3 {
			t.Errorf("Ping returned %v after %d attempts", err, opens)
		}
		if synctest.Wait(); reported != 1 {
			t.Errorf("got %d events of the tools, want 1", reported)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Start fails if the name is taken, by a session of this supervisor or of another one.
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

var nowhere = openFunc(func(context.Context) (transport.Link, error) { return nil, exec.ErrNotFound })

// A failure that the program calls final, and FailFast, end a session that waits for
// its first server.
func TestStartedSessionEnds(t *testing.T) {
	for name, o := range map[string]client.Options{
		"FailFast": {FailFast: true},
		"Final":    {Conn: conn.Tuning{Final: func(why conn.Reason) bool { return why.Kind == conn.ExecutableMissing }}},
	} {
		synctest.Test(t, func(t *testing.T) {
			session, err := client.New(clientInfo, o).Start(t.Context(), "", nowhere)
			if err != nil {
				t.Fatal(err)
			}
			if err := session.Conn().AwaitReady(t.Context()); !errors.Is(err, exec.ErrNotFound) {
				t.Errorf("%s: AwaitReady returned %v, want %v", name, err, exec.ErrNotFound)
			}
			if err := session.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// If a session is closed before its server connected, nothing of it is left.
func TestStartedSessionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := supervisor.New(supervisor.Options{})
		c := client.New(clientInfo, client.Options{Supervisor: all, OnEvent: onToolsChanged(func(context.Context, *client.Session) { t.Error("got an event of the tools, want none") })})
		session, err := c.Start(t.Context(), "search", nowhere)
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		synctest.Wait()
		if state := session.Conn().State(); state != conn.Backoff {
			t.Errorf("the state is %s, want %v", state, conn.Backoff)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if child, ok := all.Child("search"); !ok || child.Err() != nil {
			t.Errorf("the child ended with %v", child.Err())
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
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if _, err := client.New(clientInfo, client.Options{ProtocolVersion: "1999-01-01"}).Start(t.Context(), "search", nowhere); err == nil {
		t.Error("Start with an unknown revision succeeded, want an error")
	}
}

// delayedContext is the context of a program whose goroutine does not run for a while: a
// context derived from this one ends with stop, on that goroutine.
type delayedContext struct {
	context.Context
	until chan struct{}
}

func (s delayedContext) Value(any) any { return nil } // makes context.WithCancel call AfterFunc

func (s delayedContext) AfterFunc(func()) (stop func() bool) {
	return func() bool { <-s.until; return true }
}

// A session that starts without a server tells how long it was without one.
func TestTimeWithoutAFirstServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFlakyEndpoint("", errors.New("nobody is there"))
		defer p.close()
		p.out.Store(true)
		var came []time.Duration
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if restored, ok := e.(*client.Restored); ok {
				came = append(came, restored.Away)
			}
		}})
		session, err := c.Start(t.Context(), "search", p)
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		p.out.Store(false)
		session.Wake()
		synctest.Wait()
		if len(came) != 1 || came[0] != time.Hour {
			t.Errorf("got Restored after %v, want one after %v", came, time.Hour)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// OnEvent gets an event when the server of Start is ready for the first time, however
// fast that is.
func TestStartReportsAFastServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ready, reported := answering(nil), make(chan struct{}), 0
		var waiting sync.WaitGroup
		defer s.close()
		all := supervisor.New(supervisor.Options{Registry: registry.New(registry.Options{})})
		c := client.New(clientInfo, client.Options{
			Supervisor: all,
			Conn: conn.Tuning{Hooks: telemetry.Hooks{Transition: func(e telemetry.Transition) {
				if e.To == string(conn.Ready) {
					close(ready)
				}
			}}},
			OnEvent: onToolsChanged(func(_ context.Context, s *client.Session) {
				reported++
				waiting.Go(func() { // runs before Start has returned
					if err := s.Wait(); err != nil {
						t.Error(err)
					}
				})
			}),
		})
		session, err := c.Start(delayedContext{t.Context(), ready}, "search", specification.WatchClient(t, s))
		if err != nil {
			t.Fatal(err)
		}
		<-ready
		if synctest.Wait(); reported != 1 {
			t.Errorf("got %d events, want 1", reported)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
		waiting.Wait()
		_ = all.Stop(t.Context())
	})
}

// TestAwaitReadyOfAClient waits for two sessions without a server and one with one, within one
// deadline.
func TestAwaitReadyOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(map[string]string{protocol.MethodPing: `{}`})
		defer s.close()
		c := client.New(clientInfo, client.Options{})
		defer c.Close(context.Background())
		for name, to := range map[string]transport.Transport{"a": nowhere, "b": nowhere, "z": openFunc(s.Open)} {
			if _, err := c.Start(t.Context(), name, to); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		started := time.Now()
		err := c.AwaitReady(ctx)
		if waited := time.Since(started); waited != time.Minute || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v, want a deadline exceeded after a minute", waited, err)
		}
		for name, want := range map[string]bool{"a": true, "b": true, "z": false} {
			if named := strings.Contains(fmt.Sprint(err), fmt.Sprintf("server %q: ", name)); named != want {
				t.Errorf("the error names %s: %t, want %t: %v", name, named, want, err)
			}
		}
	})
}
