package server

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/telemetry"
)

// Samples yields the measurements of the server, for telemetry sinks: one sample for
// all its connections together, under the name in Options.Conn. Its counters never
// decrease, because they include connections that have ended.
func (s *Server) Samples() iter.Seq[telemetry.Sample] {
	return func(yield func(telemetry.Sample) bool) {
		yield(telemetry.Sample{Name: s.options.Conn.Name, Server: s.sample()})
	}
}

func (s *Server) sample() *telemetry.ServerSample {
	s.mu.Lock()
	sample := &telemetry.ServerSample{Total: s.over}
	sample.Total.Settled = slices.Clone(s.over.Settled)
	live := slices.Collect(maps.Keys(s.live))
	s.mu.Unlock()
	states := make(map[string]int)
	for _, p := range live {
		one := p.conn.Sample().Conn
		states[one.State]++
		sample.Total.Add(one)
	}
	for state, count := range states {
		sample.Conns = append(sample.Conns, telemetry.ConnsSample{State: state, Count: count})
	}
	slices.SortFunc(sample.Conns, func(a, b telemetry.ConnsSample) int { return cmp.Compare(a.State, b.State) })
	return sample
}
