package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/supervisor"
)

// OnEvent is called for each event, in order.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		s := supervisor.New(supervisor.Options{Name: "tree", Intensity: 1, OnEvent: func(e supervisor.Event) {
			events = append(events, e.String())
		}})
		release, child := make(chan struct{}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release), Shutdown: time.Second})
		start(t, s, supervisor.ChildSpec{ID: "a", Run: child.run})
		child.end(returns(errBroken))
		child.end(panics("boom\nand more"))
		s.Wait(t.Context())
		want := []string{
			"supervisor tree: stuck: child started",
			"supervisor tree: a: child started",
			"supervisor tree: a: child restarted: broken",
			"supervisor tree: a: gave up: supervisor tree: gave up: child \"a\" needed more than 1 restarts within 5s: panic: boom; and more",
			"supervisor tree: a: child failed: panic: boom; and more",
			"supervisor tree: stuck: child stuck: supervisor tree: still running after being stopped: stuck",
		}
		close(release)
		synctest.Wait()
		if !slices.Equal(events, want) {
			t.Errorf("reported %q,\nwant %q", events, want)
		}
	})
}

// The event of a stuck child names that child alone. After a Restart that no failure has caused, the event has no error of an earlier Run.
func TestEventsAreOfTheirChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		s := supervisor.New(supervisor.Options{Intensity: 1, OnEvent: func(e supervisor.Event) {
			events = append(events, fmt.Sprintf("%v (%d)", e, e.Restarts))
		}})
		release, failing := make(chan struct{}), newScript()
		a := start(t, s, supervisor.ChildSpec{ID: "a", Run: failing.run})
		stuck := start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release), Shutdown: time.Second})
		failing.end(returns(errBroken))
		if err := a.Restart(t.Context()); err != nil {
			t.Error(err)
		}
		_ = stuck.Stop(t.Context())
		close(release)
		synctest.Wait()
		if want := []string{
			"supervisor: a: child started (0)",
			"supervisor: stuck: child started (0)",
			"supervisor: a: child restarted: broken (1)",
			"supervisor: a: child restarted (2)",
			"supervisor: stuck: child stuck: supervisor: still running after being stopped: stuck (0)",
			"supervisor: stuck: child stopped (0)",
		}; !slices.Equal(events, want) {
			t.Errorf("reported %q,\nwant %q", events, want)
		}
		failing.end(returns(nil)) // one too many
		var gaveUp *supervisor.IntensityError
		if err := s.Wait(t.Context()); !errors.As(err, &gaveUp) || gaveUp.Err != nil {
			t.Errorf("Wait returned %v, want an IntensityError without the error of an earlier Run", err)
		}
	})
}

// A stuck child is reported once, however often its Stop is called.
func TestStuckChildIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, events := make(chan struct{}), 0
		s := supervisor.New(supervisor.Options{OnEvent: func(e supervisor.Event) {
			if e.Kind == supervisor.ChildStuck {
				events++
			}
		}})
		c := start(t, s, supervisor.ChildSpec{Run: ignoresStop(release)})
		for range 2 {
			if err := c.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
				t.Errorf("Stop returned %v, want a StuckError", err)
			}
		}
		close(release)
		<-c.Done()
		stop(t, s)
		if events != 1 {
			t.Errorf("the child was reported as stuck %d times, want once", events)
		}
	})
}

// A hook that blocks delays no child. Events for which there is no room are dropped and counted.
//
// Guarantees: G-0002.7
func TestBlockingHookDropsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var events []supervisor.Event
		s := supervisor.New(supervisor.Options{OnEvent: func(e supervisor.Event) {
			events = append(events, e)
			if len(events) == 1 {
				<-release
			}
		}})
		startAndStop := func(times int) {
			for range times {
				if err := start(t, s, supervisor.ChildSpec{Run: idle}).Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		start(t, s, supervisor.ChildSpec{Run: idle})
		synctest.Wait()
		startAndStop(1000)
		close(release)
		synctest.Wait()
		if last := events[len(events)-1]; len(events) != 1025 || last.Dropped != 2000-1024 {
			t.Errorf("reported %d events, %d dropped; want 1025 and %d", len(events), last.Dropped, 2000-1024)
		}
		stop(t, s)
	})
}

// Stop names a hook that does not return. The hook is not called again.
//
// Guarantees: G-0002.7
func TestStopNamesAHookThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, events := make(chan struct{}), 0
		s := supervisor.New(supervisor.Options{OnEvent: func(supervisor.Event) { events++; <-release }})
		start(t, s, supervisor.ChildSpec{Run: idle})
		var stuck *supervisor.StuckError
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		for i, ctx := range []context.Context{hurried, t.Context()} {
			err := s.Stop(ctx)
			if took, want := time.Since(began), []time.Duration{time.Second, 5 * time.Second}[i]; !errors.As(err, &stuck) ||
				!slices.Equal(stuck.Children, []string{"OnEvent"}) || took != want {
				t.Errorf("Stop returned %v after %v, want a StuckError with OnEvent after %v", err, took, want)
			}
		}
		close(release)
		synctest.Wait()
		if events != 1 {
			t.Errorf("the hook was called %d times, want once", events)
		}
	})
}

