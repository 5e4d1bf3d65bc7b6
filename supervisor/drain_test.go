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

	"github.com/bowline-mcp/bowline/supervisor"
)

// A finisher is a child with work to finish.
type finisher struct {
	id       string
	diary    *diary
	takes    time.Duration
	finished chan struct{}
}

func newFinisher(id string, d *diary, takes time.Duration) *finisher {
	return &finisher{id, d, takes, make(chan struct{})}
}

func (f *finisher) spec() supervisor.ChildSpec {
	return supervisor.ChildSpec{ID: f.id, Run: f.run, Drain: f.drain}
}

func (f *finisher) run(ctx context.Context) error {
	select {
	case <-f.finished:
		f.diary.note("%s has finished", f.id)
		return nil
	case <-ctx.Done():
		f.diary.note("%s is stopped", f.id)
		return context.Cause(ctx)
	}
}

func (f *finisher) drain(ctx context.Context) error {
	f.diary.note("%s drains", f.id)
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

// shut drains a supervisor within a minute, and reports how long it took.
func shut(t *testing.T, s *supervisor.Supervisor) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.Close(ctx)
	return time.Since(began), err
}

// TestCloseDrainsIndependentChildrenAtOnce: it takes as long as the slowest of
// them, and what has nothing to finish is stopped in its turn.
//
// Guarantees: G-0002.16
func TestCloseDrainsIndependentChildrenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{}), new(diary)
		start(t, s, supervisor.ChildSpec{ID: "worker", Run: func(ctx context.Context) error {
			<-ctx.Done()
			d.note("worker is stopped")
			return nil
		}})
		start(t, s, newFinisher("a", d, 20*time.Second).spec())
		start(t, s, newFinisher("b", d, 10*time.Second).spec())
		took, err := shut(t, s)
		if err != nil || took != 20*time.Second {
			t.Errorf("Close returned %v after %v", err, took)
		}
		slices.Sort(d.lines[:2]) // they are called at the same time
		d.want(t, "a drains", "b drains", "b has finished", "a has finished", "worker is stopped")
		if refused := refuses(s); !refused {
			t.Error("a child was started")
		}
	})
}

// TestCloseDrainsDependentChildrenInReverseOrder: what others need is there
// until they have finished.
//
// Guarantees: G-0002.16
func TestCloseDrainsDependentChildrenInReverseOrder(t *testing.T) {
	for _, strategy := range []supervisor.Strategy{supervisor.RestForOne, supervisor.OneForAll} {
		synctest.Test(t, func(t *testing.T) {
			s, d := supervisor.New(supervisor.Options{Strategy: strategy}), new(diary)
			start(t, s, newFinisher("a", d, 20*time.Second).spec())
			start(t, s, newFinisher("b", d, 10*time.Second).spec())
			if took, err := shut(t, s); err != nil || took != 30*time.Second {
				t.Errorf("Close returned %v after %v", err, took)
			}
			d.want(t, "b drains", "b has finished", "a drains", "a has finished")
		})
	}
}

// TestCloseKeepsItsDeadline: what has not finished after nine tenths of the
// time is stopped, all at once, and Close says so.
//
// Guarantees: G-0002.16
func TestCloseKeepsItsDeadline(t *testing.T) {
	for _, strategy := range []supervisor.Strategy{supervisor.OneForOne, supervisor.RestForOne} {
		synctest.Test(t, func(t *testing.T) {
			s, d := supervisor.New(supervisor.Options{Strategy: strategy}), new(diary)
			start(t, s, newFinisher("a", d, 10*time.Second).spec())
			start(t, s, newFinisher("b", d, time.Hour).spec())
			start(t, s, supervisor.ChildSpec{ID: "starting", Run: idle})
			took, err := shut(t, s)
			if took != 54*time.Second || !errors.Is(err, context.DeadlineExceeded) || strings.Count(err.Error(), `draining child "b"`) != 1 {
				t.Errorf("Close returned %v after %v", err, took)
			}
		})
	}
}

// TestCloseWithoutADeadline takes five seconds at most.
//
// Guarantees: G-0002.16
func TestCloseWithoutADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, began := supervisor.New(supervisor.Options{}), new(diary), time.Now()
		start(t, s, newFinisher("a", d, time.Hour).spec())
		if err := s.Close(t.Context()); err == nil || time.Since(began) != 4500*time.Millisecond {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
		d.want(t, "a drains", "a is stopped")
		release := make(chan struct{})
		s, began = supervisor.New(supervisor.Options{}), time.Now()
		start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release), Shutdown: time.Hour})
		var stuck *supervisor.StuckError
		if err := s.Close(t.Context()); !errors.As(err, &stuck) || time.Since(began) != 5*time.Second {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
		close(release)
		synctest.Wait()
	})
}

