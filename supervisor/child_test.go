package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
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

// TestStuckChildrenHaveTheirOwnTime: a child that is told to stop later may become stuck
// earlier.
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

// TestRestartDuringAStart: a caller that waits for the start waits for the next Init.
//
// Guarantees: G-0002.14
func TestRestartDuringAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, started := supervisor.New(supervisor.Options{}), new(diary), make(chan error, 1)
		go func() {
			_, err := s.Start(t.Context(), newMember("a", d).spec())
			started <- err
		}()
		synctest.Wait()
		c, _ := s.Child("a")
		if err := c.Restart(t.Context()); err != nil {
			t.Errorf("Restart returned %v", err)
		}
		if err := <-started; err != nil {
			t.Errorf("Start returned %v", err)
		}
		stop(t, s)
	})
}

// TestRestartOfAChild stops one that runs, brings back one that is over, and
// counts for no intensity.
//
// Guarantees: G-0002.14
func TestRestartOfAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{Intensity: -1, Strategy: supervisor.OneForAll}), new(diary)
		team(t, s, d)
		b, found := s.Child("b")
		if !found {
			t.Fatal("b is not found")
		}
		if err := b.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.want(t, "b is told", "b is gone", "b starts", "b runs")
		if err := b.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := b.Done()
		d.want(t, "b is told", "b is gone")
		if err := b.Restart(t.Context()); err != nil || isClosed(b.Done()) || !isClosed(done) {
			t.Errorf("Restart returned %v", err)
		}
		d.want(t, "b starts", "b runs")
		if got := ids(s.Report().Children); !slices.Equal(got, []string{"a", "c", "b"}) {
			t.Errorf("listed %v", got)
		}
		stop(t, s)
		if err := b.Restart(t.Context()); !errors.Is(err, supervisor.ErrStopped) {
			t.Errorf("after the stop of the supervisor, Restart returned %v", err)
		}
	})
}

// TestRestartOfAStuckChild names it, and restarts it once it is gone.
//
// Guarantees: G-0002.13, G-0002.14
func TestRestartOfAStuckChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		c := start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresFirstStop(release, &runs)})
		if err := c.Restart(t.Context()); !errors.As(err, new(*supervisor.StuckError)) || runs.Load() > 1 {
			t.Errorf("Restart returned %v after %d runs", err, runs.Load())
		}
		close(release)
		synctest.Wait()
		if runs.Load() != 2 {
			t.Errorf("%d runs", runs.Load())
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Errorf("Stop of its second Run returned %v", err)
		}
		stop(t, s)
	})
}

// TestRestartMeetsANamesake: the id of a child that is over may be another's.
func TestRestartMeetsANamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		first := start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		if err := first.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		if err := first.Restart(t.Context()); !errors.As(err, new(*supervisor.DuplicateError)) {
			t.Errorf("Restart returned %v", err)
		}
		stop(t, s)
	})
}

// TestStopAndRestartAtOnce: a child that is being stopped is stopped, and nobody
// waits in vain.
//
// Guarantees: G-0002.14
func TestStopAndRestartAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		c := start(t, s, newMember("a", new(diary)).spec())
		stopped := make(chan error, 1)
		go func() { stopped <- c.Stop(t.Context()) }()
		synctest.Wait()
		if err := c.Restart(t.Context()); !errors.Is(err, supervisor.ErrStopped) {
			t.Errorf("Restart returned %v", err)
		}
		if err := <-stopped; err != nil || !isClosed(c.Done()) {
			t.Errorf("Stop returned %v", err)
		}
		if err := c.Restart(t.Context()); err != nil {
			t.Errorf("once it is over, Restart returned %v", err)
		}
		restarted := make(chan error, 1)
		go func() { restarted <- c.Restart(t.Context()) }()
		synctest.Wait()
		if err := c.Stop(t.Context()); err != nil || !errors.Is(<-restarted, supervisor.ErrStopped) {
			t.Errorf("Stop returned %v", err)
		}
		stop(t, s)
	})
}

// TestDeletedChildIsForgotten also when it ends only after Delete has given up
// on it. It is listed again once it is brought back.
//
// Guarantees: G-0002.14
func TestDeletedChildIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		c := start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresFirstStop(release, new(atomic.Int64))})
		if err := c.Delete(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
			t.Errorf("Delete returned %v", err)
		}
		if _, ok := s.Child("stuck"); !ok {
			t.Error("a child that runs is not listed")
		}
		close(release)
		synctest.Wait()
		if _, ok := s.Child("stuck"); ok {
			t.Error("a deleted child is listed")
		}
		if err := c.Restart(t.Context()); err != nil {
			t.Errorf("Restart returned %v", err)
		}
		synctest.Wait()
		if _, ok := s.Child("stuck"); !ok {
			t.Error("a child that was brought back is not listed")
		}
		stop(t, s)
	})
}

