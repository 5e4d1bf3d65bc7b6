package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
)

// When its context ends, Wait returns the cause, and the supervisor goes on.
func TestWaitWithAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errBroken)
		defer cancel()
		if err := s.Wait(ctx); !errors.Is(err, errBroken) || states(s.Report().Children)["a"] != supervisor.Running {
			t.Errorf("Wait returned %v with %v, want the cause and a running", err, s.Report().Children)
		}
		stop(t, s)
	})
}

// A supervisor gives up at the fourth restart of any of its children within five seconds. It stops the others in
// reverse order.
//
// Guarantees: G-0002.4, G-0002.5
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		s := supervisor.New(supervisor.Options{Name: "tree"})
		a, b := newScript(), newScript()
		for _, id := range []string{"x", "y"} {
			start(t, s, supervisor.ChildSpec{ID: id, Run: func(ctx context.Context) error {
				<-ctx.Done()
				log = append(log, id)
				return nil
			}})
		}
		start(t, s, supervisor.ChildSpec{ID: "a", Run: a.run})
		start(t, s, supervisor.ChildSpec{ID: "b", Run: b.run})
		for range 2 {
			a.end(returns(errBroken))
		}
		b.end(panics("boom"))
		if refuses(s) {
			t.Fatal("the supervisor gave up too early")
		}
		a.end(returns(errBroken))
		var gaveUp *supervisor.IntensityError
		err := s.Wait(t.Context())
		if !errors.As(err, &gaveUp) || gaveUp.Child != "a" || gaveUp.Intensity != 3 || strings.Count(err.Error(), errBroken.Error()) != 1 {
			t.Errorf("Wait returned %v, want an IntensityError that names a only", err)
		}
		if !errors.As(s.Report().GaveUp, new(*supervisor.IntensityError)) {
			t.Errorf("want GaveUp set, report:\n%v", s.Report())
		}
		if !slices.Equal(log, []string{"y", "x"}) || !errors.Is(s.Stop(t.Context()), err) {
			t.Errorf("stopped in the order %v, want y, x, and the same error from Stop", log)
		}
	})
}

// When a supervisor gives up, running children get the IntensityError as the cause of their context, which is no
// failure of theirs. Calls to start children return it.
//
// Guarantees: G-0002.4
func TestChildrenGetTheErrorWithWhichTheSupervisorGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, servers, failing := supervisor.New(supervisor.Options{Intensity: -1}), supervisor.New(supervisor.Options{}), newScript()
		c := start(t, s, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		var events sync.Map // errors, by who got them
		var slow *supervisor.Child
		slow = start(t, s, supervisor.ChildSpec{ID: "slow", Run: func(ctx context.Context) error {
			<-ctx.Done()
			events.Store("a child", context.Cause(ctx))
			_, err := s.Start(ctx, supervisor.ChildSpec{Run: idle})
			events.Store("Start of another meanwhile", err)
			events.Store("Restart meanwhile", slow.Restart(ctx))
			pause(time.Second)
			return fmt.Errorf("slow: %w", context.Cause(ctx))
		}})
		p := &peer{serve: func(ctx context.Context) { <-ctx.Done() }}
		sibling := conn.New(p.transport(t, servers), conn.Options{Tuning: conn.Tuning{Name: "sibling"}})
		connect(t, s, sibling)
		go func() {
			_, err := s.Start(t.Context(), supervisor.ChildSpec{Init: idle, Run: idle})
			events.Store("Start", err)
		}()
		go func() {
			_, err := sibling.Call(t.Context(), conn.Request{Method: "tools/call", WaitForReady: true})
			events.Store("a call of a sibling", err)
		}()
		synctest.Wait()
		failing.end(returns(errBroken))
		result := s.Wait(t.Context())
		_, err := s.Start(t.Context(), supervisor.ChildSpec{Run: idle})
		events.Store("Start of another", err)
		_, err = s.Connect(t.Context(), conn.New(dialer(nil), conn.Options{}))
		events.Store("Connect", err)
		events.Store("Restart", c.Restart(t.Context()))
		for who, err := range events.Range {
			err, gaveUp := err.(error), new(supervisor.IntensityError)
			if !errors.Is(err, supervisor.ErrStopped) || !errors.As(err, &gaveUp) || gaveUp.Child != "failing" || errors.Is(err, errBroken) {
				t.Errorf("%s got %v, want ErrStopped and an IntensityError that names failing only", who, err)
			}
		}
		if errors.Is(result, supervisor.ErrStopped) || s.Report().Children[1].Failures != 0 {
			t.Errorf("Wait returned %v, want no ErrStopped, and no failure of slow; report:\n%s", result, s.Report())
		}
		stop(t, servers)
	})
}

