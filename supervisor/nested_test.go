package supervisor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
)

// nested starts a new supervisor as a child of another.
func nested(t *testing.T, parent *supervisor.Supervisor, o supervisor.Options) (*supervisor.Supervisor, *supervisor.Child) {
	t.Helper()
	s := supervisor.New(o)
	return s, start(t, parent, supervisor.ChildSpec{ID: o.Name, Supervisor: s})
}

// A nested supervisor that gives up is a failed child of its parent, which restarts it with the children that
// it had, in order, and with its full intensity.
//
// Guarantees: G-0002.15
func TestGivingUpIsAFailureOfANestedSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, d, restarts := supervisor.New(supervisor.Options{Name: "root"}), new(eventLog), 0
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: 1, Period: time.Hour, OnEvent: func(e supervisor.Event) {
			if e.Kind == supervisor.ChildRestarted {
				restarts++
			}
		}})
		a, _, c := startThree(t, pool, d)
		for range 2 {
			for range 2 {
				a.end(returns(errBroken))
			}
			advance(time.Minute)
			d.want(t, "a starts", "a runs", "c is stopping", "c has ended", "b is stopping", "b has ended",
				"a starts", "a runs", "b starts", "b runs", "c starts", "c runs")
		}
		var gaveUp *supervisor.IntensityError
		child := root.Report().Children[0]
		if child.Restarts != 2 || !errors.As(child.LastFailure, &gaveUp) || gaveUp.Child != "a" || !errors.Is(gaveUp, errBroken) {
			t.Errorf("want two restarts of pool after an IntensityError that names a, report:\n%v", root.Report())
		}
		c.end(returns(errBroken))
		if r := pool.Report(); r.RecentRestarts != 1 || r.State != supervisor.Running || r.GaveUp != nil {
			t.Errorf("want pool running with one recent restart, report:\n%v", r)
		}
		stop(t, root)
		if restarts != 9 {
			t.Errorf("OnEvent reported %d restarts, want 9", restarts)
		}
		for _, child := range pool.Report().Children {
			if child.State != supervisor.Stopped {
				t.Errorf("want all children stopped, report:\n%v", pool.Report())
			}
		}
	})
}

// If nested supervisors give up too often, so does the root. Its error has the whole chain of causes.
//
// Guarantees: G-0002.4, G-0002.15
func TestEscalation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := supervisor.New(supervisor.Options{Name: "root", Intensity: 1})
		inner, _ := nested(t, root, supervisor.Options{Name: "inner", Intensity: -1})
		failing := newScript()
		c := start(t, inner, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		other := start(t, inner, supervisor.ChildSpec{ID: "other", Run: idle})
		for range 2 {
			if wait.IsClosed(root.Report().Changed()) || wait.IsClosed(c.Done()) {
				t.Fatal("the root gave up before the second failure")
			}
			failing.end(returns(errBroken))
		}
		err := root.Wait(t.Context())
		for _, part := range []string{"supervisor root: gave up", `"inner"`, "supervisor inner: gave up", `"failing"`, "broken"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("Wait returned %v, want %q in it", err, part)
			}
		}
		if !wait.IsClosed(c.Done()) || !wait.IsClosed(other.Done()) {
			t.Error("children of a supervisor that gave up are not done")
		}
	})
}

// A group restart of a nested supervisor stops all its children in reverse order, and starts them in order.
//
// Guarantees: G-0002.11, G-0002.12, G-0002.15
func TestGroupRestartOfASupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, d, first := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne}), new(eventLog), newScript()
		start(t, root, supervisor.ChildSpec{ID: "first", Run: first.run})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
		startThree(t, pool, d)
		last := newMember("last", d)
		start(t, root, last.spec())
		d.want(t, "last starts", "last runs")
		first.end(returns(errBroken))
		advance(time.Minute)
		d.want(t, "last is stopping", "last has ended",
			"c is stopping", "c has ended", "b is stopping", "b has ended", "a is stopping", "a has ended",
			"a starts", "a runs", "b starts", "b runs", "c starts", "c runs",
			"last starts", "last runs")
		if r := root.Report(); r.Children[1].LastFailure != nil {
			t.Errorf("want no failure of pool, report:\n%v", r)
		}
		stop(t, root)
	})
}

