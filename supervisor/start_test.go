package supervisor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/supervisor"
)

// TestStartWaitsForInit, and for nothing else.
//
// Guarantees: G-0002.12
func TestStartWaitsForInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := supervisor.New(supervisor.Options{}), time.Now()
		start(t, s, newMember("a", new(diary)).spec())
		if took := time.Since(began); took != time.Second {
			t.Errorf("Start took %v", took)
		}
		start(t, s, supervisor.ChildSpec{Run: idle})
		if took := time.Since(began); took != time.Second {
			t.Errorf("Start of a child without Init took %v", took-time.Second)
		}
		stop(t, s)
	})
}

// TestSlowStartDelaysNobody that does not depend on it.
//
// Guarantees: G-0002.12
func TestSlowStartDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, other := supervisor.New(supervisor.Options{}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "other", Run: other.run})
		go s.Start(t.Context(), supervisor.ChildSpec{ID: "hangs", Init: idle, Run: idle})
		synctest.Wait()
		began := time.Now()
		other.end(returns(errBroken))
		start(t, s, supervisor.ChildSpec{ID: "late", Run: idle})
		if other.runs.Load() != 2 || time.Since(began) != 0 {
			t.Errorf("%d runs after %v", other.runs.Load(), time.Since(began))
		}
		stop(t, s)
	})
}

// TestFailedStartIsForgotten: whoever starts the child is told, it is not
// restarted, and its id is free.
//
// Guarantees: G-0002.12
func TestFailedStartIsForgotten(t *testing.T) {
	for name, end := range map[string]func() error{"error": returns(errBroken), "panic": panics("boom")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, inits := supervisor.New(supervisor.Options{Intensity: -1}), 0
				spec := supervisor.ChildSpec{ID: "a", Run: idle, Init: func(context.Context) error { inits++; return end() }}
				_, err := s.Start(t.Context(), spec)
				if err == nil || !strings.Contains(err.Error(), `starting child "a"`) || !errors.Is(err, errBroken) && !errors.As(err, new(*supervisor.PanicError)) {
					t.Errorf("Start returned %v", err)
				}
				if r := s.Report(); len(r.Children) != 0 || inits != 1 || r.State != supervisor.Running {
					t.Errorf("after %d Inits:\n%v", inits, r)
				}
				start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
				stop(t, s)
			})
		})
	}
}

// TestStartWithAContext stops and forgets a child that is not started in time.
func TestStartWithAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Start(ctx, supervisor.ChildSpec{ID: "hangs", Init: idle, Run: idle})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "hangs") {
			t.Errorf("Start returned %v", err)
		}
		synctest.Wait()
		if r := s.Report(); len(r.Children) != 0 {
			t.Errorf("report:\n%v", r)
		}
		stop(t, s)
	})
}

// TestStopEndsAStart: nobody waits for a child that will not be started.
func TestStopEndsAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(context.Context) error { pause(time.Second); return nil }
		for _, init := range []func(context.Context) error{idle, late} {
			s, started := supervisor.New(supervisor.Options{}), make(chan error, 1)
			go func() {
				_, err := s.Start(t.Context(), supervisor.ChildSpec{ID: "hangs", Init: init, Run: idle})
				started <- err
			}()
			synctest.Wait()
			stop(t, s)
			if err := <-started; !errors.Is(err, supervisor.ErrStopped) {
				t.Errorf("Start returned %v", err)
			}
		}
	})
}

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

// TestRestartOfTheDeaf names it, and restarts it once it is gone.
//
// Guarantees: G-0002.13, G-0002.14
func TestRestartOfTheDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		c := start(t, s, supervisor.ChildSpec{ID: "deaf", Run: deafOnce(release, &runs)})
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

// TestDeleteForgetsAChild.
//
// Guarantees: G-0002.14
func TestDeleteForgetsAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		c := start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		for range 2 {
			if err := c.Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, found := s.Child("a"); found || len(s.Report().Children) != 0 || !isClosed(c.Done()) {
			t.Errorf("report:\n%v", s.Report())
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

// TestIDIsTakenUntilTheChildIsGone, also when its start was given up.
//
// Guarantees: G-0002.13
func TestIDIsTakenUntilTheChildIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Start(ctx, supervisor.ChildSpec{ID: "a", Init: deaf(release), Run: idle}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Start returned %v", err)
		}
		if _, err := s.Start(t.Context(), supervisor.ChildSpec{ID: "a", Run: idle}); !errors.As(err, new(*supervisor.DuplicateError)) {
			t.Errorf("Start returned %v", err)
		}
		close(release)
		synctest.Wait()
		start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		stop(t, s)
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
