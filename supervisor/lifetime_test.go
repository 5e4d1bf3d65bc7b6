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
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
)

// Stop of a supervisor that has given up, and waits to be restarted, ends the children that were to run
// again. The parent then restarts it without them. Here it waits for a sibling that is slow to stop, and its
// hook is slower.
//
// Guarantees: G-0002.15
func TestStopOfASupervisorThatWaitsForItsRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []supervisor.EventKind
		root, failing := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne}), newScript()
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1, OnEvent: func(e supervisor.Event) {
			events = append(events, e.Kind)
			pause(2 * time.Second)
		}})
		c, rude := start(t, pool, supervisor.ChildSpec{ID: "failing", Run: failing.run}), errors.New("rude")
		start(t, pool, supervisor.ChildSpec{ID: "rude", Restart: supervisor.Temporary, Run: func(ctx context.Context) error { <-ctx.Done(); return rude }})
		start(t, root, newMember("slow", new(eventLog)).spec())
		advance(time.Minute)
		failing.end(returns(errBroken))
		advance(500 * time.Millisecond)
		var callers sync.WaitGroup
		for range 2 { // at the same time, since the supervisor is restarted when they return
			callers.Go(func() {
				err := pool.Stop(t.Context())
				if !errors.As(err, new(*supervisor.IntensityError)) || !errors.Is(err, rude) || strings.Contains(err.Error(), `stopping child "failing"`) || !wait.IsClosed(c.Done()) {
					t.Errorf("Stop returned %v, want an IntensityError and rude, and the child done", err)
				}
			})
		}
		callers.Wait()
		advance(time.Minute)
		if r := root.Report(); r.RecentRestarts != 0 || r.Children[0].Restarts != 1 || r.Children[0].Supervisor.GaveUp != nil || failing.runs.Load() != 1 {
			t.Errorf("want one restart of pool without children, report:\n%v", r)
		}
		if want := []supervisor.EventKind{supervisor.ChildStarted, supervisor.ChildStarted, supervisor.GaveUp, supervisor.ChildFailed, supervisor.ChildFailed}; !slices.Equal(events, want) {
			t.Errorf("reported %v, want %v", events, want)
		}
		stop(t, root)
	})
}

// Close of a supervisor that waits to be restarted ends the children that were to run again, like Stop. Its
// parent has stopped it, and then waits for a sibling that is slow to start.
//
// Guarantees: G-0002.15, G-0002.16
func TestCloseOfASupervisorThatWaitsForItsRestart(t *testing.T) {
	for state, after := range map[supervisor.State]time.Duration{supervisor.Stopping: 500 * time.Millisecond, supervisor.Stopped: 1500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			root, servers, failing := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne}), supervisor.New(supervisor.Options{}), newScript()
			start(t, root, supervisor.ChildSpec{ID: "failing", Run: failing.run, Init: func(context.Context) error { pause(2 * time.Second); return nil }})
			pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
			c := conn.New(new(peer).transport(t, servers), conn.Options{Tuning: conn.Tuning{Name: "weather"}})
			connect(t, pool, c)
			start(t, pool, newMember("slow to stop", new(eventLog)).spec())
			failing.end(returns(errBroken))
			if advance(after); pool.Report().State != state {
				t.Errorf("want pool %s, report:\n%v", state, root.Report())
			}
			if err := pool.Close(t.Context()); err != nil || !wait.IsClosed(c.Done()) {
				t.Errorf("%v: Close returned %v, the Conn is %v; want no error, done", state, err, c.State())
			}
			advance(time.Minute)
			if r := root.Report(); states(r.Children)["pool"] != supervisor.Running || states(pool.Report().Children)["weather"] != supervisor.Stopped {
				t.Errorf("want pool running and weather stopped, report:\n%v", r)
			}
			stop(t, root)
			stop(t, servers)
		})
	}
}