// A nested supervisor that is restarted does not run a child a second time that has ignored its stop.
//
// Guarantees: G-0002.13, G-0002.15
func TestStuckGrandchildIsNotRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := supervisor.New(supervisor.Options{})
		pool, poolChild := nested(t, root, supervisor.Options{Name: "pool"})
		var runs atomic.Int64
		release := make(chan struct{})
		start(t, pool, supervisor.ChildSpec{ID: "stuck", Run: ignoresFirstStop(release, &runs)})
		sibling := newScript()
		start(t, pool, supervisor.ChildSpec{ID: "sibling", Run: sibling.run})
		if err := poolChild.Restart(t.Context()); err != nil {
			t.Errorf("Restart returned %v, want no error", err)
		}
		synctest.Wait()
		if sibling.runs.Load() != 2 || runs.Load() != 1 {
			t.Errorf("the sibling ran %d times, the stuck child %d times; want 2, 1", sibling.runs.Load(), runs.Load())
		}
		close(release)
		synctest.Wait()
		if runs.Load() != 2 {
			t.Errorf("the stuck child ran %d times, want 2", runs.Load())
		}
		stop(t, root)
	})
}

// Stop of a tree names stuck children of nested supervisors.
//
// Guarantees: G-0002.6, G-0002.15
func TestStopOfATreeNamesStuckChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := supervisor.New(supervisor.Options{Name: "root"})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
		release := make(chan struct{})
		start(t, pool, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release)})
		err := root.Stop(t.Context())
		if want := "supervisor root: stopping child \"pool\": supervisor pool: still running after being stopped: stuck"; err == nil || err.Error() != want {
			t.Errorf("Stop returned %v, want %s", err, want)
		}
		close(release)
		synctest.Wait()
	})
}

// Close of a tree drains all children of nested supervisors, within one deadline.
//
// Guarantees: G-0002.16
func TestCloseDrainsTheWholeTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, d := supervisor.New(supervisor.Options{}), new(eventLog)
		for _, name := range []string{"east", "west"} {
			pool, _ := nested(t, root, supervisor.Options{Name: name})
			start(t, pool, newFinisher(name+" quick", d, time.Second).spec())
			start(t, pool, newFinisher(name+" slow", d, time.Hour).spec())
		}
		took, err := closeInTime(t, root)
		if took > 54*time.Second || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `draining child "east slow"`) || !strings.Contains(err.Error(), `draining child "west slow"`) {
			t.Errorf("Close returned %v after %v, want both slow children named within 54s", err, took)
		}
		if strings.Contains(err.Error(), "quick") || strings.Contains(err.Error(), `draining child "east":`) {
			t.Errorf("Close returned %v, want only the slow children named", err)
		}
	})
}

// Each level of a tree leaves its children almost all of the time for a drain: one hundredth less per level.
//
// Guarantees: G-0002.16
func TestDrainDeadlineIsPassedDownTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := supervisor.New(supervisor.Options{})
		leaf := root
		for range 10 {
			leaf, _ = nested(t, leaf, supervisor.Options{})
		}
		began, took := time.Now(), time.Duration(0)
		start(t, leaf, supervisor.ChildSpec{Run: idle, Drain: func(ctx context.Context) error {
			<-ctx.Done()
			took = time.Since(began)
			return ctx.Err()
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := root.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || took < 8*time.Second || took > 9*time.Second || time.Since(began) > 9*time.Second {
			t.Errorf("Close returned %v after %v, the leaf had %v; want DeadlineExceeded, 8s to 9s",
				err, time.Since(began), took)
		}
	})
}

