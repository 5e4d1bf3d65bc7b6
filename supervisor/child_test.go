package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/supervisor"
)

var errBroken = errors.New("broken")

// ways are the ways a Run can end.
var ways = []struct {
	name   string
	end    func() error
	failed bool
}{
	{"nil", returns(nil), false},
	{"error", returns(errBroken), true},
	{"an answer to no stop", returns(context.Canceled), true},
	{"panic", panics("boom"), true},
}

// TestRestartPolicies ends a child of each policy in each way. What is
// restarted is restarted in the same instant.
//
// Guarantees: G-0002.1, G-0002.2, G-0002.3
func TestRestartPolicies(t *testing.T) {
	for _, policy := range []supervisor.Restart{supervisor.Permanent, supervisor.Transient, supervisor.Temporary} {
		for _, way := range ways {
			restarted := policy == supervisor.Permanent || policy == supervisor.Transient && way.failed
			t.Run(fmt.Sprintf("%s/%s", policy, way.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { endOnce(t, policy, way.end, way.failed, restarted) })
			})
		}
	}
}

func endOnce(t *testing.T, policy supervisor.Restart, end func() error, failed, restarted bool) {
	s, child, began := supervisor.New(supervisor.Options{}), newScript(), time.Now()
	c := start(t, s, supervisor.ChildSpec{ID: "a", Run: child.run, Restart: policy})
	child.end(end)
	if got := child.runs.Load() == 2; got != restarted {
		t.Errorf("restarted is %v, want %v", got, restarted)
	}
	if waited := time.Since(began); waited != 0 {
		t.Errorf("%v passed before the restart", waited)
	}
	status := s.Report().Children[0]
	if (status.LastFailure != nil) != failed {
		t.Errorf("the last failure is %v, want one: %v", status.LastFailure, failed)
	}
	if !restarted && ((c.Err() != nil) != failed || !isClosed(c.Done())) {
		t.Errorf("Err is %v, done is %v; want a failure: %v", c.Err(), isClosed(c.Done()), failed)
	}
	if restarted && (c.Err() != nil || isClosed(c.Done()) || status.Restarts != 1) {
		t.Errorf("a restarted child is over: %v, %v", c.Err(), status)
	}
	if err := c.Restart(t.Context()); err != nil || c.Err() != nil || isClosed(c.Done()) {
		t.Errorf("Restart returned %v, Err is %v", err, c.Err())
	}
	stop(t, s)
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// TestPanicIsAFailureOfItsChild: the process lives, the sibling never notices,
// and the failure carries the value and the stack of the panic.
//
// Guarantees: G-0002.3
func TestPanicIsAFailureOfItsChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, broken, sibling := supervisor.New(supervisor.Options{}), newScript(), newScript()
		start(t, s, supervisor.ChildSpec{ID: "sibling", Run: sibling.run})
		c := start(t, s, supervisor.ChildSpec{ID: "broken", Run: broken.run, Restart: supervisor.Temporary})
		broken.end(func() error { return explode() })
		var panicked *supervisor.PanicError
		if !errors.As(c.Err(), &panicked) || panicked.Value != "boom" || !strings.Contains(string(panicked.Stack), "explode") {
			t.Errorf("Err is %v, want the panic and its stack", c.Err())
		}
		if sibling.runs.Load() != 1 {
			t.Error("the sibling was restarted")
		}
		stop(t, s)
	})
}

//go:noinline
func explode() error { panic("boom") }

// TestChildStop stops one child of two, and again. It is not restarted.
func TestChildStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, child := supervisor.New(supervisor.Options{}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "other", Run: idle})
		c := start(t, s, supervisor.ChildSpec{ID: "a", Run: child.run})
		for range 2 {
			if err := c.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := states(s.Report().Children); got["a"] != supervisor.Stopped || got["other"] != supervisor.Running || child.runs.Load() != 1 {
			t.Errorf("got %v after %d runs", got, child.runs.Load())
		}
		stop(t, s)
	})
}

