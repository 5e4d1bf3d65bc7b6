package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/telemetry"
)

// What tells the program of changes goes on when the program panics.
//
// Guarantees: G-0021.6
func TestOnEventThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told, panics := listening(lastingly), 0, 0
		_, err := connect(t, s, client.Options{
			Conn: conn.Options{Name: "search", Hooks: telemetry.Hooks{Panic: func(p telemetry.Panic) {
				if panics++; p.Where != "OnEvent" || p.Conn != "search" {
					t.Errorf("told of %+v", p)
				}
			}}},
			OnEvent: onTools(func(context.Context, *client.Session) {
				if told++; told <= 2 {
					panic("no")
				}
			}),
		}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			synctest.Wait()
			s.say(announcement)
		}
		if synctest.Wait(); told != 4 || panics != 2 {
			t.Errorf("told %d times, of %d panics", told, panics)
		}
	})
}

// staying connects a session whose OnEvent runs until it is released.
func staying(t *testing.T, o client.Options) (session *client.Session, release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	o.OnEvent = onTools(func(context.Context, *client.Session) { <-release })
	session, err := connect(t, listening(lastingly), o, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return session, release
}

func isNamed(err error) bool {
	var stuck *conn.StuckError
	return errors.As(err, &stuck) && slices.Equal(stuck.Tasks, []string{"OnEvent"})
}

// Guarantees: G-0021.6
func TestCloseNamesAStuckCallback(t *testing.T) {
	for _, deadline := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			session, release := staying(t, client.Options{})
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			began := time.Now()
			if err := session.Close(ctx); !isNamed(err) || time.Since(began) != 100*time.Millisecond {
				t.Errorf("with %v: %v, after %v", deadline, err, time.Since(began))
			}
			close(release)
		})
	}
}

// A program that closes the session where it must not waits in vain, but not for
// ever.
//
// Guarantees: G-0021.6
func TestCloseByOnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan error, 1)
		_, err := connect(t, listening(lastingly), client.Options{OnEvent: onTools(func(_ context.Context, s *client.Session) {
			closed <- s.Close(context.Background())
		})}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-closed; !isNamed(err) {
			t.Errorf("Close: %v", err)
		}
	})
}

// Whoever ends the session waits for what tells the program of changes: its
// supervisor, too.
//
// Guarantees: G-0021.6
func TestSupervisorWaitsForOnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, over := supervisor.New(supervisor.Options{}), false
		_, err := connect(t, listening(lastingly), client.Options{Supervisor: all, OnEvent: onTools(func(ctx context.Context, _ *client.Session) {
			<-ctx.Done()
			pass(50 * time.Millisecond)
			over = true
		})}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := all.Close(t.Context()); err != nil || !over {
			t.Errorf("the supervisor has closed: %v, over: %t", err, over)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		all := supervisor.New(supervisor.Options{})
		_, release := staying(t, client.Options{Supervisor: all})
		if err := all.Stop(t.Context()); !isNamed(err) {
			t.Errorf("the supervisor has stopped: %v", err)
		}
		close(release)
	})
}
