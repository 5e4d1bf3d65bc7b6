package otel_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// With BySupervisor, connections beyond the first two hundred are added up by supervisor. What one has
// counted stays in the sum of its supervisor when it ends. Those of no supervisor, and those of
// supervisors beyond the bound, are one sum. A supervisor's own metrics stay as they are.
//
// Guarantees: G-0047.8
func TestConnectionsBeyondTheBoundAreAddedUpBySupervisor(t *testing.T) {
	reader := metric.NewManualReader()
	told, err := otel.New(otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)), BySupervisor: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{reader: reader}
	var samples []telemetry.Sample
	add := func(supervisor, state string, calls uint64) {
		samples = append(samples, telemetry.Sample{Name: fmt.Sprint(len(samples)), Conn: &telemetry.ConnSample{
			State: state, Supervisor: supervisor, Calls: calls, Settled: []telemetry.Settled{{Cause: "answered", Delivery: "sent", Count: calls}},
		}})
	}
	for range 200 {
		add("tools", "ready", 1) // these have series of their own
	}
	add("tools", "ready", 10)
	add("tools", "backoff", 20)
	add("files", "ready", 30)
	add("", "ready", 40)
	samples = append(samples, telemetry.Sample{Name: "tools", Supervisor: &telemetry.SupervisorSample{Restarts: 5}})
	defer told.Watch(func() iter.Seq[telemetry.Sample] { return slices.Values(samples) })()
	check := func(name string, by attribute.Key, want map[string]float64) {
		t.Helper()
		got := numbers(s.collect(t)[name], by)
		if by == "bowline.conn" {
			maps.DeleteFunc(got, func(name string, _ float64) bool { return name != "_OTHER" })
		} else {
			delete(got, "") // they have no supervisor's label
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s by %s: %v, want %v", name, by, got, want)
		}
	}
	check("bowline.calls", "bowline.supervisor", map[string]float64{"tools": 30, "files": 30})
	check("bowline.calls", "bowline.conn", map[string]float64{"_OTHER": 40})
	check("bowline.conns", "bowline.supervisor", map[string]float64{"tools": 2, "files": 1})
	check("bowline.conns", "bowline.state", map[string]float64{"ready": 3, "backoff": 1})
	check("bowline.supervisor.restarts", "bowline.supervisor", map[string]float64{"tools": 5})

	samples = slices.Delete(samples, 201, 202) // the one that has made 20 calls
	samples = slices.DeleteFunc(samples, func(s telemetry.Sample) bool { return s.Conn != nil && s.Conn.Supervisor == "files" })
	check("bowline.calls", "bowline.supervisor", map[string]float64{"tools": 30, "files": 30})
	check("bowline.conns", "bowline.supervisor", map[string]float64{"tools": 1, "files": 0})

	for i := range 300 {
		samples = append(samples, telemetry.Sample{Name: fmt.Sprint("more ", i), Conn: &telemetry.ConnSample{State: "ready", Supervisor: fmt.Sprint("of ", i)}})
	}
	supervisors := numbers(s.collect(t)["bowline.conns"], "bowline.supervisor")
	if delete(supervisors, ""); len(supervisors) > 200 {
		t.Errorf("%d supervisors have a sum of their own", len(supervisors))
	}
	sum := 0.0
	for _, count := range numbers(s.collect(t)["bowline.conns"], "bowline.conn") {
		sum += count
	}
	if sum != 302 { // two of those above
		t.Errorf("%v connections are added up, want 302", sum)
	}
}
