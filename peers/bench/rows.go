package bench

import (
	"context"
	"fmt"
)

// A row is one kind of work, done by several contestants in turn.
type row struct {
	name        string // of the command's flag, and in the results
	title       string
	about       string // for the page
	contestants []string
	lacks       []lack
	rounds      int // at most, where figures hardly differ or a round takes long; 0: as many as asked for
	measure     func(context.Context, *measurement) error
	columns     []column
	targets     []target
}

// A lack is why a contestant is not in a row.
type lack struct{ contestant, why string }

// A column is a figure of every contestant in a row.
type column struct {
	title string
	value figure
	unit  unit
	ratio bool // beside the value stands its ratio to the floor's
}

// A target is what is wanted of a figure.
type target struct {
	what       string
	contestant string
	value      figure
	unit       unit
	atMost     bool // else at least
	bound      float64
	before     float64 // the value when the target was set; 0 if it is not known
	obstacle   string  // what stands in the way, if it is not met
}

func atMost(bound float64, unit unit, what, contestant string, value figure) target {
	return target{what: what, contestant: contestant, value: value, unit: unit, atMost: true, bound: bound}
}

func atLeast(bound float64, unit unit, what, contestant string, value figure) target {
	return target{what: what, contestant: contestant, value: value, unit: unit, bound: bound}
}

// from returns the target with the value that was measured when it was set.
func (t target) from(before float64) target {
	t.before = before
	return t
}

// because returns the target with what stands in its way. The page shows that only while the
// target is not met.
func (t target) because(obstacle string) target {
	t.obstacle = obstacle
	return t
}

// met reports whether a figure is as wanted.
func (t target) met(value float64) bool {
	if t.atMost {
		return value <= t.bound
	}
	return value >= t.bound
}

// rows are all, in the order of the page.
func rows() []row {
	return []row{
		memoryRow(), stdioRow(), httpRow(), payloadRow(),
		connectRow(), connectionsRow(), sessionsRow(), parkedRow(),
		notificationsRow(), congestionRow(), listRow(), stopsRow(), telemetryRow(), clusterRow(), movingRow(),
	}
}

func rowNamed(name string) (row, error) {
	for _, r := range rows() {
		if r.name == name {
			return r, nil
		}
	}
	return row{}, fmt.Errorf("there is no row %q", name)
}

// callColumns are those of one caller, and then of many.
func callColumns(row string, many ...int) []column {
	one := callers(1)
	columns := []column{
		{"p50, 1 caller", found(row, one, median), seconds, true},
		{"p99", found(row, one, percentile), seconds, true},
		{"allocations", found(row, one, allocs), count, false},
		{"bytes allocated", found(row, one, allocated), size, false},
		{"processor", found(row, one, processor), seconds, true},
	}
	for _, n := range many {
		columns = append(columns,
			column{fmt.Sprintf("calls/s, %d callers", n), found(row, callers(n), rate), perSecond, true},
			column{"processor", found(row, callers(n), processor), seconds, true})
	}
	return columns
}

// What stands in the way of targets of several rows, from processor profiles.
const (
	spread = "about a quarter of a call's processor time is JSON, a tenth is spent on waking threads, a seventh on memory, and no other " +
		"part takes more than a twentieth. The next step would be to run handlers on the goroutine of the caller, who could then wait " +
		"for a handler longer than for its own deadline."
	stacks = "what a call touches is not in the processor's cache any more, above all a stack of 8 kB for each caller. The floor loses " +
		"nearly as much between 64 and 4096 callers, from a higher cost of each call."
	meta = "a request has 230 bytes of _meta, which take 0.4 µs to read, and the client decodes the _meta of the result into a map, which " +
		"takes 0.3 µs. The next step would be results whose _meta is decoded when the program asks for it, which changes the API."
	bothBusy = "with 64 callers both processes work all the time, and a call takes as much processor time as the floor's: with less JSON, and " +
		"with limits, deadlines and cancellation. Twice the floor's rate would need a call in half of what it takes in memory."
	events = "the server keeps an answer that it sends as an event, so that the client can come back for it, and the client reads " +
		"it line by line: some 4 µs and 5 allocations. 64 callers make about as many calls per second either way."
	netHTTP = "of the 80 to 90 µs of a call, the client of net/http takes 27 in four switches between goroutines, and its server 20; the floor " +
		"has both, too. Ours are two connections and their JSON (12), a goroutine for the exchange and one for the handler (8), and " +
		"more headers (4). An HTTP client of our own would save about 10 µs, and we would have to maintain it."
)

