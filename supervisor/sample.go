package supervisor

import (
	"iter"

	"github.com/bowline-mcp/bowline/telemetry"
)

// counts contains numbers since the supervisor was created. Its mutex guards them.
type counts struct{ restarts, gaveUp, stuck uint64 }

func (c *counts) add(kind EventKind) {
	switch kind {
	case ChildRestarted:
		c.restarts++
	case GaveUp:
		c.gaveUp++
	case ChildStuck:
		c.stuck++
	}
}

// Samples yields the measurements of the supervisor, of the supervisors below it, and of
// all children that are Conns, for telemetry sinks. It leaves out a Conn that has
// terminated. It holds no lock while it yields.
func (s *Supervisor) Samples() iter.Seq[telemetry.Sample] {
	return func(yield func(telemetry.Sample) bool) { s.sample(yield) }
}

func (s *Supervisor) sample(yield func(telemetry.Sample) bool) (more bool) {
	own, below := s.sampleOwn()
	if !yield(telemetry.Sample{Name: s.options.Name, Supervisor: own}) {
		return false
	}
	for _, c := range below {
		switch resource := c.spec.resource.(type) {
		case *connection:
			sample := resource.Control().Sample()
			sample.Conn.Supervisor = s.options.Name
			more = yield(sample)
		case subtree:
			more = resource.sample(yield)
		default:
			more = true
		}
		if !more {
			return false
		}
	}
	return true
}

// sampleOwn samples this supervisor, and returns its children that have not
// terminated, in start order.
func (s *Supervisor) sampleOwn() (*telemetry.SupervisorSample, []*Child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	children := make([]*Child, 0, len(s.core.members.byKey))
	states := make(map[State]int)
	for _, c := range s.byID {
		states[c.describe().State]++
	}
	for m := range s.core.members.inOrder() {
		children = append(children, m.handle)
	}
	own := &telemetry.SupervisorSample{
		State: string(s.core.state), Restarts: s.counts.restarts, GaveUp: s.counts.gaveUp, Stuck: s.counts.stuck,
	}
	for _, state := range [...]State{Waiting, Starting, Running, Draining, Stopping, Stopped, Failed} {
		if n := states[state]; n > 0 {
			own.Children = append(own.Children, telemetry.ChildrenSample{State: string(state), Count: n})
		}
	}
	return own, children
}