// A panic of the hook affects nothing. The event counts as dropped.
//
// Guarantees: G-0002.7
func TestPanicOfTheHookDropsItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last supervisor.Event
		s := supervisor.New(supervisor.Options{OnEvent: func(e supervisor.Event) {
			if e.Kind == supervisor.ChildStarted {
				panic("boom")
			}
			last = e
		}})
		start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		stop(t, s)
		if last.Kind != supervisor.ChildStopped || last.Dropped != 1 {
			t.Errorf("reported %v with %d dropped, want ChildStopped with 1", last, last.Dropped)
		}
	})
}

// A hook may start children and read reports without a deadlock.
func TestHookMayUseTheSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *supervisor.Supervisor
		s = supervisor.New(supervisor.Options{OnEvent: func(e supervisor.Event) {
			if e.Child == "a" && e.Kind == supervisor.ChildFailed {
				start(t, s, supervisor.ChildSpec{ID: "instead", Run: idle})
			}
		}})
		child := newScript()
		start(t, s, supervisor.ChildSpec{ID: "a", Run: child.run, Restart: supervisor.Temporary})
		child.end(returns(errBroken))
		if got := states(s.Report().Children); got["instead"] != supervisor.Running {
			t.Errorf("got %v, want \"instead\" to run", got)
		}
		stop(t, s)
	})
}

// Events that were dropped while the hook blocked are counted, even if the supervisor has restarted since.
//
// Guarantees: G-0002.7
func TestDroppedEventsAreCountedOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		var events []supervisor.Event
		hangs := true
		pool, child := nested(t, root, supervisor.Options{Name: "pool", OnEvent: func(e supervisor.Event) {
			if hangs {
				<-release
				hangs = false
			}
			events = append(events, e)
		}})
		for range 10 {
			start(t, pool, supervisor.ChildSpec{Run: idle})
		}
		if err := child.Restart(t.Context()); err != nil { // the hook blocks for longer than a stop waits
			t.Fatal(err)
		}
		close(release)
		synctest.Wait()
		start(t, pool, supervisor.ChildSpec{ID: "last", Run: idle})
		synctest.Wait()
		last := events[len(events)-1]
		// 10 started, 10 restarted, 1 started
		if total := uint64(len(events)) + last.Dropped; total < 21 {
			t.Errorf("reported %d, dropped %d; want 21 in all at least", len(events), last.Dropped)
		}
		_ = root.Stop(t.Context())
	})
}

// A hook that blocks delays neither the restart of its supervisor nor that of the children there.
//
// Guarantees: G-0002.2, G-0002.7
func TestBlockingHookDelaysNoRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, release, failing := supervisor.New(supervisor.Options{Strategy: supervisor.OneForAll}), make(chan struct{}), newScript()
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1, OnEvent: func(supervisor.Event) { <-release }})
		sibling := newScript()
		start(t, root, supervisor.ChildSpec{ID: "sibling", Run: sibling.run})
		start(t, pool, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		failing.end(returns(errBroken)) // pool gives up, and root restarts it and the sibling
		if failing.runs.Load() != 2 || sibling.runs.Load() != 2 {
			began := time.Now()
			advance(time.Minute)
			t.Errorf("%d and %d runs within %v, want 2 and 2 at once",
				failing.runs.Load(), sibling.runs.Load(), time.Since(began))
		}
		close(release)
		synctest.Wait()
		_ = root.Stop(t.Context())
	})
}

// If the hook blocks for longer than Stop waits for it, the events left are dropped. They are counted when
// the supervisor runs again.
//
// Guarantees: G-0002.7
func TestEventsDiscardedByStopAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, release, events := supervisor.New(supervisor.Options{}), make(chan struct{}), []supervisor.Event(nil)
		pool, child := nested(t, root, supervisor.Options{Name: "pool", OnEvent: func(e supervisor.Event) {
			<-release
			events = append(events, e)
		}})
		for range 3 {
			start(t, pool, supervisor.ChildSpec{Run: idle})
		}
		var stuck *supervisor.StuckError
		if err := child.Stop(t.Context()); !errors.As(err, &stuck) || !slices.Equal(stuck.Children, []string{"OnEvent"}) {
			t.Errorf("Stop returned %v, want a StuckError with OnEvent", err)
		}
		close(release)
		synctest.Wait()
		if err := child.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, pool, supervisor.ChildSpec{Run: idle})
		synctest.Wait()
		// Three were started and three were stopped. The first start was reported.
		if len(events) != 2 || events[1].Dropped != 5 {
			t.Errorf("reported %v, the last with %d dropped; want two, 5", events, events[len(events)-1].Dropped)
		}
		stop(t, root)
	})
}
