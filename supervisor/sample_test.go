package supervisor_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// Samples has one sample for each supervisor and connection of the tree.
//
// Guarantees: G-0024.10
func TestSamplesAreOfTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := supervisor.New(supervisor.Options{Name: "app"})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: 1})
		failing, p := newScript(), &peer{}
		start(t, pool, supervisor.ChildSpec{ID: "failing", Run: failing.run, Restart: supervisor.Transient})
		other := supervisor.New(supervisor.Options{})
		connect(t, pool, conn.New(p.transport(t, other), conn.Options{Tuning: conn.Tuning{Name: "weather"}}))
		down := dialer(func(context.Context) (transport.Link, error) { return nil, errDown })
		connect(t, root, conn.New(down, conn.Options{Tuning: conn.Tuning{Name: "search", BackoffMin: time.Minute, BackoffMax: time.Minute}}))
		failing.end(returns(errBroken))
		advance(time.Second)
		read := func() (supervisors map[string]telemetry.SupervisorSample, conns []string) {
			supervisors = make(map[string]telemetry.SupervisorSample)
			for s := range root.Samples() {
				if s.Supervisor != nil {
					supervisors[s.Name] = *s.Supervisor
				} else {
					conns = append(conns, s.Conn.Supervisor+"/"+s.Name+": "+s.Conn.State)
				}
			}
			return supervisors, conns
		}
		supervisors, conns := read()
		if want := []string{"pool/weather: ready", "app/search: backoff"}; !slices.Equal(conns, want) {
			t.Errorf("connections %q, want %q", conns, want)
		}
		want := map[string]telemetry.SupervisorSample{
			"app":  {State: "running", Children: []telemetry.ChildrenSample{{State: "running", Count: 2}}},
			"pool": {State: "running", Children: []telemetry.ChildrenSample{{State: "running", Count: 2}}, Restarts: 1},
		}
		if diff := cmp.Diff(want, supervisors); diff != "" {
			t.Errorf("supervisors (-want +got):\n%s", diff)
		}
		for s := range root.Samples() {
			if s.Name == "pool" || s.Name == "weather" {
				break // must not block later calls, and nothing is yielded after it
			}
		}
		failing.end(returns(errBroken))
		advance(time.Second)
		if supervisors, _ = read(); supervisors["pool"].GaveUp != 1 || supervisors["app"].Restarts != 1 {
			t.Errorf("after the pool gave up: %+v, want that counted once, and one restart of it", supervisors)
		}
		if err := root.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if supervisors, conns = read(); supervisors["app"].State != "stopped" || len(conns) != 0 {
			t.Errorf("at the end: %+v, %q; want app stopped and no connection", supervisors, conns)
		}
		if err := other.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// In each state of a child, from its Init to its end, the sample counts as many children as the report lists.
//
// Guarantees: G-0024.10
func TestSamplesCountChildrenInEveryState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne})
		seen := map[string]bool{}
		check := func() {
			t.Helper()
			want, got := map[string]int{}, map[string]int{}
			for _, c := range s.Report().Children {
				want[string(c.State)]++
				seen[string(c.State)] = true
			}
			for sample := range s.Samples() {
				for _, c := range sample.Supervisor.Children {
					got[c.State] = c.Count
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("children by state (-report +sample):\n%s", diff)
			}
		}
		first, release := newScript(), make(chan struct{})
		begins := func(context.Context) error { pause(time.Second); return nil }
		start(t, s, supervisor.ChildSpec{ID: "begins again", Init: begins, Run: first.run})
		start(t, s, supervisor.ChildSpec{ID: "slow to drain", Run: idle, Drain: begins})
		first.end(returns(errBroken))
		synctest.Wait()
		check()
		advance(2 * time.Second)
		start(t, s, supervisor.ChildSpec{ID: "ended", Run: func(context.Context) error { return nil }, Restart: supervisor.Temporary})
		start(t, s, supervisor.ChildSpec{ID: "failed", Run: func(context.Context) error { return errBroken }, Restart: supervisor.Temporary})
		start(t, s, supervisor.ChildSpec{ID: "slow to stop", Run: ignoresStop(release)})
		synctest.Wait()
		check()
		go s.Close(context.Background())
		time.AfterFunc(time.Second, func() { close(release) })
		for range 10 {
			advance(time.Second / 3)
			check()
		}
		for _, state := range []supervisor.State{supervisor.Waiting, supervisor.Starting, supervisor.Running, supervisor.Draining, supervisor.Stopping, supervisor.Stopped, supervisor.Failed} {
			if !seen[string(state)] {
				t.Errorf("no child was %s", state)
			}
		}
	})
}
