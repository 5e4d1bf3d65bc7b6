package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/supervisor"
)

// A diary is what children write down, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// want compares what was written since the last time.
func (d *diary) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if diff := cmp.Diff(lines, d.lines); diff != "" {
		t.Errorf("diary (-want +got):\n%s", diff)
	}
	d.lines = nil
}

// A member is a child that keeps a diary: it takes a second to start and a
// second to stop.
type member struct {
	*script
	id    string
	diary *diary
	fails int // how often Init fails from now on
}

func newMember(id string, d *diary) *member { return &member{script: newScript(), id: id, diary: d} }

func (m *member) spec() supervisor.ChildSpec {
	return supervisor.ChildSpec{ID: m.id, Init: m.init, Run: m.run}
}

func (m *member) init(context.Context) error {
	m.diary.note("%s starts", m.id)
	if m.fails > 0 {
		m.fails--
		return errBroken
	}
	pause(time.Second)
	m.diary.note("%s runs", m.id)
	return nil
}

func (m *member) run(ctx context.Context) error {
	err := m.script.run(ctx)
	if ctx.Err() != nil {
		m.diary.note("%s is told", m.id)
		pause(time.Second)
		m.diary.note("%s is gone", m.id)
	}
	return err
}

// pause lets virtual time pass, on any goroutine of a bubble.
func pause(d time.Duration) { <-time.NewTimer(d).C }

func team(t *testing.T, s *supervisor.Supervisor, d *diary) (a, b, c *member) {
	t.Helper()
	members := []*member{newMember("a", d), newMember("b", d), newMember("c", d)}
	for _, m := range members {
		start(t, s, m.spec())
	}
	d.want(t, "a starts", "a runs", "b starts", "b runs", "c starts", "c runs")
	return members[0], members[1], members[2]
}

// TestStrategies: b fails, and whom the strategy says is stopped in reverse
// order; then all of them are started in order, each when the one before it has
// been.
//
// Guarantees: G-0002.11, G-0002.12
func TestStrategies(t *testing.T) {
	for strategy, want := range map[supervisor.Strategy][]string{
		supervisor.OneForOne:  {"b starts", "b runs"},
		supervisor.RestForOne: {"c is told", "c is gone", "b starts", "b runs", "c starts", "c runs"},
		supervisor.OneForAll: {
			"c is told", "c is gone", "a is told", "a is gone",
			"a starts", "a runs", "b starts", "b runs", "c starts", "c runs",
		},
	} {
		t.Run(strategy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := supervisor.New(supervisor.Options{Strategy: strategy}), new(diary)
				_, b, _ := team(t, s, d)
				b.end(returns(errBroken))
				pass(10 * time.Second)
				d.want(t, want...)
				stop(t, s)
				d.want(t, "c is told", "c is gone", "b is told", "b is gone", "a is told", "a is gone")
			})
		})
	}
}

// TestTheOthersAreToldThatTheyWillRunAgain: the cause of the context tells a
// restart from a stop.
//
// Guarantees: G-0002.11
func TestTheOthersAreToldThatTheyWillRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes []error
		s, a := supervisor.New(supervisor.Options{Strategy: supervisor.OneForAll}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "a", Run: a.run})
		start(t, s, supervisor.ChildSpec{ID: "b", Run: func(ctx context.Context) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		}})
		a.end(returns(errBroken))
		stop(t, s)
		if !slices.Equal(causes, []error{supervisor.ErrRestarted, supervisor.ErrStopped}) {
			t.Errorf("the causes are %v", causes)
		}
	})
}

