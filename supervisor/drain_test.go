package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
)

// A finisher is a child that needs some time to finish its work when it is drained.
type finisher struct {
	id       string
	eventLog *eventLog
	takes    time.Duration
	finished chan struct{}
}

func newFinisher(id string, d *eventLog, takes time.Duration) *finisher {
	return &finisher{id, d, takes, make(chan struct{})}
}

func (f *finisher) spec() supervisor.ChildSpec {
	return supervisor.ChildSpec{ID: f.id, Run: f.run, Drain: f.drain}
}

func (f *finisher) run(ctx context.Context) error {
	select {
	case <-f.finished:
		f.eventLog.note("%s has finished", f.id)
		return nil
	case <-ctx.Done():
		f.eventLog.note("%s is stopped", f.id)
		return context.Cause(ctx)
	}
}

func (f *finisher) drain(ctx context.Context) error {
	f.eventLog.note("%s drains", f.id)
	timer := time.NewTimer(f.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		close(f.finished)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeInTime closes a supervisor with a deadline of one minute, and returns how long that took.
func closeInTime(t *testing.T, s *supervisor.Supervisor) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.Close(ctx)
	return time.Since(began), err
}

// Under OneForOne, Close drains all children at the same time. Children without a Drain are stopped
// afterwards.
//
// Guarantees: G-0002.16
func TestCloseDrainsIndependentChildrenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{}), new(eventLog)
		start(t, s, supervisor.ChildSpec{ID: "worker", Run: func(ctx context.Context) error {
			<-ctx.Done()
			d.note("worker is stopped")
			return nil
		}})
		start(t, s, newFinisher("a", d, 20*time.Second).spec())
		start(t, s, newFinisher("b", d, 10*time.Second).spec())
		took, err := closeInTime(t, s)
		if err != nil || took != 20*time.Second {
			t.Errorf("Close returned %v after %v, want no error after 20s", err, took)
		}
		slices.Sort(d.lines[:2]) // they are called at the same time
		d.want(t, "a drains", "b drains", "b has finished", "a has finished", "worker is stopped")
		if refused := refuses(s); !refused {
			t.Error("a child was started after Close")
		}
	})
}

// Under the other strategies, Close drains one child after the other, in reverse order.
//
// Guarantees: G-0002.16
func TestCloseDrainsDependentChildrenInReverseOrder(t *testing.T) {
	for _, strategy := range []supervisor.Strategy{supervisor.RestForOne, supervisor.OneForAll} {
		synctest.Test(t, func(t *testing.T) {
			s, d := supervisor.New(supervisor.Options{Strategy: strategy}), new(eventLog)
			start(t, s, newFinisher("a", d, 20*time.Second).spec())
			start(t, s, newFinisher("b", d, 10*time.Second).spec())
			if took, err := closeInTime(t, s); err != nil || took != 30*time.Second {
				t.Errorf("Close returned %v after %v, want no error after 30s", err, took)
			}
			d.want(t, "b drains", "b has finished", "a drains", "a has finished")
		})
	}
}

// Children that have not finished after nine tenths of the time are stopped, all at once, and Close names
// them.
//
// Guarantees: G-0002.16
func TestCloseKeepsItsDeadline(t *testing.T) {
	for _, strategy := range []supervisor.Strategy{supervisor.OneForOne, supervisor.RestForOne} {
		synctest.Test(t, func(t *testing.T) {
			s, d := supervisor.New(supervisor.Options{Strategy: strategy}), new(eventLog)
			start(t, s, newFinisher("a", d, 10*time.Second).spec())
			start(t, s, newFinisher("b", d, time.Hour).spec())
			start(t, s, supervisor.ChildSpec{ID: "starting", Run: idle})
			took, err := closeInTime(t, s)
			if took != 54*time.Second || !errors.Is(err, context.DeadlineExceeded) || strings.Count(err.Error(), `draining child "b"`) != 1 {
				t.Errorf("Close returned %v after %v, want b named once, and DeadlineExceeded, after 54s", err, took)
			}
		})
	}
}