func memoryRow() row {
	const name = "memory"
	p50, p99, typical := found(name, callers(1), median), found(name, callers(1), percentile), found(name, callers(64), rate)
	cost := found(name, callers(64), processor)
	return row{
		name: name, title: "Echo in memory",
		about: "The client calls a tool that echoes 64 bytes. Client and server are in one process, but messages are encoded. " +
			"The latency is that of one caller, which calls again as soon as it has the answer. The rate is that of many callers on one connection. " +
			"Allocations, bytes and processor time are those of a whole call, client and server together. " +
			"*Bowline, raw arguments* calls a tool that takes its arguments as JSON and answers with that text. " +
			"The queue of its in-memory transport has a place for each caller.",
		contestants: []string{theFloor, floorOfFrames, floorByHand, bowlineRaw, bowlineTyped, bowlineModern, goSDKLegacy, goSDKModern, mcpGoLegacy, mcpGoModern},
		measure:     echoCalls(memoryCalls, 1, 8, 64, 1000, 4096),
		columns:     callColumns(name, 64, 1000, 4096),
		targets: []target{
			atMost(0.75, times, "p50 of one caller, raw arguments, to the floor's", bowlineRaw, p50.toFloor()).from(1.31).because(spread),
			atMost(1.3, times, "p50 of one caller, typed tool, to the floor's", bowlineTyped, p50.toFloor()),
			atMost(1, times, "p99 of one caller, raw arguments, to the floor's", bowlineRaw, p99.toFloor()),
			atMost(15, count, "allocations of a call, raw arguments", bowlineRaw, found(name, callers(1), allocs)).from(49),
			atLeast(2.2, times, "calls per second of 64 callers, raw arguments, to the floor's", bowlineRaw, typical.toFloor()).from(1.37).because(spread),
			atLeast(2.2, times, "calls per second of 64 callers, typed tool, to the floor's", bowlineTyped, typical.toFloor()).because(spread),
			atLeast(0.95, times, "calls per second, 1000 callers to 64", bowlineTyped, found(name, callers(1000), rate).over(typical)).because(stacks),
			atMost(1.3, times, "processor time of a call, 4096 callers to 64", bowlineTyped, found(name, callers(4096), processor).over(cost)).from(1.46).because(stacks),
			atMost(1.15, times, "p50 of one caller, "+modern+" to "+legacy, bowlineTyped, p50.of(bowlineModern).over(p50)).from(1.65).because(meta),
		},
	}
}

func stdioRow() row {
	const name = "stdio"
	p50, typical := found(name, callers(1), median), found(name, callers(64), rate)
	return row{
		name: name, title: "Echo over standard input and output",
		about: "The same echo with a server in a child process. Processor time is that of both processes; allocations and bytes are those of the client. " +
			"The floor uses the pipes of os/exec.",
		contestants: []string{theFloor, floorByHand, bowlineRaw, bowlineTyped, goSDKLegacy, mcpGoLegacy},
		measure:     echoCalls((*measurement).overStdio, 1, 8, 64, 1000),
		columns:     callColumns(name, 64),
		targets: []target{
			atMost(1.1, times, "p50 of one caller to the floor's, at first", bowlineTyped, p50.toFloor()).from(1.9),
			atMost(0.65, times, "p50 of one caller to the floor's", bowlineTyped, p50.toFloor()).from(1.9),
			atLeast(1, times, "calls per second of 64 callers to the floor's, at first", bowlineTyped, typical.toFloor()).from(0.58).because(bothBusy),
			atLeast(2, times, "calls per second of 64 callers to the floor's", bowlineTyped, typical.toFloor()).from(0.58).because(bothBusy),
		},
	}
}

func httpRow() row {
	const name = "http"
	p50, typical := found(name, callers(1), median), found(name, callers(64), rate)
	return row{
		name: name, title: "Echo over streamable HTTP",
		about: "The same echo with a server in another process, over loopback. The floor uses net/http on both sides; the floor by hand " +
			"writes and reads HTTP/1.1 itself. Each client keeps at least 64 connections. Bowline's handler is served by its Serve method, the others " +
			"by http.Serve. go-sdk serves " + modern + " without sessions.",
		contestants: []string{theFloor, floorByHand, bowlineTyped, bowlineModern, bowlineEvents, goSDKLegacy, goSDKModern, mcpGoLegacy, mcpGoModern},
		measure:     echoCalls((*measurement).overHTTP, 1, 8, 64),
		columns:     callColumns(name, 64),
		targets: []target{
			atMost(1.25, times, "p50 of one caller to the floor's", bowlineTyped, p50.toFloor()).from(1.7),
			atLeast(0.85, times, "calls per second of 64 callers to the floor's", bowlineTyped, typical.toFloor()).from(0.48).because(netHTTP),
			atLeast(0.85, times, "calls per second of 64 callers in "+modern+" to the floor's", bowlineModern, typical.toFloor()).from(0.41).because(netHTTP),
			atMost(1.15, times, "p50 of one caller, "+modern+" to "+legacy, bowlineTyped, p50.of(bowlineModern).over(p50)).from(1.5),
			atMost(1.1, times, "p50 of one caller, answers as events to answers as JSON", bowlineTyped, p50.of(bowlineEvents).over(p50)).because(events),
		},
	}
}

func payloadRow() row {
	const name = "payload"
	most := payloadSizes()[len(payloadSizes())-1]
	took, bytes := found(name, payload(most), median), found(name, payload(most), allocated)
	var columns []column
	for _, n := range payloadSizes() {
		columns = append(columns, column{"p50, " + binarySize(float64(n)), found(name, payload(n), median), seconds, true})
	}
	return row{
		name: name, title: "Echo of larger texts in memory",
		about:       "The echo in memory with one caller and longer texts. The text is plain ASCII, so JSON need not escape it.",
		contestants: []string{theFloor, floorByHand, bowlineRaw, bowlineTyped, goSDKLegacy, mcpGoLegacy},
		measure:     payloadCalls,
		columns:     append(columns, column{"bytes allocated, " + binarySize(float64(most)), bytes, size, true}),
		targets: []target{
			atMost(0.6, times, "time of 1 MiB to the floor's", bowlineTyped, took.toFloor()).from(1.27),
			atMost(16e6, size, "bytes allocated for 1 MiB", bowlineTyped, bytes),
		},
	}
}