// refuses reports whether the supervisor refuses a new child.
func refuses(s *supervisor.Supervisor) bool {
	c, err := s.Start(context.Background(), supervisor.ChildSpec{Run: idle})
	if err == nil {
		err = c.Stop(context.Background())
	}
	return errors.Is(err, supervisor.ErrStopped)
}

// Restarts older than the period do not count, so a child that fails seldom is always restarted.
//
// Guarantees: G-0002.4
func TestForgetsOldRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, child := supervisor.New(supervisor.Options{Intensity: 1, Period: time.Minute}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "a", Run: child.run})
		for range 50 {
			child.end(returns(errBroken))
			advance(time.Minute)
			if spent := s.Report().RecentRestarts; spent != 1 {
				t.Fatalf("%d restarts count after a minute, want 1", spent)
			}
			advance(1)
			if spent := s.Report().RecentRestarts; spent != 0 {
				t.Fatalf("%d restarts count after more than a minute, want none", spent)
			}
		}
		if got := s.Report().Children[0]; got.Restarts != 50 || got.State != supervisor.Running {
			t.Errorf("got %v, want running after 50 restarts", got)
		}
		stop(t, s)
	})
}

// With a negative intensity, the supervisor gives up at the first restart.
func TestNoRestartAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, child := supervisor.New(supervisor.Options{Intensity: -1}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "a", Run: child.run})
		child.end(returns(nil))
		var gaveUp *supervisor.IntensityError
		if err := s.Wait(t.Context()); !errors.As(err, &gaveUp) || gaveUp.Intensity != 0 || child.runs.Load() != 1 {
			t.Errorf("Wait returned %v after %d runs, want an IntensityError after 1", err, child.runs.Load())
		}
	})
}

// A child without an ID gets one that no other child has.
func TestStartWithoutAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "child-2", Run: idle})
		first := start(t, s, supervisor.ChildSpec{Run: idle})
		second := start(t, s, supervisor.ChildSpec{Run: idle})
		if got := map[string]bool{"child-2": true, first.ID(): true, second.ID(): true}; len(got) != 3 {
			t.Errorf("the ids are not unique: %v", got)
		}
		stop(t, s)
	})
}

// A report lists children in the order of their start, including those that are over. A child whose id is started
// again is listed once, at its new position.
func TestChildrenAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, child := supervisor.New(supervisor.Options{}), newScript()
		for _, id := range []string{"z", "m"} {
			start(t, s, supervisor.ChildSpec{ID: id, Run: idle})
		}
		start(t, s, supervisor.ChildSpec{ID: "b", Run: child.run, Restart: supervisor.Temporary})
		start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		child.end(returns(errBroken))
		if got := ids(s.Report().Children); !slices.Equal(got, []string{"z", "m", "b", "a"}) {
			t.Errorf("listed %v, want z, m, b, a", got)
		}
		failed := s.Report().Children[2]
		if want := fmt.Sprintf("b: temporary worker, failed for good at %s; failed 1 time, last at %[1]s: broken", failed.Since.Format(time.TimeOnly)); failed.String() != want {
			t.Errorf("got %q, want %q", failed, want)
		}
		start(t, s, supervisor.ChildSpec{ID: "b", Run: idle})
		if got := ids(s.Report().Children); !slices.Equal(got, []string{"z", "m", "a", "b"}) {
			t.Errorf("listed %v after b was started again, want z, m, a, b", got)
		}
		stop(t, s)
	})
}