// TestCloseIsCancelled: everything is stopped, and what is left is named.
//
// Guarantees: G-0002.6, G-0002.16
func TestCloseIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{}), new(diary)
		start(t, s, newFinisher("a", d, time.Hour).spec())
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan error, 1)
		go func() { closed <- s.Close(ctx) }()
		synctest.Wait()
		cancel()
		var stuck *supervisor.StuckError
		if err := <-closed; !errors.As(err, &stuck) || stuck.Children[0] != "a" || !errors.Is(err, context.Canceled) {
			t.Errorf("Close returned %v", err)
		}
		d.want(t, "a drains", "a is stopped")
		if err := s.Wait(t.Context()); err != nil {
			t.Errorf("Wait returned %v", err)
		}
	})
}

// TestStopCutsADrainShort.
func TestStopCutsADrainShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{}), new(diary)
		start(t, s, newFinisher("a", d, time.Hour).spec())
		start(t, s, newFinisher("b", d, time.Hour).spec())
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		stop(t, s)
		slices.Sort(d.lines[:2]) // they are called at the same time
		d.want(t, "a drains", "b drains", "b is stopped", "a is stopped")
		if err := <-closed; err != nil {
			t.Errorf("Close returned %v", err)
		}
	})
}

// TestDrainThatDoesNotEndRun: when it has returned the child is stopped.
//
// Guarantees: G-0002.16
func TestDrainThatDoesNotEndRun(t *testing.T) {
	for name, drain := range map[string]func(context.Context) error{
		"returns": func(context.Context) error { return nil },
		"panics":  func(context.Context) error { panic("boom") },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := supervisor.New(supervisor.Options{})
			c := start(t, s, supervisor.ChildSpec{Run: idle, Drain: drain})
			took, err := shut(t, s)
			if took != 0 || !isClosed(c.Done()) || (err == nil) != (name == "returns") {
				t.Errorf("%s: Close returned %v after %v", name, err, took)
			}
		})
	}
}

// TestFailedDrainIsAFailureOfTheChild, once, although the child was stopped.
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
			pass(time.Minute)
			took, err := shut(t, s)
			r := s.Report().Children[0]
			if r.State != supervisor.Stopped || r.Failures != 1 || r.LastFailure == nil || r.LastFailure.Error() != want || r.FailedAt.IsZero() {
				t.Errorf("after %v, want %s: %s", took, want, r)
			}
			if err == nil || strings.Count(err.Error(), `draining child "a"`) != 1 || c.Err() != nil {
				t.Errorf("Close returned %v, Err is %v", err, c.Err())
			}
			if want := []string{"supervisor: a: child started", "supervisor: a: child stopped"}; !slices.Equal(events, want) {
				t.Errorf("told %q", events)
			}
		})
	}
}

// TestFailedDrainIsNamed: also a child whose Run had returned by then, and not
// one whose Drain a Stop has cut short. A supervisor fails once with those below.
//
// Guarantees: G-0002.17
func TestFailedDrainIsNamed(t *testing.T) {
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
		pass(2 * time.Second)
		s.Stop(t.Context())
		failures := map[string]int{}
		for _, r := range append(s.Report().Children, pool.Report().Children...) {
			failures[r.ID] = r.Failures
		}
		if want := map[string]int{"outlives Run": 1, "pool": 1, "below": 1, "cut short": 0}; !maps.Equal(failures, want) {
			t.Errorf("failures: %v, want %v", failures, want)
		}
	})
}

// TestNoRestartWhileDraining: a child that fails meanwhile is over.
//
// Guarantees: G-0002.16
func TestNoRestartWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, failing := supervisor.New(supervisor.Options{}), new(diary), newScript()
		start(t, s, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		start(t, s, newFinisher("a", d, time.Second).spec())
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		failing.end(returns(errBroken))
		if err := <-closed; !errors.Is(err, errBroken) || failing.runs.Load() != 1 {
			t.Errorf("Close returned %v after %d runs", err, failing.runs.Load())
		}
	})
}

// TestDrainThatIgnoresItsContext is named with its child.
//
// Guarantees: G-0002.6, G-0002.16
func TestDrainThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		start(t, s, supervisor.ChildSpec{ID: "stuck", Run: idle, Drain: ignoresStop(release), Shutdown: time.Second})
		var stuck *supervisor.StuckError
		took, err := shut(t, s)
		if took != 55*time.Second || !errors.As(err, &stuck) || !slices.Equal(stuck.Children, []string{"stuck"}) {
			t.Errorf("Close returned %v after %v", err, took)
		}
		close(release)
		synctest.Wait()
	})
}

// TestLateChildrenAreStoppedWhenTheTimeIsUp when the time is up, whatever it was doing, and
// although others are slow to stop.
//
// Guarantees: G-0002.16
func TestLateChildrenAreStoppedWhenTheTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, began := supervisor.New(supervisor.Options{}), new(diary), time.Now()
		slow := func(id string) func(context.Context) error {
			return func(ctx context.Context) error {
				<-ctx.Done()
				d.note("%s is told after %v", id, time.Since(began))
				pause(time.Second)
				return nil
			}
		}
		go s.Start(t.Context(), supervisor.ChildSpec{ID: "starting", Init: slow("starting"), Run: idle})
		synctest.Wait()
		start(t, s, supervisor.ChildSpec{ID: "working", Run: slow("working")})
		start(t, s, supervisor.ChildSpec{ID: "draining", Run: slow("draining"), Drain: idle})
		if took, _ := shut(t, s); took != 55*time.Second {
			t.Errorf("Close took %v", took)
		}
		slices.Sort(d.lines)
		d.want(t, "draining is told after 54s", "starting is told after 54s", "working is told after 54s")
	})
}

