package web

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
)

// A slowAcceptor uses all the time that it has to close.
type slowAcceptor struct{ transport.Acceptor }

func (*slowAcceptor) Close(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// All acceptors have 80 % of the grace together, at the same time, and the handler has 5 % after that.
func TestTheGraceOfAShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		s := Shutdown{Name: "test", Grace: 100 * time.Second, Acceptors: []transport.Acceptor{new(slowAcceptor), nil, new(slowAcceptor), new(slowAcceptor)}}
		s.Close = func(grace time.Duration) error {
			if took := time.Since(begun); took != 80*time.Second || grace != 5*time.Second {
				t.Errorf("after %v the handler has %v, want 5 s after 80 s", took, grace)
			}
			return nil
		}
		if err := s.Run(t.Context()); err != nil {
			t.Error(err)
		}
		late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		if got := GraceOf(late); got != 0 {
			t.Errorf("after the deadline the grace is %v, want 0", got)
		}
	})
}

// What has ended is not interrupted, even without a grace.
func TestNothingIsForcedThatHasEnded(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	for _, grace := range []time.Duration{0, time.Second} {
		if !EndWithin(ended, grace, func() { t.Error("it is interrupted") }) {
			t.Error("it has not ended")
		}
	}
}

// A server may ask for an hour at most.
func TestLongDelaysAreCut(t *testing.T) {
	for header, want := range map[string]time.Duration{"0": 0, "7": 7 * time.Second, "3600": MaxDelay, "3601": MaxDelay, "99999999999999999999": MaxDelay, "-1": 0, "1.5": 0, "": 0} {
		if got := retryAfter(header); got != want {
			t.Errorf("%q: got %v, want %v", header, got, want)
		}
	}
	for protocol, want := range map[string]string{"HTTP/1.0": "1.0", "HTTP/1.1": "1.1", "HTTP/2.0": "2", "HTTP/3.0": "3"} {
		if got := VersionOf(protocol); got != want {
			t.Errorf("%s: got %q, want %q", protocol, got, want)
		}
	}
}

// Without room a short message waits with its sender, and a longer one does not.
func TestAMessageWithoutRoom(t *testing.T) {
	u := &Unread{Small: share.NewLasting(10, 1), Large: share.NewLasting(10, 1)}
	for size, want := range map[int]error{shortMessage: transport.ErrBusy, shortMessage + 1: transport.ErrNoRoom} {
		if err := u.Take(share.Client{Identity: "ada"}, make([]byte, size)); !errors.Is(err, want) {
			t.Errorf("%d bytes: got %v, want %v", size, err, want)
		}
	}
}