// A supervisor lists a bounded number of children that are over. A child whose id was started again does not
// count as over.
func TestListOfEndedChildrenIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		if err := start(t, s, supervisor.ChildSpec{ID: "again", Run: idle}).Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, s, supervisor.ChildSpec{ID: "again", Run: idle})
		var last *supervisor.Child
		for range 1000 {
			last = start(t, s, supervisor.ChildSpec{Run: func(context.Context) error { return nil }, Restart: supervisor.Temporary})
			<-last.Done()
		}
		if got := s.Report().Children; len(got) != 129 || got[0].ID != "again" || got[128].ID != last.ID() {
			t.Errorf("%d children are listed, the last is %s; want 129, %s", len(got), got[len(got)-1], last.ID())
		}
		stop(t, s)
	})
}

// wantPanic checks that a function panics with this value.
func wantPanic(t *testing.T, want string, do func()) {
	t.Helper()
	defer func() {
		if value := recover(); value != want {
			t.Errorf("panic: %v, want %s", value, want)
		}
	}()
	do()
}

// A wrong use of the package panics with a text that names the mistake.
func TestWrongUsePanics(t *testing.T) {
	s := supervisor.New(supervisor.Options{})
	wantPanic(t, "supervisor: a ChildSpec needs either Run or Supervisor; Init and Drain go with Run", func() {
		s.Start(t.Context(), supervisor.ChildSpec{})
	})
	wantPanic(t, "supervisor: ChildSpec.Restart: unknown Restart(3)", func() {
		s.Start(t.Context(), supervisor.ChildSpec{Run: idle, Restart: supervisor.Temporary + 1})
	})
	wantPanic(t, "supervisor: Connect needs a Conn", func() { s.Connect(t.Context(), nil) })
	wantPanic(t, "supervisor: Options.Strategy: unknown Strategy(3)", func() {
		supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne + 1})
	})
	stop(t, s)
}

// A Period of zero or less means the default.
func TestDefaultPeriod(t *testing.T) {
	for _, period := range []time.Duration{0, -time.Minute} {
		if got := supervisor.New(supervisor.Options{Period: period}).Report().Period; got != 5*time.Second {
			t.Errorf("a Period of %s became %s, want 5s", period, got)
		}
	}
}

// Start returns when Init has returned, and without an Init at once.
//
// Guarantees: G-0002.12
func TestStartWaitsForInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := supervisor.New(supervisor.Options{}), time.Now()
		start(t, s, newMember("a", new(eventLog)).spec())
		if took := time.Since(began); took != time.Second {
			t.Errorf("Start took %v, want 1s", took)
		}
		start(t, s, supervisor.ChildSpec{Run: idle})
		if took := time.Since(began); took != time.Second {
			t.Errorf("Start of a child without Init took %v, want 0", took-time.Second)
		}
		stop(t, s)
	})
}

// Under OneForOne, a child whose Init takes long does not delay the start or restart of others.
//
// Guarantees: G-0002.12
func TestSlowInitDelaysNoOtherChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, other := supervisor.New(supervisor.Options{}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "other", Run: other.run})
		go s.Start(t.Context(), supervisor.ChildSpec{ID: "hangs", Init: idle, Run: idle})
		synctest.Wait()
		began := time.Now()
		other.end(returns(errBroken))
		start(t, s, supervisor.ChildSpec{ID: "late", Run: idle})
		if other.runs.Load() != 2 || time.Since(began) != 0 {
			t.Errorf("%d runs after %v, want 2 at once", other.runs.Load(), time.Since(began))
		}
		stop(t, s)
	})
}