// Close without a deadline takes five seconds at most.
//
// Guarantees: G-0002.16
func TestCloseWithoutADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, began := supervisor.New(supervisor.Options{}), new(eventLog), time.Now()
		start(t, s, newFinisher("a", d, time.Hour).spec())
		if err := s.Close(t.Context()); err == nil || time.Since(began) != 4500*time.Millisecond {
			t.Errorf("Close returned %v after %v, want an error after 4.5s", err, time.Since(began))
		}
		d.want(t, "a drains", "a is stopped")
		release := make(chan struct{})
		s, began = supervisor.New(supervisor.Options{}), time.Now()
		start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release), Shutdown: time.Hour})
		var stuck *supervisor.StuckError
		if err := s.Close(t.Context()); !errors.As(err, &stuck) || time.Since(began) != 5*time.Second {
			t.Errorf("Close returned %v after %v, want a StuckError after 5s", err, time.Since(began))
		}
		close(release)
		synctest.Wait()
	})
}

// When the context of Close is cancelled, all children are stopped, and those that still run are named.
//
// Guarantees: G-0002.6, G-0002.16
func TestCloseIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{}), new(eventLog)
		start(t, s, newFinisher("a", d, time.Hour).spec())
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan error, 1)
		go func() { closed <- s.Close(ctx) }()
		synctest.Wait()
		cancel()
		var stuck *supervisor.StuckError
		if err := <-closed; !errors.As(err, &stuck) || stuck.Children[0] != "a" || !errors.Is(err, context.Canceled) {
			t.Errorf("Close returned %v, want a StuckError with a, and Canceled", err)
		}
		d.want(t, "a drains", "a is stopped")
		if err := s.Wait(t.Context()); err != nil {
			t.Errorf("Wait returned %v, want no error", err)
		}
	})
}

// Stop ends a drain: the children are stopped at once.
func TestStopCutsADrainShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{}), new(eventLog)
		start(t, s, newFinisher("a", d, time.Hour).spec())
		start(t, s, newFinisher("b", d, time.Hour).spec())
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		stop(t, s)
		slices.Sort(d.lines[:2]) // they are called at the same time
		d.want(t, "a drains", "b drains", "b is stopped", "a is stopped")
		if err := <-closed; err != nil {
			t.Errorf("Close returned %v, want no error", err)
		}
	})
}

// A child whose Run does not end is stopped when its Drain has returned or panicked.
//
// Guarantees: G-0002.16
func TestDrainThatDoesNotEndRun(t *testing.T) {
	for name, drain := range map[string]func(context.Context) error{
		"returns":          func(context.Context) error { return nil },
		"says it was told": func(context.Context) error { return fmt.Errorf("told: %w", context.Canceled) },
		"panics":           func(context.Context) error { panic("boom") },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, ended := supervisor.New(supervisor.Options{}), make(chan struct{})
			c := start(t, s, supervisor.ChildSpec{Run: idle, Drain: func(ctx context.Context) error {
				context.AfterFunc(ctx, func() { close(ended) })
				return drain(ctx)
			}})
			took, err := closeInTime(t, s)
			if synctest.Wait(); !wait.IsClosed(ended) {
				t.Errorf("%s: the context of a Drain that has returned has not ended", name)
			}
			if took != 0 || !wait.IsClosed(c.Done()) || (err == nil) != (name != "panics") {
				t.Errorf("%s: Close returned %v after %v, want it at once, an error only for a panic", name, err, took)
			}
		})
	}
}