// A supervisor can have only one parent, and cannot be nested below itself.
//
// Guarantees: G-0002.15
func TestSupervisorsFormTrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, other := supervisor.New(supervisor.Options{Name: "root"}), supervisor.New(supervisor.Options{})
		inner, _ := nested(t, root, supervisor.Options{Name: "inner"})
		unnamed, _ := nested(t, other, supervisor.Options{})
		for _, refused := range []struct {
			parent, child *supervisor.Supervisor
			id, text      string
		}{
			{root, root, "", `supervisor root: starting a child: supervisor: cannot become a child: it would contain itself`},
			{inner, inner, "", `supervisor inner: starting a child: supervisor: cannot become a child: it would contain itself`},
			{inner, root, "up", `supervisor inner: starting child "up": supervisor: cannot become a child: it contains supervisor inner`},
			{unnamed, other, "up", `supervisor: starting child "up": supervisor: cannot become a child: it contains an unnamed supervisor`},
			{other, inner, "a", `supervisor: starting child "a": supervisor: cannot become a child: it is already a child of supervisor root`},
			{root, inner, "again", `supervisor root: starting child "again": supervisor: cannot become a child: it is already a child of supervisor root`},
			{root, unnamed, "a", `supervisor root: starting child "a": supervisor: cannot become a child: it is already a child of an unnamed supervisor`},
		} {
			_, err := refused.parent.Start(t.Context(), supervisor.ChildSpec{ID: refused.id, Supervisor: refused.child})
			if wantText(t, err, refused.text); !errors.Is(err, supervisor.ErrNested) {
				t.Errorf("Start returned %v, want ErrNested", err)
			}
		}
		top := supervisor.New(supervisor.Options{}) // those that were refused are free
		start(t, top, supervisor.ChildSpec{Supervisor: root})
		start(t, top, supervisor.ChildSpec{Supervisor: other})
		stop(t, top)
	})
}

// If two supervisors are started as children of each other at the same time, at least one is refused.
//
// Guarantees: G-0002.15
func TestConcurrentStartsFormNoCycle(t *testing.T) {
	guard, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	await := func(what string, f func()) {
		t.Helper()
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			f()
		}()
		select {
		case <-returned:
		case <-guard.Done():
			t.Fatalf("%s has not returned in 20 s", what)
		}
	}
	for range 2000 {
		a, b := supervisor.New(supervisor.Options{Name: "a"}), supervisor.New(supervisor.Options{Name: "b"})
		var refusals, ready atomic.Int64
		var starts sync.WaitGroup
		for parent, child := range map[*supervisor.Supervisor]*supervisor.Supervisor{a: b, b: a} {
			starts.Go(func() {
				ready.Add(1)
				for spins := 0; ready.Load() < 2 && spins < 10_000; spins++ { // not for long: the other may not get a processor
				}
				if _, err := parent.Start(guard, supervisor.ChildSpec{Supervisor: child}); errors.Is(err, supervisor.ErrNested) {
					refusals.Add(1)
				}
			})
		}
		if await("Start of one of two supervisors as a child of the other", starts.Wait); refusals.Load() == 0 {
			t.Fatal("both were started, want one refused at least")
		}
		await("Stop of two supervisors, one of which is a child of the other at most", func() {
			stop(t, a)
			stop(t, b)
		})
	}
}

// When the child of a nested supervisor is stopped, its children are over. After a Restart it runs without them.
func TestNestedSupervisorIsStoppedThroughItsChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := supervisor.New(supervisor.Options{})
		pool, poolChild := nested(t, root, supervisor.Options{Name: "pool"})
		c := start(t, pool, supervisor.ChildSpec{ID: "a", Run: idle})
		if err := poolChild.Stop(t.Context()); err != nil || !wait.IsClosed(c.Done()) {
			t.Errorf("Stop returned %v, want no error, and a done", err)
		}
		if _, err := pool.Start(t.Context(), supervisor.ChildSpec{Run: idle}); !errors.Is(err, supervisor.ErrStopped) {
			t.Errorf("Start returned %v, want ErrStopped", err)
		}
		if err := poolChild.Restart(t.Context()); err != nil {
			t.Errorf("Restart returned %v, want no error", err)
		}
		start(t, pool, supervisor.ChildSpec{ID: "b", Run: idle})
		if got := states(pool.Report().Children); got["a"] != supervisor.Stopped || got["b"] != supervisor.Running {
			t.Errorf("want a stopped and b running, report:\n%v", pool.Report())
		}
		stop(t, root)
	})
}

