package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// If the deadline of Close's context passes, Close returns how much work it has cut.
//
// Guarantees: G-0009.7
func TestCloseWithADeadlineReportsUnfinishedWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := scripted(t, &script{}, conn.Options{})
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		impatient := errors.New("the program has no time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, impatient)
		defer cancel()
		err := r.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v, want DeadlineExceeded", err)
		}
		var why conn.Reason
		if !errors.As(err, &why) || why.Kind != conn.Drained {
			t.Errorf("Close: %v, want the reason Drained", err)
		}
		<-result
		<-r.ended
	})
}

// Close also returns how much work it has cut if a handler that does not return takes the rest of
// its time.
//
// Guarantees: G-0009.7
func TestCloseReportsWhatAHandlerHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &script{}
		r := scripted(t, s, conn.Options{Handler: handler{"m": func(context.Context, *conn.Incoming) (json.RawMessage, error) {
			<-release
			return nil, nil
		}}})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a hundredth of it is less than StopGrace
		defer cancel()
		if err := r.Close(ctx); err == nil || !strings.Contains(err.Error(), "1 of the peer's") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v, want an error with \"1 of the peer's\" that is DeadlineExceeded", err)
		}
		close(release)
		<-r.ended
	})
}

// A reply that a busy link has not taken counts as unfinished work in the error of Close.
//
// Guarantees: G-0009.7
func TestCloseReportsAnUnsentReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{Handler: handler{"m": func(context.Context, *conn.Incoming) (json.RawMessage, error) { return nil, nil }}})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		synctest.Wait()
		err := r.Close(context.Background())
		if err == nil || !strings.Contains(err.Error(), "1 messages") {
			t.Errorf("Close: %v, want an error with \"1 messages\"", err)
		}
		<-r.ended
	})
}

// If a Conn is stopped while Close waits, Close returns no error.
//
// Guarantees: G-0009.7
func TestStopDuringClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := conn.New(opens(&script{}), conn.Options{})
		ended, closed := make(chan error, 1), make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		r := run{c, ended}
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		go func() { closed <- c.Close(context.Background()) }()
		synctest.Wait()
		cancel(errors.New("enough"))
		if err := <-closed; err != nil {
			t.Errorf("Close: %v, want no error", err)
		}
		wantEnd(t, <-result, conn.ShutDown, conn.Unknown)
		if err := <-ended; err != nil {
			t.Errorf("Run: %v, want no error", err)
		}
	})
}

// Close waits until the handler has got the notifications that came in before, one after the
// other, and until it has returned.
//
// Guarantees: G-0009.11
func TestCloseWaitsForNotifications(t *testing.T) {
	for name, c := range map[string]struct {
		each time.Duration // how long the handler takes
		took time.Duration
		want int
	}{
		"quick": {0, 0, 10},
		"slow":  {400 * time.Millisecond, 4 * time.Second, 10},
		"late":  {time.Second, 5 * time.Second, 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				handled := 0
				s := &script{}
				r := scripted(t, s, conn.Options{Handler: handler{"m": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
					timer := time.NewTimer(c.each)
					defer timer.Stop()
					select {
					case <-timer.C:
						handled++
					case <-ctx.Done():
					}
					return nil, nil
				}}})
				for range 10 {
					s.deliver(`{"jsonrpc":"2.0","method":"m"}`)
				}
				began := time.Now()
				err := r.Close(context.Background())
				if took := time.Since(began); took.Round(time.Second/10) != c.took || handled < c.want-1 || handled > c.want {
					t.Errorf("Close took %v and %d notifications were handled, want %v and %d", took, handled, c.took, c.want)
				}
				if cut := c.want < 10; cut != errors.Is(err, context.DeadlineExceeded) || cut && !strings.Contains(err.Error(), "notifications were not all handled") {
					t.Errorf("Close: %v, want an error that says that notifications were not handled: %v", err, cut)
				}
				<-r.ended
			})
		})
	}
}

// A handler that ends its goroutine loses its notification only: the later ones are handled,
// and Close waits for them and no longer.
//
// Guarantees: G-0009.11, G-0009.15
func TestCloseAfterAHandlerHasEndedItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		handled, s := 0, &script{}
		r := scripted(t, s, conn.Options{Handler: handler{
			"leave": func(context.Context, *conn.Incoming) (json.RawMessage, error) { runtime.Goexit(); return nil, nil },
			"m":     func(context.Context, *conn.Incoming) (json.RawMessage, error) { handled++; return nil, nil },
		}})
		for _, method := range []string{"leave", "m", "leave", "leave", "m", "leave"} {
			s.deliver(`{"jsonrpc":"2.0","method":"` + method + `"}`)
		}
		began := time.Now()
		if err := r.Close(context.Background()); err != nil || handled != 2 || time.Since(began) != 0 {
			t.Errorf("Close: %v after %v, with %d notifications handled; want no error at once, after 2", err, time.Since(began), handled)
		}
		<-r.ended
	})
}
