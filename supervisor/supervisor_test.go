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

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/supervisor"
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

// TestStopNamesTheDeaf: a child that ignores its stop costs its Shutdown, is
// named, and does not keep the others from being stopped.
//
// Guarantees: G-0002.6
func TestStopNamesTheDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, began := supervisor.New(supervisor.Options{Name: "tree"}), time.Now()
		first := start(t, s, supervisor.ChildSpec{ID: "first", Run: idle})
		start(t, s, supervisor.ChildSpec{ID: "deaf", Run: deaf(release), Shutdown: 2 * time.Second})
		start(t, s, supervisor.ChildSpec{ID: "deafer", Run: deaf(release)})
		var stuck *supervisor.StuckError
		err := s.Stop(t.Context())
		if want := []string{"deafer", "deaf"}; !errors.As(err, &stuck) || !slices.Equal(stuck.Children, want) {
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
		start(t, s, supervisor.ChildSpec{ID: "slow", Run: deaf(release)})
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

// TestWaitWithAContext leaves the supervisor alone.
func TestWaitWithAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "a", Run: idle})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || states(s.Report().Children)["a"] != supervisor.Running {
			t.Errorf("Wait returned %v with %v", err, s.Report().Children)
		}
		stop(t, s)
	})
}

// TestGivesUp: the fourth restart within five seconds, over all children
// together, is one too many. The others are stopped in reverse order.
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
			t.Errorf("Wait returned %v, want an *IntensityError that names a, and nothing else", err)
		}
		if !errors.As(s.Report().GaveUp, new(*supervisor.IntensityError)) {
			t.Errorf("report:\n%v", s.Report())
		}
		if !slices.Equal(log, []string{"y", "x"}) || !errors.Is(s.Stop(t.Context()), err) {
			t.Errorf("stopped in order %v", log)
		}
	})
}

// refuses reports whether the supervisor takes no more children.
func refuses(s *supervisor.Supervisor) bool {
	c, err := s.Start(context.Background(), supervisor.ChildSpec{Run: idle})
	if err == nil {
		err = c.Stop(context.Background())
	}
	return errors.Is(err, supervisor.ErrStopped)
}

// TestForgetsOldRestarts: a child that fails now and then is restarted for ever.
//
// Guarantees: G-0002.4
func TestForgetsOldRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, child := supervisor.New(supervisor.Options{Intensity: 1, Period: time.Minute}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "a", Run: child.run})
		for range 50 {
			child.end(returns(errBroken))
			pass(time.Minute)
			if spent := s.Report().Spent; spent != 1 {
				t.Fatalf("%d restarts spent after a minute", spent)
			}
			pass(1)
			if spent := s.Report().Spent; spent != 0 {
				t.Fatalf("%d restarts spent after more than that", spent)
			}
		}
		if got := s.Report().Children[0]; got.Restarts != 50 || got.State != supervisor.Running {
			t.Errorf("got %v", got)
		}
		stop(t, s)
	})
}

// TestNoRestartAllowed: a negative intensity allows none.
func TestNoRestartAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, child := supervisor.New(supervisor.Options{Intensity: -1}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "a", Run: child.run})
		child.end(returns(nil))
		var gaveUp *supervisor.IntensityError
		if err := s.Wait(t.Context()); !errors.As(err, &gaveUp) || gaveUp.Intensity != 0 || child.runs.Load() != 1 {
			t.Errorf("Wait returned %v after %d runs", err, child.runs.Load())
		}
	})
}

// TestStartWithoutAnID gives one that nobody has.
func TestStartWithoutAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "child-2", Run: idle})
		first := start(t, s, supervisor.ChildSpec{Run: idle})
		second := start(t, s, supervisor.ChildSpec{Run: idle})
		if got := map[string]bool{"child-2": true, first.ID(): true, second.ID(): true}; len(got) != 3 {
			t.Errorf("ids are not unique: %v", got)
		}
		stop(t, s)
	})
}

// TestChildrenAreListed in the order of their start, those that are over too;
// an id that is started again is listed once.
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
			t.Errorf("listed %v", got)
		}
		failed := s.Report().Children[2]
		if want := fmt.Sprintf("b: temporary worker, failed for good at %s; failed 1 time, last at %[1]s: broken", failed.Since.Format(time.TimeOnly)); failed.String() != want {
			t.Errorf("got %q, want %q", failed, want)
		}
		start(t, s, supervisor.ChildSpec{ID: "b", Run: idle})
		if got := ids(s.Report().Children); !slices.Equal(got, []string{"z", "m", "a", "b"}) {
			t.Errorf("listed %v after b was started again", got)
		}
		stop(t, s)
	})
}

// TestWhatIsOverIsForgotten: a supervisor whose children come and go does not
// grow. Who was started again is not over.
func TestWhatIsOverIsForgotten(t *testing.T) {
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
			t.Errorf("%d children are listed, the last is %s", len(got), got[len(got)-1])
		}
		stop(t, s)
	})
}

// TestStartNeedsRun: a child without Run is a mistake in the program.
func TestStartNeedsRun(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Start took a child without Run")
		}
	}()
	supervisor.New(supervisor.Options{}).Start(context.Background(), supervisor.ChildSpec{})
}