// Stop waits for a nested supervisor as long as its children need, or for its Shutdown if that is set.
//
// Guarantees: G-0002.6
func TestStopWaitsForASupervisor(t *testing.T) {
	for shutdown, want := range map[time.Duration]time.Duration{0: 20 * time.Second, 12 * time.Second: 12 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			root, pool, began := supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{}), time.Now()
			start(t, root, supervisor.ChildSpec{ID: "pool", Supervisor: pool, Shutdown: shutdown})
			for range 5 {
				start(t, pool, supervisor.ChildSpec{Run: func(ctx context.Context) error { <-ctx.Done(); pause(4 * time.Second); return nil }})
			}
			if err := root.Stop(t.Context()); errors.As(err, new(*supervisor.StuckError)) != (shutdown > 0) || time.Since(began) != want {
				t.Errorf("Stop returned %v after %v, want %v", err, time.Since(began), want)
			}
			advance(time.Minute)
		})
	}
}

// A supervisor whose Start as a child was refused can be a root, or part of another tree.
//
// Guarantees: G-0002.15, G-0002.17
func TestRefusedSupervisorIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, other, failing := supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{}), newScript()
		start(t, root, supervisor.ChildSpec{ID: "pool", Run: idle})
		pool := supervisor.New(supervisor.Options{Intensity: -1})
		refuse := func() {
			if _, err := root.Start(t.Context(), supervisor.ChildSpec{ID: "pool", Supervisor: pool}); !errors.As(err, new(*supervisor.DuplicateError)) {
				t.Errorf("Start returned %v, want a DuplicateError", err)
			}
		}
		refuse()
		start(t, other, supervisor.ChildSpec{Supervisor: pool})
		stop(t, other)
		pool = supervisor.New(supervisor.Options{Intensity: -1})
		refuse()
		report := root.Report()
		c := start(t, pool, supervisor.ChildSpec{Run: failing.run})
		failing.end(returns(errBroken))
		if !wait.IsClosed(c.Done()) || wait.IsClosed(report.Changed()) {
			t.Errorf("want the child done, and the report of root not outdated:\n%v\n%v", pool.Report(), report)
		}
		stop(t, root)
	})
}

// A nested supervisor can be started elsewhere only when its child has ended.
//
// Guarantees: G-0002.13, G-0002.15
func TestSupervisorIsFreeWhenItsChildIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, pool := supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{})
		start(t, pool, newMember("slow", new(eventLog)).spec())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		spec := supervisor.ChildSpec{ID: "pool", Supervisor: pool}
		c := start(t, one, spec)
		if err := c.Delete(ended); !errors.As(err, new(*supervisor.StuckError)) {
			t.Errorf("Delete returned %v, want a StuckError", err)
		}
		if _, err := two.Start(t.Context(), spec); !errors.Is(err, supervisor.ErrNested) {
			t.Errorf("Start returned %v, want ErrNested", err)
		}
		advance(time.Minute)
		c = start(t, two, spec)
		advance(time.Minute)
		if r := two.Report().Children[0]; r.Restarts != 0 || r.State != supervisor.Running {
			t.Errorf("got %v, want running without restarts", r)
		}
		if err := c.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, one, spec)
		if err := c.Restart(t.Context()); !errors.Is(err, supervisor.ErrNested) {
			t.Errorf("Restart returned %v, want ErrNested", err)
		}
		stop(t, one)
		stop(t, two)
	})
}

// The contexts of children of a nested supervisor end with ErrRestarted or ErrStopped, like those of its
// parent's children.
//
// Guarantees: G-0002.15
func TestGrandchildrenGetTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes []error
		root := supervisor.New(supervisor.Options{})
		pool, poolChild := nested(t, root, supervisor.Options{Name: "pool"})
		start(t, pool, supervisor.ChildSpec{Run: func(ctx context.Context) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return nil
		}})
		if err := poolChild.Restart(t.Context()); err != nil {
			t.Errorf("Restart returned %v, want no error", err)
		}
		stop(t, root)
		if !slices.Equal(causes, []error{supervisor.ErrRestarted, supervisor.ErrStopped}) {
			t.Errorf("the causes are %v, want ErrRestarted, ErrStopped", causes)
		}
	})
}

