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

	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/google/go-cmp/cmp"
)

// TestStopInReverseOrder: each child is told only when the one after it is gone.
//
// Guarantees: G-0002.5
func TestStopInReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		s := supervisor.New(supervisor.Options{})
		for _, id := range []string{"a", "b", "c"} {
			start(t, s, supervisor.ChildSpec{ID: id, Run: func(ctx context.Context) error {
				<-ctx.Done()
				log = append(log, id+" told")
				pass(time.Second)
				log = append(log, id+" gone")
				return nil
			}})
		}
		stop(t, s)
		want := []string{"c told", "c gone", "b told", "b gone", "a told", "a gone"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// TestStopNamesStuckChildren: a child that ignores its stop costs its Shutdown, is
// named, and does not keep the others from being stopped.
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
			t.Errorf("Stop returned %v, want %v named", err, want)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("Stop took %v, want 5s and 2s", took)
		}
		if !isClosed(first.Done()) {
			t.Error("Stop left a child running that does as it is told")
		}
		if again := s.Stop(t.Context()); !errors.Is(again, err) {
			t.Errorf("a second Stop returned %v, want the same verdict", again)
		}
		close(release)
		synctest.Wait()
	})
}

// TestNoRestartWhileStopping: a child that fails while another is being
// stopped is over, and reported.
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
			t.Errorf("Restart returned %v", err)
		}
		child.end(returns(errBroken))
		if !isClosed(c.Done()) || child.runs.Load() != 1 {
			t.Errorf("the child ran %d times while the supervisor was stopping", child.runs.Load())
		}
		close(release)
		if err := <-stopped; !errors.Is(err, errBroken) {
			t.Errorf("Stop returned %v, want the failure", err)
		}
	})
}

// TestStopReportsFailures: what fails while it is being stopped is not lost.
func TestStopReportsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "a", Run: func(ctx context.Context) error { <-ctx.Done(); return errBroken }})
		if err := s.Stop(t.Context()); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("Stop returned %v, want the failure of a", err)
		}
	})
}

// TestStopWithAContext gives up waiting when its context ends, names what is
// left, and goes on stopping.
//
// Guarantees: G-0002.6
func TestStopWithAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		for _, id := range []string{"a", "b"} {
			start(t, s, supervisor.ChildSpec{ID: id, Run: func(ctx context.Context) error {
				<-ctx.Done()
				pass(time.Second)
				return nil
			}})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var stuck *supervisor.StuckError
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &stuck) || !slices.Equal(stuck.Children, []string{"a"}) {
			t.Errorf("Stop returned %v, want a named and the cause", err)
		}
		if err := s.Wait(t.Context()); err != nil {
			t.Errorf("Wait returned %v", err)
		}
		for range 50 { // what is over is over, whatever has become of the context
			if err := s.Stop(ctx); err != nil {
				t.Fatalf("a later Stop returned %v", err)
			}
		}
	})
}

// TestStopOfNothing is over before anybody has to wait, whatever ctx says.
//
// Guarantees: G-0002.6
func TestStopOfNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := supervisor.New(supervisor.Options{}).Stop(ctx); err != nil {
			t.Fatalf("Stop returned %v", err)
		}
	}
}

// TestStoppedSupervisorIsLeftToTheCollector, though the time its children had to
// stop is not up.
func TestStoppedSupervisorIsLeftToTheCollector(t *testing.T) {
	s := supervisor.New(supervisor.Options{})
	start(t, s, supervisor.ChildSpec{Run: idle, Shutdown: 24 * time.Hour})
	stop(t, s)
	left := weak.Make(s)
	for range 1000 {
		if runtime.GC(); left.Value() == nil {
			return
		}
	}
	t.Error("something keeps it")
}

// TestStopFromManyGoroutines: all get the same verdict, and nothing starts any
// more.
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
			t.Errorf("Wait returned %v", err)
		}
	})
}
