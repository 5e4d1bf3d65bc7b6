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
		for range root.Samples() {
			break // must not block later calls
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