// The handle of a deleted child cannot restart a supervisor that now belongs to another child.
//
// Guarantees: G-0002.15
func TestDeletedChildCannotRestartASupervisorOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, sub := supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{Name: "sub"})
		first := start(t, root, supervisor.ChildSpec{ID: "first", Supervisor: sub})
		if err := first.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, root, supervisor.ChildSpec{ID: "second", Supervisor: sub})
		if err := first.Restart(t.Context()); !errors.Is(err, supervisor.ErrNested) {
			t.Errorf("Restart returned %v, want ErrNested; children: %v", err, ids(root.Report().Children))
		}
		_ = root.Stop(t.Context())
	})
}

// A Restart that is refused leaves the supervisor free for another tree.
//
// Guarantees: G-0002.15
func TestRefusedRestartNestsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, other := supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{})
		sub := supervisor.New(supervisor.Options{Name: "sub"})
		first := start(t, root, supervisor.ChildSpec{ID: "a", Supervisor: sub})
		if err := first.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, root, supervisor.ChildSpec{ID: "a", Run: idle})
		if err := first.Restart(t.Context()); !errors.As(err, new(*supervisor.DuplicateError)) {
			t.Errorf("Restart returned %v, want a DuplicateError", err)
		}
		if _, err := other.Start(t.Context(), supervisor.ChildSpec{Supervisor: sub}); err != nil {
			t.Errorf("Start in the other tree returned %v, want no error", err)
		}
		_ = other.Stop(t.Context())
		_ = root.Stop(t.Context())
	})
}

// When the ID of a terminated child is used again, the supervisor that the child ran is free for another tree.
//
// Guarantees: G-0002.15
func TestSupervisorIsFreeWhenItsIDIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, other, sub := supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{}), supervisor.New(supervisor.Options{})
		first := start(t, root, supervisor.ChildSpec{ID: "a", Supervisor: sub})
		if err := first.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, root, supervisor.ChildSpec{ID: "a", Run: idle})
		if _, err := other.Start(t.Context(), supervisor.ChildSpec{Supervisor: sub}); err != nil {
			t.Errorf("Start in the other tree returned %v, want no error", err)
		}
		stop(t, other)
		stop(t, root)
	})
}

// A child that was stuck when it was stopped, and was brought back, waits for the children before it: it is not stuck any more.
//
// Guarantees: G-0002.12, G-0002.14
func TestChildThatWasStuckWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{Strategy: supervisor.OneForAll})
		release, free := make(chan struct{}), make(chan struct{})
		stuck := start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release), Restart: supervisor.Temporary})
		if err := stuck.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
			t.Errorf("Stop returned %v, want a StuckError", err)
		}
		close(release)
		synctest.Wait()
		var starts sync.WaitGroup
		starts.Go(func() {
			start(t, s, supervisor.ChildSpec{Init: func(context.Context) error { <-free; return nil }, Run: idle})
		})
		synctest.Wait()
		starts.Go(func() {
			if err := stuck.Restart(t.Context()); err != nil {
				t.Errorf("Restart returned %v, want no error", err)
			}
		})
		synctest.Wait()
		close(free)
		starts.Wait()
		stop(t, s)
	})
}

// A nested supervisor whose parent was closed, and with it drained, runs again when its child is restarted.
//
// Guarantees: G-0002.14, G-0002.15
func TestDrainedSupervisorRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := supervisor.New(supervisor.Options{})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool"})
		sub, subChild := nested(t, pool, supervisor.Options{Name: "sub"})
		if err := pool.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // root runs pool again, without its children
		if err := subChild.Restart(t.Context()); err != nil {
			t.Errorf("Restart returned %v, want no error", err)
		}
		start(t, sub, supervisor.ChildSpec{ID: "a", Run: idle})
		if got := states(sub.Report().Children)["a"]; got != supervisor.Running {
			t.Errorf("a is %s, want running", got)
		}
		stop(t, root)
	})
}