// TestBroughtBackAfterADrain: nothing of it sticks to the child. Its supervisor
// is begun again by its parent, without children.
//
// Guarantees: G-0002.14
func TestBroughtBackAfterADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, stops, drains := supervisor.New(supervisor.Options{}), 0, 0
		pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
		finish := make(chan struct{}, 1)
		c := start(t, pool, supervisor.ChildSpec{
			Run: func(ctx context.Context) error {
				select {
				case <-finish:
				case <-ctx.Done():
					stops++
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
			if took, err := shut(t, pool); took != time.Second || err != nil || stops != round {
				t.Errorf("Close returned %v after %v, and the child was told to stop %d times", err, took, stops)
			}
			synctest.Wait()
			if err := c.Restart(t.Context()); err != nil {
				t.Errorf("Restart returned %v", err)
			}
		}
		pass(time.Hour)
		if err := pool.Stop(t.Context()); err != nil || stops != 2 {
			t.Errorf("Stop returned %v, and the child was told to stop %d times", err, stops)
		}
		stop(t, root)
	})
}

// TestDrainMayOutliveRun, as http.Server.Shutdown outlives Serve: the context of
// Run lasts until both have returned.
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
		took, err := shut(t, s)
		if after = running.Err(); err != nil || took != 10*time.Second || !isClosed(c.Done()) || during != nil || after == nil {
			t.Errorf("Close returned %v after %v; the contexts ended early: %v, and at last: %v", err, took, during, after)
		}
	})
}

// TestStopCutsADrainThatOutlivesRun.
func TestStopCutsADrainThatOutlivesRun(t *testing.T) {
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
			t.Errorf("Close returned %v", err)
		}
	})
}

// A Run that fails while its Drain is still to return is a failure that a
// report has, so that the report before is outdated.
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
		if after.Children[0].Failures != before.Children[0].Failures && !isClosed(before.Changed()) {
			t.Errorf("%d failures, then %d, and nobody was told", before.Children[0].Failures, after.Children[0].Failures)
		}
		_ = s.Stop(t.Context())
	})
}

// A Close has a supervisor that is beginning again let those of its children
// finish that run already.
//
// Guarantees: G-0002.16
func TestCloseDrainsASupervisorThatBegins(t *testing.T) {
	for _, strategy := range []supervisor.Strategy{supervisor.OneForOne, supervisor.OneForAll} {
		synctest.Test(t, func(t *testing.T) {
			var d diary
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
				t.Fatalf("finisher is %s", got)
			}
			d.lines = nil
			if _, err := shut(t, root); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if len(d.lines) == 0 || d.lines[0] != "finisher drains" {
				t.Errorf("the child that could finish: %q", d.lines)
			}
		})
	}
}

// TestSecondCloseWaitsForTheFirst: it has no more time to give.
//
// Guarantees: G-0002.16
func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, over := supervisor.New(supervisor.Options{}), make(chan struct{})
		start(t, s, supervisor.ChildSpec{
			Run:   func(ctx context.Context) error { <-ctx.Done(); close(over); return nil },
			Drain: func(context.Context) error { <-over; return nil },
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
			t.Errorf("after %v the second Close returned %v", time.Since(began), err)
		}
	})
}

// TestOnlyRunningChildrenAreDrained: a child in its Init has nothing to finish.
//
// Guarantees: G-0002.16
func TestOnlyRunningChildrenAreDrained(t *testing.T) {
	for _, strategy := range []supervisor.Strategy{supervisor.OneForOne, supervisor.RestForOne} {
		synctest.Test(t, func(t *testing.T) {
			s := supervisor.New(supervisor.Options{Strategy: strategy})
			go s.Start(t.Context(), supervisor.ChildSpec{Init: idle, Run: idle, Drain: func(context.Context) error {
				t.Error("drained")
				return nil
			}})
			synctest.Wait()
			if took, err := shut(t, s); err != nil || took > 0 {
				t.Errorf("Close returned %v after %v", err, took)
			}
		})
	}
}

// Close starts nothing, also in a supervisor below that begins: once
// that has refused a child, it takes none.
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
				t.Fatalf("it is %s", state)
			}
			var over atomic.Bool
			taken := make(chan int, 1)
			go func() {
				refused, n := false, 0
				for !over.Load() {
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
			over.Store(true)
			if n := <-taken; n > 0 {
				t.Errorf("it has taken %d children after it had refused one", n)
			}
		})
		if t.Failed() {
			return
		}
	}
}
