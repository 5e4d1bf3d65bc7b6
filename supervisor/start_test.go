package supervisor_test

import (
	"context"
	"errors"
	"strings"
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
func TestStartWithAnEndedContext(t *testing.T) {
	s, gone := supervisor.New(supervisor.Options{}), errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	never := func(context.Context) error { t.Error("run all the same"); return nil }
	for _, spec := range []supervisor.ChildSpec{{Run: never}, {Init: never, Run: never}, {Supervisor: s}} {
		if _, err := s.Start(ctx, spec); !errors.Is(err, gone) {
			t.Errorf("Start returned %v", err)
		}
	}
	stop(t, s)
}

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

// TestIDIsTakenUntilTheChildIsGone, also when its start was given up.
//
// Guarantees: G-0002.13
func TestIDIsTakenUntilTheChildIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Start(ctx, supervisor.ChildSpec{ID: "a", Init: ignoresStop(release), Run: idle}); !errors.Is(err, context.DeadlineExceeded) {
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

// A Start that had to wait for its turn is told that its child ignores its stop,
// as one is that had its turn at once.
//
// Guarantees: G-0002.6
func TestStartIsToldOfAStuckInit(t *testing.T) {
	for name, before := range map[string]time.Duration{"at once": 0, "after another": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, release := supervisor.New(supervisor.Options{Strategy: supervisor.OneForAll}), make(chan struct{})
				if before > 0 {
					go s.Start(t.Context(), supervisor.ChildSpec{ID: "first", Run: idle, Init: func(context.Context) error { pause(before); return nil }})
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				started := make(chan error, 1)
				go func() {
					_, err := s.Start(ctx, supervisor.ChildSpec{ID: "stuck", Init: ignoresStop(release), Run: idle})
					started <- err
				}()
				synctest.Wait()
				pass(2 * before)
				if err := s.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
					t.Errorf("Stop: %v", err)
				}
				synctest.Wait()
				select {
				case err := <-started:
					if !errors.As(err, new(*supervisor.StuckError)) {
						t.Errorf("Start: %v", err)
					}
				default:
					t.Error("the supervisor has stopped, and Start waits still")
				}
				close(release)
				synctest.Wait()
			})
		})
	}
}
