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

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
)

var errBroken = errors.New("broken")

// runEnds are the ways in which a Run can end.
var runEnds = []struct {
	name   string
	end    func() error
	failed bool
}{
	{"nil", returns(nil), false},
	{"error", returns(errBroken), true},
	{"an answer to no stop", returns(context.Canceled), true},
	{"panic", panics("boom"), true},
}

// A child that ends is restarted at once if its policy says so for that way of ending. Otherwise it is over,
// with Err set if it failed.
//
// Guarantees: G-0002.1, G-0002.2, G-0002.3
func TestRestartPolicies(t *testing.T) {
	for _, policy := range []supervisor.Restart{supervisor.Permanent, supervisor.Transient, supervisor.Temporary} {
		for _, way := range runEnds {
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
		t.Errorf("restarted: %v, want %v", got, restarted)
	}
	if waited := time.Since(began); waited != 0 {
		t.Errorf("the restart came after %v, want at once", waited)
	}
	status := s.Report().Children[0]
	if (status.LastFailure != nil) != failed {
		t.Errorf("the last failure is %v, want a failure: %v", status.LastFailure, failed)
	}
	if !restarted && ((c.Err() != nil) != failed || !wait.IsClosed(c.Done())) {
		t.Errorf("Err is %v, Done is closed: %v; want an error: %v, and closed", c.Err(), wait.IsClosed(c.Done()), failed)
	}
	if restarted && (c.Err() != nil || wait.IsClosed(c.Done()) || status.Restarts != 1) {
		t.Errorf("after a restart Err is %v, Done is closed: %v, %v; want neither and one restart",
			c.Err(), wait.IsClosed(c.Done()), status)
	}
	if err := c.Restart(t.Context()); err != nil || c.Err() != nil || wait.IsClosed(c.Done()) {
		t.Errorf("Restart returned %v, Err is %v; want no error", err, c.Err())
	}
	stop(t, s)
}

// A panic of a child is its failure, with the value and the stack. Its siblings go on.
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
			t.Errorf("Err is %v, want a PanicError with the stack", c.Err())
		}
		if sibling.runs.Load() != 1 {
			t.Error("the sibling was restarted")
		}
		stop(t, s)
	})
}

//go:noinline
func explode() error { panic("boom") }

// A child that is stopped is not restarted, and no other child is affected. A second Stop does nothing.
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
			t.Errorf("got %v after %d runs, want a stopped and other running after 1", got, child.runs.Load())
		}
		stop(t, s)
	})
}

// The context of a Run ends when that Run ends. When the child is stopped, its cause is ErrStopped.
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
			t.Errorf("after the restart the contexts are %v, want only the first ended", contexts)
		}
		stop(t, s)
		if cause := context.Cause(contexts[1]); cause != supervisor.ErrStopped {
			t.Errorf("the cause is %v, want ErrStopped", cause)
		}
	})
}

// If a stopped Run returns only errors that mean the stop, it has not failed.
func TestErrorsThatMeanTheStopAreNoFailure(t *testing.T) {
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
				t.Errorf("Run returned %v: Stop returned %v, want an error: %v", answer.err, err, !answer.clean)
			}
			stop(t, s)
		})
	}
}

// Stop waits for a child until its Shutdown has passed or the context ends, and then names it in a
// StuckError. The child stays listed, and its id taken, until it has ended.
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
			t.Errorf("Stop returned %v, want a StuckError with the context's cause", err)
		}
		for range 2 {
			if err := c.Stop(t.Context()); !errors.As(err, &stuck) || stuck.Children[0] != "stuck" {
				t.Errorf("Stop returned %v, want a StuckError with \"stuck\"", err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("Stop took %v, want 1s", took)
			}
		}
		var duplicate *supervisor.DuplicateError
		if _, err := s.Start(context.Background(), supervisor.ChildSpec{ID: "stuck", Run: idle}); !errors.As(err, &duplicate) || duplicate.ID != "stuck" {
			t.Errorf("Start returned %v, want a DuplicateError", err)
		}
		close(release)
		<-c.Done()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("after the child has ended, Stop returned %v, want no error", err)
		}
		stop(t, s)
	})
}

// Each child has its own Shutdown: one that is stopped later may become stuck earlier.
//
// Guarantees: G-0002.6
func TestStuckChildrenHaveTheirOwnShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release, began := supervisor.New(supervisor.Options{}), make(chan struct{}), time.Now()
		patient := start(t, s, supervisor.ChildSpec{Run: ignoresStop(release), Shutdown: time.Hour})
		hurried := start(t, s, supervisor.ChildSpec{Run: ignoresStop(release), Shutdown: time.Second})
		go patient.Stop(t.Context())
		synctest.Wait()
		if err := hurried.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) || time.Since(began) != time.Second {
			t.Errorf("Stop returned %v after %v, want a StuckError after 1s", err, time.Since(began))
		}
		close(release)
		synctest.Wait()
		stop(t, s)
	})
}

