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

// A background function outlives its links and its Runs, and not the Conn.
//
// Guarantees: G-0009.9
func TestBackgroundFunctionEndsWithItsConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var over atomic.Int64
		c := conn.New(opening(fresh), conn.Options{})
		for range 2 {
			c.Go("watching", func(ctx context.Context) {
				<-ctx.Done()
				<-time.NewTimer(time.Millisecond).C
				over.Add(1)
			})
		}
		ctx, interrupt := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		interrupt(conn.ErrInterrupted)
		if err := <-ended; !errors.Is(err, conn.ErrInterrupted) || over.Load() != 0 {
			t.Errorf("Run: %v, %d are over", err, over.Load())
		}
		r := start(c)
		synctest.Wait()
		r.Stop()
		if err := <-r.ended; err != nil || over.Load() != 2 {
			t.Errorf("Run: %v, %d of 2 are over", err, over.Load())
		}
		if c.Go("late", func(context.Context) { t.Error("it runs although the Conn is closed") }) {
			t.Error("a Conn that is closed has taken it")
		}
	})
}

// Guarantees: G-0009.9
func TestBackgroundFunctionThatGoesOnIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release, began := make(chan struct{}), time.Now()
		r := scripted(t, &script{}, conn.Options{})
		for _, name := range []string{"watching", "counting"} {
			r.Go(name, func(context.Context) { <-release })
		}
		r.Stop()
		var stuck *conn.StuckError
		if err := <-r.ended; !errors.As(err, &stuck) || !slices.Equal(stuck.Tasks, []string{"counting", "watching"}) {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		close(release)
	})
}

// Guarantees: G-0009.9
func TestBackgroundFunctionOfAConnThatPanicsForGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		over := false
		s := &script{onSend: func(*script, transport.Outbound) error { panic("send") }}
		r := start(conn.Accept(s, conn.Options{}))
		r.Go("watching", func(ctx context.Context) { <-ctx.Done(); over = true })
		synctest.Wait()
		<-r.calling(t.Context(), conn.Request{Method: "m"})
		if <-r.ended; !over {
			t.Error("it is still watching")
		}
	})
}

// Guarantees: G-0009.9
func TestPanicOfABackgroundFunctionIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		told := panics{}
		r := scripted(t, &script{}, conn.Options{Hooks: told.hooks()})
		r.Go("panicking", func(context.Context) { panic("no") })
		synctest.Wait()
		if told["panicking"] != "no" || r.State() != conn.Ready {
			t.Errorf("told %v, the state is %s", told, r.State())
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// An interruption is no reason to wait for background functions, nor to name
// it.
//
// Guarantees: G-0009.9
func TestInterruptionDoesNotNameBackgroundFunctions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := conn.New(opening(fresh), conn.Options{})
		c.Go("watching", func(ctx context.Context) { <-ctx.Done() })
		ctx, interrupt := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		interrupt(conn.ErrInterrupted)
		if synctest.Wait(); len(ended) == 0 {
			t.Error("Run waits for it")
		}
		if err := <-ended; err.Error() != conn.ErrInterrupted.Error() {
			t.Errorf("Run: %v", err)
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
		c.Cancel(errors.New("before the start, when nothing is cancelled"))
		for _, cause := range []error{conn.ErrInterrupted, errors.New("enough")} {
			ended := make(chan error, 1)
			if err := c.Start(context.Background(), func(err error) { ended <- err }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if state := c.State(); state != conn.Ready {
				t.Errorf("the state is %s, want %s", state, conn.Ready)
			}
			c.Cancel(cause)
			if err := <-ended; errors.Is(cause, conn.ErrInterrupted) != errors.Is(err, conn.ErrInterrupted) {
				t.Errorf("after Cancel(%v) the run ended with %v", cause, err)
			}
		}
		if why := c.Status(); why.State != conn.Closing || !strings.Contains(why.Reason.Error(), "enough") {
			t.Errorf("got the state %s because of %v, want %s because of the second cause", why.State, why.Reason, conn.Closing)
		}
	})
}