// TestEndedChildrenAreNotRestarted: a strategy restarts who runs. A child that was
// stopped, or has done what it was there for, is not brought back, and a
// temporary one is over when it is stopped.
//
// Guarantees: G-0002.11
func TestEndedChildrenAreNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, failing, done := supervisor.New(supervisor.Options{Strategy: supervisor.OneForAll}), newScript(), newScript()
		start(t, s, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		start(t, s, supervisor.ChildSpec{ID: "done", Run: done.run, Restart: supervisor.Transient})
		stopped := start(t, s, supervisor.ChildSpec{ID: "stopped", Run: idle})
		start(t, s, supervisor.ChildSpec{ID: "temporary", Run: idle, Restart: supervisor.Temporary})
		done.end(returns(nil))
		if err := stopped.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		failing.end(returns(errBroken))
		got := states(s.Report().Children)
		want := map[string]supervisor.State{
			"failing": supervisor.Running, "done": supervisor.Stopped, "stopped": supervisor.Stopped, "temporary": supervisor.Stopped,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
		stop(t, s)
	})
}

// TestChildNeverRunsTwice: a child that ignores its stop is named, and nobody of its
// group is started before it is gone.
//
// Guarantees: G-0002.6, G-0002.13
func TestChildNeverRunsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		s := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne, OnEvent: func(e supervisor.Event) {
			events = append(events, fmt.Sprintf("%s: %s", e.Child, e.Kind))
		}})
		a, release := newScript(), make(chan struct{})
		start(t, s, supervisor.ChildSpec{ID: "a", Run: a.run})
		var runs atomic.Int64
		start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresFirstStop(release, &runs)})
		a.end(returns(errBroken))
		pass(time.Minute)
		report := s.Report().Children
		if report[0].State != supervisor.Waiting || report[1].State != supervisor.Stopping || !report[1].Stuck || runs.Load() != 1 {
			t.Errorf("the children are %v after %d runs", report, runs.Load())
		}
		close(release)
		synctest.Wait()
		if got := states(s.Report().Children); got["a"] != supervisor.Running || runs.Load() != 2 {
			t.Errorf("the children are %v after %d runs", got, runs.Load())
		}
		stop(t, s)
		want := []string{
			"a: child started", "stuck: child started", "stuck: child stuck", "a: child restarted", "stuck: child restarted",
			"stuck: child stopped", "a: child stopped",
		}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// TestFailingToStartAgainCounts: an Init that fails in the course of a restart
// is a failure, and uses up the intensity.
//
// Guarantees: G-0002.4, G-0002.12
func TestFailingToStartAgainCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne, Period: time.Hour}), new(diary)
		_, b, _ := team(t, s, d)
		b.fails = 2
		b.end(returns(errBroken))
		pass(10 * time.Second)
		d.want(t, "c is told", "c is gone", "b starts", "b starts", "b starts", "b runs", "c starts", "c runs")
		b.fails = 1
		b.end(returns(errBroken))
		var gaveUp *supervisor.IntensityError
		if err := s.Wait(t.Context()); !errors.As(err, &gaveUp) || gaveUp.Child != "b" {
			t.Errorf("Wait returned %v", err)
		}
		d.want(t, "c is told", "c is gone", "a is told", "a is gone")
	})
}

// TestFailureWhileOthersAreStopped: a child that fails when it was to be stopped
// anyway costs nothing; one before it extends the restart.
//
// Guarantees: G-0002.4, G-0002.11
func TestFailureWhileOthersAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne, Intensity: 2}), new(diary)
		a, b, c := team(t, s, d)
		extra := newMember("d", d)
		start(t, s, extra.spec())
		d.want(t, "d starts", "d runs")
		b.end(returns(errBroken)) // now d is being stopped, and c is to be
		c.end(returns(errBroken))
		a.end(returns(errBroken))
		pass(20 * time.Second)
		d.want(t, "d is told", "d is gone", "a starts", "a runs", "b starts", "b runs", "c starts", "c runs", "d starts", "d runs")
		if r := s.Report(); r.RecentRestarts != 0 || r.Children[2].LastFailure == nil {
			t.Errorf("report:\n%v", r)
		}
		stop(t, s)
	})
}