// The longest possible Shutdown, and a negative one, have no end, and do not affect that of other children.
//
// Guarantees: G-0002.6
func TestLongestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		patient := start(t, s, supervisor.ChildSpec{ID: "patient", Shutdown: math.MaxInt64, Run: ignoresStop(release)})
		unlimited := start(t, s, supervisor.ChildSpec{ID: "unlimited", Shutdown: -1, Run: ignoresStop(release)})
		other := start(t, s, supervisor.ChildSpec{ID: "stuck", Shutdown: time.Second, Run: ignoresStop(release)})
		go patient.Stop(t.Context())
		go unlimited.Stop(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if err := other.Stop(ctx); time.Since(began) != time.Second {
			t.Errorf("Stop returned %v after %v, want 1s", err, time.Since(began))
		}
		advance(time.Hour)
		for _, c := range s.Report().Children {
			if c.Stuck != (c.ID == "stuck") {
				t.Errorf("%s is stuck: %v", c.ID, c.Stuck)
			}
		}
		close(release)
		synctest.Wait()
		stop(t, s)
	})
}

// If a child is restarted while Start waits for its Init, Start waits for the next Init.
//
// Guarantees: G-0002.14
func TestRestartDuringAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, started := supervisor.New(supervisor.Options{}), new(eventLog), make(chan error, 1)
		go func() {
			_, err := s.Start(t.Context(), newMember("a", d).spec())
			started <- err
		}()
		synctest.Wait()
		c, _ := s.Child("a")
		if err := c.Restart(t.Context()); err != nil {
			t.Errorf("Restart returned %v, want no error", err)
		}
		if err := <-started; err != nil {
			t.Errorf("Start returned %v, want no error", err)
		}
		stop(t, s)
	})
}

// Restart stops a child that runs and runs it again, or runs one that is over. It does not count towards
// the intensity.
//
// Guarantees: G-0002.14
func TestRestartOfAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{Intensity: -1, Strategy: supervisor.OneForAll}), new(eventLog)
		startThree(t, s, d)
		b, found := s.Child("b")
		if !found {
			t.Fatal("child b was not found")
		}
		if err := b.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.want(t, "b is stopping", "b has ended", "b starts", "b runs")
		if err := b.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := b.Done()
		d.want(t, "b is stopping", "b has ended")
		if err := b.Restart(t.Context()); err != nil || wait.IsClosed(b.Done()) || !wait.IsClosed(done) {
			t.Errorf("Restart returned %v, want no error and a new Done", err)
		}
		d.want(t, "b starts", "b runs")
		if got := ids(s.Report().Children); !slices.Equal(got, []string{"a", "c", "b"}) {
			t.Errorf("listed %v, want a, c, b", got)
		}
		stop(t, s)
		if err := b.Restart(t.Context()); !errors.Is(err, supervisor.ErrStopped) {
			t.Errorf("after the supervisor has stopped, Restart returned %v, want ErrStopped", err)
		}
	})
}

// Restart of a child that ignores its stop returns a StuckError, and so does another Restart meanwhile. The child runs again once it has ended.
//
// Guarantees: G-0002.13, G-0002.14
func TestRestartOfAStuckChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		c := start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresFirstStop(release, &runs)})
		for range 2 {
			if err := c.Restart(t.Context()); !errors.As(err, new(*supervisor.StuckError)) || runs.Load() > 1 {
				t.Errorf("Restart returned %v after %d runs, want a StuckError after 1", err, runs.Load())
			}
		}
		close(release)
		synctest.Wait()
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Errorf("Stop of the second Run returned %v, want no error", err)
		}
		stop(t, s)
	})
}

// A child that is over cannot be restarted while another child has its id.
//
// Guarantees: G-0002.14
func TestRestartWhileTheIDIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		first := start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		if err := first.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		if err := first.Restart(t.Context()); !errors.As(err, new(*supervisor.DuplicateError)) {
			t.Errorf("Restart returned %v, want a DuplicateError", err)
		}
		stop(t, s)
	})
}

// Restart of a child that is being stopped returns ErrStopped, and a Stop during a Restart stops it. Neither
// caller waits for ever.
//
// Guarantees: G-0002.14
func TestStopAndRestartConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		c := start(t, s, newMember("a", new(eventLog)).spec())
		stopped := make(chan error, 1)
		go func() { stopped <- c.Stop(t.Context()) }()
		synctest.Wait()
		if err := c.Restart(t.Context()); !errors.Is(err, supervisor.ErrStopped) {
			t.Errorf("Restart returned %v, want ErrStopped", err)
		}
		if err := <-stopped; err != nil || !wait.IsClosed(c.Done()) {
			t.Errorf("Stop returned %v, Done is closed: %v; want no error, true", err, wait.IsClosed(c.Done()))
		}
		if err := c.Restart(t.Context()); err != nil {
			t.Errorf("after the child is over, Restart returned %v, want no error", err)
		}
		restarted := make(chan error, 1)
		go func() { restarted <- c.Restart(t.Context()) }()
		synctest.Wait()
		if err := c.Stop(t.Context()); err != nil || !errors.Is(<-restarted, supervisor.ErrStopped) {
			t.Errorf("Stop returned %v, want no error, and ErrStopped from Restart", err)
		}
		stop(t, s)
	})
}

