package conn_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// A function that Control.Go has started goes on when Run is interrupted. It ends, and Run waits for
// it, when the Conn is stopped.
//
// Guarantees: G-0009.9
func TestBackgroundFunctionEndsWithItsConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var returned atomic.Int64
		c := conn.New(opening(fresh), conn.Options{})
		for range 2 {
			c.Control().Go("watching", func(ctx context.Context) {
				<-ctx.Done()
				<-time.NewTimer(time.Millisecond).C
				returned.Add(1)
			})
		}
		ctx, interrupt := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		interrupt(conn.ErrInterrupted)
		if err := <-ended; !errors.Is(err, conn.ErrInterrupted) || returned.Load() != 0 {
			t.Errorf("Run: %v, %d functions have ended; want ErrInterrupted and 0", err, returned.Load())
		}
		r := start(c)
		synctest.Wait()
		r.Stop()
		if err := <-r.ended; err != nil || returned.Load() != 2 {
			t.Errorf("Run: %v, %d functions have ended; want no error and 2", err, returned.Load())
		}
		if c.Control().Go("late", func(context.Context) { t.Error("the function runs although the Conn is closed") }) {
			t.Error("Go returned true although the Conn is closed")
		}
	})
}

// If background functions do not end within StopGrace, Run returns a StuckError with their names.
//
// Guarantees: G-0009.9
func TestBackgroundFunctionThatDoesNotEndIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release, began := make(chan struct{}), time.Now()
		r := scripted(t, &script{}, conn.Options{})
		for _, name := range []string{"watching", "counting"} {
			r.Control().Go(name, func(context.Context) { <-release })
		}
		r.Stop()
		var stuck *conn.StuckError
		if err := <-r.ended; !errors.As(err, &stuck) || !slices.Equal(stuck.Tasks, []string{"counting", "watching"}) {
			t.Errorf("Run: %v, want a StuckError with both names", err)
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("Run returned after %v, want 100ms", took)
		}
		close(release)
	})
}

// If a link panics and the Conn ends with that, Run waits for the background functions, too.
//
// Guarantees: G-0009.9
func TestBackgroundFunctionEndsWithAConnThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		returned := false
		s := &script{onSend: func(*script, transport.Outbound) error { panic("send") }}
		r := start(conn.Accept(s, conn.Options{}))
		r.Control().Go("watching", func(ctx context.Context) { <-ctx.Done(); returned = true })
		synctest.Wait()
		<-r.calling(t.Context(), conn.Request{Method: "m"})
		if <-r.ended; !returned {
			t.Error("Run returned before the background function")
		}
	})
}

// A panic of a background function is reported to the hooks, and does not end the Conn.
//
// Guarantees: G-0009.9
func TestPanicOfABackgroundFunctionIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reported := panics{}
		r := scripted(t, &script{}, conn.Options{Tuning: conn.Tuning{Hooks: reported.hooks()}})
		r.Control().Go("panicking", func(context.Context) { panic("no") })
		synctest.Wait()
		if reported["panicking"] != "no" || r.State() != conn.Ready {
			t.Errorf("panics %v, state %s; want one of \"panicking\", and ready", reported, r.State())
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// A Run that is interrupted neither waits for background functions nor names them in its error.
//
// Guarantees: G-0009.9
func TestInterruptionDoesNotNameBackgroundFunctions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := conn.New(opening(fresh), conn.Options{})
		c.Control().Go("watching", func(ctx context.Context) { <-ctx.Done() })
		ctx, interrupt := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		interrupt(conn.ErrInterrupted)
		if synctest.Wait(); len(ended) == 0 {
			t.Error("Run waits for the background function")
		}
		if err := <-ended; err.Error() != conn.ErrInterrupted.Error() {
			t.Errorf("Run: %v, want %v", err, conn.ErrInterrupted)
		}
		r := start(c)
		r.Stop()
		<-r.ended
	})
}

// Cancel ends a run as the end of its context does: with ErrInterrupted the Conn can be
// started again, with any other cause it is closed for good.
func TestCancelEndsARun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := conn.New(opening(fresh), conn.Options{})
		c.Control().Cancel(errors.New("before the start, when nothing is cancelled"))
		for _, cause := range []error{conn.ErrInterrupted, errors.New("enough")} {
			ended := make(chan error, 1)
			if err := c.Start(context.Background(), func(err error) { ended <- err }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if state := c.State(); state != conn.Ready {
				t.Errorf("the state is %s, want %s", state, conn.Ready)
			}
			c.Control().Cancel(cause)
			if err := <-ended; errors.Is(cause, conn.ErrInterrupted) != errors.Is(err, conn.ErrInterrupted) {
				t.Errorf("after Cancel(%v) the run ended with %v", cause, err)
			}
		}
		if why := c.Status(); why.State != conn.Closing || !strings.Contains(why.Reason.Error(), "enough") {
			t.Errorf("got the state %s because of %v, want %s because of the second cause", why.State, why.Reason, conn.Closing)
		}
	})
}