// If Init fails, Start returns its error. The child is not restarted, and its id is free.
//
// Guarantees: G-0002.12
func TestChildWhoseInitFailsIsNotListed(t *testing.T) {
	for name, end := range map[string]func() error{"error": returns(errBroken), "panic": panics("boom")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, inits := supervisor.New(supervisor.Options{Intensity: -1}), 0
				spec := supervisor.ChildSpec{ID: "a", Run: idle, Init: func(context.Context) error { inits++; return end() }}
				_, err := s.Start(t.Context(), spec)
				if err == nil || !strings.Contains(err.Error(), `starting child "a"`) || !errors.Is(err, errBroken) && !errors.As(err, new(*supervisor.PanicError)) {
					t.Errorf("Start returned %v, want the failure of a", err)
				}
				if r := s.Report(); len(r.Children) != 0 || inits != 1 || r.State != supervisor.Running {
					t.Errorf("after %d Inits, want 1, no child, and running:\n%v", inits, r)
				}
				start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
				stop(t, s)
			})
		})
	}
}

// Start with a context that has ended returns its cause, and starts no child.
func TestStartWithAnEndedContext(t *testing.T) {
	s, gone := supervisor.New(supervisor.Options{}), errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	never := func(context.Context) error { t.Error("the child was run"); return nil }
	for _, spec := range []supervisor.ChildSpec{{Run: never}, {Init: never, Run: never}, {Supervisor: s}} {
		if _, err := s.Start(ctx, spec); !errors.Is(err, gone) {
			t.Errorf("Start returned %v, want %v", err, gone)
		}
	}
	stop(t, s)
}

// If its context ends before Init has returned, Start stops the child and removes it.
func TestStartWithAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Start(ctx, supervisor.ChildSpec{ID: "hangs", Init: idle, Run: idle})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "hangs") {
			t.Errorf("Start returned %v, want DeadlineExceeded for hangs", err)
		}
		synctest.Wait()
		if r := s.Report(); len(r.Children) != 0 {
			t.Errorf("want no child, report:\n%v", r)
		}
		stop(t, s)
	})
}

// Stop ends calls of Start that wait for an Init.
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
				t.Errorf("Start returned %v, want ErrStopped", err)
			}
		}
	})
}

// Delete stops a child and removes it from the report. A second Delete does nothing.
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
		if _, found := s.Child("a"); found || len(s.Report().Children) != 0 || !wait.IsClosed(c.Done()) {
			t.Errorf("want no child, and a done; report:\n%v", s.Report())
		}
		stop(t, s)
	})
}

// The id of a child whose Start was given up is taken until the child has ended.
//
// Guarantees: G-0002.13
func TestIDIsTakenUntilTheChildIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Start(ctx, supervisor.ChildSpec{ID: "a", Init: ignoresStop(release), Run: idle}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Start returned %v, want DeadlineExceeded", err)
		}
		if _, err := s.Start(t.Context(), supervisor.ChildSpec{ID: "a", Run: idle}); !errors.As(err, new(*supervisor.DuplicateError)) {
			t.Errorf("Start returned %v, want a DuplicateError", err)
		}
		close(release)
		synctest.Wait()
		start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		stop(t, s)
	})
}

// If Init ignores its stop, Start returns a StuckError, even if it had to wait for another child first.
//
// Guarantees: G-0002.6
func TestStartReturnsWhenInitIsStuck(t *testing.T) {
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
				advance(2 * before)
				if err := s.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
					t.Errorf("Stop returned %v, want a StuckError", err)
				}
				synctest.Wait()
				select {
				case err := <-started:
					if !errors.As(err, new(*supervisor.StuckError)) {
						t.Errorf("Start returned %v, want a StuckError", err)
					}
				default:
					t.Error("Stop has returned, and Start still waits")
				}
				close(release)
				synctest.Wait()
			})
		})
	}
}