// TestContextOfARun ends with the Run, and with the cause ErrStopped when the
// child is to stop.
func TestContextOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var contexts []context.Context
		fail := make(chan struct{})
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{Run: func(ctx context.Context) error {
			contexts = append(contexts, ctx)
			select {
			case <-fail:
				return errBroken
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		fail <- struct{}{}
		synctest.Wait()
		if contexts[0].Err() == nil || contexts[1].Err() != nil {
			t.Errorf("after the restart the contexts are %v", contexts)
		}
		stop(t, s)
		if cause := context.Cause(contexts[1]); cause != supervisor.ErrStopped {
			t.Errorf("the cause is %v, want ErrStopped", cause)
		}
	})
}

// TestStopAnswers: only what repeats the stop is no failure.
func TestStopAnswers(t *testing.T) {
	for _, answer := range []struct {
		err   error
		clean bool
	}{
		{nil, true},
		{context.Canceled, true},
		{supervisor.ErrStopped, true},
		{fmt.Errorf("reading: %w", context.Canceled), true},
		{errBroken, false},
		{errors.Join(context.Canceled, supervisor.ErrStopped), true},
		{errors.Join(context.Canceled, errBroken), false},
		{fmt.Errorf("late: %w", fmt.Errorf("%w, %w", errBroken, context.Canceled)), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := supervisor.New(supervisor.Options{})
			c := start(t, s, supervisor.ChildSpec{Run: func(ctx context.Context) error { <-ctx.Done(); return answer.err }})
			if err := c.Stop(t.Context()); (err == nil) != answer.clean {
				t.Errorf("answered %v: Stop returned %v", answer.err, err)
			}
			stop(t, s)
		})
	}
}

// TestChildStopNamesAStuckChild: Stop waits exactly the child's Shutdown, or until
// its context ends, and names the child either way. The supervisor keeps it
// listed, and its id taken, until it is gone.
//
// Guarantees: G-0002.6
func TestChildStopNamesAStuckChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, began := supervisor.New(supervisor.Options{}), time.Now()
		c := start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release), Shutdown: time.Second})
		var stuck *supervisor.StuckError
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := c.Stop(ctx); !errors.As(err, &stuck) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop returned %v, want a *StuckError with the context's cause", err)
		}
		for range 2 {
			if err := c.Stop(t.Context()); !errors.As(err, &stuck) || stuck.Children[0] != "stuck" {
				t.Errorf("Stop returned %v, want a *StuckError that names stuck", err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("Stop took %v, want its Shutdown", took)
			}
		}
		var duplicate *supervisor.DuplicateError
		if _, err := s.Start(context.Background(), supervisor.ChildSpec{ID: "stuck", Run: idle}); !errors.As(err, &duplicate) || duplicate.ID != "stuck" {
			t.Errorf("Start returned %v, want a *DuplicateError", err)
		}
		close(release)
		<-c.Done()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("once it is gone, Stop returned %v", err)
		}
		stop(t, s)
	})
}

// TestStuckChildrenHaveTheirOwnTime: whoever is told later may be overdue earlier.
//
// Guarantees: G-0002.6
func TestStuckChildrenHaveTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release, began := supervisor.New(supervisor.Options{}), make(chan struct{}), time.Now()
		patient := start(t, s, supervisor.ChildSpec{Run: ignoresStop(release), Shutdown: time.Hour})
		hurried := start(t, s, supervisor.ChildSpec{Run: ignoresStop(release), Shutdown: time.Second})
		go patient.Stop(t.Context())
		synctest.Wait()
		if err := hurried.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) || time.Since(began) != time.Second {
			t.Errorf("Stop returned %v after %v", err, time.Since(began))
		}
		close(release)
		synctest.Wait()
		stop(t, s)
	})
}

// The longest Shutdown that there is means for ever, and is no business of the
// others: each of them has its own.
//
// Guarantees: G-0002.6
func TestLongestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		patient := start(t, s, supervisor.ChildSpec{ID: "patient", Shutdown: math.MaxInt64, Run: ignoresStop(release)})
		other := start(t, s, supervisor.ChildSpec{ID: "stuck", Shutdown: time.Second, Run: ignoresStop(release)})
		go patient.Stop(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if err := other.Stop(ctx); time.Since(began) != time.Second {
			t.Errorf("Stop took %v, and not the second of its Shutdown: %v", time.Since(began), err)
		}
		close(release)
		synctest.Wait()
		stop(t, s)
	})
}
