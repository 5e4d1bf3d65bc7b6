package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// An unreachable is an endpoint that never answers.
type unreachable string

func (u unreachable) Traits() transport.Traits { return transport.Traits{Endpoint: string(u)} }

func (unreachable) Open(context.Context) (transport.Link, error) {
	return nil, errors.New("connection refused")
}

// A Client keeps nothing of an endpoint after its sessions were closed, also if they never had a server. Of sessions that were only
// stopped it keeps a few.
//
// Guarantees: G-0001.19
func TestNothingIsKeptOfAnUnreachableEndpoint(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*testing.T, *Session)
		most int
	}{
		"closed": {func(t *testing.T, s *Session) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = s.Close(ctx)
		}, 0},
		"stopped":                   {func(_ *testing.T, s *Session) { s.Stop() }, 16},
		"stopped during an attempt": {func(_ *testing.T, s *Session) { s.Wake(); s.Stop() }, 16},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := New(protocol.Implementation{Name: "c", Version: "1"}, Options{})
			for i := range 100 {
				s, err := c.Start(t.Context(), fmt.Sprint(i), unreachable(fmt.Sprintf("https://%d", i)))
				if err != nil {
					t.Fatal(err)
				}
				if i%2 == 0 {
					timer := time.NewTimer(time.Second)
					<-timer.C
				}
				test.end(t, s)
				synctest.Wait()
			}
			if n := c.outages.Len(); n > test.most {
				t.Errorf("%s: the client keeps %d endpoints, want at most %d", name, n, test.most)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A countedOutage is an endpoint that never answers, and counts attempts.
type countedOutage struct {
	unreachable
	attempts *atomic.Int64
}

func (c countedOutage) Open(ctx context.Context) (transport.Link, error) {
	c.attempts.Add(1)
	return c.unreachable.Open(ctx)
}

// When another session finds its endpoint, a session tries at once, but not twice in a row: after a failure it waits for its backoff.
//
// Guarantees: G-0001.19
func TestASessionTriesEarlyOnceInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(protocol.Implementation{Name: "c", Version: "1"}, Options{})
		var attempts atomic.Int64
		if _, err := c.Start(t.Context(), "a", countedOutage{"https://a", &attempts}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			<-time.NewTimer(5*time.Minute + time.Second/2).C
			before := attempts.Load()
			for range 3 {
				c.outages.End("https://a")
				synctest.Wait()
			}
			if n := attempts.Load() - before; n != 1 {
				t.Errorf("there were %d early attempts, want 1", n)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