// A Drain that fails counts as one failure of the child, although the child is then stopped.
//
// Guarantees: G-0002.17
func TestFailedDrainIsAFailureOfTheChild(t *testing.T) {
	for want, drain := range map[string]func(context.Context) error{
		"draining: broken":                    func(context.Context) error { return errBroken },
		"draining: panic: boom":               func(context.Context) error { panic("boom") },
		"draining: context deadline exceeded": func(context.Context) error { pause(55 * time.Second); return errBroken },
	} {
		synctest.Test(t, func(t *testing.T) {
			var events []string
			s := supervisor.New(supervisor.Options{OnEvent: func(e supervisor.Event) { events = append(events, e.String()) }})
			c := start(t, s, supervisor.ChildSpec{ID: "a", Run: idle, Drain: drain})
			advance(time.Minute)
			took, err := closeInTime(t, s)
			r := s.Report().Children[0]
			if r.State != supervisor.Stopped || r.Failures != 1 || r.LastFailure == nil || r.LastFailure.Error() != want || r.FailedAt.IsZero() {
				t.Errorf("after %v: %s, want stopped with one failure: %s", took, r, want)
			}
			if err == nil || strings.Count(err.Error(), `draining child "a"`) != 1 || c.Err() != nil {
				t.Errorf("Close returned %v, Err is %v; want a named once, none", err, c.Err())
			}
			if want := []string{"supervisor: a: child started", "supervisor: a: child stopped"}; !slices.Equal(events, want) {
				t.Errorf("reported %q, want %q", events, want)
			}
		})
	}
}

// A failed Drain also counts if Run has returned before it, but not if a Stop has ended it. A supervisor whose
// children fail to drain has one failure.
//
// Guarantees: G-0002.17
func TestWhichFailedDrainsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		draining := make(chan struct{})
		start(t, s, supervisor.ChildSpec{
			ID:    "outlives Run",
			Run:   func(context.Context) error { <-draining; return nil },
			Drain: func(context.Context) error { close(draining); pause(time.Second); return errBroken },
		})
		pool, _ := nested(t, s, supervisor.Options{Name: "pool"})
		start(t, pool, supervisor.ChildSpec{ID: "below", Run: idle, Drain: func(context.Context) error { return errBroken }})
		start(t, s, supervisor.ChildSpec{ID: "cut short", Run: idle, Drain: idle})
		go s.Close(t.Context())
		advance(2 * time.Second)
		s.Stop(t.Context())
		failures := map[string]int{}
		for _, r := range append(s.Report().Children, pool.Report().Children...) {
			failures[r.ID] = r.Failures
		}
		if want := map[string]int{"outlives Run": 1, "pool": 1, "below": 1, "cut short": 0}; !maps.Equal(failures, want) {
			t.Errorf("failures %v, want %v", failures, want)
		}
	})
}

// A child that fails during a drain is not restarted.
//
// Guarantees: G-0002.16
func TestNoRestartWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, failing := supervisor.New(supervisor.Options{}), new(eventLog), newScript()
		start(t, s, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		start(t, s, newFinisher("a", d, time.Second).spec())
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		failing.end(returns(errBroken))
		if err := <-closed; !errors.Is(err, errBroken) || failing.runs.Load() != 1 {
			t.Errorf("Close returned %v after %d runs, want %v after 1", err, failing.runs.Load(), errBroken)
		}
	})
}

// A child whose Drain ignores its context is named in a StuckError.
//
// Guarantees: G-0002.6, G-0002.16
func TestDrainThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		start(t, s, supervisor.ChildSpec{ID: "stuck", Run: idle, Drain: ignoresStop(release), Shutdown: time.Second})
		var stuck *supervisor.StuckError
		took, err := closeInTime(t, s)
		if took != 55*time.Second || !errors.As(err, &stuck) || !slices.Equal(stuck.Children, []string{"stuck"}) {
			t.Errorf("Close returned %v after %v, want a StuckError after 55s", err, took)
		}
		close(release)
		synctest.Wait()
	})
}

// When the time for the drain has passed, all children are stopped at once, whether they start, work or
// drain, even if some are slow to stop.
//
// Guarantees: G-0002.16
func TestDrainDeadlineStopsAllChildrenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, began := supervisor.New(supervisor.Options{}), new(eventLog), time.Now()
		slow := func(id string) func(context.Context) error {
			return func(ctx context.Context) error {
				<-ctx.Done()
				d.note("%s is stopping after %v", id, time.Since(began))
				pause(time.Second)
				return nil
			}
		}
		go s.Start(t.Context(), supervisor.ChildSpec{ID: "starting", Init: slow("starting"), Run: idle})
		synctest.Wait()
		start(t, s, supervisor.ChildSpec{ID: "working", Run: slow("working")})
		start(t, s, supervisor.ChildSpec{ID: "draining", Run: slow("draining"), Drain: idle})
		if took, _ := closeInTime(t, s); took != 55*time.Second {
			t.Errorf("Close took %v, want 55s", took)
		}
		slices.Sort(d.lines)
		d.want(t, "draining is stopping after 54s", "starting is stopping after 54s", "working is stopping after 54s")
	})
}

