package supervisor_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/google/go-cmp/cmp"
)

// Stop stops one child after the other, in reverse order.
//
// Guarantees: G-0002.5
func TestStopInReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		s := supervisor.New(supervisor.Options{})
		for _, id := range []string{"a", "b", "c"} {
			start(t, s, supervisor.ChildSpec{ID: id, Run: func(ctx context.Context) error {
				<-ctx.Done()
				log = append(log, id+" is stopping")
				advance(time.Second)
				log = append(log, id+" has ended")
				return nil
			}})
		}
		stop(t, s)
		want := []string{"c is stopping", "c has ended", "b is stopping", "b has ended", "a is stopping", "a has ended"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// Stop waits for a child that ignores its stop until its Shutdown has passed. It names the child, and stops
// the others.
//
// Guarantees: G-0002.6
func TestStopNamesStuckChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, began := supervisor.New(supervisor.Options{Name: "tree"}), time.Now()
		first := start(t, s, supervisor.ChildSpec{ID: "first", Run: idle})
		start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release), Shutdown: 2 * time.Second})
		start(t, s, supervisor.ChildSpec{ID: "second", Run: ignoresStop(release)})
		var stuck *supervisor.StuckError
		err := s.Stop(t.Context())
		if want := []string{"second", "stuck"}; !errors.As(err, &stuck) || !slices.Equal(stuck.Children, want) {
			t.Errorf("Stop returned %v, want a StuckError with %v", err, want)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("Stop took %v, want 7s", took)
		}
		if !wait.IsClosed(first.Done()) {
			t.Error("Stop left a child running that does not ignore its stop")
		}
		if again := s.Stop(t.Context()); !errors.Is(again, err) {
			t.Errorf("a second Stop returned %v, want the same error", again)
		}
		close(release)
		synctest.Wait()
	})
}

// If the context ends just when the last child does, Stop returns the result or names what still runs: never a
// StuckError that names nothing.
//
// Guarantees: G-0002.6
func TestStopWhoseContextEndsWithTheLastChild(t *testing.T) {
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{Run: func(stopped context.Context) error {
			<-stopped.Done()
			cancel()
			return nil
		}})
		var stuck *supervisor.StuckError
		if err := s.Stop(ctx); err != nil && (!errors.As(err, &stuck) || len(stuck.Children) == 0) {
			t.Fatalf("Stop returned %v, want nil or what still runs", err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// While the supervisor stops, a child that fails is not restarted, and Stop returns its error.
//
// Guarantees: G-0002.5
func TestNoRestartWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, child, release := supervisor.New(supervisor.Options{}), newScript(), make(chan struct{})
		c := start(t, s, supervisor.ChildSpec{ID: "a", Run: child.run})
		start(t, s, supervisor.ChildSpec{ID: "slow", Run: ignoresStop(release)})
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop(t.Context()) }()
		synctest.Wait()
		if err := c.Restart(t.Context()); !errors.Is(err, supervisor.ErrStopped) {
			t.Errorf("Restart returned %v, want ErrStopped", err)
		}
		child.end(returns(errBroken))
		if !wait.IsClosed(c.Done()) || child.runs.Load() != 1 {
			t.Errorf("the child ran %d times, want 1", child.runs.Load())
		}
		close(release)
		if err := <-stopped; !errors.Is(err, errBroken) {
			t.Errorf("Stop returned %v, want %v", err, errBroken)
		}
	})
}

// Stop returns the errors of children that fail while they are stopped.
func TestStopReportsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "a", Run: func(ctx context.Context) error { <-ctx.Done(); return errBroken }})
		if err := s.Stop(t.Context()); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("Stop returned %v, want the error of a", err)
		}
	})
}

// When its context ends, Stop returns and names the children that still run. The supervisor goes on
// stopping.
//
// Guarantees: G-0002.6
func TestStopWithAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		for _, id := range []string{"a", "b"} {
			start(t, s, supervisor.ChildSpec{ID: id, Run: func(ctx context.Context) error {
				<-ctx.Done()
				advance(time.Second)
				return nil
			}})
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 1500*time.Millisecond, errBroken)
		defer cancel()
		var stuck *supervisor.StuckError
		if err := s.Stop(ctx); !errors.Is(err, errBroken) || !errors.As(err, &stuck) || !slices.Equal(stuck.Children, []string{"a"}) {
			t.Errorf("Stop returned %v, want a StuckError with a, and the cause", err)
		}
		if err := s.Wait(t.Context()); err != nil {
			t.Errorf("Wait returned %v, want no error", err)
		}
		for range 50 { // a Stop after the end ignores its context
			if err := s.Stop(ctx); err != nil {
				t.Fatalf("a later Stop returned %v, want no error", err)
			}
		}
	})
}

// Stop of a supervisor without children returns no error, even if its context has ended.
//
// Guarantees: G-0002.6
func TestStopWithoutChildren(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := supervisor.New(supervisor.Options{}).Stop(ctx); err != nil {
			t.Fatalf("Stop returned %v, want no error", err)
		}
	}
}

// A stopped supervisor can be garbage collected at once, even if its children had a long Shutdown.
func TestStoppedSupervisorIsCollected(t *testing.T) {
	s := supervisor.New(supervisor.Options{})
	start(t, s, supervisor.ChildSpec{Run: idle, Shutdown: 24 * time.Hour})
	stop(t, s)
	left := weak.Make(s)
	for range 1000 {
		if runtime.GC(); left.Value() == nil {
			return
		}
	}
	t.Error("the supervisor is still referenced")
}

// Concurrent calls of Stop all return the same, and no child can be started afterwards.
func TestStopFromManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{Run: idle})
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { stop(t, s) })
		}
		callers.Wait()
		if _, err := s.Start(context.Background(), supervisor.ChildSpec{Run: idle}); !errors.Is(err, supervisor.ErrStopped) {
			t.Errorf("Start returned %v, want ErrStopped", err)
		}
		if err := s.Wait(t.Context()); err != nil {
			t.Errorf("Wait returned %v, want no error", err)
		}
	})
}
