package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/telemetry"
)

// Events are still delivered after a panic of OnEvent.
//
// Guarantees: G-0021.6
func TestOnEventThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reported, panics := listenServer(acknowledgeOnly), 0, 0
		_, err := connect(t, s, client.Options{
			Conn: conn.Tuning{Name: "search", Hooks: telemetry.Hooks{Panic: func(p telemetry.Panic) {
				if panics++; p.Where != "OnEvent" || p.Conn != "search" {
					t.Errorf("got the panic %+v, want p.Where == %q and p.Conn == %q", p, "OnEvent", "search")
				}
			}}},
			OnEvent: onToolsChanged(func(context.Context, *client.Session) {
				if reported++; reported <= 2 {
					panic("no")
				}
			}),
		}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			synctest.Wait()
			s.sendFrame(announcement)
		}
		if synctest.Wait(); reported != 4 || panics != 2 {
			t.Errorf("got %d events and %d panics, want 4 and 2", reported, panics)
		}
	})
}

// stuckInOnEvent connects a session whose OnEvent runs until the test releases it.
func stuckInOnEvent(t *testing.T, o client.Options) (session *client.Session, release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	o.OnEvent = onToolsChanged(func(context.Context, *client.Session) { <-release })
	session, err := connect(t, listenServer(acknowledgeOnly), o, time.Minute)
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

// Close returns an error that names an OnEvent that does not return.
//
// Guarantees: G-0021.6
func TestCloseNamesAStuckCallback(t *testing.T) {
	for n, deadline := range []time.Duration{time.Millisecond, time.Second, time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var o client.Options
			if n == 3 { // the supervisor goes on, and cannot name it afterwards
				o.Supervisor = supervisor.New(supervisor.Options{})
				defer o.Supervisor.Stop(t.Context())
			}
			session, release := stuckInOnEvent(t, o)
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

// OnEvent must not close its session. If it does, Close returns an error after a
// limited time.
//
// Guarantees: G-0021.6
func TestCloseByOnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan error, 1)
		_, err := connect(t, listenServer(acknowledgeOnly), client.Options{OnEvent: onToolsChanged(func(_ context.Context, s *client.Session) {
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

// The supervisor, too, waits for OnEvent before the session ends.
//
// Guarantees: G-0021.6
func TestSupervisorWaitsForOnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, over := supervisor.New(supervisor.Options{}), false
		_, err := connect(t, listenServer(acknowledgeOnly), client.Options{Supervisor: all, OnEvent: onToolsChanged(func(ctx context.Context, _ *client.Session) {
			<-ctx.Done()
			pass(50 * time.Millisecond)
			over = true
		})}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := all.Close(t.Context()); err != nil || !over {
			t.Errorf("Close of the supervisor returned %v, and OnEvent has returned: %t", err, over)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		all := supervisor.New(supervisor.Options{})
		_, release := stuckInOnEvent(t, client.Options{Supervisor: all})
		if err := all.Stop(t.Context()); !isNamed(err) {
			t.Errorf("Stop of the supervisor returned %v", err)
		}
		close(release)
	})
}

// The changes that wait for the program are bounded in bytes: beyond that, further ones wait
// in the connection, whose limits apply.
//
// Guarantees: G-0030.3
func TestWaitingChangesAreBoundedInBytes(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, change := range map[string]func(n int) string{
		"resources": func(n int) string { return updated(fmt.Sprintf("file:///%d/%s", n, long)) },
		"elicitations": func(n int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"%d %s"}}`, n, long)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			busy := make(chan struct{})
			seen := 0
			s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
			session := openFake(t, s, client.Options{
				Conn: conn.Tuning{MaxNotifications: 10},
				OnEvent: func(context.Context, *client.Session, client.Event) {
					seen++
					<-busy
				},
			})
			send := func(from, to int) {
				for n := from; n < to; n++ {
					s.sendFrame(change(n))
					synctest.Wait()
				}
			}
			if send(0, 10); session.Conn().Stats().Shed != 0 || session.Conn().Stats().Stalls != 0 {
				t.Errorf("%s: got %+v for changes of 1 MB, want no dropped message and no stall", name, session.Conn().Stats())
			}
			if send(10, 50); session.Conn().Stats().Shed == 0 && session.Conn().Stats().Stalls == 0 {
				t.Errorf("%s: got %+v for changes of 5 MB, want dropped messages or stalls", name, session.Conn().Stats())
			}
			close(busy)
			synctest.Wait()
			if seen < 20 || seen > 50 {
				t.Errorf("%s: got %d events, want 20 to 50", name, seen)
			}
			seen = 0
			if send(50, 60); seen != 10 {
				t.Errorf("%s: got %d events when the program is free again, want 10", name, seen)
			}
		})
	}
}

// A thousand changes wait for the program before further ones wait in the connection.
//
// Guarantees: G-0030.3
func TestWaitingChangesAreBoundedInNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := make(chan struct{})
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{
			Conn:    conn.Tuning{MaxNotifications: 10},
			OnEvent: func(context.Context, *client.Session, client.Event) { <-busy },
		})
		send := func(from, to int) (held uint64) {
			for n := from; n < to; n++ {
				s.sendFrame(updated(fmt.Sprintf("file:///%d", n)))
				synctest.Wait()
			}
			return session.Conn().Stats().Shed + session.Conn().Stats().Stalls
		}
		if held := send(0, 1000); held != 0 {
			t.Errorf("%d of a thousand changes were dropped or stalled, want none", held)
		}
		if held := send(1000, 1100); held == 0 {
			t.Error("no change after a thousand was dropped or stalled")
		}
		close(busy)
	})
}
