package supervisor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor"
)

// TestStopOfASupervisorThatIsToBeginAgain: what it has kept is over, and it
// begins without. It has given up, and waits for a sibling that is slow to stop;
// its hook is slower.
//
// Guarantees: G-0002.15
func TestStopOfASupervisorThatIsToBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []supervisor.EventKind
		root, failing := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne}), newScript()
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1, OnEvent: func(e supervisor.Event) {
			events = append(events, e.Kind)
			pause(2 * time.Second)
		}})
		c, rude := start(t, pool, supervisor.ChildSpec{ID: "failing", Run: failing.run}), errors.New("rude")
		start(t, pool, supervisor.ChildSpec{ID: "rude", Restart: supervisor.Temporary, Run: func(ctx context.Context) error { <-ctx.Done(); return rude }})
		start(t, root, newMember("slow", new(diary)).spec())
		pass(time.Minute)
		failing.end(returns(errBroken))
		pass(500 * time.Millisecond)
		var callers sync.WaitGroup
		for range 2 { // at once: when they return the supervisor begins again
			callers.Go(func() {
				err := pool.Stop(t.Context())
				if !errors.As(err, new(*supervisor.IntensityError)) || !errors.Is(err, rude) || strings.Contains(err.Error(), `stopping child "failing"`) || !isClosed(c.Done()) {
					t.Errorf("Stop returned %v", err)
				}
			})
		}
		callers.Wait()
		pass(time.Minute)
		if r := root.Report(); r.RecentRestarts != 0 || r.Children[0].Restarts != 1 || r.Children[0].Supervisor.GaveUp != nil || failing.runs.Load() != 1 {
			t.Errorf("report:\n%v", r)
		}
		if want := []supervisor.EventKind{supervisor.ChildStarted, supervisor.ChildStarted, supervisor.GaveUp, supervisor.ChildFailed, supervisor.ChildFailed}; !slices.Equal(events, want) {
			t.Errorf("told %v", events)
		}
		stop(t, root)
	})
}

// TestCloseOfASupervisorThatIsToBeginAgain: what it has kept is over, as behind a
// Stop. Its parent stops it at first, and then waits for a sibling that is slow
// to start.
//
// Guarantees: G-0002.15, G-0002.16
func TestCloseOfASupervisorThatIsToBeginAgain(t *testing.T) {
	for state, after := range map[supervisor.State]time.Duration{supervisor.Stopping: 500 * time.Millisecond, supervisor.Stopped: 1500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			root, servers, failing := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne}), supervisor.New(supervisor.Options{}), newScript()
			start(t, root, supervisor.ChildSpec{ID: "failing", Run: failing.run, Init: func(context.Context) error { pause(2 * time.Second); return nil }})
			pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
			c := conn.New(new(peer).transport(t, servers), conn.Options{Name: "weather"})
			connect(t, pool, c)
			start(t, pool, newMember("slow to stop", new(diary)).spec())
			failing.end(returns(errBroken))
			if pass(after); pool.Report().State != state {
				t.Errorf("report:\n%v", root.Report())
			}
			if err := pool.Close(t.Context()); err != nil || !isClosed(c.Done()) {
				t.Errorf("%v: Close returned %v, the Conn is %v", state, err, c.State())
			}
			pass(time.Minute)
			if r := root.Report(); states(r.Children)["pool"] != supervisor.Running || states(pool.Report().Children)["weather"] != supervisor.Stopped {
				t.Errorf("report:\n%v", r)
			}
			stop(t, root)
			stop(t, servers)
		})
	}
}

// TestSupervisorThatCannotBeginAgain fails to start, which is the parent's
// business.
//
// Guarantees: G-0002.4, G-0002.15
func TestSupervisorThatCannotBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, d := supervisor.New(supervisor.Options{Intensity: 2}), new(diary)
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1})
		a := newMember("a", d)
		start(t, pool, a.spec())
		a.fails = 10
		a.end(returns(errBroken))
		var gaveUp *supervisor.IntensityError
		if err := root.Wait(t.Context()); !errors.As(err, &gaveUp) || gaveUp.Child != "pool" || !errors.Is(err, errBroken) {
			t.Errorf("Wait returned %v", err)
		}
		d.want(t, "a starts", "a runs", "a starts", "a starts")
	})
}

// TestStopWhileASupervisorBegins: what it has begun is stopped, by whomever, and
// its parent begins it again unless it has stopped itself.
//
// Guarantees: G-0002.15
func TestStopWhileASupervisorBegins(t *testing.T) {
	for _, byParent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			root, d := supervisor.New(supervisor.Options{}), new(diary)
			pool, poolChild := nested(t, root, supervisor.Options{Name: "pool"})
			team(t, pool, d)
			again := make(chan error, 1)
			go func() { again <- poolChild.Restart(t.Context()) }()
			pass(4500 * time.Millisecond) // b starts
			stopped := pool
			if byParent {
				stopped = root
			}
			stop(t, stopped)
			d.want(t, "c is told", "c is gone", "b is told", "b is gone", "a is told", "a is gone",
				"a starts", "a runs", "b starts", "b runs", "b is told", "b is gone", "a is told", "a is gone")
			if err := <-again; (err != nil) != byParent {
				t.Errorf("Restart returned %v", err)
			}
			if r := root.Report(); r.Children[0].Restarts != 1 || !byParent && pool.Report().State != supervisor.Running {
				t.Errorf("report:\n%v", r)
			}
			stop(t, root)
		})
	}
}

// TestStopDuringARestart of a supervisor: it begins again without children.
//
// Guarantees: G-0002.15
func TestStopDuringARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, again := supervisor.New(supervisor.Options{}), make(chan error, 1)
		pool, poolChild := nested(t, root, supervisor.Options{Name: "pool"})
		start(t, pool, newMember("a", new(diary)).spec())
		go func() { again <- poolChild.Restart(t.Context()) }()
		synctest.Wait()
		stop(t, pool)
		if err := <-again; err != nil || states(pool.Report().Children)["a"] != supervisor.Stopped {
			t.Errorf("Restart returned %v, report:\n%v", err, pool.Report())
		}
		stop(t, root)
	})
}

// TestGivingUpIsToldToTheEnd: a root that gives up with a supervisor below waits
// until that has told what became of its children.
//
// Guarantees: G-0002.15
func TestGivingUpIsToldToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []supervisor.EventKind
		root, failing := supervisor.New(supervisor.Options{Intensity: -1}), newScript()
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1, OnEvent: func(e supervisor.Event) {
			pause(time.Second)
			events = append(events, e.Kind)
		}})
		start(t, pool, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		failing.end(returns(errBroken))
		if err := root.Wait(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("Wait returned %v", err)
		}
		if want := []supervisor.EventKind{supervisor.ChildStarted, supervisor.GaveUp, supervisor.ChildFailed}; !slices.Equal(events, want) {
			t.Errorf("told %v", events)
		}
	})
}

// A supervisor that begins again after a Stop tells its hook.
//
// Guarantees: G-0002.15
func TestHookIsToldInTheNextLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []supervisor.EventKind
		root := supervisor.New(supervisor.Options{})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", OnEvent: func(e supervisor.Event) { events = append(events, e.Kind) }})
		stop(t, pool) // its parent runs it again
		synctest.Wait()
		start(t, pool, supervisor.ChildSpec{ID: "a", Run: idle})
		synctest.Wait()
		if !slices.Equal(events, []supervisor.EventKind{supervisor.ChildStarted}) {
			t.Errorf("told %v", events)
		}
		stop(t, root)
	})
}
