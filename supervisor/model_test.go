package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
)

// A modelChild is a child and its expected state.
type modelChild struct {
	id       string
	policy   supervisor.Restart
	state    supervisor.State
	restarts int
	script   *script
	child    *supervisor.Child
}

func (c *modelChild) runs() bool { return c.state == supervisor.Running }

// A model is a supervisor and its expected state.
type model struct {
	s         *supervisor.Supervisor
	strategy  supervisor.Strategy
	intensity int
	children  []*modelChild // in start order, ended ones too
	restarts  []time.Time   // all restarts
	gaveUp    bool
	stopped   []string // the children that were stopped, in order
	expected  []string // those that should have been
}

const modelPeriod = 10 * time.Second

// A supervisor behaves like the model when children start, end, are stopped, restarted and deleted at random,
// under each strategy. After every step the test compares the report and the order of the stops.
//
// Guarantees: G-0002.1, G-0002.2, G-0002.4, G-0002.5, G-0002.11, G-0002.14
func TestSupervisorAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := &model{intensity: rapid.IntRange(1, 4).Draw(t, "intensity")}
			m.strategy = rapid.SampledFrom([]supervisor.Strategy{supervisor.OneForOne, supervisor.OneForAll, supervisor.RestForOne}).Draw(t, "strategy")
			m.s = supervisor.New(supervisor.Options{Strategy: m.strategy, Intensity: m.intensity, Period: modelPeriod})
			defer m.s.Stop(context.Background()) // when a step fails
			t.Repeat(map[string]func(*rapid.T){
				"start":  m.start,
				"end":    m.end,
				"stop":   m.stop,
				"again":  m.again,
				"forget": m.forget,
				"pass":   func(t *rapid.T) { advance(time.Duration(rapid.IntRange(0, 3).Draw(t, "thirds")) * modelPeriod / 3) },
				"":       m.check,
			})
			m.finish(t)
		})
	})
}

func (m *model) start(t *rapid.T) {
	id := fmt.Sprintf("c%d", rapid.IntRange(1, 4).Draw(t, "id"))
	added := &modelChild{id: id, state: supervisor.Running, script: newScript()}
	added.script.onStop = func() { m.stopped = append(m.stopped, id) }
	added.policy = rapid.SampledFrom([]supervisor.Restart{supervisor.Permanent, supervisor.Transient, supervisor.Temporary}).Draw(t, "policy")
	present := slices.IndexFunc(m.children, func(c *modelChild) bool { return c.id == id })
	runs := present >= 0 && m.children[present].state == supervisor.Running
	c, err := m.s.Start(context.Background(), supervisor.ChildSpec{ID: id, Run: added.script.run, Restart: added.policy})
	if refused := m.gaveUp || runs; (err != nil) != refused {
		t.Fatalf("Start returned %v, want an error: %v", err, refused)
	}
	if err != nil {
		return
	}
	if present >= 0 {
		m.children = slices.Delete(m.children, present, present+1)
	}
	added.child = c
	m.children = append(m.children, added)
}

// pick draws a running child.
func (m *model) pick(t *rapid.T) *modelChild {
	var running []*modelChild
	for _, c := range m.children {
		if c.runs() {
			running = append(running, c)
		}
	}
	if len(running) == 0 {
		t.Skip("no child is running")
	}
	return rapid.SampledFrom(running).Draw(t, "child")
}

func (m *model) end(t *rapid.T) {
	c := m.pick(t)
	way := runEnds[rapid.IntRange(0, len(runEnds)-1).Draw(t, "way")]
	c.script.end(way.end)
	if restarted := c.policy == supervisor.Permanent || c.policy == supervisor.Transient && way.failed; !restarted {
		c.over(way.failed)
		return
	}
	m.restarts = append(m.restarts, time.Now())
	within := 0
	for _, restart := range m.restarts {
		if time.Since(restart) <= modelPeriod {
			within++
		}
	}
	if within <= m.intensity {
		c.restarts++
		m.restartOthers(slices.Index(m.children, c))
		return
	}
	c.over(way.failed)
	m.gaveUp = true
	m.stopAll()
}

// restartOthers restarts the siblings of a failed child as the strategy demands.
func (m *model) restartOthers(of int) {
	for i, other := range slices.Backward(m.children) {
		if !other.runs() || i == of || m.strategy == supervisor.OneForOne || m.strategy == supervisor.RestForOne && i < of {
			continue
		}
		m.expected = append(m.expected, other.id)
		if other.policy == supervisor.Temporary {
			other.over(false)
		} else {
			other.restarts++
		}
	}
}

func (m *model) stopAll() {
	for _, c := range slices.Backward(m.children) {
		if c.runs() {
			m.expected = append(m.expected, c.id)
			c.over(false)
		}
	}
}

func (c *modelChild) over(failed bool) {
	if c.state = supervisor.Stopped; failed {
		c.state = supervisor.Failed
	}
}

func (m *model) stop(t *rapid.T) {
	c := m.pick(t)
	if err := c.child.Stop(t.Context()); err != nil {
		t.Fatalf("Stop of %s returned %v, want no error", c.id, err)
	}
	m.expected = append(m.expected, c.id)
	c.over(false)
}

// again restarts a child. One that was over comes last in the order afterwards.
func (m *model) again(t *rapid.T) {
	if len(m.children) == 0 {
		t.Skip("no child is listed")
	}
	at := rapid.IntRange(0, len(m.children)-1).Draw(t, "child")
	c := m.children[at]
	err := c.child.Restart(t.Context())
	if (err != nil) != m.gaveUp {
		t.Fatalf("Restart of %s returned %v, want an error: %v", c.id, err, m.gaveUp)
	}
	switch {
	case err != nil:
		return
	case c.runs():
		m.expected = append(m.expected, c.id)
	default:
		m.children = append(slices.Delete(m.children, at, at+1), c)
	}
	c.state = supervisor.Running
	c.restarts++
}

func (m *model) forget(t *rapid.T) {
	c := m.pick(t)
	if err := c.child.Delete(t.Context()); err != nil {
		t.Fatalf("Delete of %s returned %v, want no error", c.id, err)
	}
	m.expected = append(m.expected, c.id)
	m.children = slices.DeleteFunc(m.children, func(other *modelChild) bool { return other == c })
}

func (m *model) check(t *rapid.T) {
	synctest.Wait()
	type line struct {
		ID       string
		State    supervisor.State
		Restarts int
	}
	var got, want []line
	for _, c := range m.s.Report().Children {
		got = append(got, line{c.ID, c.State, c.Restarts})
	}
	for _, c := range m.children {
		want = append(want, line{c.id, c.state, c.restarts})
		runs := int64(c.restarts + 1)
		if c.script.runs.Load() != runs || wait.IsClosed(c.child.Done()) == c.runs() {
			t.Fatalf("%s ran %d times, want %d and %s", c.id, c.script.runs.Load(), runs, c.state)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("children (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(m.expected, m.stopped); diff != "" {
		t.Fatalf("stopped (-want +got):\n%s", diff)
	}
}

// finish stops or drains the supervisor, which is the same for children without a Drain.
func (m *model) finish(t *rapid.T) {
	end := m.s.Stop
	if rapid.Bool().Draw(t, "drain") {
		end = m.s.Close
	}
	err := end(t.Context())
	m.stopAll()
	m.check(t)
	if gaveUp := errors.As(err, new(*supervisor.IntensityError)); gaveUp != m.gaveUp || !gaveUp && err != nil {
		t.Fatalf("Stop returned %v, want an IntensityError: %v", err, m.gaveUp)
	}
}
