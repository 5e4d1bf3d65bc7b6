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
	"github.com/bowline-mcp/bowline/supervisor"
)

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

// TestWhoIsRefusedIsToldThatItGaveUp: those that come later, those that were
// being started, and those that ran, whose end is no failure all the same.
//
// Guarantees: G-0002.4
func TestWhoIsRefusedIsToldThatItGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, servers, failing := supervisor.New(supervisor.Options{Intensity: -1}), supervisor.New(supervisor.Options{}), newScript()
		c := start(t, s, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		var told sync.Map // errors, by who was told
		var slow *supervisor.Child
		slow = start(t, s, supervisor.ChildSpec{ID: "slow", Run: func(ctx context.Context) error {
			<-ctx.Done()
			told.Store("a child", context.Cause(ctx))
			_, err := s.Start(ctx, supervisor.ChildSpec{Run: idle})
			told.Store("Start of another meanwhile", err)
			told.Store("Restart meanwhile", slow.Restart(ctx))
			pause(time.Second)
			return fmt.Errorf("slow: %w", context.Cause(ctx))
		}})
		p := &peer{serve: func(ctx context.Context) { <-ctx.Done() }}
		sibling := conn.New(p.transport(t, servers), conn.Options{Name: "sibling"})
		connect(t, s, sibling)
		go func() {
			_, err := s.Start(t.Context(), supervisor.ChildSpec{Init: idle, Run: idle})
			told.Store("Start", err)
		}()
		go func() {
			_, err := sibling.Call(t.Context(), conn.Request{Method: "tools/call", WaitForReady: true})
			told.Store("a call of a sibling", err)
		}()
		synctest.Wait()
		failing.end(returns(errBroken))
		verdict := s.Wait(t.Context())
		_, err := s.Start(t.Context(), supervisor.ChildSpec{Run: idle})
		told.Store("Start of another", err)
		_, err = s.Connect(t.Context(), conn.New(dialer(nil), conn.Options{}))
		told.Store("Connect", err)
		told.Store("Restart", c.Restart(t.Context()))
		for who, err := range told.Range {
			err, gaveUp := err.(error), new(supervisor.IntensityError)
			if !errors.Is(err, supervisor.ErrStopped) || !errors.As(err, &gaveUp) || gaveUp.Child != "failing" || errors.Is(err, errBroken) {
				t.Errorf("%s was told %v", who, err)
			}
		}
		if errors.Is(verdict, supervisor.ErrStopped) || s.Report().Children[1].Failures != 0 {
			t.Errorf("the verdict is %v, report:\n%s", verdict, s.Report())
		}
		stop(t, servers)
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
			if spent := s.Report().RecentRestarts; spent != 1 {
				t.Fatalf("%d restarts spent after a minute", spent)
			}
			pass(1)
			if spent := s.Report().RecentRestarts; spent != 0 {
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

// wantPanic wants a mistake in the program to be named.
func wantPanic(t *testing.T, want string, do func()) {
	t.Helper()
	defer func() {
		if value := recover(); value != want {
			t.Errorf("panic: %v, want %s", value, want)
		}
	}()
	do()
}

// TestMistakesInTheProgram are not run with something else.
func TestMistakesInTheProgram(t *testing.T) {
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

// TestNoPeriodIsTheDefault, and so is less.
func TestNoPeriodIsTheDefault(t *testing.T) {
	for _, period := range []time.Duration{0, -time.Minute} {
		if got := supervisor.New(supervisor.Options{Period: period}).Report().Period; got != 5*time.Second {
			t.Errorf("a Period of %s is %s", period, got)
		}
	}
}
