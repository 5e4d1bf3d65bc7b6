package supervisor_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/supervisor"
)

// TestRestartDuringAStart: whoever waits for the start waits for the next Init.
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

// TestRestartOfAChildThatStarts begins its Init anew.
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

// A Restart is told of a child that ignores the stop of its second Init.
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