// A drained child can be restarted, drained and stopped again. Its supervisor is restarted by its parent,
// without children.
//
// Guarantees: G-0002.14
func TestRestartAfterADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, stops, drains := supervisor.New(supervisor.Options{}), 0, 0
		pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
		finish := make(chan struct{}, 1)
		c := start(t, pool, supervisor.ChildSpec{
			Run: func(ctx context.Context) error {
				select {
				case <-finish:
				case <-ctx.Done():
					if stops++; !errors.Is(context.Cause(ctx), supervisor.ErrStopped) {
						t.Errorf("the cause is %v, want ErrStopped", context.Cause(ctx))
					}
				}
				return nil
			},
			Drain: func(context.Context) error {
				if drains++; drains == 1 {
					finish <- struct{}{}
				}
				pause(time.Second)
				return nil
			},
		})
		for round := range 2 {
			if took, err := closeInTime(t, pool); took != time.Second || err != nil || stops != round {
				t.Errorf("Close returned %v after %v, %d stops; want no error after 1s, %d", err, took, stops, round)
			}
			synctest.Wait()
			if err := c.Restart(t.Context()); err != nil {
				t.Errorf("Restart returned %v, want no error", err)
			}
		}
		advance(time.Hour)
		if err := pool.Stop(t.Context()); err != nil || stops != 2 {
			t.Errorf("Stop returned %v, %d stops; want no error, 2", err, stops)
		}
		stop(t, root)
	})
}

// Drain may return later than Run, as http.Server.Shutdown does after Serve. The context of Run ends when
// both have returned.
//
// Guarantees: G-0002.16
func TestDrainMayOutliveRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, draining := supervisor.New(supervisor.Options{}), make(chan struct{})
		var during, after error
		var running context.Context
		c := start(t, s, supervisor.ChildSpec{
			Run: func(ctx context.Context) error { running = ctx; <-draining; return nil },
			Drain: func(ctx context.Context) error {
				close(draining)
				pause(10 * time.Second)
				during = errors.Join(running.Err(), ctx.Err())
				return nil
			},
		})
		synctest.Wait()
		took, err := closeInTime(t, s)
		if after = running.Err(); err != nil || took != 10*time.Second || !wait.IsClosed(c.Done()) || during != nil || after == nil {
			t.Errorf("Close returned %v after %v; contexts during the drain: %v, afterwards: %v; want no error after 10s, none, ended",
				err, took, during, after)
		}
	})
}

// Stop ends a Drain whose Run has already returned.
func TestStopEndsADrainThatOutlivesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, draining := supervisor.New(supervisor.Options{}), make(chan struct{})
		start(t, s, supervisor.ChildSpec{
			Run:   func(context.Context) error { <-draining; return nil },
			Drain: func(ctx context.Context) error { close(draining); return idle(ctx) },
		})
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		stop(t, s)
		if err := <-closed; err != nil {
			t.Errorf("Close returned %v, want no error", err)
		}
	})
}

// A Run that fails before its Drain returns changes the report, so the previous report is outdated.
//
// Guarantees: G-0002.17
func TestFailureDuringADrainOutdatesAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, script := supervisor.New(supervisor.Options{}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "c", Run: script.run, Drain: func(ctx context.Context) error { <-ctx.Done(); return nil }})
		go s.Close(context.Background())
		synctest.Wait()
		before := s.Report()
		script.end(returns(errBroken))
		after := s.Report()
		if after.Children[0].Failures != before.Children[0].Failures && !wait.IsClosed(before.Changed()) {
			t.Errorf("%d failures, then %d, and the first report is not outdated",
				before.Children[0].Failures, after.Children[0].Failures)
		}
		_ = s.Stop(t.Context())
	})
}

