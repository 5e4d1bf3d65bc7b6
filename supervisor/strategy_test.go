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

// An eventLog is a log that children write to.
type eventLog struct {
	mu    sync.Mutex
	lines []string
}

func (d *eventLog) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// want compares the lines since the last call.
func (d *eventLog) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if diff := cmp.Diff(lines, d.lines); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	d.lines = nil
}

// A member is a child that logs what happens to it. It takes a second to start and a second to stop.
type member struct {
	*script
	id       string
	eventLog *eventLog
	fails    int // how often Init fails from now on
}

func newMember(id string, d *eventLog) *member {
	return &member{script: newScript(), id: id, eventLog: d}
}

func (m *member) spec() supervisor.ChildSpec {
	return supervisor.ChildSpec{ID: m.id, Init: m.init, Run: m.run}
}

func (m *member) init(context.Context) error {
	m.eventLog.note("%s starts", m.id)
	if m.fails > 0 {
		m.fails--
		return errBroken
	}
	pause(time.Second)
	m.eventLog.note("%s runs", m.id)
	return nil
}

func (m *member) run(ctx context.Context) error {
	err := m.script.run(ctx)
	if ctx.Err() != nil {
		m.eventLog.note("%s is stopping", m.id)
		pause(time.Second)
		m.eventLog.note("%s has ended", m.id)
	}
	return err
}

// pause lets virtual time pass, on any goroutine of a bubble. Unlike advance it does not wait for others.
func pause(d time.Duration) { <-time.NewTimer(d).C }

// startThree starts the members a, b and c.
func startThree(t *testing.T, s *supervisor.Supervisor, d *eventLog) (a, b, c *member) {
	t.Helper()
	members := []*member{newMember("a", d), newMember("b", d), newMember("c", d)}
	for _, m := range members {
		start(t, s, m.spec())
	}
	d.want(t, "a starts", "a runs", "b starts", "b runs", "c starts", "c runs")
	return members[0], members[1], members[2]
}

// When b fails, the children that the strategy names are stopped in reverse order. Then they are started in
// order, each when the one before it has been started.
//
// Guarantees: G-0002.11, G-0002.12
func TestStrategies(t *testing.T) {
	for strategy, want := range map[supervisor.Strategy][]string{
		supervisor.OneForOne:  {"b starts", "b runs"},
		supervisor.RestForOne: {"c is stopping", "c has ended", "b starts", "b runs", "c starts", "c runs"},
		supervisor.OneForAll: {
			"c is stopping", "c has ended", "a is stopping", "a has ended",
			"a starts", "a runs", "b starts", "b runs", "c starts", "c runs",
		},
	} {
		t.Run(strategy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := supervisor.New(supervisor.Options{Strategy: strategy}), new(eventLog)
				_, b, _ := startThree(t, s, d)
				b.end(returns(errBroken))
				advance(10 * time.Second)
				d.want(t, want...)
				stop(t, s)
				d.want(t, "c is stopping", "c has ended", "b is stopping", "b has ended", "a is stopping", "a has ended")
			})
		})
	}
}

// The cause of a child's context is ErrRestarted if the strategy restarts it, and ErrStopped if it is stopped.
//
// Guarantees: G-0002.11
func TestCauseOfARestartAndOfAStop(t *testing.T) {
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
			t.Errorf("the causes are %v, want ErrRestarted, ErrStopped", causes)
		}
	})
}

// A strategy restarts only children that run: not those that were stopped or have finished. A temporary child
// is over when a strategy stops it.
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

// If a child ignores its stop in a group restart, it is reported as stuck, and no child of the group is started
// before it has ended.
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
		advance(time.Minute)
		report := s.Report().Children
		if report[0].State != supervisor.Waiting || report[1].State != supervisor.Stopping || !report[1].Stuck || runs.Load() != 1 {
			t.Errorf("the children are %v after %d runs, want a waiting and stuck stopping after 1", report, runs.Load())
		}
		close(release)
		synctest.Wait()
		if got := states(s.Report().Children); got["a"] != supervisor.Running || runs.Load() != 2 {
			t.Errorf("the children are %v after %d runs, want a running after 2", got, runs.Load())
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

// An Init that fails in a restart is a failure, and counts towards the intensity.
//
// Guarantees: G-0002.4, G-0002.12
func TestFailedInitInARestartCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne, Period: time.Hour}), new(eventLog)
		_, b, _ := startThree(t, s, d)
		b.fails = 2
		b.end(returns(errBroken))
		advance(10 * time.Second)
		d.want(t, "c is stopping", "c has ended", "b starts", "b starts", "b starts", "b runs", "c starts", "c runs")
		b.fails = 1
		b.end(returns(errBroken))
		var gaveUp *supervisor.IntensityError
		if err := s.Wait(t.Context()); !errors.As(err, &gaveUp) || gaveUp.Child != "b" {
			t.Errorf("Wait returned %v, want an IntensityError that names b", err)
		}
		d.want(t, "c is stopping", "c has ended", "a is stopping", "a has ended")
	})
}

// A failure of a child that is about to be stopped for a restart does not count. A failure of one before it
// extends the restart to it.
//
// Guarantees: G-0002.4, G-0002.11
func TestFailureWhileOthersAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne, Intensity: 2}), new(eventLog)
		a, b, c := startThree(t, s, d)
		extra := newMember("d", d)
		start(t, s, extra.spec())
		d.want(t, "d starts", "d runs")
		b.end(returns(errBroken)) // now d is being stopped, and c is next
		c.end(returns(errBroken))
		a.end(returns(errBroken))
		advance(20 * time.Second)
		d.want(t, "d is stopping", "d has ended", "a starts", "a runs", "b starts", "b runs", "c starts", "c runs", "d starts", "d runs")
		if r := s.Report(); r.RecentRestarts != 0 || r.Children[2].LastFailure == nil {
			t.Errorf("want no recent restart, and a failure of c; report:\n%v", r)
		}
		stop(t, s)
	})
}