// A supervisor whose children fail to start when it is restarted has failed to start. Its parent counts
// that.
//
// Guarantees: G-0002.4, G-0002.15
func TestSupervisorThatCannotBeRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, d := supervisor.New(supervisor.Options{Intensity: 2}), new(eventLog)
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1})
		a := newMember("a", d)
		start(t, pool, a.spec())
		a.fails = 10
		a.end(returns(errBroken))
		var gaveUp *supervisor.IntensityError
		if err := root.Wait(t.Context()); !errors.As(err, &gaveUp) || gaveUp.Child != "pool" || !errors.Is(err, errBroken) {
			t.Errorf("Wait returned %v, want an IntensityError that names pool", err)
		}
		d.want(t, "a starts", "a runs", "a starts", "a starts")
	})
}

// If a supervisor is stopped while it is being restarted, its children that run are stopped. If the parent
// has not stopped, it restarts the supervisor.
//
// Guarantees: G-0002.15
func TestStopWhileASupervisorRestarts(t *testing.T) {
	for _, byParent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			root, d := supervisor.New(supervisor.Options{}), new(eventLog)
			pool, poolChild := nested(t, root, supervisor.Options{Name: "pool"})
			startThree(t, pool, d)
			again := make(chan error, 1)
			go func() { again <- poolChild.Restart(t.Context()) }()
			advance(4500 * time.Millisecond) // b starts
			stopped := pool
			if byParent {
				stopped = root
			}
			stop(t, stopped)
			d.want(t, "c is stopping", "c has ended", "b is stopping", "b has ended", "a is stopping", "a has ended",
				"a starts", "a runs", "b starts", "b runs", "b is stopping", "b has ended", "a is stopping", "a has ended")
			if err := <-again; (err != nil) != byParent {
				t.Errorf("Restart returned %v, want an error: %v", err, byParent)
			}
			if r := root.Report(); r.Children[0].Restarts != 1 || !byParent && pool.Report().State != supervisor.Running {
				t.Errorf("want one restart of pool, report:\n%v", r)
			}
			stop(t, root)
		})
	}
}

// If a supervisor is stopped while its child is being restarted, it is restarted without children.
//
// Guarantees: G-0002.15
func TestStopDuringARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, again := supervisor.New(supervisor.Options{}), make(chan error, 1)
		pool, poolChild := nested(t, root, supervisor.Options{Name: "pool"})
		start(t, pool, newMember("a", new(eventLog)).spec())
		go func() { again <- poolChild.Restart(t.Context()) }()
		synctest.Wait()
		stop(t, pool)
		if err := <-again; err != nil || states(pool.Report().Children)["a"] != supervisor.Stopped {
			t.Errorf("Restart returned %v, want no error and a stopped; report:\n%v", err, pool.Report())
		}
		stop(t, root)
	})
}

// When a root gives up, its Wait returns only after nested supervisors have reported the end of their children.
//
// Guarantees: G-0002.15
func TestWaitReturnsAfterTheLastEvents(t *testing.T) {
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
			t.Errorf("Wait returned %v, want %v", err, errBroken)
		}
		if want := []supervisor.EventKind{supervisor.ChildStarted, supervisor.GaveUp, supervisor.ChildFailed}; !slices.Equal(events, want) {
			t.Errorf("reported %v, want %v", events, want)
		}
	})
}

// A supervisor that is restarted after a Stop calls its hook again.
//
// Guarantees: G-0002.15
func TestHookIsCalledAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []supervisor.EventKind
		root := supervisor.New(supervisor.Options{})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", OnEvent: func(e supervisor.Event) { events = append(events, e.Kind) }})
		stop(t, pool) // its parent restarts it
		synctest.Wait()
		start(t, pool, supervisor.ChildSpec{ID: "a", Run: idle})
		synctest.Wait()
		if !slices.Equal(events, []supervisor.EventKind{supervisor.ChildStarted}) {
			t.Errorf("reported %v, want one start", events)
		}
		stop(t, root)
	})
}