// Close also drains the children of a supervisor that is being restarted, as far as they already run.
//
// Guarantees: G-0002.16
func TestCloseDrainsASupervisorThatRestarts(t *testing.T) {
	for _, strategy := range []supervisor.Strategy{supervisor.OneForOne, supervisor.OneForAll} {
		synctest.Test(t, func(t *testing.T) {
			var d eventLog
			root := supervisor.New(supervisor.Options{Strategy: strategy})
			pool, child := nested(t, root, supervisor.Options{Name: "pool"})
			f := newFinisher("finisher", &d, time.Second)
			start(t, pool, f.spec())
			again := false
			start(t, pool, supervisor.ChildSpec{ID: "slow", Run: idle, Init: func(ctx context.Context) error {
				if again {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				again = true
				return nil
			}})
			go child.Restart(t.Context())
			synctest.Wait()
			if got := states(pool.Report().Children)["finisher"]; got != supervisor.Running {
				t.Fatalf("finisher is %s, want running", got)
			}
			d.lines = nil
			if _, err := closeInTime(t, root); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if len(d.lines) == 0 || d.lines[0] != "finisher drains" {
				t.Errorf("logged %q, want \"finisher drains\" first", d.lines)
			}
		})
	}
}

// A second Close waits for the first, and does not give it more time.
//
// Guarantees: G-0002.16
func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stopped := supervisor.New(supervisor.Options{}), make(chan struct{})
		start(t, s, supervisor.ChildSpec{
			Run:   func(ctx context.Context) error { <-ctx.Done(); close(stopped); return nil },
			Drain: func(context.Context) error { <-stopped; return nil },
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- s.Close(ctx) }()
		synctest.Wait()
		began := time.Now()
		longer, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.Close(longer); time.Since(began) != 9*time.Second || fmt.Sprint(err) != fmt.Sprint(<-first) {
			t.Errorf("the second Close returned %v after %v, want the same error as the first after 9s",
				err, time.Since(began))
		}
	})
}

// A child whose Init is running is stopped and not drained.
//
// Guarantees: G-0002.16
func TestOnlyRunningChildrenAreDrained(t *testing.T) {
	for _, strategy := range []supervisor.Strategy{supervisor.OneForOne, supervisor.RestForOne} {
		synctest.Test(t, func(t *testing.T) {
			s := supervisor.New(supervisor.Options{Strategy: strategy})
			go s.Start(t.Context(), supervisor.ChildSpec{Init: idle, Run: idle, Drain: func(context.Context) error {
				t.Error("Drain was called")
				return nil
			}})
			synctest.Wait()
			if took, err := closeInTime(t, s); err != nil || took > 0 {
				t.Errorf("Close returned %v after %v, want no error at once", err, took)
			}
		})
	}
}

// Close starts no children, not even in a nested supervisor that is being restarted: once that has refused
// a child, it accepts none.
//
// Guarantees: G-0002.16
func TestCloseOfAStartingSupervisorStartsNothing(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			root := supervisor.New(supervisor.Options{})
			pool, child := nested(t, root, supervisor.Options{Name: "pool"})
			slow := false
			start(t, pool, supervisor.ChildSpec{ID: "kept", Run: idle, Init: func(ctx context.Context) error {
				if slow {
					<-ctx.Done()
				}
				return nil
			}})
			slow = true
			go child.Restart(context.Background())
			synctest.Wait()
			if state := pool.Report().State; state != supervisor.Running {
				t.Fatalf("the pool is %s, want running", state)
			}
			var closed atomic.Bool
			taken := make(chan int, 1)
			go func() {
				refused, n := false, 0
				for !closed.Load() {
					c, err := pool.Start(context.Background(), supervisor.ChildSpec{Run: idle})
					switch {
					case errors.Is(err, supervisor.ErrStopped):
						refused = true
					case err == nil && refused:
						n++
					case err == nil:
						_ = c.Delete(context.Background())
					}
				}
				taken <- n
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_ = root.Close(ctx)
			cancel()
			closed.Store(true)
			if n := <-taken; n > 0 {
				t.Errorf("the pool accepted %d children after it had refused one, want none", n)
			}
		})
		if t.Failed() {
			return
		}
	}
}