// TestOldFailureIsForgiven: a child that is brought back, and stopped before it
// could run, has not failed.
func TestOldFailureIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, failing := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne}), newScript()
		c := start(t, s, supervisor.ChildSpec{ID: "a", Run: failing.run, Restart: supervisor.Temporary})
		failing.end(returns(errBroken))
		go s.Start(t.Context(), supervisor.ChildSpec{ID: "hangs", Init: idle, Run: idle})
		synctest.Wait()
		go c.Restart(t.Context())
		synctest.Wait()
		stop(t, s)
		if err := c.Err(); err != nil {
			t.Errorf("Err is %v", err)
		}
	})
}

// TestRestartOfAChildThatStarts: its Init runs again.
//
// Guarantees: G-0002.14
func TestRestartOfAChildThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, inits := supervisor.New(supervisor.Options{}), 0
		init := func(ctx context.Context) error {
			if inits++; inits == 1 {
				return idle(ctx)
			}
			return nil
		}
		started := make(chan error, 1)
		go func() {
			_, err := s.Start(t.Context(), supervisor.ChildSpec{ID: "a", Init: init, Run: idle})
			started <- err
		}()
		synctest.Wait()
		c, _ := s.Child("a")
		if err := c.Restart(t.Context()); err != nil || <-started != nil || inits != 2 {
			t.Errorf("Restart returned %v after %d Inits", err, inits)
		}
		stop(t, s)
	})
}

// Who follows the reports sees that a child was deleted.
//
// Guarantees: G-0002.17
func TestDeleteOutdatesAReport(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			s := supervisor.New(supervisor.Options{})
			c := start(t, s, supervisor.ChildSpec{ID: "gone", Run: idle})
			var last atomic.Pointer[supervisor.Report]
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for {
					r := s.Report()
					last.Store(&r)
					select {
					case <-r.Changed():
					case <-ctx.Done():
						return
					}
				}
			}()
			synctest.Wait()
			if err := c.Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if seen := ids(last.Load().Children); len(seen) != 0 {
				t.Errorf("nothing happens any more, and the last report still has %q", seen)
			}
			cancel()
			stop(t, s)
		})
		if t.Failed() {
			return
		}
	}
}

// Restart returns a StuckError for a child that ignores the stop of its second Init.
//
// Guarantees: G-0002.6
func TestRestartIsToldOfAStuckInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release, again := supervisor.New(supervisor.Options{}), make(chan struct{}), false
		c := start(t, s, supervisor.ChildSpec{ID: "stuck", Run: idle, Init: func(context.Context) error {
			if again {
				<-release
			}
			again = true
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		restarted := make(chan error, 1)
		go func() { restarted <- c.Restart(ctx) }()
		synctest.Wait()
		if err := c.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
			t.Errorf("Stop: %v", err)
		}
		synctest.Wait()
		if len(restarted) == 0 {
			t.Error("Stop has given up on the child, and Restart waits still")
		}
		close(release)
		synctest.Wait()
		_ = s.Stop(t.Context())
	})
}

// wantText wants an error to say so, word for word.
func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestRefusalsOfAStuckChild are true of one that was told to stop, and say what
// can be done.
//
// Guarantees: G-0002.13
func TestRefusalsOfAStuckChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release, runs := supervisor.New(supervisor.Options{Name: "app"}), make(chan struct{}), new(atomic.Int64)
		spec := supervisor.ChildSpec{ID: "a", Run: ignoresFirstStop(release, runs), Shutdown: time.Second}
		c := start(t, s, spec)
		if err := c.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
			t.Errorf("Stop returned %v", err)
		}
		err := c.Restart(t.Context())
		wantText(t, err, `supervisor app: restarting child "a": the child is stopping; it can be restarted when its Done is closed`)
		if !errors.Is(err, supervisor.ErrStopped) || errors.As(err, new(*supervisor.IntensityError)) {
			t.Errorf("Restart returned %v", err)
		}
		_, err = s.Start(t.Context(), spec)
		wantText(t, err, `supervisor app: starting child "a": supervisor app: child id "a" is in use`)
		close(release)
		<-c.Done()
		if err := c.Restart(t.Context()); err != nil {
			t.Errorf("once it is over, Restart returned %v", err)
		}
		stop(t, s)
	})
}