// A deleted child is no longer listed, even if it ends only after Delete has returned a StuckError. After a
// Restart it is listed again.
//
// Guarantees: G-0002.14
func TestDeletedChildIsNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		c := start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresFirstStop(release, new(atomic.Int64))})
		if err := c.Delete(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
			t.Errorf("Delete returned %v, want a StuckError", err)
		}
		if _, ok := s.Child("stuck"); !ok {
			t.Error("a child that still runs is not listed")
		}
		close(release)
		synctest.Wait()
		if _, ok := s.Child("stuck"); ok {
			t.Error("a deleted child is listed")
		}
		if err := c.Restart(t.Context()); err != nil {
			t.Errorf("Restart returned %v, want no error", err)
		}
		synctest.Wait()
		_ = c.Stop(t.Context())
		if _, ok := s.Child("stuck"); !ok {
			t.Error("a restarted child is not listed when it is over")
		}
		stop(t, s)
	})
}

// A failed child that is restarted, and stopped before it runs, no longer counts as failed.
func TestRestartResetsTheFailure(t *testing.T) {
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
			t.Errorf("Err is %v, want none", err)
		}
	})
}

// Restart of a child whose Init is running runs Init again.
//
// Guarantees: G-0002.14
func TestRestartDuringInit(t *testing.T) {
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
			t.Errorf("Restart returned %v after %d Inits, want no error after 2", err, inits)
		}
		stop(t, s)
	})
}

// Deleting a child outdates the reports that have it.
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
				t.Errorf("the last report still has %q, want no child", seen)
			}
			cancel()
			stop(t, s)
		})
		if t.Failed() {
			return
		}
	}
}

// Deleting a child that has terminated outdates the reports that have it, too.
//
// Guarantees: G-0002.14, G-0002.17
func TestDeleteOfATerminatedChildOutdatesAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := supervisor.New(supervisor.Options{})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
		c := start(t, pool, supervisor.ChildSpec{ID: "gone", Run: idle})
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		above, report := root.Report(), pool.Report()
		if err := c.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !wait.IsClosed(report.Changed()) || !wait.IsClosed(above.Changed()) {
			t.Error("the reports are not outdated")
		}
		if left := ids(pool.Report().Children); len(left) != 0 || len(report.Children) != 1 {
			t.Errorf("%d children before the deletion, and %q afterwards, want one and none", len(report.Children), left)
		}
		stop(t, root)
	})
}

// If a child ignores its stop in its Init during a Restart, that Restart returns a StuckError.
//
// Guarantees: G-0002.6, G-0002.14
func TestRestartReturnsWhenInitIsStuck(t *testing.T) {
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
			t.Errorf("Stop: %v, want a StuckError", err)
		}
		synctest.Wait()
		if len(restarted) == 0 {
			t.Error("Stop has returned, and Restart still waits")
		}
		close(release)
		synctest.Wait()
		_ = s.Stop(t.Context())
	})
}

// wantText checks the text of an error.
func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// A stuck child can neither be restarted nor replaced, and the errors say when it can be.
//
// Guarantees: G-0002.13
func TestErrorsForAStuckChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release, runs := supervisor.New(supervisor.Options{Name: "app"}), make(chan struct{}), new(atomic.Int64)
		spec := supervisor.ChildSpec{ID: "a", Run: ignoresFirstStop(release, runs), Shutdown: time.Second}
		c := start(t, s, spec)
		if err := c.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
			t.Errorf("Stop returned %v, want a StuckError", err)
		}
		err := c.Restart(t.Context())
		wantText(t, err, `supervisor app: restarting child "a": the child is stopping; it can be restarted when its Done is closed`)
		if !errors.Is(err, supervisor.ErrStopped) || errors.As(err, new(*supervisor.IntensityError)) {
			t.Errorf("Restart returned %v, want ErrStopped without an IntensityError", err)
		}
		_, err = s.Start(t.Context(), spec)
		wantText(t, err, `supervisor app: starting child "a": supervisor app: child id "a" is in use`)
		close(release)
		<-c.Done()
		if err := c.Restart(t.Context()); err != nil {
			t.Errorf("after the child is over, Restart returned %v, want no error", err)
		}
		stop(t, s)
	})
}
